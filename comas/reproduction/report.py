"""The report of a study: what changed in each experiment, compared with a reference.

Runs with the same seed begin with the same agents and questions, so they are compared seed by
seed. Only an interval that excludes zero is a finding.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from math import ceil, inf, sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple

from jinja2 import Template
from scipy.special import stdtrit

from comas.reproduction.results import Record, Results, paired_runs
from comas.reproduction.study import Study
from comas.run.metrics.meanings import meanings_of
from comas.utils.files import write_text

REPORT, FIGURE = "report.md", "figure.svg"
CONFIDENCE = 0.95
DIGITS = 9
"""Differences are rounded to these, so that floating-point errors do not tell equal ones apart."""
TEMPLATE = Path(__file__).with_name(FIGURE)
LEFT, WIDTH = 190, 420
"""Pixels of the figure: space for names, width of the axis. figure.svg ends names 8 before it."""
GRID = 10
LEGEND = """\
Means over seeds ± their standard deviation, at the beginning and at the end of a run; and how much
more a metric rose than in {reference} with the same seed, with the 95 % interval of the mean
(Student's t, not adjusted for multiple comparisons). Bold: the interval excludes 0."""
LEGEND_OF_SHARES = """\
The rise as a share of that under {bound} with the same seed, in percent: the mean over seeds, its
95 % interval (Student's t), and an interval that holds for all experiments at once (Bonferroni).
Experiments are left out if {bound} gains nothing with one of their seeds."""


class Interval(NamedTuple):
    mean: float
    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        """True if the interval excludes zero. One without width does not count: differences are
        multiples of one question in a few hundred, and may be equal by chance."""
        return self.low < self.high and (self.low > 0 or self.high < 0)

    def told(self, digits: int) -> str:
        """``+1.2 [-0.3, +2.7]`` with 1 of the ``digits`` after the point; bold if it excludes 0."""
        numbers = [f"{each:+.{digits}f}" for each in self]
        return "{0}{1} [{2}, {3}]{0}".format("**" * self.excludes_zero, *numbers)


def interval(differences: Sequence[float], *, num_comparisons: int = 1) -> Interval:
    """Return the two-sided 95 % interval of the mean (Student's t), infinite for one difference.
    ``num_comparisons`` widens it so that all of them hold at once (Bonferroni).

    Example: 1, 2, 3 have the mean 2, the standard deviation 1 and t(0.975, 2) = 4.303, so the
    interval is 2 ± 4.303 / sqrt(3): -0.484 to 4.484.
    """
    differences = [round(each, DIGITS) + 0.0 for each in differences]  # + 0.0: -0.0 becomes 0.0
    mean, num = fmean(differences), len(differences)
    if num < 2:
        return Interval(mean, -inf, inf)
    quantile = float(stdtrit(num - 1, 1 - (1 - CONFIDENCE) / 2 / num_comparisons))
    half = quantile * stdev(differences) / sqrt(num)
    return Interval(mean, mean - half, mean + half)


def write_report(study: Study, results: Results, records: Sequence[Record], target: Path) -> Path:
    """Write the page, and a figure if the first metric is a share, into the folder ``target``;
    returns the page's path. ``records`` say where the runs were made. Raises ValueError if all runs
    are finished, and none has one of the study's metrics."""
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
                tables.append(f"{metric}:\n\n{share_table(results, metric, bound=study.bound)}")
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
    """Return experiment -> values at the end of its runs, in percent; empty if it is no share."""
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
        digits = 1 if scale == 100 else 3
        ends_told = [mean_and_spread(values, digits) for values in zip(*known, strict=True)]
        seeds = f" ({len(known)} of {len(runs)} seeds)" if len(known) < len(runs) else ""
        rows.append([name + seeds, *ends_told, "" if more is None else more.told(digits)])
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
    return 100.0 if {each.unit for each in meanings_of(metric)} == {"share"} else 1.0


def mean_and_spread(values: Sequence[float], digits: int) -> str:
    """``75.4 ± 1.7``: mean and sample standard deviation."""
    told = [fmean(values), stdev(values)] if len(values) > 1 else values
    return " ± ".join(f"{each:.{digits}f}" for each in told)


def _origin(study: Study, results: Results, records: Sequence[Record]) -> str:
    """Describe where, when and by which code the runs were made, and which are missing."""
    runs = [run for by_seed in results.values() for run in by_seed.values()]
    made = Counter(run.machine for run in runs)
    where = "; ".join(
        f"{made[each.machine]} on {each.machine}, {each.date}"
        for each in records
        if made[each.machine]
    )
    commits = dict.fromkeys(commit for run in runs for commit in run.commits)
    mixed = " **The runs are of different versions of the code.**" if len(commits) > 1 else ""
    lacking = {
        name: [str(seed) for seed in study.seeds if seed not in results.get(name, {})]
        for name in study.chosen
    }
    missing = [f"{name} (seed {', '.join(seeds)})" for name, seeds in lacking.items() if seeds]
    num_machines = Counter(seed for seed, _ in {(run.seed, run.machine) for run in runs})
    apart = [str(seed) for seed in study.seeds if num_machines[seed] > 1]
    return (
        f"`bash scripts/reproduce.sh`, seeds {', '.join(map(str, study.seeds))}; runs: {where}; "
        f"code {', '.join(commits)}.{mixed}"
        + (f" Of seed {', '.join(apart)} only runs on one machine are compared." if apart else "")
        + (f" **Not finished: {'; '.join(missing)}.**" if missing else "")
    )


def figure(values: Mapping[str, Sequence[float]], *, title: str) -> str:
    """Return an SVG image with a row per experiment: a dot for each of its ``values`` (percent), a
    vertical line at the mean, and a horizontal one for the 95 % interval (Student's t).

    The axis spans multiples of ``GRID`` around all dots; intervals may exceed it.

    Example: if the values are 42 and 88, 40 is at ``LEFT`` and 90 at ``LEFT + WIDTH`` pixels.
    """
    every = [value for each in values.values() for value in each]
    low = int(min(every) // GRID) * GRID
    high = max(low + GRID, ceil(max(every) / GRID) * GRID)

    def x(value: float) -> float:
        return round(LEFT + WIDTH * (min(max(value, low), high) - low) / (high - low), 1)

    rows = []
    for name, each in values.items():
        mean, *ends = map(x, interval(each))
        rows.append((name, [*map(x, each)], mean, ends if len(each) > 1 else None))
    ticks = [(tick, x(tick)) for tick in range(low, high + 1, GRID)]
    template = Template(TEMPLATE.read_text(), autoescape=True, trim_blocks=True)
    return template.render(title=title, ticks=ticks, rows=rows) + "\n"
