"""``python -m comas.reproduction``: what scripts/reproduce.sh starts."""

import logging
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
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
from comas.reproduction.experiments import LEARNING_RATES, PLANS, TUNED, TUNING_SEEDS
from comas.reproduction.figures import draw_courses, draw_figures
from comas.reproduction.frozen import FROZEN, Frozen, check_frozen, freeze, of_today
from comas.reproduction.lasting_page import write_lasting
from comas.reproduction.report import write_report, write_tuning
from comas.reproduction.results import GREEDY, as_table, read_result, read_results, write_results
from comas.reproduction.runs import PlannedRun, configurations, make_runs, plan_runs, seconds_of
from comas.reproduction.settings import Settings, find_conflicts
from comas.run.provenance import commits_of, cpu_name
from comas.utils.files import explaining_errors, write_text
from comas.utils.terminal import command

log = logging.getLogger("comas")

SECONDS_PER_RUN = {
    ("quickstart", False): 90.0,
    ("quickstart", True): 400.0,
    ("lasting", True): 400.0,
}
"""Time of a run with its start on 2 cores, by study and whether it is a long one, while none has
been finished to tell."""
TUNING = (
    f"seeds={list(TUNING_SEEDS)}",
    f"learning_rates={list(LEARNING_RATES)}",
    f"only=[{','.join(TUNED)}]",
    "saves=saves/tuning",
)
"""What ``--tune`` stands for."""
LASTING = ("study=lasting", "saves=saves/lasting", "results=results/lasting")
"""What ``--lasting`` stands for."""
FLAGS = ("--list", "--report", "--paper", "--lasting", "--freeze", "--tune")
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
        overrides.append("study=paper")
    check_flags(flags)
    if "--lasting" in flags:
        overrides = [*LASTING, *overrides]
    if "--tune" in flags:
        overrides = [*TUNING, *overrides]
    settings = load(Settings, None, overrides, check=find_conflicts)
    folder, today = Path(settings.results), _frozen_today(settings)
    if "--freeze" in flags:
        log.info("frozen: %s; commit it before the first run", freeze(folder, today))
        return 0
    frozen = None if settings.learning_rates else check_frozen(folder, today)
    runs = plan_runs(settings, frozen)
    for line in describe(runs, study=settings.study, every="--list" in flags):
        log.info(line)
    if "--list" in flags:
        return 0
    if "--report" not in flags:
        make_runs(runs)
        for run in runs:
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
PAGES = {
    "quickstart": _REPRODUCTION,
    "paper": _REPRODUCTION,
    "lasting": Page(write_lasting, draw_courses, (lasting, stop_rule, outcomes)),
}
"""By study."""


def _frozen_today(settings: Settings) -> Frozen:
    return of_today(configurations(settings), PAGES[settings.study].rules)


def check_flags(flags: Collection[str]) -> None:
    """Raise ValueError if there is no such flag: ignored, ``--lst`` would train for hours."""
    unknown = sorted(set(flags) - set(FLAGS))
    if unknown:
        raise ValueError(
            f"{', '.join(unknown)}: there is no such option. The options are {', '.join(FLAGS)}; "
            "settings are written key=value (bash scripts/reproduce.sh --help)"
        )


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
    return fmean(alike) if alike else SECONDS_PER_RUN.get((study, is_long))


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
    if not finished:
        raise ValueError(f"no run in {settings.saves} is finished: nothing to report")
    found = [
        read_result(folder, run.experiment, seed=run.seed, answers=read_answers(run))
        for run, folder in finished.items()
    ]
    results = as_table(found)
    target = Path(settings.results)
    with explaining_errors(target):
        target.mkdir(parents=True, exist_ok=True)
    machine, today = cpu_name(), f"{date.today():%Y-%m-%d}"
    own = target / f"{re.sub(r'[^a-z0-9]+', '-', machine.lower()).strip('-')}.json"
    write_results(own, found, machine=machine, date=today)
    elsewhere = dict(
        read_results(path)
        for path in sorted(target.glob("*.json"))
        if path.name not in (own.name, FROZEN)
    )
    plan = PLANS[settings.study]
    report = target / "report.md"
    page = PAGES[settings.study]
    text = page.write(
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
            frozen=frozen,
        ),
        elsewhere=elsewhere,
        figures=page.draw(target, plan, finished, results),
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
    frozen: Frozen | None,
) -> str:
    seeds = ", ".join(map(str, settings.seeds))
    mixed = "" if len(commits) == 1 else " **The runs are of different versions of the code.**"
    unfinished = f" **Not finished: {', '.join(missing)}.**" if missing else ""
    fixed = "**Nothing was frozen before the runs.**"
    if frozen is not None:
        fixed = f"Society, settings and rules were frozen on {frozen.date} ([{FROZEN}]({FROZEN}))."
    return (
        f"`bash scripts/reproduce.sh`, study {settings.study}, seeds {seeds}; {machine}, "
        f"{today}, code {', '.join(commits)}.{mixed} {fixed} Values are means over seeds ± "
        f"their standard deviation.{unfinished}"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
