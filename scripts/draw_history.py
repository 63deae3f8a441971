"""Draws results/history.png, how measured numbers changed over versions, from results/history.csv.

Run it with: .venv/bin/python scripts/draw_history.py
"""

import re
from pathlib import Path

import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure

RESULTS = Path(__file__).parents[1] / "results"
MACHINE = "A"  # Numbers of different machines cannot be compared.
PANELS = {
    "Held-out accuracy of the quick-start (%)": r"held-out accuracy (\w+), ",
    "Gain of accuracy (points)": r"gain (of CoMAS|with .*), points",
    "First command (s)": r"first command, (.*), s",
    "Tests (s)": r"tests, (.*), s",
    "Phase by phase over no barriers (time)": r"phase by phase over no barriers, (.*), time",
    "CPU time of the driver per response (ms)": r"driver's CPU time per response, (.*), ms",
}
"""Title -> pattern of the quantities in it; the group becomes the label."""
VALUE = re.compile(r"(-?[\d.]+)(?: ± ([\d.]+))?")


def main() -> None:
    """Draw every panel, and write the figure."""
    history = pandas.read_csv(RESULTS / "history.csv", dtype=str)
    history = history[history["machine"] == MACHINE]
    versions = sorted(history["version"].unique(), key=lambda v: [*map(int, v.split("."))])
    figure = Figure(figsize=(12, 6.4), layout="constrained")
    for axes, (title, pattern) in zip(figure.subplots(2, 3).flat, PANELS.items(), strict=True):
        _draw(axes, history, pattern, versions)
        axes.set_title(title, fontsize=10)
    figure.savefig(RESULTS / "history.png", dpi=90)


def _draw(axes: Axes, history: pandas.DataFrame, pattern: str, versions: list[str]) -> None:
    """One line for each quantity, with whiskers where a spread is known."""
    labels = history["quantity"].str.extract(pattern, expand=False)
    for label, rows in history.groupby(labels, sort=False):  # leaves out what does not match
        places, values, spreads = [], [], []
        for version, text in zip(rows["version"], rows["value"], strict=True):
            for part in text.split("; "):  # several runs of one version
                value, spread = VALUE.findall(part)[0]
                places.append(versions.index(version))
                values.append(float(value))
                spreads.append(float(spread or 0))
        axes.errorbar(places, values, yerr=spreads, marker="o", capsize=3, label=str(label))
    axes.set_xticks(range(len(versions)), versions, fontsize=7)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7)


if __name__ == "__main__":
    main()
