"""The summary of a results folder as Markdown, and comparisons of several folders."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comas.utils.files import write_text
from comas.verification import Grader
from evaluation.accuracy import Row, compare_rows, rows_of
from evaluation.grading import GRADERS_FINGERPRINT
from evaluation.results import SUMMARY, Subject, read_sampling, read_subjects
from evaluation.tables import (
    COST_LEGEND,
    DIFFERENCE_LEGEND,
    LEGEND,
    PASS_LEGEND,
    accuracy_table,
    cost_table,
    difference_table,
    pass_table,
    shortcomings,
    unreadable,
)

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
    """Read a results folder. Raises ValueError when it has no results, damaged ones, or those of
    another version."""
    sampling = read_sampling(folder)  # first: it refuses results of another version
    subjects = read_subjects(folder)
    return Results(name, subjects, rows_of(name, subjects), sampling)


def write_summary(folder: Path) -> str:
    """Write summary.md into ``folder`` (``results/NAME``); return it without pass@k and the cost.
    Raises ValueError when there are no results, or damaged ones."""
    results = read_results(folder, name=folder.name)
    screen = "\n\n".join([f"# Results of {results.name}", *_overview(results.rows, [results])])
    cost = f"## Cost\n\n{COST_LEGEND}\n\n{cost_table(results.name, results.subjects)}"
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
    parts = [title, *_overview(rows, [first, *others]), *_details(rows)]
    return "\n\n".join(parts) + "\n"


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
    legend, warning = LEGEND, []
    if differing := _asked_differently(everyone):
        warning = ["## Asked differently", _listed(differing)]
    if differing := _graded_differently(everyone):
        warning += ["## Graded differently", _listed(differing)]
    if silent := [line for each in everyone for line in unreadable(each.name, each.subjects)]:
        warning += ["## No answer in the form asked for", _listed(silent)]
    if any(row.reference is not None for row in rows):
        legend += f"\n{DIFFERENCE_LEGEND}"
    strict = accuracy_table(rows, grader="strict")
    return [
        legend,
        *warning,
        f"## Accuracy\n\n{strict}",
        *(
            f"{title}: the same."
            if (table := accuracy_table(rows, grader=grader)) == strict
            else f"## {title}\n\n{table}"
            for grader, title in OTHER_GRADERS.items()
            if any(grader == of for row in rows for of, _ in row.accuracies)
        ),
        "## Missing",
        _listed([line for each in everyone for line in shortcomings(each.name, each.subjects)])
        or COMPLETE,
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
