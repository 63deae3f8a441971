"""What a finished run changed, with 95 % intervals over questions, and how well its rewards saw.

    .venv/bin/python -m configs.studies.over_questions saves/latest
    .venv/bin/python -m configs.studies.over_questions saves/latest --steps 1-4 29-32 --holding X

The first two tables compare the first with the last validation, question by question (Student's t
over questions: they say nothing about another seed). The AUC is that of the rewards of solutions
(pairs of all questions; bootstrap over questions), by default of the first and the last 8 steps.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

from comas.reproduction.report import interval
from comas.run.validation import GREEDY, SAMPLED
from comas.trial.judging import Opinion, assess
from comas.utils.terminal import in_columns

WINDOW = 8


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]  # of bytes: not at U+2028


def files_by_step(folder: Path) -> dict[int, Path]:
    """Return step -> file of ``validations/`` or ``discussions/``, in their order."""
    files = {int(path.stem.removeprefix("step_")): path for path in folder.glob("step_*")}
    return dict(sorted(files.items()))


def changes(run: Path) -> Iterator[list[str]]:
    """Yield a row for each way of sampling and each agent, and one for all agents together."""
    files = list(files_by_step(run / "validations").values())
    if len(files) < 2:
        raise SystemExit(f"{run}/validations has {len(files)} of at least 2 validations")
    right: list[dict[str, dict[int, dict[str, bool]]]] = []
    for path in (files[0], files[-1]):
        table: dict[str, dict[int, dict[str, bool]]] = defaultdict(lambda: defaultdict(dict))
        for row in read_lines(path):
            is_right = row["verdict"] == "correct"
            table[row["sampling"]][row["agent"]][row["question_id"]] = is_right
        right.append(table)
    before = right[0]
    yield ["", "", "before", "after", "change", f"({files[0].stem}, {files[-1].stem})"]
    ways = {"sampled": SAMPLED, "greedy": GREEDY} if GREEDY in before else {"greedy": SAMPLED}
    for name, sampling in ways.items():
        agents = sorted(before[sampling].keys() & right[1][sampling].keys())
        for told in [*([agent] for agent in agents), *([agents] if len(agents) > 1 else [])]:
            questions = before[sampling][told[0]]
            first, last = (
                [100 * fmean(table[sampling][agent][q] for agent in told) for q in questions]
                for table in right
            )
            rise = interval([b - a for a, b in zip(first, last, strict=True)])
            who = f"agent {told[0]}" if len(told) == 1 else "all agents"
            ends = [f"{fmean(first):.1f}", f"{fmean(last):.1f}"]
            yield [name, who, *ends, rise.told(1), f"{len(questions)} questions"]


def sight(run: Path, first: int, last: int, holding: str | None) -> Iterator[str]:
    """Yield how well the rewards of these steps tell right from wrong, and the solutions that hold
    the text ``holding``."""
    files = files_by_step(run / "discussions")
    rows = chain.from_iterable(
        read_lines(path) for step, path in files.items() if first <= step <= last
    )
    turns = [
        (row, turn)
        for row in rows
        for turn in row["turns"]
        if turn["role"] == "solution" and turn.get("verdict", "failed") != "failed"
    ]
    opinions = [
        Opinion(
            (row["discussion_id"], turn["turn_id"]),
            row["question_id"],
            turn["reward"],
            turn["verdict"] == "correct",
        )
        for row, turn in turns
    ]
    found = assess("rewards", opinions, seed=0)
    num = len(found.opinions)
    yield f"steps {first} to {last}: AUC {found.auc or found.untold}, {num} solutions"
    if holding and turns:
        held = [turn for _, turn in turns if holding in turn["response"]]
        deceived = [t for t in held if t["verdict"] != "correct" and t["reward"] == 1]
        some, wrong = (f"{100 * len(each) / len(turns):.1f} %" for each in (held, deceived))
        yield f"  {some} hold {holding!r}; {wrong} hold it, are wrong, and are paid in full"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", type=Path, help="folder of a run")
    parser.add_argument("--steps", nargs="+", metavar="FIRST-LAST", help="windows of steps")
    parser.add_argument("--holding", help="text to look for in solutions")
    told = parser.parse_args()
    print(*in_columns(list(changes(told.run))), sep="\n")
    num = max(files_by_step(told.run / "discussions"), default=0)
    ends = [f"1-{min(WINDOW, num)}", f"{max(1, num - WINDOW + 1)}-{num}"] if num else []
    for window in told.steps or dict.fromkeys(ends):
        first, _, last = window.partition("-")
        if not (first.isdecimal() and (last or first).isdecimal()):
            parser.error(f"--steps {window}: write steps like 29-32")
        print(*sight(told.run, int(first), int(last or first), told.holding), sep="\n")


if __name__ == "__main__":
    main()
