"""``python -m comas.reproduction``: what scripts/reproduce.sh starts."""

import argparse
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from functools import partial
from pathlib import Path
from statistics import fmean
from types import ModuleType
from typing import NamedTuple

from comas.config import load
from comas.reproduction import claims, lasting, outcomes, stop_rule
from comas.reproduction.answers import ask_agents, read_answers
from comas.reproduction.claims import missing_runs
from comas.reproduction.experiments import (
    FRESH_SEEDS,
    LEARNING_RATES,
    PLANS,
    TUNED,
    TUNING_SEEDS,
)
from comas.reproduction.figures import draw_courses, draw_figures
from comas.reproduction.frozen import FROZEN, Frozen, check_frozen, freeze, of_today
from comas.reproduction.habits import read_habits
from comas.reproduction.lasting_page import write_lasting
from comas.reproduction.report import write_report, write_tuning
from comas.reproduction.results import (
    GREEDY,
    Record,
    as_table,
    read_records,
    read_result,
    write_record,
)
from comas.reproduction.runs import PlannedRun, configurations, make_runs, plan_runs, seconds_of
from comas.reproduction.settings import Settings, find_conflicts
from comas.run.provenance import cpu_name
from comas.utils.files import explaining_errors, write_text
from comas.utils.terminal import command, run_command

log = logging.getLogger("comas")

SECONDS_PER_RUN = {"short": 90.0, "long": 400.0}
"""Time of a run of the tiny agents with its start on 2 cores, while none has been finished to
tell."""
STANDS_FOR: dict[str, list[str]] = {
    "--paper": ["study=paper"],
    "--lasting": ["study=lasting", "saves=saves/lasting", "results=results/lasting"],
    **{
        f"--{study}": [
            f"study={study}",
            f"seeds={list(seeds)}",
            f"saves=saves/{study}",
            f"results=results/lasting/{study}",
        ]
        for study, seeds in FRESH_SEEDS.items()
    },
    "--tune": [
        f"seeds={list(TUNING_SEEDS)}",
        f"learning_rates={list(LEARNING_RATES)}",
        f"only=[{','.join(TUNED)}]",
        "saves=saves/tuning",
    ],
}
"""Options that stand for settings; a ``key=value`` beside them outranks theirs."""
FLAGS = ("--list", "--report", "--freeze", *STANDS_FOR)


@command(
    "comas",
    errors=(ValueError, OSError, RuntimeError),
    interrupted="interrupted; the same command goes on from here",
)
def main(arguments: Sequence[str]) -> int:
    """Run, or list, what the arguments say; returns the process's exit status."""
    parser = argparse.ArgumentParser(prog="bash scripts/reproduce.sh", allow_abbrev=False)
    for flag in FLAGS:
        parser.add_argument(flag, dest="flags", action="append_const", const=flag, default=[])
    parser.add_argument("settings", nargs="*", metavar="key=value")
    given = parser.parse_intermixed_args(arguments)
    flags, overrides = {*given.flags}, given.settings
    said = [setting for flag in STANDS_FOR if flag in flags for setting in STANDS_FOR[flag]]
    overrides = [*said, *overrides]
    settings = load(Settings, None, overrides, check=find_conflicts)
    folder, today = Path(settings.results), _frozen_today(settings)
    if "--freeze" in flags:
        log.info("frozen: %s; commit it before the first run", freeze(folder, today))
        return 0
    frozen = None if settings.learning_rates else check_frozen(folder, today)
    runs = plan_runs(settings, frozen)
    mine = _not_on_record(runs, folder) if settings.together else runs
    for line in describe(mine, study=settings.study, every="--list" in flags):
        log.info(line)
    if "--list" in flags:
        return 0
    if "--report" not in flags:
        make_runs(mine)
        for run in mine:
            if run.experiment.name in PLANS[settings.study].asked and not run.learning_rate:
                ask_agents(run)
    save = save_tuning if settings.learning_rates else partial(save_report, frozen=frozen)
    log.info("report: %s", save(runs, settings))
    return 0


class Page(NamedTuple):
    """How a study is reported."""

    write: Callable[..., str]
    draw: Callable[..., list[str]]
    rules: tuple[ModuleType, ...]
    """What decides what its runs show."""


_REPRODUCTION = Page(write_report, draw_figures, (claims, outcomes))
_LASTING = Page(write_lasting, draw_courses, (lasting, stop_rule, outcomes))


def page_of(study: str) -> Page:
    """How ``study`` is reported: by the numbers of runs alone, or also by what they left."""
    return _LASTING if PLANS[study].can_be_shared else _REPRODUCTION


def _frozen_today(settings: Settings) -> Frozen:
    return of_today(configurations(settings), page_of(settings.study).rules)


def _not_on_record(runs: Sequence[PlannedRun], folder: Path) -> list[PlannedRun]:
    """Those that have begun here, or whose numbers are not in ``folder``."""
    on_record = {result.key for record in read_records(folder).values() for result in record.runs}
    left = [run for run in runs if run.folder or run.key not in on_record]
    log.info(
        "%d of %d runs were made elsewhere and are on record in %s",
        len(runs) - len(left),
        len(runs),
        folder,
    )
    return left


