"""The tables of a report, in Markdown."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, stdev

import pandas as pd

from comas.reproduction.answers import WEIGHTS
from comas.reproduction.claims import by_seed
from comas.reproduction.experiments import LONG_STEPS, MAIN, Experiment
from comas.reproduction.outcomes import interval
from comas.reproduction.results import BETWEEN_ROLES, GREEDY, QUALITIES, Results
from comas.types import DOMAINS


def accuracy_table(results: Results, experiments: Sequence[Experiment], *, main: str = MAIN) -> str:
    """Untrained and trained accuracy, and what CoMAS (``main``) has more with the same seeds."""
    rows = []
    for experiment in experiments:
        runs = results.loc[experiment.name]
        more = ""
        if experiment.name != main:
            ours, theirs = by_seed(results, "gain", main, experiment.name)
            more = str(interval(ours - theirs)) if len(ours) > 1 else ""
        rows.append(
            [
                f"{experiment.name} ({experiment.kind})",
                experiment.about,
                mean_and_spread(runs["untrained"]),
                mean_and_spread(runs["trained"]),
                mean_and_spread(runs["gain"], sign=True),
                more,
                mean_and_spread(runs["sampled_untrained"]),
                mean_and_spread(runs["sampled_trained"]),
                str(len(runs)),
            ]
        )
    heads = [
        "experiment",
        "what it is",
        "greedy, untrained",
        "trained",
        "gain",
        "CoMAS gains more",
        "sampled, untrained",
        "trained",
        "seeds",
    ]
    return table(heads, rows)


def domains_table(results: Results, experiments: Sequence[Experiment]) -> str:
    """Greedy accuracy before and after training in each domain."""
    keys = [f"{GREEDY}/{domain}" for domain in DOMAINS]
    return changes_table(results, experiments, keys, ("before", "after"))


def answers_table(results: Results, names: Sequence[str]) -> str:
    """Shares of answers before and after training, of the runs that have been asked."""
    rows = []
    for name in names:
        keys = [f"answers.{weights}/{name}" for weights in WEIGHTS]
        both = 100 * results.reindex(columns=keys).dropna()
        if len(both):
            ends = [mean_and_spread(both[key]) for key in keys]
            rows.append(
                [name.rpartition("/")[2], *ends, str(interval(both[keys[1]] - both[keys[0]]))]
            )
    return table(["", *WEIGHTS, "change"], rows) if rows else "Nobody has been asked."


def course_table(results: Results, experiments: Sequence[Experiment]) -> str:
    """Greedy accuracy after every fifth of the long runs."""
    steps = range(0, LONG_STEPS + 1, LONG_STEPS // 5)
    rows = []
    for experiment in experiments:
        if experiment.kind == "long":
            runs = 100 * results.loc[experiment.name].reindex(
                columns=[f"course.{s}" for s in steps]
            )
            cells = [mean_and_spread(runs[column].dropna()) for column in runs]
            rows.append([experiment.name, experiment.about, *cells])
    return table(["experiment", "what it is", *map(str, steps)], rows) if rows else "None was run."


def probe_table(results: Results, experiments: Sequence[Experiment]) -> str:
    """What judges make of planted solutions, before and after training."""
    measures = ("names", "overlooks", "accuses", "accepts_true", "accepts_false")
    keys = [f"probe/{measure}" for measure in measures]
    return changes_table(results, experiments, keys, ("before", "after"))


def habits_table(results: Results, experiments: Sequence[Experiment], main: str) -> str:
    """A row for each habit that the models were taught, the one that evaluators name least before
    training first: how often they do and how much more than right solutions ``main`` pays it at
    first, then how much of it each experiment has at its ends; all but the pay in percent."""
    first, last, paid = "habits.first.", "habits.last.", "habits.paid."
    names = [column.removeprefix(first) for column in results if column.startswith(first)]
    named = {
        name: fmean(100 * results[f"before.probe/names/{name.partition('/')[2]}"].dropna())
        for name in names
    }
    rows = []
    for name in sorted(names, key=named.__getitem__):
        pay = results.loc[main, paid + name].dropna() if main in results.index else []
        cells = [f"{named[name]:.0f}", f"{fmean(pay):+.2f}" if len(pay) else ""]
        cells += [_change(results.loc[e.name, [first + name, last + name]]) for e in experiments]
        rows.append([name.replace("/", ", "), *cells])
    heads = ["habit", "named", "paid more than right", *(e.name for e in experiments)]
    return table(heads, rows)


def effectiveness_table(results: Results, experiments: Sequence[Experiment]) -> str:
    """How well the reward tells correct solutions from others, along training; and how much of the
    variance of advantages lies between roles."""
    keys = [f"reward_effectiveness/from_score_2/{quality}" for quality in QUALITIES]
    return changes_table(results, experiments, [*keys, BETWEEN_ROLES])


def machines_table(
    results: Results, elsewhere: Mapping[str, Results], experiments: Sequence[Experiment]
) -> str:
    """Trained accuracy on every machine, and how far the same seed moves between them."""
    if not elsewhere:
        return "Nothing was run on two machines with the same seed."
    machines = {"this machine": results, **elsewhere}
    trained = pd.DataFrame({name: table["trained"] for name, table in machines.items()})
    rows = []
    for experiment in experiments:
        runs = trained.loc[experiment.name]
        cells = [mean_and_spread(runs[machine].dropna()) for machine in machines]
        rows.append([experiment.name, *cells, _largest_move(runs)])
    return table(["trained", *machines, "the same seed, apart at most"], rows)


def mean_and_spread(values: Iterable[float], *, sign: bool = False) -> str:
    """``75.4 ± 1.7``: mean and sample standard deviation; nothing for no values."""
    values = list(values)
    if not values:
        return ""
    mean = f"{fmean(values):+.1f}" if sign else f"{fmean(values):.1f}"
    return f"{mean} ± {stdev(values):.1f}" if len(values) > 1 else mean


def changes_table(
    results: Results,
    experiments: Sequence[Experiment],
    keys: Sequence[str],
    moments: tuple[str, str] = ("first", "last"),
) -> str:
    """A row for each experiment, a column for each key: its mean at two moments, in percent."""
    rows = []
    for experiment in experiments:
        runs = results.loc[experiment.name]
        cells = [_change(runs.reindex(columns=[f"{m}.{key}" for m in moments])) for key in keys]
        rows.append([experiment.name, *cells])
    return table(["experiment", *(key.rpartition("/")[2].replace("_", " ") for key in keys)], rows)


def _change(ends: pd.DataFrame) -> str:
    """``40 -> 35``: the means of two columns in percent; nothing where no run has both."""
    ends = 100 * ends.dropna()
    return " -> ".join(f"{fmean(ends[end]):.0f}" for end in ends) if len(ends) else ""


def _largest_move(trained: pd.DataFrame) -> str:
    """How far apart the same seed ends on different machines (columns) at most."""
    shared = trained[trained.count(axis="columns") > 1]
    moves = shared.max(axis="columns") - shared.min(axis="columns")
    return f"{moves.max():.1f}" if len(moves) else ""


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
