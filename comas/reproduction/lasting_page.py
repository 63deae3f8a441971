"""The page of the study of what lasts, by the rules of ``lasting``."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

import pandas as pd

from comas.reproduction.claims import by_seed
from comas.reproduction.experiments import LONG_BOUND, Experiment, Plan
from comas.reproduction.lasting import ONE_AGENT, RULES, standing
from comas.reproduction.outcomes import above, interval
from comas.reproduction.results import INSTRUMENTS, Results
from comas.reproduction.stop_rule import Stop, collapse_step, what_stopping_did
from comas.reproduction.tables import (
    accuracy_table,
    changes_table,
    course_table,
    domains_table,
    effectiveness_table,
    habits_table,
    machines_table,
    mean_and_spread,
    probe_table,
    table,
)


def write_lasting(
    results: Results,
    plan: Plan,
    *,
    seeds: Sequence[int],
    heading: str,
    elsewhere: Mapping[str, Results],
    figures: Iterable[str],
) -> str:
    """The page of the study; arguments as of ``report.write_report``."""
    found = results.index.unique("experiment")
    known = [experiment for experiment in plan.experiments if experiment.name in found]
    sections = [
        "# What lasts",
        heading,
        RULES,
        "## Which rewards keep up",
        standings_table(results, known, plan.main),
        "## Held-out accuracy",
        "In percent, mean over seeds ± standard deviation.",
        accuracy_table(results, known, main=plan.main),
        "## Along training, greedy",
        course_table(results, known),
        "## By domain, greedy",
        domains_table(results, known),
        "## Where runs collapse, and where the stop rule ends them",
        stops_table(results, known),
        "## The probe of the judges",
        "Planted solutions, before training -> after it, in percent of those that could show it.",
        probe_table(results, known),
        "## Habits of mistakes",
        "How often evaluators name what is a model's habit, asked before training, in percent; how "
        f"much more reward than right solutions its solutions get in the first 10 steps of "
        f"{plan.main}; and how many of its solutions to such questions make the mistake, in the "
        "first 10 steps -> in the last 10, in percent.",
        habits_table(results, known, plan.main),
        "## Instruments",
        "Mean of the first 10 steps -> mean of the last 10, in percent.",
        changes_table(results, known, [f"instruments/{name}" for name in INSTRUMENTS]),
        "## Reward effectiveness",
        "The same, of the reward as a prediction of correctness from score 2 on.",
        effectiveness_table(results, known),
        "## Other machines",
        machines_table(results, elsewhere, known),
        "## Figures",
        *(f"![{name}]({name})" for name in figures),
    ]
    return "\n\n".join(sections) + "\n"


def standings_table(results: Results, experiments: Sequence[Experiment], main: str) -> str:
    """Each reward against the verifier's and the paper's, with the seeds that have been run."""
    names = results.index.unique("experiment")
    if LONG_BOUND not in names:
        return f"{LONG_BOUND} was not run."
    rows = []
    for experiment in experiments:
        if experiment.name == LONG_BOUND:
            continue
        stands = standing(results, experiment.name)
        column = "first_gain" if experiment.name in ONE_AGENT else "gain"
        more = ""
        if experiment.name != main and main in names:
            ours, papers = by_seed(results, column, experiment.name, main)
            gains = interval(ours - papers)
            more = f"{gains} ({above(gains)})" if len(ours) > 1 else ""
        rows.append(
            [
                experiment.name,
                experiment.about.partition(", ")[2],
                f"{stands.num_kept_up} of {len(stands.shares)}",
                f"{100 * stands.shares.mean():.0f} ({100 * stands.shares.min():.0f})",
                f"{stands.below_peak.max():.1f}",
                more,
            ]
        )
    heads = [
        "experiment",
        "what it is",
        "keeps up with",
        "of the verifier's gain, %: mean (least)",
        "below its peak at most",
        "gains more than the paper's reward",
    ]
    return table(heads, rows)


def stops_table(results: Results, experiments: Sequence[Experiment]) -> str:
    """Collapses, and what the stop rule did, by experiment and over all runs."""
    rows = []
    everything: list[tuple[int | None, Stop | None]] = []
    for experiment in experiments:
        of_seeds = [_fate(run) for _, run in results.loc[experiment.name].iterrows()]
        rows.append([experiment.name, *_fates(of_seeds)])
        everything += of_seeds
    rows.append(["**all**", *_fates(everything)])
    heads = [
        "experiment",
        "runs",
        "collapse",
        "at step",
        "stopped",
        "at step",
        "accuracy there",
        "best later",
        "at the end",
        "false alarms",
    ]
    return table(heads, rows)


def _fate(run: pd.Series) -> tuple[int | None, Stop | None]:
    """(step of the collapse, what stopping did) of one run."""
    values = run.filter(like="course.").dropna()
    course = [(int(name.partition(".")[2]), 100 * value) for name, value in values.items()]
    stopped = run["stopped"]
    did = None if pd.isna(stopped) else what_stopping_did(int(stopped), course)
    return collapse_step(course), did


def _fates(fates: Sequence[tuple[int | None, Stop | None]]) -> list[str]:
    collapses = [step for step, _ in fates if step is not None]
    stops = [stop for _, stop in fates if stop is not None]
    return [
        str(len(fates)),
        str(len(collapses)),
        f"{fmean(collapses):.0f}" if collapses else "",
        str(len(stops)),
        f"{fmean(stop.step for stop in stops):.0f}" if stops else "",
        mean_and_spread(stop.accuracy for stop in stops),
        mean_and_spread(stop.best_later for stop in stops),
        mean_and_spread(stop.at_end for stop in stops),
        str(sum(stop.is_false_alarm for stop in stops)),
    ]
