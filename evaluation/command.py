"""``comas evaluate NAME PATH [key=value ...]``, or ``comas evaluate compare A B ...``."""

import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from tqdm.contrib.logging import logging_redirect_tqdm

from comas.utils.terminal import command
from evaluation.config import EvaluationConfig, read_command, split
from evaluation.execution import evaluate
from evaluation.plan import describe, make_plan
from evaluation.report import compare
from evaluation.results import SUMMARY

log = logging.getLogger("evaluation")

COMPARE = "compare"
TO_RESUME = "Rerun the command to resume."


@command("evaluation", "comas", interrupted=f"interrupted. {TO_RESUME}")
def main(arguments: Sequence[str]) -> int:
    """Evaluate or compare; return the exit status."""
    if arguments[:1] == [COMPARE]:
        _compare(arguments[1:])
    else:
        _evaluate(arguments)
    return 0


def _evaluate(arguments: Sequence[str]) -> None:
    plan = make_plan(read_command(arguments))
    log.info(describe(plan))
    for note in plan.notes:
        log.info("note: %s", note)
    try:
        with logging_redirect_tqdm():  # messages appear above the progress bars
            summary = evaluate(plan)
    except (ValueError, OSError, RuntimeError) as error:
        raise RuntimeError(f"{error}\nAll answers so far are kept. {TO_RESUME}") from error
    sys.stdout.write(f"{summary}\n{plan.folder / SUMMARY}\n")


def _compare(arguments: Sequence[str]) -> None:
    names, overrides = split(arguments)
    if others := [each for each in overrides if not each.startswith("results=")]:
        raise ValueError(f"compare takes results=... only, not {' '.join(others)}")
    results = overrides[-1].removeprefix("results=") if overrides else EvaluationConfig().results
    sys.stdout.write(compare(names, results=Path(results).expanduser()))
