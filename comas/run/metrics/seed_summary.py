"""One experiment under several seeds: ``python -m comas.run.metrics.seed_summary RUN ...``."""

import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev

from comas.run.records import read_rows

KEY = "validation/accuracy"


def read_accuracies(run: Path) -> list[tuple[int, float]]:
    """(step, held-out accuracy) of every validation of a run.

    Raises ValueError when the run has fewer than two: one before training, one after.
    """
    rows = read_rows(run / "metrics.jsonl")
    accuracies = [(row["step"], row[KEY]) for row in rows if row.get(KEY) is not None]
    if len(accuracies) < 2:
        raise ValueError(f"{run} holds {len(accuracies)} validations; two at least are compared")
    return accuracies


def summarise(runs: Sequence[Path]) -> str:
    """Untrained and trained held-out accuracy of every run, then mean and spread.

    The spread is the sample standard deviation over the runs.
    """
    lines = [f"{'run':<40} {'steps':>5} {'untrained':>9} {'trained':>9} {'gain':>9}"]
    firsts, lasts = [], []
    for run in runs:
        accuracies = read_accuracies(run)
        firsts.append(100 * accuracies[0][1])
        lasts.append(100 * accuracies[-1][1])
        lines.append(
            f"{run.resolve().name:<40} {accuracies[-1][0]:>5} {firsts[-1]:>9.1f} {lasts[-1]:>9.1f} "
            f"{lasts[-1] - firsts[-1]:>+9.1f}"
        )
    gains = [last - first for first, last in zip(firsts, lasts, strict=True)]
    if len(runs) > 1:
        columns = [f"{fmean(c):.1f} ± {stdev(c):.1f}" for c in (firsts, lasts, gains)]
        lines.append(
            f"mean ± standard deviation over {len(runs)} runs: untrained {columns[0]}, trained "
            f"{columns[1]}, gain {columns[2]} points"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(summarise([Path(run) for run in sys.argv[1:]]) + "\n")
