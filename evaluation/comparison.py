"""``compare A B [C ...]``: several results side by side, as tables and as a figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from evaluation.plots import draw_accuracies
from evaluation.report import line_up, read_results, sections


def compare(names: Sequence[str], *, results: Path) -> tuple[str, Path]:
    """Compare the results folders ``names`` of ``results`` with the first of them.

    A name is that of a model (``base``), of one subject of a run (``quickstart/agent_0``), or
    of a run (``quickstart``), whose every subject is then compared with its counterpart in
    the first, or with the first itself if that holds a single one.

    Returns the tables as Markdown, and the path of the figure that it draws:
    ``results/comparison-<names>.png``.

    Raises ValueError when there are fewer than two names, when a folder has no results or
    damaged ones, or when one has nothing in common with the first.
    """
    if len(names) < 2:
        given = f"{len(names)} given"
        raise ValueError(f"compare takes two results at least, {given}. Write: compare A B [C ...]")
    names = [_under(results, name) for name in names]
    first, *others = [read_results(results / name, name=name) for name in names]
    lines = line_up(first, others)
    joined = "-".join(name.replace("/", "_") for name in names)
    figure = results / f"comparison-{joined}.png"
    draw_accuracies([line.row for line in lines], figure)
    title = f"# {', '.join(names[1:])} compared with {names[0]}"
    return "\n\n".join([title, *sections(lines, [first, *others])]) + "\n", figure


def _under(results: Path, name: str) -> str:
    """``results/base/``, as a shell completes it, is ``base`` as well."""
    path = Path(name)
    return str(path.relative_to(results) if path.is_relative_to(results) else path)
