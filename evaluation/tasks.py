"""The tasks of an evaluation, from a benchmark or the held-out questions of a run."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import TypeVar

from comas.config.schema import Data
from comas.data.records import RECORD, RECORDS, Invalid, load_questions, read_records
from comas.interaction.prompts import SOLUTION, fill
from comas.interaction.wording import wording_of
from comas.utils.files import MAX_LISTED_ERRORS
from comas.utils.invocation import of_checkout
from evaluation.benchmarks import BENCHMARKS
from evaluation.benchmarks.benchmark import CLOSING_SENTENCES
from evaluation.models import Target
from evaluation.types import BenchmarkTask

HELD_OUT = "held_out"
"""The name of a run's validation questions as a benchmark."""

HELD_OUT_LIMIT = 500
DRAW_SEED = 0

T = TypeVar("T")


def benchmark_tasks(name: str, *, data: Path, limit: int | None) -> list[BenchmarkTask]:
    """Draw at most ``limit`` (default: the benchmark's) tasks from the built benchmark ``name``.
    Raises ValueError when its file is damaged."""
    benchmark = BENCHMARKS[name]
    path = benchmark.records_path(data)
    tasks, faults = [], []
    for location, record in read_records(path, RECORD):
        if isinstance(record, Invalid):
            faults.append(f"{location}: {record.reason}")
        else:
            query = f"{record.prompt}\n\n{CLOSING_SENTENCES[benchmark.form]}"
            tasks.append(BenchmarkTask(record.id, record.task, record.prompt, query, record.gold))
    if faults or not tasks:
        listed = "; ".join(faults[:MAX_LISTED_ERRORS]) or "it holds no tasks"
        raise ValueError(
            f"{path} is damaged: {listed}. Delete it, then: {_build_command([name], data)}"
        )
    return draw(tasks, benchmark.limit if limit is None else limit, name=benchmark.name)


def held_out_tasks(
    questions: str | Path, rules: Data = RECORDS, *, limit: int | None, prompts: str | None = None
) -> list[BenchmarkTask]:
    """Draw from a run's validation questions, read by ``rules`` and asked with its own ``prompts``.

    Raises DataError when ``questions`` cannot be read or has invalid records.
    """
    held_out = load_questions(questions, rules)
    wording = wording_of(prompts)
    tasks = [
        BenchmarkTask(
            task_id=question.question_id,
            form=question.domain,
            question=question.text,
            query=fill(SOLUTION, question.domain, question=question.text, wording=wording),
            gold=held_out.answers[question.question_id],
        )
        for question in held_out.questions
    ]
    return draw(tasks, HELD_OUT_LIMIT if limit is None else limit, name=HELD_OUT)


def draw(tasks: Sequence[T], limit: int, *, name: str) -> list[T]:
    """Draw at most ``limit`` tasks, always the same, in order; a smaller draw is a subset of a
    larger one."""
    order = list(range(len(tasks)))
    Random(f"{DRAW_SEED}/{name}").shuffle(order)
    return [tasks[i] for i in sorted(order[:limit])]


def choose_benchmarks(
    wanted: Sequence[str] | None, target: Target, *, data: Path
) -> tuple[str, ...]:
    """Return ``wanted``, or the default: the held-out questions for a quick-start run, or for any
    run if no benchmark is built; otherwise the paper's benchmarks.

    Raises ValueError when a benchmark is not built, with the command that builds it, or held-out
    questions are wanted without a run.
    """
    if wanted is None:
        is_built = any(b.records_path(data).is_file() for b in BENCHMARKS.values())
        fits_held_out = target.held_out is not None and (target.is_quickstart or not is_built)
        wanted = (HELD_OUT,) if fits_held_out else tuple(BENCHMARKS)
    if HELD_OUT in wanted and target.held_out is None:
        raise ValueError(
            f"benchmarks=[{HELD_OUT}] are the held-out questions of a run, and this is not a run: "
            f"choose among {', '.join(BENCHMARKS)}, or name a run directory"
        )
    paths = {name: BENCHMARKS[name].records_path(data) for name in wanted if name != HELD_OUT}
    missing = {name: path for name, path in paths.items() if not path.is_file()}
    if missing:
        raise ValueError(
            f"benchmarks not built: {', '.join(map(str, missing.values()))}. To build them: "
            f"{_build_command(list(missing), data)}; or choose others with benchmarks=[...]"
        )
    return tuple(wanted)


def _build_command(names: Sequence[str], data: Path) -> str:
    words = ["--only", *names, *([] if data == Path("data") else ["--output", str(data)])]
    return of_checkout(f"bash scripts/prepare_data.sh {shlex.join(words)}")
