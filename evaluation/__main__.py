"""``python -m evaluation NAME PATH [key=value ...]``, or ``python -m evaluation compare A B ...``:
what scripts/evaluate_model.sh starts."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from tqdm.contrib.logging import logging_redirect_tqdm

from evaluation.comparison import compare
from evaluation.config import EvaluationConfig, read_command
from evaluation.execution import evaluate
from evaluation.plan import describe, make_plan
from evaluation.server import HOST

log = logging.getLogger("evaluation")

COMPARE = "compare"
TO_CONTINUE = "the same command goes on from here"
EXIT_FAULT = 1
EXIT_INTERRUPTED = 130


def main(arguments: Sequence[str]) -> int:
    """Evaluate or compare as the arguments say; returns the process's exit status."""
    _log_to_terminal()
    # A polite kill ends as Ctrl-C does: servers stopped, finished answers kept. A shell may have
    # started us with SIGINT ignored, and then nothing would end the evaluation.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda number, frame: signal.raise_signal(signal.SIGINT))
    try:
        if arguments[:1] == [COMPARE]:
            _compare(arguments[1:])
        else:
            _evaluate(arguments)
        return 0
    except KeyboardInterrupt:
        log.error("interrupted; %s", TO_CONTINUE)
        return EXIT_INTERRUPTED
    except (ValueError, OSError, RuntimeError) as error:
        log.error("error: %s", error)
        return EXIT_FAULT


def _evaluate(arguments: Sequence[str]) -> None:
    plan = make_plan(read_command(arguments))
    log.info(describe(plan))
    for note in plan.notes:
        log.info("note: %s", note)
    _bypass_proxies()
    try:
        with logging_redirect_tqdm():  # lines go above the bars
            summary = evaluate(plan)
    except (ValueError, OSError, RuntimeError) as error:
        raise RuntimeError(f"{error}\nAll answers so far are kept; {TO_CONTINUE}") from error
    sys.stdout.write(f"{summary}\n{plan.folder / 'summary.md'}\n")


def _compare(arguments: Sequence[str]) -> None:
    names = [argument for argument in arguments if "=" not in argument]
    overrides = [argument for argument in arguments if "=" in argument]
    if any(not override.startswith("results=") for override in overrides):
        raise ValueError(f"compare knows results=... alone, not {' '.join(overrides)}")
    results = overrides[-1].removeprefix("results=") if overrides else EvaluationConfig().results
    text, figure = compare(names, results=Path(results))
    sys.stdout.write(f"{text}\n{figure}\n")


def _log_to_terminal() -> None:
    terminal = logging.StreamHandler(sys.stderr)
    logging.basicConfig(format="%(message)s", handlers=[terminal])
    for name in ("evaluation", "comas"):
        logging.getLogger(name).setLevel(logging.INFO)


def _bypass_proxies() -> None:
    """Let no proxy of the environment come between us and servers on this machine."""
    for name in ("NO_PROXY", "no_proxy"):
        known = os.environ.get(name)
        os.environ[name] = f"{known},{HOST}" if known else HOST


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
