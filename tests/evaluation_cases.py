"""Graded results on disk, from verdicts written as letters; and tables read back."""

from pathlib import Path

from evaluation.grading import tally
from evaluation.results import GRADERS, Cost, Evaluation, GradedAnswer, write_evaluation

VERDICTS = {"c": "correct", "w": "wrong", "u": "unanswered", "f": "failed", "-": None}


def evaluation(
    by_seed,
    *,
    published=(),
    name="gsm8k",
    setup="vanilla",
    cost=None,
    num_failures=0,
    questions="q",
) -> Evaluation:
    """``["cw-", "ccw"]``: three tasks under two seeds; task 2 has no answer under seed 0.

    ``questions``: what the questions say; subjects with another one had others.
    """
    num_tasks = len(by_seed[0])
    answers = tuple(
        GradedAnswer(
            *(f"{name}/{i}", seed, None if s == "-" else "text"),
            *(VERDICTS[s], VERDICTS[p], VERDICTS[s]),
        )
        for seed, (strict, lenient) in enumerate(zip(by_seed, published or by_seed, strict=True))
        for i, (s, p) in enumerate(zip(strict, lenient, strict=True))
    )
    seeds = tuple(range(len(by_seed)))
    return Evaluation(
        benchmark=name,
        setup=setup,
        seeds=seeds,
        num_asked=len(answers),
        num_done=sum(answer.strict is not None for answer in answers),
        num_failures=num_failures,
        graders={grader: tally(answers, grader=grader, seeds=seeds) for grader in GRADERS},
        cost=cost or Cost(calls=10, prompt_tokens=2000, completion_tokens=500),
        questions={f"{name}/{i}": f"{questions}{i}" for i in range(num_tasks)},
        answers=answers,
    )


def write(subject: Path, *evaluations: Evaluation) -> Path:
    """Put evaluations where a subject's folder has them; returns the folder."""
    for item in evaluations:
        folder = subject / item.benchmark / item.setup
        folder.mkdir(parents=True)
        write_evaluation(folder / "evaluation.json", item)
    return subject


def table_rows(text: str, *, title: str) -> list[list[str]]:
    """The cells of the table under a title, without header and rule."""
    section = text.split(f"## {title}\n")[1].split("\n## ")[0]
    table = [row for row in section.split("\n") if row.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in table][2:]
