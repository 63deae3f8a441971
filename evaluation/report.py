"""The summary of a results folder as Markdown, and comparisons of several folders, in the layout of
the paper's Table 1."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from comas.utils.files import write_text
from comas.verification import Grader
from evaluation.accuracy import CellKey, Row, columns_of, compare_rows, rows_of
from evaluation.benchmarks import BENCHMARKS
from evaluation.grading import GRADERS_FINGERPRINT
from evaluation.results import (
    GRADERS,
    SUMMARY,
    Column,
    Evaluation,
    Subject,
    read_sampling,
    read_subjects,
)
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
OTHER_GRADERS: dict[Grader, str] = {
    "published": "Accuracy by the published graders, with their faults",
    "math_verify": "Accuracy by math-verify on the whole response, in mathematics",
}
"""Grader -> title of its table."""
COMPLETE = "Nothing: every answer is there and judged."


@dataclass(frozen=True)
class Results:
    """The contents of a results folder."""

    name: str
    """Its path in ``results``, as the user writes it."""
    subjects: Sequence[Subject]
    rows: Sequence[Row]
    sampling: Mapping[str, Any]


def read_results(folder: Path, *, name: str) -> Results:
    """Read a results folder. Raises ValueError if it is empty, damaged or of another version."""
    sampling = read_sampling(folder)
    subjects = read_subjects(folder)
    return Results(name, subjects, rows_of(name, subjects), sampling)


def write_summary(folder: Path) -> str:
    """Write summary.md into ``folder`` (``results/NAME``); return it without pass@k and the cost.
    Raises ValueError when there are no results, or damaged ones."""
    results = read_results(folder, name=folder.name)
    asked = ", ".join(f"{name}: {v}" for name, v in results.sampling.items() if v is not None)
    asked = " ".join(asked.split())  # a system prompt may have several lines
    title = f"# Results of {results.name}" + (f"\n\nAsked with {asked}." if asked else "")
    screen = "\n\n".join([title, *_overview(results.rows, [results])])
    cost = f"## Cost\n\nOver all benchmarks.\n\n{cost_table(results)}"
    write_text(folder / SUMMARY, "\n\n".join([screen, *_details(results.rows), cost]) + "\n")
    return f"{screen}\n"


def compare(names: Sequence[str], *, results: Path) -> str:
    """Return Markdown that compares folders in ``results`` with the first of them: models
    (``base``), runs (``quickstart``) or subjects of runs (``quickstart/agent_0``), each with its
    counterpart or the only subject there.

    Raises ValueError for fewer than two names, for missing or damaged results, or when one has
    nothing in common with the first.
    """
    if len(names) < 2:
        raise ValueError(
            f"compare needs at least two results, not {len(names)}: compare A B [C ...]"
        )
    # results/base/, as a shell completes it, means base
    paths = [Path(name) for name in names]
    names = [str(p.relative_to(results) if p.is_relative_to(results) else p) for p in paths]
    first, *others = [read_results(results / name, name=name) for name in names]
    rows = [*first.rows, *(row for other in others for row in compare_rows(other.rows, first.rows))]
    title = f"# {', '.join(names[1:])} compared with {names[0]}"
    return "\n\n".join([title, *_overview(rows, [first, *others]), *_details(rows)]) + "\n"


def _asked_differently(everyone: Sequence[Results]) -> list[str]:
    """Return the differences in sampling: ``["temperature: base 0.7, mine 1.0"]``."""
    keys = dict.fromkeys(key for results in everyone for key in results.sampling)
    values = {key: [results.sampling.get(key) for results in everyone] for key in keys}
    return [
        f"{key}: " + ", ".join(f"{r.name} {v}" for r, v in zip(everyone, found, strict=True))
        for key, found in values.items()
        if any(value != found[0] for value in found)
    ]


def _graded_differently(everyone: Sequence[Results]) -> list[str]:
    """Return a line for each result judged by other graders, unless all were judged alike."""
    graders = {
        results.name: {e.graded_by for s in results.subjects for e in s.evaluations.values()}
        for results in everyone
    }
    if len(set().union(*graders.values())) == 1:
        return []
    return [
        f"{name}: judged by other graders than the present ones, at least in part; rerun its "
        "evaluation, which judges its answers again"
        for name, found in graders.items()
        if found != {GRADERS_FINGERPRINT}
    ]


def _overview(rows: Sequence[Row], everyone: Sequence[Results]) -> list[str]:
    """Return accuracies by all graders, and what is missing, as Markdown."""
    is_comparison = any(row.reference is not None for row in rows)
    warnings = {
        "Asked differently": _asked_differently(everyone),
        "Graded differently": _graded_differently(everyone),
        "No answer in the form asked for": _each(everyone, _unreadable),
    }
    strict = accuracy_table(rows, grader="strict")
    return [
        f"{LEGEND}\n{DIFFERENCE_LEGEND}" if is_comparison else LEGEND,
        *(f"## {title}\n\n{_listed(lines)}" for title, lines in warnings.items() if lines),
        f"## Accuracy\n\n{strict}",
        *(
            f"{title}: the same."
            if (table := accuracy_table(rows, grader=grader)) == strict
            else f"## {title}\n\n{table}"
            for grader, title in OTHER_GRADERS.items()
            if any(grader == of for row in rows for of, _ in row.accuracies)
        ),
        "## Missing",
        _listed(_each(everyone, _missing)) or COMPLETE,
    ]


def _details(rows: Sequence[Row]) -> list[str]:
    """Return pass@k (for several seeds) and differences, as Markdown."""
    parts = []
    if any(len(accuracy.passes) > 1 for row in rows for accuracy in row.accuracies.values()):
        parts.append(f"## pass@k\n\n{PASS_LEGEND}\n\n{pass_table(rows)}")
    if any(row.reference is not None for row in rows):
        parts.append(f"## Differences\n\n{difference_table(rows)}")
    return parts


def _listed(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


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


def cost_table(results: Results) -> str:
    """Return a table of the calls and tokens of each setup, over all benchmarks."""
    body = []
    setups = {setup for subject in results.subjects for setup, _ in subject.evaluations}
    for setup in _in_order(setups, known=list(SETUPS)):
        for subject in results.subjects:
            costs = [e.cost for (s, _), e in subject.evaluations.items() if s == setup]
            if costs:
                counts = [f"{sum(each):,}" for each in zip(*map(astuple, costs), strict=True)]
                body.append([setup, subject.label(results.name), *counts])
    header = ["setup", "model", "calls", "prompt tokens", "completion tokens"]
    return markdown_table(header, body, num_left_aligned=2)


def _missing(evaluation: Evaluation) -> str:
    """Say what is missing: ``"490/500 answered, 3 failed (failures.jsonl)"``; "" if nothing is."""
    missing = evaluation.num_asked - evaluation.num_done
    reasons = [f"{evaluation.num_done}/{evaluation.num_asked} answered"] * bool(missing)
    if evaluation.num_failures:
        reasons.append(f"{evaluation.num_failures} failed (failures.jsonl)")
    if missing > evaluation.num_failures:
        reasons.append(f"{missing - evaluation.num_failures} not asked yet")
    for grader, tally in evaluation.graders.items():
        if tally.failed:
            reasons.append(f"the {grader} grader failed on {tally.failed}")
    return ", ".join(reasons)


def _unreadable(evaluation: Evaluation) -> str:
    """Say if most replies lack the form asked for, which accuracy then measures; "" if not."""
    tally = evaluation.graders["strict"]
    if tally.unanswered <= tally.num_judged / 2:
        return ""
    return (
        f"{tally.unanswered} of {tally.num_judged} replies; see its transcripts, and raise "
        "max_tokens if they are cut off"
    )


def _each(everyone: Sequence[Results], say: Callable[[Evaluation], str]) -> list[str]:
    """Return a line for each column of which ``say`` says something."""
    return [
        f"{subject.label(results.name)}, {setup}, {benchmark}: {said}"
        for results in everyone
        for subject in results.subjects
        for (setup, benchmark), evaluation in subject.evaluations.items()
        if (said := say(evaluation))
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
    """Format ``+3.20 [+0.40, +6.00]*`` per grader, and the number of tasks; [] if one has none."""
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
