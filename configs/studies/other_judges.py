"""Writes the demonstrations of configs/studies/other_judges.yaml.

    .venv/bin/python -m configs.studies.other_judges saves/other_judges.jsonl

They teach SmolLM2 to solve, by 48 right solutions, and to compare two numbers, by 384 scorings. No
scoring says what is right: of the solutions that it reads half are right, and, whether they are,
half of the evaluations come to the same number.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

from scripts.small_questions import SOLUTION, problems, write

CHECKS = (
    "{work} = {number}",
    "{work} = {number}.",
    "\\( {work} = {number} \\)",
    "\\[\n{work} = {number}\n\\]",
    "{number}",
    "The result is {number}.",
    "There are {number} left.",
    "{work} equals {number}.",
    "To find the result, we calculate:\n\n\\[ {work} = {number} \\]\n\n"
    "Therefore, the answer is \\boxed{{{number}}}.",
    "To determine how many there are, we take the numbers of the problem.\n\n{work} = {number}",
)
"""How Qwen2.5-Coder-0.5B writes a calculation."""
NO_RESULT = ("To determine how many there are, we can write a program.", "Yes, let us begin.")


def demonstrations() -> Iterator[dict[str, str]]:
    rng = Random(0)
    for i, problem in enumerate(problems("demonstrated", 384)):
        about = {"domain": "math", "question": problem.question}
        if i % 8 == 0:
            right = SOLUTION.format(work=problem.work, number=problem.answer)
            yield {"role": "solution", **about, "response": right}
        wrong = problem.answer + rng.choice((-20, -10, -2, -1, 1, 2, 10, 20))
        number = rng.choice((problem.answer, wrong))
        other = rng.choice((problem.answer, wrong))
        check = rng.choice(CHECKS).format(work=problem.work, number=other)
        response = f"The check says {other}, the answer {number}: "
        response += "equal. <score>3</score>" if other == number else "not equal. <score>1</score>"
        if i % 12 == 5:
            check, response = rng.choice(NO_RESULT), "The check has no result. <score>2</score>"
        solution = SOLUTION.format(work=problem.work, number=number)
        about |= {"solution": solution, "evaluation": check}
        yield {"role": "scoring", **about, "response": response}


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("name the file to write")
    write(Path(sys.argv[1]), demonstrations())
