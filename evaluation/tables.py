"""Results as Markdown tables in the layout of the paper's Table 1."""

from collections.abc import Iterable, Sequence
from dataclasses import astuple

from comas.verification import Grader
from evaluation.accuracy import CellKey, Row, columns_of
from evaluation.benchmarks import BENCHMARKS
from evaluation.results import GRADERS, Column, Evaluation, Subject
from evaluation.setups import SETUPS

NOTHING = "-"

LEGEND = """\
Accuracy in percent of the answers asked for; -: not evaluated. ±: sample standard deviation over
seeds, in a row of means over agents. [497/500]: 497 of the 500 answers asked for are there and
could be judged; the others count as not correct."""
DIFFERENCE_LEGEND = """\
(+1.40): difference in percentage points, on the tasks that both were asked, with its 95 % interval
(paired bootstrap over tasks). *: p < 0.05 by an exact test over tasks, McNemar's for one seed."""
PASS_LEGEND = """\
Percent, by the strict grader. pass@k: the probability that one of k answers is correct, unbiased
from all answers to a task; pass@1 is avg@n, the mean over all n. [95 % interval: bootstrap over
tasks.]"""
COST_LEGEND = "Over all benchmarks."


def accuracy_table(rows: Sequence[Row], *, grader: Grader) -> str:
    """Return a table with a block per setup, a line per row, a column per benchmark."""
    columns, body = _columns_in_order(rows), []
    benchmarks = list(dict.fromkeys(column.benchmark for column in columns))
    for setup in dict.fromkeys(column.setup for column in columns):
        block = [row for row in rows if any(c.setup == setup for _, c in row.accuracies)]
        for i, row in enumerate(block):
            cells = (_accuracy_cell(row, (grader, Column(setup, name))) for name in benchmarks)
            body.append(["" if i else setup, row.label, *cells])
    return markdown_table(["setup", "model", *benchmarks], body, num_left_aligned=2)


def difference_table(rows: Sequence[Row]) -> str:
    """Return a table of all differences with intervals by grader, and numbers of common tasks."""
    body = [
        [*column, row.label, row.reference.label, *cells]
        for column in _columns_in_order(rows)
        for row in rows
        if row.reference is not None and (cells := _difference_cells(row, row.reference, column))
    ]
    header = ["setup", "benchmark", "model", "against", *GRADERS, "tasks in common"]
    return markdown_table(header, body, num_left_aligned=4)


def pass_table(rows: Sequence[Row]) -> str:
    """Return a table of pass@k with intervals, for rows with several seeds."""
    found = [
        (column, row.label, accuracy)
        for column in _columns_in_order(rows)
        for row in rows
        if (accuracy := row.accuracies.get(("strict", column))) and len(accuracy.passes) > 1
    ]
    ks = sorted({k for _, _, accuracy in found for k in accuracy.passes})
    body = []
    for column, label, accuracy in found:
        percents = [
            [100 * s for s in accuracy.pass_at(k)] if k in accuracy.passes else [] for k in ks
        ]
        cells = [
            "{:.2f} [{:.2f}, {:.2f}]".format(*three) if three else NOTHING for three in percents
        ]
        body.append([*column, label, *cells])
    header = ["setup", "benchmark", "model", *(f"pass@{k}" for k in ks)]
    return markdown_table(header, body, num_left_aligned=3)


def cost_table(name: str, subjects: Sequence[Subject]) -> str:
    """Return a table of the calls and tokens of each setup, over all benchmarks."""
    body = []
    setups = {setup for subject in subjects for setup, _ in subject.evaluations}
    for setup in _in_order(setups, known=list(SETUPS)):
        for subject in subjects:
            costs = [e.cost for (s, _), e in subject.evaluations.items() if s == setup]
            if costs:
                counts = [sum(each) for each in zip(*map(astuple, costs), strict=True)]
                body.append([setup, subject.label(name), *(f"{count:,}" for count in counts)])
    header = ["setup", "model", "calls", "prompt tokens", "completion tokens"]
    return markdown_table(header, body, num_left_aligned=2)


def shortcomings(name: str, subjects: Sequence[Subject]) -> list[str]:
    """Return what is missing from the results of ``name``, a line per column."""
    found = []
    for subject in subjects:
        for (setup, benchmark), evaluation in subject.evaluations.items():
            if reasons := _reasons(evaluation):
                found.append(f"{subject.label(name)}, {setup}, {benchmark}: {', '.join(reasons)}")
    return found


