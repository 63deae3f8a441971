"""The figure of a study: where each experiment ends, with its interval over seeds, as SVG."""

from collections.abc import Mapping, Sequence
from math import ceil
from xml.sax.saxutils import escape

from comas.reproduction.intervals import interval

LEFT, WIDTH, ROW, TOP = 190, 420, 22, 34
"""Pixels: space for names, width of the axis, height of a row, space above the first."""
GRID = 10


def figure(values: Mapping[str, Sequence[float]], *, title: str) -> str:
    """Return an SVG image with a row per experiment: a dot for each of its ``values`` (percent), a
    vertical line at the mean, and a horizontal one for the 95 % interval (Student's t).

    The axis spans multiples of ``GRID`` around all dots; intervals may exceed it.

    Example: if the values are 42 and 88, 40 is at ``LEFT`` and 90 at ``LEFT + WIDTH`` pixels.
    """
    every = [value for each in values.values() for value in each]
    low = int(min(every) // GRID) * GRID
    high = max(low + GRID, ceil(max(every) / GRID) * GRID)
    height = TOP + ROW * len(values) + 10

    def x(value: float) -> float:
        return round(LEFT + WIDTH * (min(max(value, low), high) - low) / (high - low), 1)

    def line(ends: Sequence[float], ys: Sequence[int], color: str) -> str:
        return (
            f'<line x1="{x(ends[0])}" x2="{x(ends[-1])}" y1="{ys[0]}" y2="{ys[-1]}" '
            f'stroke="{color}" stroke-width="2"/>'
        )

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 30} {height}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="8" y="14" font-weight="bold">{escape(title)}</text>',
    ]
    for tick in range(low, high + 1, GRID):
        parts.append(line([tick], [TOP, height - 6], "#eee"))
        parts.append(f'<text x="{x(tick)}" y="{TOP - 4}" text-anchor="middle">{tick}</text>')
    for number, (name, each) in enumerate(values.items()):
        y = TOP + ROW * number + ROW // 2
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{escape(name)}</text>')
        mean, *ends = interval(each)
        if len(each) > 1:
            parts.append(line(ends, [y], "#15c"))
        parts.append(line([mean], [y - 6, y + 6], "#15c"))
        parts += [f'<circle cx="{x(v)}" cy="{y}" r="3" fill="#e62" opacity="0.6"/>' for v in each]
    return "\n".join([*parts, "</svg>"]) + "\n"
