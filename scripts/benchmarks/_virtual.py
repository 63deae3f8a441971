"""Engines in virtual time: the real schedules, and a clock that jumps to what happens next."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in which waiting takes no time."""

    def __init__(self) -> None:
        super().__init__()
        self._virtual_now = 0.0

    def time(self) -> float:
        """Virtual seconds."""
        return self._virtual_now

    def _run_once(self) -> None:
        if not self._ready:  # type: ignore[attr-defined]
            timers = [own.when() for own in self._scheduled if not own.cancelled()]  # type: ignore[attr-defined]
            self._virtual_now = max(self._virtual_now, min(timers, default=self._virtual_now))
        super()._run_once()  # type: ignore[misc]


class VirtualEngine:
    """Decodes all its sequences together: a token of each takes ``step_seconds(how many)``.

    Example: at 0.01 s for any number, sequences of 100 and 300 tokens that begin together end after
    1 and 3 s.
    """

    def __init__(self, step_seconds: Callable[[int], float]) -> None:
        self._step_seconds = step_seconds
        self._numbers = itertools.count()
        self._running: list[tuple[float, int, asyncio.Future[None]]] = []
        """By the value of ``_decoded`` at which each ends."""
        self._decoded = 0.0
        """Tokens so far of a sequence that was always there."""
        self._seen_at = 0.0
        self._next: asyncio.TimerHandle | None = None

    async def decode(self, num_tokens: int) -> None:
        """Wait until a sequence of so many tokens is decoded."""
        self._go_on()
        done = asyncio.get_running_loop().create_future()
        heapq.heappush(self._running, (self._decoded + num_tokens, next(self._numbers), done))
        self._plan()
        await done

    def _go_on(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._running:
            seconds = self._step_seconds(len(self._running))
            self._decoded += (now - self._seen_at) / seconds
        self._seen_at = now

    def _plan(self) -> None:
        if self._next is not None:
            self._next.cancel()
        left = self._running[0][0] - self._decoded
        seconds = max(left, 0.0) * self._step_seconds(len(self._running))
        self._next = asyncio.get_running_loop().call_later(seconds, self._end_first)

    def _end_first(self) -> None:
        self._go_on()
        self._decoded = max(self._decoded, self._running[0][0])  # but for rounding it is
        while self._running and self._running[0][0] <= self._decoded:
            heapq.heappop(self._running)[2].set_result(None)
        self._next = None
        if self._running:
            self._plan()
