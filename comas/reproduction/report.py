"""The report of a study: what changed in each experiment, compared with a reference."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from statistics import fmean, stdev

from comas.reproduction.figure import figure
from comas.reproduction.intervals import Interval, interval
from comas.reproduction.results import Record, Results, paired_runs
from comas.reproduction.study import Study
from comas.run.metrics.meanings import as_regex, meanings
from comas.utils.files import write_text

REPORT, FIGURE = "report.md", "figure.svg"
LEGEND = """\
Means over seeds ± their standard deviation, at the beginning and at the end of a run; and how much
more a metric rose than in {reference} with the same seed, with the 95 % interval of the mean
(Student's t, not adjusted for multiple comparisons). Bold: the interval excludes 0."""
LEGEND_OF_SHARES = """\
The rise as a share of that under {bound} with the same seed, in percent: the mean over seeds, its
95 % interval (Student's t), and an interval that holds for all experiments at once (Bonferroni).
Experiments are left out if {bound} gains nothing with one of their seeds."""


def write_report(study: Study, results: Results, records: Sequence[Record], target: Path) -> Path:
    """Write the page, and a figure if the first metric is a share, into the folder ``target``;
    returns the page's path. ``records`` say where the runs were made.

    Raises ValueError if all runs are finished, and none has one of the study's metrics.
    """
    is_whole = all(set(study.seeds) <= set(results.get(name, ())) for name in study.experiments)
    tables = []
    for metric in study.metrics:
        table = "No finished run has it."
        if is_whole or has_metric(results, metric):
            table = comparison_table(results, metric, reference=study.reference)
        tables.append(f"## {metric}\n\n{table}")
    if study.bound is not None:
        tables.append(
            f"## Share of the bound's gain\n\n{LEGEND_OF_SHARES.format(bound=study.bound)}"
        )
        for metric in study.metrics:
            if "validation/" in metric and has_metric(results, metric):
                shares = share_table(results, metric, bound=study.bound)
                tables.append(f"{metric}:\n\n{shares}")
    drawn = ""
    if values := last_values(results, study.metrics[0]):
        what = f"{study.metrics[0]} at the end, %"
        write_text(target / FIGURE, figure(values, title=what))
        drawn = f"![{what}: each seed, the mean, and its 95 % interval]({FIGURE})"
    sections = [
        "# What was compared",
        study.about.strip(),
        _origin(study, results, records),
        drawn,
        LEGEND.format(reference=study.reference),
        *tables,
    ]
    write_text(target / REPORT, "\n\n".join(filter(None, sections)) + "\n")
    return target / REPORT


def has_metric(results: Results, metric: str) -> bool:
    """Return True if some run has the metric at its beginning and its end."""
    runs = chain.from_iterable(by_seed.values() for by_seed in results.values())
    return any(run.change(metric) is not None for run in runs)


def last_values(results: Results, metric: str) -> dict[str, list[float]]:
    """Return experiment -> values at the end of its runs, in percent; empty unless the metric is a
    share."""
    if scale_of(metric) == 1:
        return {}
    ends = {name: [run.after.get(metric) for run in by.values()] for name, by in results.items()}
    known = {name: [100 * v for v in each if v is not None] for name, each in ends.items()}
    return {name: each for name, each in known.items() if each}


def comparison_table(results: Results, metric: str, *, reference: str) -> str:
    """Return a Markdown table of a metric, with a row per experiment; shares in percent. Raises
    ValueError when no run has the metric."""
    scale = scale_of(metric)
    rows = []
    for name, runs in results.items():
        ends = [(run.before.get(metric), run.after.get(metric)) for run in runs.values()]
        known = [(scale * b, scale * a) for b, a in ends if b is not None and a is not None]
        if not known:
            continue
        more = None if name == reference else rises_more(results, metric, name, reference)
        before, after = (mean_and_spread(values) for values in zip(*known, strict=True))
        rows.append([name, before, after, _in_bold(more)])
    if not rows:
        raise ValueError(f"no run has the metric {metric}; metrics.jsonl of a run has all names")
    return markdown(["experiment", "before", "after", f"rise over {reference}"], rows)


def share_table(results: Results, metric: str, *, bound: str) -> str:
    """Return a table of shares of the bound's gain, in percent, over the seeds that both have.

    Example: gains of 40 and 30 with two seeds, and 50 and 40 of the bound: shares of 80 and 75.
    """
    rows = []
    for name in results:
        if (by_seed := shares_of_gain(results, metric, name, bound)) and name != bound:
            told = [interval(by_seed, num_comparisons=num) for num in (1, len(results) - 1)]
            ends = (f"[{each.low:.1f}, {each.high:.1f}]" for each in told)
            each_seed = ", ".join(f"{share:.1f}" for share in by_seed)
            rows.append([name, f"{told[0].mean:.1f}", *ends, each_seed])
    return markdown(["experiment", "share", "interval", "of all at once", "by seed"], rows)


def shares_of_gain(results: Results, metric: str, name: str, bound: str) -> list[float]:
    """Return an experiment's gain as a share of the bound's, in percent, for each seed that both
    have; empty if the bound gained nothing with one of them."""
    known = _paired_changes(results, metric, name, bound)
    return [100 * gain / whole for gain, whole in known] if all(w > 0 for _, w in known) else []


def _in_bold(more: Interval | None) -> str:
    return "" if more is None else f"**{more}**" if more.excludes_zero else str(more)


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def rises_more(results: Results, metric: str, name: str, reference: str) -> Interval | None:
    """Compare by how much ``metric`` rose with each seed; None below two common seeds."""
    changes = _paired_changes(results, metric, name, reference)
    more = [scale_of(metric) * (one - other) for one, other in changes]
    return interval(more) if len(more) > 1 else None


def _paired_changes(
    results: Results, metric: str, name: str, other: str
) -> list[tuple[float, float]]:
    """Return the changes of ``metric`` in both experiments, for each seed that both have."""
    pairs = paired_runs(results, name, other)
    changes = [(one.change(metric), two.change(metric)) for one, two in pairs]
    return [(a, b) for a, b in changes if a is not None and b is not None]


def scale_of(metric: str) -> float:
    """Return 100 for shares, which are shown in percent, and 1 for other metrics."""
    units = {each.unit for each in meanings() if re.fullmatch(as_regex(each.pattern), metric)}
    return 100.0 if units == {"share"} else 1.0


def mean_and_spread(values: Iterable[float]) -> str:
    """``75.4 ± 1.7``: mean and sample standard deviation."""
    values = list(values)
    return f"{fmean(values):.1f}" + (f" ± {stdev(values):.1f}" if len(values) > 1 else "")


def _origin(study: Study, results: Results, records: Sequence[Record]) -> str:
    """Describe where, when and by which code the runs were made, and which are missing."""
    made = Counter(run.machine for by_seed in results.values() for run in by_seed.values())
    where = "; ".join(
        f"{made[each.machine]} on {each.machine}, {each.date}"
        for each in records
        if made[each.machine]
    )
    commits = dict.fromkeys(
        commit for by_seed in results.values() for run in by_seed.values() for commit in run.commits
    )
    mixed = " **The runs are of different versions of the code.**" if len(commits) > 1 else ""
    lacking = {
        name: [str(seed) for seed in study.seeds if seed not in results.get(name, {})]
        for name in study.chosen
    }
    missing = [f"{name} (seed {', '.join(seeds)})" for name, seeds in lacking.items() if seeds]
    machines = {
        seed: {by[seed].machine for by in results.values() if seed in by} for seed in study.seeds
    }
    apart = [str(seed) for seed, names in machines.items() if len(names) > 1]
    return (
        f"`bash scripts/reproduce.sh`, seeds {', '.join(map(str, study.seeds))}; runs: {where}; "
        f"code {', '.join(commits)}.{mixed}"
        + (f" Of seed {', '.join(apart)} only runs on one machine are compared." if apart else "")
        + (f" **Not finished: {'; '.join(missing)}.**" if missing else "")
    )
