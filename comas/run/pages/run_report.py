"""The report of a run: curves, settings, sizes, versions, and where rewards were wrong."""

import json
import logging
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import sqrt
from pathlib import Path

from comas.config import changed_keys
from comas.config.loading import read
from comas.config.schema import Config
from comas.run.checkpoints import step_name
from comas.run.guards import lacking
from comas.run.pages import discussions
from comas.run.pages.page import Details, PageSource, PageTable, page_text
from comas.run.provenance import PACKAGES, commit_of, read_processes, version_of
from comas.run.records import DISCUSSIONS, METRICS, VALIDATIONS, Row, read_rows, read_warnings
from comas.run.seals import CONFIG
from comas.run.status import best_step, end_of
from comas.utils.files import from_here, read_lines, write_text
from comas.utils.invocation import start_of

log = logging.getLogger("view")

REPORT = "report.html"
BASE = Path("configs/comas.yaml")
"""The configuration with which a run's settings are compared."""
RESULTS = {
    "validation/greedy/accuracy": "Greedy held-out accuracy",
    "validation/accuracy": "Held-out accuracy",
    "train/accuracy": "Accuracy in training",
}
"""Metrics for the result of a run, the most telling first."""


def report(run: Path) -> Path:
    """Write report.html, with only the discussions in which rewards and verdicts disagree, into the
    folder of a run; returns its path."""
    path = run / REPORT
    write_text(path, page_text([report_source(run)]))
    return path


def report_source(run: Path) -> PageSource:
    """Return the report of a run, with the threads that it links to. Raises ValueError when ``run``
    is no run's folder."""
    if not (run / CONFIG).is_file() or not (run / METRICS).is_file():
        raise ValueError(
            f"{run} is no run: it lacks {CONFIG} or {METRICS}. Training writes runs to saves/"
        )
    rows, config, base = rounded_rows(run), config_of(run), read(Config, BASE, [])[0]
    changes = [(name, *values) for name, values in changed_keys(base, config).items()]
    settings = PageTable(
        f"Settings that differ from {BASE}", ("key", str(BASE), "this run"), changes
    )
    worth_a_look, metric = discussions.disagreements(run), config.training.keep_best
    result = result_in_words(rows, num_questions=partial(num_questions, run))
    if metric is not None and (best := best_step(rows, metric)) is not None:
        result += f" {metric} was best after step {best}."
    return PageSource(
        name=run.resolve().name,
        path=str(from_here(run)),
        threads=worth_a_look,
        rows=rows,
        result=result,
        notes=notes_on(run, rows),
        tables=[settings, versions_table(run)],
        featured=[thread.id for thread in worth_a_look],
        without_details=f"{start_of('view')} writes a page with them",
    )


def run_source(
    run: Path, *, steps: Container[int] | None = None, with_details: bool = True
) -> PageSource:
    """Return the report of a run and the discussions of ``steps`` (None: all), with prompts and
    tokens if ``with_details``. Raises ValueError when ``run`` is no run's folder, or holds none of
    ``steps``."""
    report = report_source(run)
    files = discussions.discussion_files(run)
    wanted = [step for step in files if steps is None or step in steps]
    if steps is not None and files and not wanted:
        raise ValueError(f"{run} holds none of these steps; it has {min(files)} to {max(files)}")
    threads = [thread for step in wanted for thread in discussions.read_threads(step, files[step])]
    known = {thread.id for thread in threads}
    threads += [thread for thread in report.threads if thread.id not in known]
    details: Mapping[str, Details] = {}
    why = "the run's folder has no tokens/"
    try:
        details = discussions.read_details(run, config_of(run), threads) if with_details else {}
    except ValueError as error:  # such as a run that was copied before it saved its models
        why = f"they cannot be read ({error})"
        log.warning("the page has no prompts and tokens: %s", why)
    return replace(report, threads=threads, without_details=why, details=details)


def config_of(run: Path) -> Config:
    """Return the configuration of a run, whose version may have had other keys."""
    return read(Config, run / CONFIG, [])[0]


