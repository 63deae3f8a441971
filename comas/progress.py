"""Progress of long work: a bar on a terminal, and without one a line every ten seconds."""

import io
import logging
import sys

from tqdm import tqdm

log = logging.getLogger(__name__)

SECONDS_BETWEEN_LINES = 10.0


def progress_bar(
    description: str, *, unit: str, total: int | None = None, position: int = 0
) -> tqdm:
    """A tqdm bar that shows wherever the output goes; a context manager, like any tqdm.

    ``total`` may be set later (``bar.total``); ``position`` is the bar's line among several on a
    terminal.

    Example of a line without a terminal: ``teaching qwen2: 420/1500 steps, 01:12 left``
    """
    if sys.stderr.isatty():
        return tqdm(desc=description, total=total, unit=unit, position=position)
    return tqdm(
        desc=description,
        total=total,
        unit=unit,
        file=_LoggedLines(),
        mininterval=SECONDS_BETWEEN_LINES,
        miniters=1,  # with more, tqdm's monitoring thread adds lines between
        delay=SECONDS_BETWEEN_LINES,
        position=0,  # of its own choice, tqdm would move the cursor between several bars
        bar_format="{desc}: {n_fmt}/{total_fmt} {unit}s, {remaining} left",
    )


class _LoggedLines(io.TextIOBase):
    """Logs what a bar writes, without the control characters around it."""

    def write(self, text: str) -> int:
        if line := text.strip():
            log.info(line)
        return len(text)
