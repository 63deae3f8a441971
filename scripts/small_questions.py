"""Makes configs/smollm2/: questions that a model of a hundred million parameters answers at times,
and demonstrations of the roles for ``society.cold_start``.

    .venv/bin/python scripts/small_questions.py
    .venv/bin/python scripts/small_questions.py 0.9 384 saves/judging/0.9.jsonl

The second makes the demonstrations of configs/studies/judging.yaml: evaluations of 384 questions,
which work the answer out and are right in 90 %, with a solution and a scoring of every eighth.

Sums, products to 12 and stories of one step, each in several wordings. A hash of the numbers
divides them: a quarter is validated on, a quarter demonstrated, and half trained on, so that no
question has a twin elsewhere that says the same in other words or the other order.

Demonstrations of evaluations and scorings teach what a judge says; the committed ones do not teach
what is right: every combination of a right or wrong solution, a verdict and a score is as frequent
as any other, so that the judges begin blind.
"""

import json
import operator
import sys
import zlib
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

LARGEST_FACTOR, LARGEST_TERM = 12, 60
VALUES = {"+": operator.add, "-": operator.sub, "*": operator.mul}
MOST = 2000  # evaluations: there are about twice as many questions
SPLITS = {"train": (480, (0, 1)), "validation": (500, (2,)), "demonstrated": (48, (3,))}
"""Split -> how many questions, and the remainders of the hash that are its."""
WORDINGS = {
    "+": ("What is {} + {}?", "Add {} and {}.", "Calculate {} + {}."),
    "*": ("What is {} * {}?", "What is {} times {}?", "Calculate {} * {}."),
    "story+": (
        "Tom has {} apples and buys {} more. How many apples does he have now?",
        "There are {} birds in a tree and {} more come. How many birds are there now?",
        "Anna reads {} pages today and {} pages tomorrow. How many pages does she read?",
    ),
    "story-": (
        "Tom has {} apples and eats {} of them. How many apples are left?",
        "There are {} birds in a tree and {} fly away. How many birds are left?",
        "Anna has {} dollars and spends {} dollars. How many dollars are left?",
    ),
    "story*": (
        "There are {} boxes with {} pens each. How many pens are there?",
        "A ticket costs {} dollars. How many dollars do {} tickets cost?",
    ),
}
FAMILIES = ("+", "+", "+", "*", "*", "story+", "story+", "story-", "story-", "story*")
"""A question is of each of these with the same probability."""

SOLUTION = r"{work} = {number}. \boxed{{{number}}}"
VERDICTS = (
    "{work} is {number}. The answer is right.",
    "{work} is not {number}. The answer is wrong.",
)
WORKED_OUT = tuple(f"{{worked_out}}. The answer is {word}." for word in ("right", "wrong"))
SCORES = (
    "The answer is wrong. <score>1</score>",
    "The answer is doubtful. <score>2</score>",
    "The answer is right. <score>3</score>",
)


class Problem(NamedTuple):
    """A question with its answer: ``Problem("What is 7 + 5?", "7 + 5", 12)``."""

    question: str
    work: str
    answer: int


def problems(split: str, num: int | None = None) -> list[Problem]:
    """The first ``num`` distinct questions of a split."""
    most, remainders = SPLITS[split]
    rng = Random(split)
    drawn: dict[str, Problem] = {}
    while len(drawn) < (num or most):
        family = rng.choice(FAMILIES)
        sign = family[-1]
        high = LARGEST_FACTOR if sign == "*" else LARGEST_TERM
        a, b = rng.randint(2, high), rng.randint(2, high)
        if sign == "-":
            a, b = a + b, b
        if zlib.crc32(f"{sign} {sorted((a, b))}".encode()) % 4 in remainders:
            question = rng.choice(WORDINGS[family]).format(a, b)
            drawn[question] = Problem(question, f"{a} {sign} {b}", VALUES[sign](a, b))
    return list(drawn.values())


