"""A run with all that can be shown of it: its report, every discussion, prompts and tokens."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from comas.config.loading import read
from comas.config.schema import Config
from comas.run.metrics.figures import run_figures
from comas.run.pages.details import NOT_WRITTEN, read_details
from comas.run.pages.discussions import discussion_files, read_threads
from comas.run.pages.page import Source
from comas.run.pages.run_report import report_source, run_rows


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
        without_details=NOT_WRITTEN,
    )
