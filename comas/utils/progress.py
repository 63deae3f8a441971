"""Show progress: a bar on a terminal, otherwise a line every ten seconds."""

import io
import logging
import math
import sys
import threading
from typing import Any

from tqdm import tqdm

from comas.types import Generate, Generation, Request

log = logging.getLogger(__name__)

SECONDS_BETWEEN_LINES = 10.0
SECONDS_BETWEEN_LOOKS = 1.0
"""Seconds between two updates on a terminal."""
TELLING_SHARE, TELLING_NUMBER = 0.1, 100
"""The time left is shown once a tenth, or 100 items, are done."""
COUNTED = "{desc}: {n_fmt}/{total_fmt} {unit}s, {elapsed} so far, {remaining} left{postfix}"
TIMED = "{desc}: {elapsed} so far"


class progress_bar(tqdm):  # noqa: N801  small as tqdm itself
    """A progress bar as a context manager; its clock runs even if nothing is counted.

    Example without a terminal: ``teaching qwen2: 420/1500 steps, 00:28 so far, 01:12 left``
    """

    def __init__(
        self,
        description: str,
        *,
        unit: str = "",
        total: int | None = None,
        initial: int = 0,
        position: int | None = None,
    ) -> None:
        """``unit`` is empty for work that is not counted. ``total`` can be set later
        (``bar.total``); ``initial`` items are already done. ``position`` is the bar's line among
        several on a terminal."""
        self._at_terminal = sys.stderr.isatty()
        super().__init__(
            desc=description,
            total=total,
            initial=initial,
            unit=unit,
            leave=False,
            position=position if self._at_terminal else 0,  # else tqdm would move the cursor
            # Without a terminal, only `_tick` prints.
            file=sys.stderr if self._at_terminal else io.StringIO(),
            miniters=1 if self._at_terminal else math.inf,
            smoothing=0,
            dynamic_ncols=self._at_terminal,
            bar_format=COUNTED if unit else TIMED,
        )
        self._ended = threading.Event()
        self._ticking = threading.Thread(target=self._tick, daemon=True)
        self._ticking.start()

    @property
    def format_dict(self) -> dict[str, Any]:
        """The fields of a line, without the time left until enough is done to estimate it: of 144
        concurrent turns, the first takes as long as half of them."""
        said = super().format_dict
        todo, counted = (self.total or 0) - self.initial, self.n - self.initial
        return said | {"rate": 0} if counted < min(TELLING_SHARE * todo, TELLING_NUMBER) else said

    def close(self) -> None:
        if not self.disable:
            self._ended.set()
            self._ticking.join()
        super().close()

    def _tick(self) -> None:
        pause_s = SECONDS_BETWEEN_LOOKS if self._at_terminal else SECONDS_BETWEEN_LINES
        while not self._ended.wait(pause_s):
            if self._at_terminal:
                self.refresh()
            else:
                log.info(str(self))


def counted(generate: Generate, bar: progress_bar) -> Generate:
    """Wrap ``generate`` to count each of its answers on ``bar``."""

    async def count(request: Request) -> Generation | None:
        generation = await generate(request)
        bar.update()
        return generation

    return count