def describe(runs: Sequence[PlannedRun], *, study: str, every: bool) -> list[str]:
    """What there is to do, and for how long; with ``every``, run by run."""
    taken = {run: seconds for run in runs if (seconds := seconds_of(run)) is not None}
    missing = [run for run in runs if run not in taken]
    lines = [f"{len(runs)} runs, {len(taken)} of them finished"]
    expected = [_expected_seconds(run, taken, study=study) for run in missing]
    known = [seconds for seconds in expected if seconds is not None]
    if missing and len(known) == len(missing):
        source = "as the finished ones took" if taken else "as on 2 cores"
        lines[0] += f"; the others take about {sum(known) / 60:.0f} minutes, {source}"
    if every:
        lines += [
            f"  {run.label:28} {'finished' if run in taken else '-':9} "
            f"{run.experiment.config}  {run.experiment.about}"
            for run in runs
        ]
    return lines


def _expected_seconds(
    run: PlannedRun, taken: Mapping[PlannedRun, float], *, study: str
) -> float | None:
    is_long = run.experiment.kind == "long"
    alike = [s for other, s in taken.items() if (other.experiment.kind == "long") == is_long]
    if alike:
        return fmean(alike)
    return SECONDS_PER_RUN["long" if is_long else "short"] if study != "paper" else None


def save_tuning(runs: Sequence[PlannedRun], settings: Settings) -> Path:
    """Write how each finished experiment ended with each learning rate; returns the path."""
    ended: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        if run.finished and run.learning_rate:
            result = read_result(run.finished, run.experiment, seed=run.seed)
            accuracy = result.after[GREEDY]
            assert accuracy is not None
            ended[run.experiment.name][run.learning_rate].append(100 * accuracy)
    path = Path(settings.results) / "tuning.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    seeds = ", ".join(map(str, settings.seeds))
    heading = f"`bash scripts/reproduce.sh --tune`, seeds {seeds}; {cpu_name()}, {date.today()}."
    write_text(path, write_tuning(ended, heading=heading))
    return path


def save_report(
    runs: Sequence[PlannedRun], settings: Settings, *, frozen: Frozen | None = None
) -> Path:
    """Write numbers, figures and report of the finished runs; returns the report's path.

    Raises:
        ValueError: none is finished.
    """
    finished = {run: folder for run in runs if (folder := run.finished)}
    target = Path(settings.results)
    made = [
        read_result(
            folder,
            run.experiment,
            seed=run.seed,
            answers=read_answers(run),
            habits=read_habits(folder),
        )
        for run, folder in finished.items()
    ]
    with explaining_errors(target):
        target.mkdir(parents=True, exist_ok=True)
    own = Record(cpu_name(), f"{date.today():%Y-%m-%d}", made)
    others = read_records(target)
    before = others.pop(own.file, None)
    if settings.together and before is not None:
        own = own.with_earlier(before)
    if own.runs:
        write_record(target, own)
    pool = [own, *others.values()] if settings.together else [own]
    asked = {run.key for run in runs}
    pooled = {
        result.key: result
        for record in reversed(pool)
        for result in record.runs
        if result.key in asked
    }
    if not pooled:
        raise ValueError(f"no run in {settings.saves} is finished: nothing to report")
    results = as_table(pooled.values())
    names = list(dict.fromkeys(run.experiment.name for run in runs))
    plan, page = PLANS[settings.study], page_of(settings.study)
    text = page.write(
        results,
        plan,
        seeds=settings.seeds,
        heading=_heading(
            settings,
            pool,
            names=names,
            missing=missing_runs(names, results, seeds=settings.seeds),
            frozen=frozen,
        ),
        elsewhere={}
        if settings.together
        else {other.machine: as_table(other.runs) for other in others.values()},
        figures=page.draw(target, plan, finished, results),
    )
    report = target / "report.md"
    write_text(report, text)
    return report


def _heading(
    settings: Settings,
    pool: Sequence[Record],
    *,
    names: Sequence[str],
    missing: Sequence[str],
    frozen: Frozen | None,
) -> str:
    seeds = ", ".join(map(str, settings.seeds))
    made = [record for record in pool if record.runs]
    where = "; ".join(f"{len(record.runs)} on {record.machine}, {record.date}" for record in made)
    commits = dict.fromkeys(c for record in made for run in record.runs for c in run.commits)
    mixed = "" if len(commits) == 1 else " **The runs are of different versions of the code.**"
    unfinished = f" **Not finished: {', '.join(missing)}.**" if missing else ""
    fixed = "**Nothing was frozen before the runs.**"
    if frozen is not None:
        fixed = f"Society, settings and rules were frozen on {frozen.date} ([{FROZEN}]({FROZEN}))"
        later = [name for name in names if name not in frozen.settings]
        fixed += f"; those of {', '.join(later)} came later." if later else "."
    return (
        f"`bash scripts/reproduce.sh`, study {settings.study}, seeds {seeds}; runs: {where}; "
        f"code {', '.join(commits)}.{mixed} {fixed} Values are means over seeds ± "
        f"their standard deviation.{unfinished}"
    )


if __name__ == "__main__":
    run_command(main)
