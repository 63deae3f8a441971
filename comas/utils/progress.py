"""Progress of long work: a bar on a terminal, and without one a line every ten seconds."""

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
"""On a terminal; what ends sooner is not shown there."""
UNKNOWN = "?"
COUNTED = "{desc}: {n_fmt}/{total_fmt} {unit}s, {elapsed} so far{and_left}{postfix}"
TIMED = "{desc}: {elapsed} so far"


class progress_bar(tqdm):  # noqa: N801  small as tqdm itself
    """A bar for the duration of a ``with``, which also moves while there is nothing to count.

    Example of a line without a terminal: ``teaching qwen2: 420/1500 steps, 00:28 so far, 01:12
    left``
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
        """``unit``: of what is counted; work that has no parts has none. ``total`` may be set
        later (``bar.total``), and ``initial`` of it was counted before.
        ``position``: the bar's line among several on a terminal.
        """
        self._ended = threading.Event()
        self._is_shown = False
        at_terminal = sys.stderr.isatty()
        super().__init__(
            desc=description,
            total=total,
            initial=initial,
            unit=unit,
            leave=False,
            position=position if at_terminal else 0,  # else tqdm would move the cursor
            # Without a terminal, only `_log_every_ten` says something.
            file=sys.stderr if at_terminal else io.StringIO(),
            delay=SECONDS_BETWEEN_LOOKS if at_terminal else math.inf,
            miniters=1,  # with more, tqdm's monitoring thread would write as well
            dynamic_ncols=at_terminal,
            bar_format=COUNTED if unit else TIMED,
        )
        tick = self._show_every_second if at_terminal else self._log_every_ten
        threading.Thread(target=tick, daemon=True).start()

    @property
    def format_dict(self) -> dict[str, Any]:
        """Adds the time left, and words for it where it is known."""
        values = super().format_dict
        left = self._left(values)
        return values | {"left": left, "and_left": "" if left == UNKNOWN else f", {left} left"}

    def close(self) -> None:
        """End the work."""
        self._ended.set()
        if self._is_shown:
            self.last_print_t = self._time()  # else tqdm would leave it on the terminal
        super().close()
        if self._is_shown:
            self.fp.write("\r")  # tqdm leaves the cursor behind a wiped bar that is not the first
            self.fp.flush()

    def _left(self, values: dict[str, Any]) -> str:
        num_counted = values["n"] - values["initial"]
        if not (num_counted and values["total"]):
            return UNKNOWN
        seconds = values["elapsed"] / num_counted * max(values["total"] - values["n"], 0)
        return str(self.format_interval(round(seconds)))

    def _show_every_second(self) -> None:
        while not self._ended.wait(SECONDS_BETWEEN_LOOKS):
            with self.get_lock():
                if not self._ended.is_set():
                    self.display()
                    self._is_shown = True

    def _log_every_ten(self) -> None:
        # Trap: under tqdm's lock this could wait for a handler that waits for that lock.
        while not self._ended.wait(SECONDS_BETWEEN_LINES):
            log.info(str(self))


def counted(generate: Generate, bar: progress_bar) -> Generate:
    """``generate``, with each of its answers counted on ``bar``."""

    async def count(request: Request) -> Generation | None:
        generation = await generate(request)
        bar.update()
        return generation

    return count