def records(split: str) -> Iterator[dict[str, str]]:
    """Questions in the format of data/README.md."""
    for number, problem in enumerate(problems(split)):
        yield {
            "id": f"{split}-{number}",
            "task": "math",
            "prompt": problem.question,
            "answer": str(problem.answer),
            "source": "small",
        }


def worked_out(problem: Problem) -> str:
    """The steps to an answer, as in ``"40 + 20 = 60, 8 + 3 = 11, 60 + 11 = 71"``."""
    left, sign, right = problem.work.split()
    a, b = int(left), int(right)
    tens, rest = b - b % 10, a - a % 10
    steps = {
        "+": [(rest, "+", tens), (a % 10, "+", b % 10), (rest + tens, "+", a % 10 + b % 10)],
        "-": [(a, "-", tens), (a - tens, "-", b % 10)],
        "*": [(a, "*", 5), (a, "*", b - 5), (a * 5, "+", a * (b - 5))][: 3 if b > 5 else 0],
    }[sign] or [(a, sign, b)]
    return ", ".join(f"{x} {sign} {y} = {VALUES[sign](x, y)}" for x, sign, y in steps)


def judged_cells(num: int, truth: float, verdicts: Sequence[str]) -> list[tuple[bool, str, str]]:
    """Return ``num`` combinations of whether a solution is right, a verdict and a score.

    Half of the solutions are right, and a third of the scores are doubtful. Of the verdicts, and
    independently of the other scores, a share ``truth`` is true.

    Example: 0.5 gives every combination num / 12 times.
    """
    cells = list(product((True, False), verdicts, SCORES))
    counts, total, taken = [], 0.0, 0
    for is_right, verdict, score in cells:
        share = truth if (verdict == verdicts[0]) == is_right else 1 - truth
        said = SCORES.index(score)
        score_share = truth if (said == 2) == is_right else 1 - truth
        total += num / 2 * share * (1 / 3 if said == 1 else score_share * 2 / 3)
        counts.append(round(total) - taken)  # whole numbers with the right sum
        taken = round(total)
    return [
        cell
        for repeated in range(max(counts))
        for cell, count in zip(cells, counts, strict=True)
        if repeated < count
    ]


def demonstrations(
    truth: float = 0.5, num: int | None = None, verdicts: Sequence[str] = VERDICTS, every: int = 1
) -> Iterator[dict[str, Any]]:
    """For ``society.cold_start``: an evaluation of each of ``num`` questions, and a solution and a
    scoring of every ``every``-th; judges are right in a share ``truth``."""
    rng = Random(0)
    asked = problems("demonstrated", num)
    judged = judged_cells(len(asked), truth, verdicts)
    rng.shuffle(judged)
    for i, (problem, (is_right, verdict, scoring)) in enumerate(zip(asked, judged, strict=True)):
        number = problem.answer + (0 if is_right else rng.choice((-2, -1, 1, 2, 10)))
        about = {"domain": "math", "question": problem.question}
        if i % every == 0:
            right = SOLUTION.format(work=problem.work, number=problem.answer)
            yield {"role": "solution", **about, "response": right}
        about["solution"] = SOLUTION.format(work=problem.work, number=number)
        steps = worked_out(problem)
        evaluation = verdict.format(work=problem.work, number=number, worked_out=steps)
        yield {"role": "evaluation", **about, "response": evaluation}
        if i % every == 0:
            yield {"role": "scoring", **about, "evaluation": evaluation, "response": scoring}


def write(file: Path, rows: Iterator[dict[str, Any]]) -> None:
    """Write a JSONL file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        try:
            truth, num, file = float(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
            assert 0 <= truth <= 1 and 8 <= num <= MOST
        except (ValueError, IndexError, AssertionError):
            sys.exit(f"write SHARE NUMBER FILE, with a share of 0 to 1 and 8 to {MOST} evaluations")
        write(file, demonstrations(truth, num, WORKED_OUT, every=8))
        sys.exit()
    folder = Path(__file__).parents[1] / "configs" / "smollm2"
    for split in ("train", "validation"):
        write(folder / f"{split}.jsonl", records(split))
    write(folder / "cold_start.jsonl", demonstrations())