def notes_on(run: Path, rows: Sequence[Row]) -> list[str]:
    """Return what to read before the result: whether the run stopped early or had nothing to learn
    from, and its other warnings."""
    end = end_of(run) or ""
    stopped = f"The run {end}" if end.startswith("stopped") else ""
    return [*filter(None, [stopped, lacking(rows)]), *read_warnings(run)]


def result_in_words(rows: Sequence[Row], *, num_questions: Callable[[str, int], int]) -> str:
    """Return the result of a run in a sentence; empty if nothing was measured twice.
    ``num_questions(metric, step)`` is how many questions a value is based on (0: unknown).

    Example: ``Greedy held-out accuracy rose from 18 % [15, 22] to 80 % [76, 83] in 60 steps (500
    questions; 95 % intervals).``
    """
    for metric, name in RESULTS.items():
        measured = [(row["step"], row[metric]) for row in rows if row.get(metric) is not None]
        if len(measured) < 2:
            continue
        ends = [(share, num_questions(metric, step)) for step, share in (measured[0], measured[-1])]
        before, after = (_percent(share, num) for share, num in ends)
        (first, num), (last, _) = ends
        if f"{100 * first:.0f}" == f"{100 * last:.0f}":
            change = f"stayed at {after}"
        else:
            change = f"{'rose' if last > first else 'fell'} from {before} to {after}"
        basis = ""
        if num:
            others = ", others in each step" * metric.startswith("train/")
            low, high = sorted(interval(*end) for end in ends)
            overlap = ", which overlap" * (low[1] >= high[0])
            basis = f" ({num} questions{others}; 95 % intervals{overlap})"
        return f"{name} {change} in {measured[-1][0]} steps{basis}."
    return ""


def _percent(share: float, num_questions: int) -> str:
    """``"18 % [15, 22]"``, without the interval if ``num_questions`` is 0."""
    if not num_questions:
        return f"{100 * share:.0f} %"
    low, high = interval(share, num_questions)
    return f"{100 * share:.0f} % [{100 * low:.0f}, {100 * high:.0f}]"


def interval(share: float, num_questions: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share of correct answers. It counts questions, as several
    agents' answers to one are alike.

    Example: none of 4: the centre is (1.96^2 / 8) / (1 + 1.96^2 / 4) = 0.245, and so is the half
    width: 0 to 0.49.
    """
    z = 1.959964
    scale = 1 + z**2 / num_questions
    centre = share + z**2 / 2 / num_questions
    half = z * sqrt(share * (1 - share) / num_questions + (z / 2 / num_questions) ** 2)
    return max(0.0, centre - half) / scale, min(1.0, (centre + half) / scale)


def num_questions(run: Path, metric: str, step: int) -> int:
    """Return how many questions a metric of a step is based on; 0 if the run did not keep them."""
    folder = DISCUSSIONS if metric.startswith("train/") else VALIDATIONS
    path = run / folder / f"{step_name(step)}.jsonl"
    records = read_lines(path, json.loads, remedy="Delete the line") if path.is_file() else ()
    return len({record["question_id"] for record in records})


def rounded_rows(run: Path) -> list[Row]:
    """Return the metrics, rounded to six digits, which suffice for curves."""
    return [
        {k: float(f"{v:.6g}") if isinstance(v, float) else v for k, v in row.items()}
        for row in read_rows(run / METRICS)
    ]


def versions_table(run: Path) -> PageTable:
    """Return the versions, a column per process that worked on the run."""
    described = [
        {
            "started": process["started"],
            "command": " ".join(process["command"][1:]),
            "commit": commit_of(process),
            "Python": process["python"],
            "CPU": f"{process['cpu']}, {process['cpu_cores']} cores",
            "GPUs": ", ".join(process["gpus"]) or "none",
            **{name: version_of(name, process["packages"]) for name in PACKAGES},
        }
        for process in read_processes(run)
    ]
    header = ("", *(f"process {number}" for number in range(1, len(described) + 1)))
    rows = [(name, *(of[name] for of in described)) for first in described[:1] for name in first]
    return PageTable("Versions", header, rows)
