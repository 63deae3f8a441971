"""``python -m comas.reproduction``: what scripts/reproduce.sh starts."""

import logging
import re
import sys
from collections.abc import Collection, Sequence
from datetime import date
from pathlib import Path
from statistics import fmean

from comas.config import load
from comas.reproduction.claims import missing_runs
from comas.reproduction.experiments import PLANS
from comas.reproduction.figures import draw_figures
from comas.reproduction.report import write_report
from comas.reproduction.results import as_table, read_result, read_results, write_results
from comas.reproduction.runs import PlannedRun, make_runs, plan_runs, seconds_of
from comas.reproduction.settings import Settings, find_conflicts
from comas.run.provenance import commits_of, cpu_name
from comas.utils.files import explaining_errors, write_text
from comas.utils.terminal import command

log = logging.getLogger("comas")

SECONDS_PER_RUN = {"quickstart": 85.0}
"""Time of a run with its start on 2 cores, by society, while none has been finished to tell."""
FLAGS = ("--list", "--report", "--paper")
"""Whatever else there is to say is ``key=value``."""


@command(
    "comas",
    errors=(ValueError, OSError, RuntimeError),
    interrupted="interrupted; the same command goes on from here",
)
def main(arguments: Sequence[str]) -> int:
    """Run, or list, what the arguments say; returns the process's exit status."""
    flags = {argument for argument in arguments if argument.startswith("-")}
    overrides = [argument for argument in arguments if argument not in flags]
    if "--paper" in flags:
        overrides.append("society=paper")
    check_flags(flags)
    settings = load(Settings, None, overrides, check=find_conflicts)
    runs = plan_runs(settings)
    for line in describe(runs, society=settings.society, every="--list" in flags):
        log.info(line)
    if "--list" in flags:
        return 0
    if "--report" not in flags:
        make_runs(runs)
    log.info("report: %s", save_report(runs, settings))
    return 0


def check_flags(flags: Collection[str]) -> None:
    """Raise ValueError if there is no such flag: ignored, ``--lst`` would train for hours."""
    unknown = sorted(set(flags) - set(FLAGS))
    if unknown:
        raise ValueError(
            f"{', '.join(unknown)}: there is no such option. The options are {', '.join(FLAGS)}; "
            "settings are written key=value (bash scripts/reproduce.sh --help)"
        )


def describe(runs: Sequence[PlannedRun], *, society: str, every: bool) -> list[str]:
    """What there is to do, and for how long; with ``every``, run by run."""
    taken = {run.label: seconds for run in runs if (seconds := seconds_of(run)) is not None}
    missing = [run for run in runs if run.label not in taken]
    each = fmean(taken.values()) if taken else SECONDS_PER_RUN.get(society)
    lines = [f"{len(runs)} runs, {len(taken)} of them finished"]
    if missing and each is not None:
        source = "as the finished ones took" if taken else "as on 2 cores"
        minutes = len(missing) * each / 60
        lines[0] += f"; the others take about {minutes:.0f} minutes, {source}"
    if every:
        lines += [
            f"  {run.label:28} {'finished' if run.label in taken else '-':9} "
            f"{run.experiment.config}  {run.experiment.about}"
            for run in runs
        ]
    return lines


def save_report(runs: Sequence[PlannedRun], settings: Settings) -> Path:
    """Write numbers, figures and report of the finished runs; returns the report's path.

    Raises:
        ValueError: none is finished.
    """
    finished = {run: folder for run in runs if (folder := run.finished)}
    if not finished:
        raise ValueError(f"no run in {settings.saves} is finished: nothing to report")
    found = [read_result(folder, run.experiment, seed=run.seed) for run, folder in finished.items()]
    results = as_table(found)
    target = Path(settings.results)
    with explaining_errors(target):
        target.mkdir(parents=True, exist_ok=True)
    machine, today = cpu_name(), f"{date.today():%Y-%m-%d}"
    own = target / f"{re.sub(r'[^a-z0-9]+', '-', machine.lower()).strip('-')}.json"
    write_results(own, found, machine=machine, date=today)
    elsewhere = dict(read_results(path) for path in sorted(target.glob("*.json")) if path != own)
    plan = PLANS[settings.society]
    report = target / "report.md"
    text = write_report(
        results,
        plan,
        seeds=settings.seeds,
        heading=_heading(
            settings,
            missing=missing_runs(
                list(dict.fromkeys(r.experiment.name for r in runs)), results, seeds=settings.seeds
            ),
            machine=machine,
            today=today,
            commits=commits_of(finished.values()),
        ),
        elsewhere=elsewhere,
        figures=draw_figures(target, plan, finished, results),
    )
    write_text(report, text)
    return report


def _heading(
    settings: Settings,
    *,
    missing: Sequence[str],
    machine: str,
    today: str,
    commits: Sequence[str],
) -> str:
    seeds = ", ".join(map(str, settings.seeds))
    mixed = "" if len(commits) == 1 else " **The runs are of different versions of the code.**"
    unfinished = f" **Not finished: {', '.join(missing)}.**" if missing else ""
    return (
        f"`bash scripts/reproduce.sh`, society {settings.society}, seeds {seeds}; {machine}, "
        f"{today}, code {', '.join(commits)}.{mixed} Values are means over seeds ± their standard "
        f"deviation.{unfinished}"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
