"""The report of a run: figures, what was set, with what it ran, and where rewards were wrong."""

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from comas.config import changed_keys
from comas.config.loading import read
from comas.config.schema import Config
from comas.run import RunDirectory
from comas.run.metrics.figures import run_figures
from comas.run.pages.details import NOT_WRITTEN, read_details
from comas.run.pages.discussions import disagreements, discussion_files, read_threads
from comas.run.pages.page import PageFigure, PageTable, Source, Thread, write_page
from comas.run.records import Row, read_rows
from comas.run.stopping import best_step, stop_reason
from comas.run.trackers import Findings
from comas.utils.files import from_here

REPORT = "report.html"
BASE = Path("configs/comas.yaml")
"""What a run's settings are compared with."""
PACKAGES = ("torch", "transformers", "vllm", "deepspeed", "openrlhf", "ray")


TABLE_HEADER = (
    "discussion", "question", "turn", "role", "agent", "response", "reward", "verdict", "scores",
)  # fmt: skip


def report(run: RunDirectory) -> Path:
    """Write report.html into the run's folder, and give its trackers the same figures and the
    discussions of the last step; returns the page's path.

    The page holds no discussions but those in which rewards and verdicts disagree.
    """
    rows = run_rows(run.path)
    figures = run_figures(rows)
    path = run.path / REPORT
    write_page(path, [report_source(run.path, rows, figures)])
    last = list(discussion_files(run.path).items())[-1:]
    turns = [row for file in last for thread in read_threads(*file) for row in table_rows(thread)]
    run.log_findings(Findings(rows[-1]["step"], figures, TABLE_HEADER, turns))
    return path


def table_rows(thread: Thread) -> list[tuple[Any, ...]]:
    """Each turn under ``TABLE_HEADER``."""
    return [
        (
            thread.id,
            thread.question,
            turn.id,
            turn.role,
            turn.agent,
            turn.text,
            turn.reward,
            turn.verdict,
            ", ".join(map(str, turn.scores)),
        )
        for turn in thread.turns
    ]


def report_source(run: Path, rows: Sequence[Row], figures: Mapping[str, Figure]) -> Source:
    """The run with its report, and the threads that the report points at.

    ``rows`` are those of ``run_rows``, ``figures`` those of ``run_figures``.
    """
    config = read(Config, run / "config.yaml", [])[0]  # an older version may have had other keys
    worth_a_look = disagreements(run)
    return Source(
        name=run.resolve().name,
        path=str(from_here(run)),
        threads=worth_a_look,
        figures=[PageFigure(title, _svg(figure)) for title, figure in figures.items()],
        tables=[settings_table(config), _sizes(run, config, rows), *versions_tables(run)],
        featured=[thread.id for thread in worth_a_look],
    )


def run_source(run: Path, *, steps: Collection[int] | None = None) -> Source:
    """The run with the discussions of ``steps`` (None: of all), and those of its report.

    Raises ValueError when ``run`` is no run's folder, holds no step yet or none of ``steps``, or
    the tokenizer of an agent is found no more.
    """
    rows = run_rows(run)
    report = report_source(run, rows, run_figures(rows))
    files = discussion_files(run)
    wanted = [step for step in files if steps is None or step in steps]
    if steps is not None and not wanted:
        raise ValueError(f"{run} holds none of these steps; it has {min(files)} to {max(files)}")
    threads = [thread for step in wanted for thread in read_threads(step, files[step])]
    known = {thread.id for thread in threads}
    threads += [thread for thread in report.threads if thread.id not in known]
    config = read(Config, run / "config.yaml", [])[0]
    return replace(
        report,
        threads=threads,
        details=read_details(run, config, threads),
        rows=[rounded(row) for row in rows],
        without_details=NOT_WRITTEN,
    )


def rounded(row: Row) -> Row:
    """A row with six digits of each number, which are more than a curve shows."""
    return {k: float(f"{v:.6g}") if isinstance(v, float) else v for k, v in row.items()}


def run_rows(run: Path) -> list[Row]:
    """The metrics of a run.

    Raises ValueError when ``run`` is no run's folder, or holds no step yet.
    """
    path = run / "metrics.jsonl"
    if not path.is_file():
        raise ValueError(f"{run} is no run directory: it has no metrics.jsonl. Try saves/latest")
    rows = read_rows(path)
    if not rows:
        raise ValueError(f"{path} holds no step yet: nothing to show")
    return rows


def _svg(figure: Figure) -> str:
    """The drawing without the XML that only a file of its own has."""
    text = StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "comas"}):
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()[text.getvalue().index("<svg") :]


def settings_table(config: Config) -> PageTable:
    """What was set otherwise than in the paper's run."""
    base = read(Config, BASE, [])[0]
    changes = [(name, *values) for name, values in changed_keys(base, config).items()]
    return PageTable(f"Settings that differ from {BASE}", ("key", str(BASE), "this run"), changes)


def _sizes(run: Path, config: Config, rows: Sequence[Row]) -> PageTable:
    """What the steps were on; the discussions are counted in the last one."""
    facts: list[tuple[str, Any]] = [("steps", rows[-1]["step"])]
    if (reason := stop_reason(config, rows)) is not None:
        facts.append(("ended early, by", reason))
    if (metric := config.training.keep_best) is not None:
        facts.append((f"step of the best {metric}", best_step(rows, metric)))
    files = discussion_files(run)
    if files:
        threads = read_threads(*list(files.items())[-1])
        turns = Counter(turn.role for thread in threads for turn in thread.turns)
        facts.append(("discussions per step", len(threads)))
        facts += [(f"{role} turns per step", count) for role, count in turns.items()]
    for name in ("tokens/prompt", "tokens/response"):
        facts.append((f"{name}, all steps", sum(row.get(name) or 0 for row in rows)))
    minutes = sum(row.get("time/step_s") or 0 for row in rows) / 60
    facts.append(("minutes in steps, without validation and checkpoints", round(minutes, 1)))
    return PageTable("Sizes", ("what", "how much"), facts)


def versions_tables(run: Path) -> list[PageTable]:
    """One column per process that worked on the run."""
    processes = json.loads((run / "versions.json").read_text(encoding="utf-8"))
    described = [_described(process) for process in processes]
    header = ("", *(f"process {number}" for number in range(1, len(processes) + 1)))
    rows = [(name, *(of[name] for of in described)) for name in described[0]]
    return [PageTable("Versions", header, rows)]


def _described(process: Mapping[str, Any]) -> dict[str, str]:
    git = process["git"]
    packages = process["packages"]
    return {
        "started": process["started"],
        "command": " ".join(process["command"][1:]),
        "commit": "unknown" if git is None else git["commit"][:7] + "+" * git["dirty"],
        "Python": process["python"],
        "CPU": f"{process['cpu']}, {process['cpu_cores']} cores",
        "GPUs": ", ".join(process["gpus"]) or "none",
        **{name: packages.get(name, "-") for name in PACKAGES},
    }
