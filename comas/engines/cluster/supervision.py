"""Waiting for engines, noticing which are lost, and counting how often they are started again."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import ray

from comas.engines.cluster.actors import Engine
from comas.types import Metrics
from comas.utils.progress import progress_bar

TICK_S = 1.0
"""Seconds between two checks whether the engines that are waited for are still alive."""
HEARTBEAT_TIMEOUT_S = 120.0
"""How long an engine that is waited for may give no sign of life. (It gives one every 2 s, or
after what it is at.)"""
MAX_RECOVERIES = 3
"""How often in a row, without a new step in between, engines that were lost are started again."""
Restarted = Literal["engine", "society"]
"""A rollout engine alone, or everything, from the newest checkpoint."""


class EngineError(RuntimeError):
    """An engine failed at what it would fail at again; the message names it."""


class LostEngineError(EngineError):
    """An engine died, hangs, or failed as engines do on a machine in trouble.

    Started again, it may serve.
    """


class JudgeError(EngineError):
    """``society.judge`` answers no request any more: its account is used up, say, or its key is
    refused. It may answer a run that is resumed later."""


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
    """Return the results of a call on several engines, as ``wait_for_all`` does; meanwhile they are
    asked for signs of life, and so are the ``watched`` engines, which they wait for in turn."""
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
    """Signs of life of engines, each of which is asked for the next when it has given one.

    Time is counted in calls of ``check``, one per ``TICK_S``: an engine is not blamed for time in
    which this process itself was frozen. Of ``watched`` engines, which have no call in flight, only
    the heartbeat tells that they died.
    """

    def __init__(self, called: Sequence[Engine], *, watched: Sequence[Engine] = ()) -> None:
        self._engines = [*called, *watched]
        self._watched = frozenset(watched)
        self._asked: dict[Engine, ray.ObjectRef] = {}
        self._silent_s: dict[Engine, float] = {}

    def check(self, doing: str) -> None:
        """Ask who has answered for the next sign of life.

        Raises EngineError when one has been silent for too long, or a watched one failed.
        """
        waiting, answered = list(self._asked.values()), []
        if waiting:
            answered, _ = ray.wait(waiting, num_returns=len(waiting), timeout=0)
        for engine in self._engines:
            asked = self._asked.get(engine)
            if asked in answered and engine in self._watched:
                # Of the others an error is an answer, too: the call that is waited for has it.
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
    """Return the results of remote calls, in order; each has the name of the engine it is on.

    Raises EngineError at the first failure, as the other ranks of a group may wait in a collective
    for one that died, or when an answer takes longer than ``timeout_s``. ``check`` is called every
    ``TICK_S``, and may raise.
    """
    pending = {call: name for name, call in calls.items()}
    results, remaining = {}, timeout_s
    with progress_bar(f"each engine is {doing}"):
        while pending:
            started = time.monotonic()
            tick = max(min(TICK_S, remaining), 0.0)
            ready, _ = ray.wait(list(pending), num_returns=1, timeout=tick)
            # Time in which this process was frozen does not count.
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
    """The error of an engine that gave no sign of life."""
    return LostEngineError(
        f"{name} gave no sign of life for {HEARTBEAT_TIMEOUT_S:.0f} s while {doing}"
    )


def engine_error(name: str, doing: str, error: ray.exceptions.RayError) -> EngineError:
    """Say which engine failed at what, and why; the remote traceback is the error's cause."""
    cause = error.cause if isinstance(error, ray.exceptions.RayTaskError) else error
    if isinstance(cause, ray.exceptions.RayError):
        # The rest of Ray's message repeats the actor's names and numbers.
        first_line, _, _ = str(cause).partition("\n")
        return LostEngineError(f"{name} failed while {doing}: {first_line}")
    # What a collective, the device or vLLM's engine raises. (Bad input is a ValueError, a full
    # disk an OSError, weights that are not finite an ArithmeticError.)
    kind = LostEngineError if isinstance(cause, RuntimeError) else EngineError
    return kind(f"{name} failed while {doing}: {type(cause).__name__}: {cause}")


def _result(call: ray.ObjectRef, *, name: str, doing: str) -> Any:
    try:
        return ray.get(call)
    except ray.exceptions.RayError as error:
        raise engine_error(name, doing, error) from error


class Recoveries:
    """Counts what was started again, at most ``limit`` times in a row without a new step.

    Steps that are repeated from a checkpoint are not new: what is lost at the same step each time
    is given up.
    """

    def __init__(self, limit: int = MAX_RECOVERIES) -> None:
        self._limit = limit
        self._in_a_row = 0
        self._furthest_step = 0
        self._counts: Counter[Restarted] = Counter()

    def count(self, restarted: Restarted, error: LostEngineError) -> None:
        """Note that ``restarted`` is about to be started again because of ``error``.

        Raises GivenUpError where the limit has been reached.
        """
        self._in_a_row += 1
        if self._in_a_row > self._limit:
            raise GivenUpError(
                f"{error}\nThe run has recovered {self._limit} times without a new step in "
                "between, so it ends here"
            ) from error
        self._counts[restarted] += 1

    def take_metrics(self, step: int) -> Metrics:
        """The restarts since the last call, as metrics of ``step``."""
        if step > self._furthest_step:
            self._furthest_step, self._in_a_row = step, 0
        counts, self._counts = self._counts, Counter()
        return {
            "recovery/engine_restarts": counts["engine"],
            "recovery/society_restarts": counts["society"],
        }
