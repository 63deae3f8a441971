"""``compare A B [C ...]``: results side by side, as tables and as a figure."""

from collections.abc import Sequence
from pathlib import Path

from evaluation.plots import draw_accuracies
from evaluation.report import differences, line_up, overview, read_results


def compare(names: Sequence[str], *, results: Path) -> tuple[str, Path]:
    """Compare the results folders ``names`` of ``results`` with the first of them.

    A name stands for a model (``base``), one subject of a run (``quickstart/agent_0``) or a
    whole run (``quickstart``). Each subject of a run is compared with its counterpart in the
    first folder, or with the only subject there.

    Returns the tables as Markdown, and the path of the figure that is drawn:
    ``results/comparison-<names>.png``.

    Raises ValueError for fewer than two names, when a folder has no results or damaged ones, or
    when one has nothing in common with the first.
    """
    if len(names) < 2:
        raise ValueError(
            f"compare needs at least two results, not {len(names)}: compare A B [C ...]"
        )
    names = [_under(results, name) for name in names]
    first, *others = [read_results(results / name, name=name) for name in names]
    rows = line_up(first, others)
    joined = "-".join(name.replace("/", "_") for name in names)
    figure = results / f"comparison-{joined}.png"
    draw_accuracies(rows, figure)
    title = f"# {', '.join(names[1:])} compared with {names[0]}"
    parts = [title, *overview(rows, [first, *others]), *differences(rows)]
    return "\n\n".join(parts) + "\n", figure


def _under(results: Path, name: str) -> str:
    """``results/base/``, as a shell completes it, means ``base``."""
    path = Path(name)
    return str(path.relative_to(results) if path.is_relative_to(results) else path)
