"""Waiting for engines, detecting lost ones, and counting restarts."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import ray

from comas.engines.cluster.actors import Engine
from comas.types import Metrics
from comas.utils.progress import progress_bar

TICK_S = 1.0
"""Seconds between two checks that awaited engines are alive."""
HEARTBEAT_TIMEOUT_S = 120.0
"""How long an awaited engine may give no sign of life. (It gives one every 2 s, or at the end of
its current operation.)"""
MAX_RECOVERIES = 3
"""Restarts of lost engines in a row, without a new step in between."""
Restarted = Literal["engine", "society"]
"""A single rollout engine, or everything from the newest checkpoint."""


class EngineError(RuntimeError):
    """An engine failed, and would fail again; the message names it."""


class LostEngineError(EngineError):
    """An engine died, hangs, or failed for a reason of the machine; a restart may help."""


class GivenUpError(EngineError):
    """Engines were lost too often."""


def wait_for_engines(
    calls: Mapping[Engine, ray.ObjectRef],
    *,
    doing: str,
    timeout_s: float,
    check: Callable[[], None],
    watched: Sequence[Engine] = (),
) -> list[Any]:
    """As ``wait_for_all``, with heartbeats: of the called engines, and of the ``watched`` engines
    that they depend on."""
    heartbeats = Heartbeats(list(calls), watched=watched)

    def check_all() -> None:
        check()
        heartbeats.check(doing)

    return wait_for_all(
        {engine.name: call for engine, call in calls.items()},
        doing=doing,
        timeout_s=timeout_s,
        check=check_all,
    )


class Heartbeats:
    """Heartbeats of engines, requested one after another.

    Time is counted in calls of ``check``, one per ``TICK_S``, so that time in which this process
    was frozen does not count. ``watched`` engines have no call in flight: only a heartbeat shows
    that they died.
    """

    def __init__(self, called: Sequence[Engine], *, watched: Sequence[Engine] = ()) -> None:
        self._engines = [*called, *watched]
        self._watched = frozenset(watched)
        self._asked: dict[Engine, ray.ObjectRef] = {}
        self._silent_s: dict[Engine, float] = {}

    def check(self, doing: str) -> None:
        """Request new heartbeats from the engines that answered.

        Raises EngineError when an engine is silent for too long, or a watched one failed.
        """
        waiting, answered = list(self._asked.values()), []
        if waiting:
            answered, _ = ray.wait(waiting, num_returns=len(waiting), timeout=0)
        for engine in self._engines:
            asked = self._asked.get(engine)
            if asked in answered and engine in self._watched:
                # Errors of the other engines are raised by their calls.
                _result(asked, name=engine.name, doing=doing)
            if asked is None or asked in answered:
                self._asked[engine] = engine.actor.heartbeat.remote()
                self._silent_s[engine] = 0.0
                continue
            self._silent_s[engine] += TICK_S
            if self._silent_s[engine] > HEARTBEAT_TIMEOUT_S:
                raise said_nothing(engine.name, doing)


def wait_for_all(
    calls: Mapping[str, ray.ObjectRef],
    *,
    doing: str,
    timeout_s: float,
    check: Callable[[], None] = lambda: None,
) -> list[Any]:
    """Return the results of remote calls, in order; keys name the engines in messages.

    Raises EngineError at the first failure (other ranks may wait for a dead one in a collective),
    or after ``timeout_s``. ``check`` is called every ``TICK_S``, and may raise.
    """
    pending = {call: name for name, call in calls.items()}
    results, remaining = {}, timeout_s
    with progress_bar(f"each engine is {doing}"):
        while pending:
            started = time.monotonic()
            tick = max(min(TICK_S, remaining), 0.0)
            ready, _ = ray.wait(list(pending), num_returns=1, timeout=tick)
            # Do not count time in which this process was frozen.
            remaining -= min(time.monotonic() - started, 2 * TICK_S)
            if ready:
                name = pending.pop(ready[0])
                results[name] = _result(ready[0], name=name, doing=doing)
            elif remaining <= 0:
                raise LostEngineError(
                    f"no answer while {doing} within {timeout_s:.0f} s from: "
                    f"{', '.join(sorted(pending.values()))}. If the work really takes longer, "
                    "raise cluster.call_timeout_s."
                )
            else:
                check()
    return [results[name] for name in calls]


def said_nothing(name: str, doing: str) -> LostEngineError:
    """Return the error of an engine that gave no sign of life."""
    return LostEngineError(
        f"{name} gave no sign of life for {HEARTBEAT_TIMEOUT_S:.0f} s while {doing}"
    )


def engine_error(name: str, doing: str, error: ray.exceptions.RayError) -> EngineError:
    """Return an error that names the engine, what it did, and the reason."""
    cause = error.cause if isinstance(error, ray.exceptions.RayTaskError) else error
    if isinstance(cause, ray.exceptions.RayError):
        # The rest of Ray's message repeats the actor's names and numbers.
        first_line, _, _ = str(cause).partition("\n")
        return LostEngineError(f"{name} failed while {doing}: {first_line}")
    # Collectives, devices and vLLM raise RuntimeError; bad input raises ValueError, a full disk
    # OSError, and non-finite weights ArithmeticError.
    kind = LostEngineError if isinstance(cause, RuntimeError) else EngineError
    return kind(f"{name} failed while {doing}: {type(cause).__name__}: {cause}")


def _result(call: ray.ObjectRef, *, name: str, doing: str) -> Any:
    try:
        return ray.get(call)
    except ray.exceptions.RayError as error:
        raise engine_error(name, doing, error) from error


class Recoveries:
    """Counts restarts, at most ``limit`` in a row without a new step. (Steps repeated from a
    checkpoint are not new.)"""

    def __init__(self, limit: int = MAX_RECOVERIES) -> None:
        self._limit = limit
        self._in_a_row = 0
        self._furthest_step = 0
        self._counts: Counter[Restarted] = Counter()

    def count(self, restarted: Restarted, error: LostEngineError) -> None:
        """Count a restart because of ``error``. Raises GivenUpError beyond the limit."""
        self._in_a_row += 1
        if self._in_a_row > self._limit:
            raise GivenUpError(
                f"{error}\nThe run has recovered {self._limit} times without a new step in "
                "between, so it ends here"
            ) from error
        self._counts[restarted] += 1

    def take_metrics(self, step: int) -> Metrics:
        """Return the restarts since the last call, as metrics of ``step``."""
        if step > self._furthest_step:
            self._furthest_step, self._in_a_row = step, 0
        counts, self._counts = self._counts, Counter()
        return {
            "recovery/engine_restarts": counts["engine"],
            "recovery/society_restarts": counts["society"],
        }