def unreadable(name: str, subjects: Sequence[Subject]) -> list[str]:
    """Return a line for each column in which most replies lack the requested form of answer, so
    that accuracy measures the form."""
    return [
        f"{subject.label(name)}, {setup}, {benchmark}: {tally.unanswered} of {tally.num_judged} "
        "replies; see its transcripts, and raise max_tokens if they are cut off"
        for subject in subjects
        for (setup, benchmark), evaluation in subject.evaluations.items()
        for tally in [evaluation.graders["strict"]]
        if tally.unanswered > tally.num_judged / 2
    ]


def markdown_table(
    header: Sequence[str], body: Sequence[Sequence[str]], *, num_left_aligned: int
) -> str:
    """Format a table; all but the first ``num_left_aligned`` columns are aligned to the right."""
    columns = []
    for i, texts in enumerate(zip(header, *body, strict=True)):
        width = max(map(len, texts))
        is_left = i < num_left_aligned
        rule = "-" * width if is_left else "-" * (width - 1) + ":"
        aligned = [text.ljust(width) if is_left else text.rjust(width) for text in texts]
        columns.append([aligned[0], rule, *aligned[1:]])
    return "\n".join(f"| {' | '.join(line)} |" for line in zip(*columns, strict=True))


def _accuracy_cell(row: Row, key: CellKey) -> str:
    """Format ``84.60 ± 1.14 [497/500] (+3.20*)``, without parts that do not apply."""
    if (accuracy := row.accuracies.get(key)) is None:
        return NOTHING
    text = f"{100 * accuracy.value:.2f}"
    if accuracy.spread is not None:
        text += f" ± {100 * accuracy.spread:.2f}"
    if accuracy.num_judged < accuracy.num_asked:
        text += f" [{accuracy.num_judged}/{accuracy.num_asked}]"
    if (difference := row.differences.get(key)) is not None:
        text += f" ({_points(difference.value)}{'*' * difference.is_significant})"
    return text


def _difference_cells(row: Row, reference: Row, column: Column) -> list[str]:
    """Format ``+3.20 [+0.40, +6.00]*`` per grader, and the number of tasks; empty if one of the two
    lacks the column."""
    if any((GRADERS[0], column) not in each.accuracies for each in (row, reference)):
        return []
    cells, num_common = [], 0
    for difference in (row.differences.get((grader, column)) for grader in GRADERS):
        if difference is None:
            cells.append(NOTHING)
            continue
        value, low, high = map(_points, (difference.value, difference.low, difference.high))
        cells.append(f"{value} [{low}, {high}]{'*' if difference.is_significant else ' '}")
        num_common = difference.num_common
    return [*cells, str(num_common)]


def _reasons(evaluation: Evaluation) -> list[str]:
    """Say why a column is incomplete: ``["490/500 answered", "3 failed (failures.jsonl)"]``."""
    missing = evaluation.num_asked - evaluation.num_done
    reasons = [f"{evaluation.num_done}/{evaluation.num_asked} answered"] * bool(missing)
    if evaluation.num_failures:
        reasons.append(f"{evaluation.num_failures} failed (failures.jsonl)")
    if missing > evaluation.num_failures:
        reasons.append(f"{missing - evaluation.num_failures} not asked yet")
    for grader, tally in evaluation.graders.items():
        if tally.failed:
            reasons.append(f"the {grader} grader failed on {tally.failed}")
    return reasons


def _points(share: float) -> str:
    """``0.014 -> "+1.40"``"""
    return f"{100 * share:+.2f}"


def _columns_in_order(rows: Iterable[Row]) -> list[Column]:
    """Return all setups of the rows, each with all benchmarks, in the project's order."""
    found = columns_of(rows)
    benchmarks = _in_order({c.benchmark for c in found}, known=list(BENCHMARKS))
    setups = _in_order({c.setup for c in found}, known=list(SETUPS))
    return [Column(setup, benchmark) for setup in setups for benchmark in benchmarks]


def _in_order(names: set[str], *, known: Sequence[str]) -> list[str]:
    """Return known names in their order, then others alphabetically."""
    return [*(name for name in known if name in names), *sorted(names.difference(known))]
