"""Waiting for engines: with a time limit, for all at once, and failing at the first failure."""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import ray

from comas.config.schema import Cluster
from comas.engines.cluster.actors import Engine
from comas.utils.progress import progress_bar

TICK_S = 1.0
"""Seconds between two checks whether the engines that are waited for are still alive."""


class EngineError(RuntimeError):
    """An engine failed at what it would fail at again; the message names it."""


class LostEngineError(EngineError):
    """An engine died, hangs, or failed as engines do on a machine in trouble.

    Started again, it may serve.
    """


class Supervisor:
    """Waits for the engines of a society, and notices which of them will never answer.

    While an engine is waited for, it is asked for a sign of life (``cluster.heartbeat_timeout_s``);
    one that lives has ``cluster.call_timeout_s`` for a call.
    """

    def __init__(self, cluster: Cluster, *, check_ray: Callable[[], None]) -> None:
        """``check_ray`` raises LostEngineError when Ray itself is gone."""
        self._cluster = cluster
        self._check_ray = check_ray

    def wait(
        self, calls: Mapping[Engine, ray.ObjectRef], *, doing: str, watched: Sequence[Engine] = ()
    ) -> list[Any]:
        """Return the results of a call on several engines, in order.

        ``watched`` are engines that those which are called wait for in turn.

        Raises EngineError as ``wait_for_all`` does.
        """
        if not calls:
            return []
        heartbeats = Heartbeats(
            list(calls), watched=watched, timeout_s=self._cluster.heartbeat_timeout_s
        )

        def check() -> None:
            self._check_ray()
            heartbeats.check(doing)

        return wait_for_all(
            {engine.name: call for engine, call in calls.items()},
            doing=doing,
            timeout_s=self._cluster.call_timeout_s,
            check=check,
        )

    def call_all(
        self,
        engines: Sequence[Engine],
        doing: str,
        call: Callable[[Engine], ray.ObjectRef],
        *,
        watched: Sequence[Engine] = (),
    ) -> list[Any]:
        """Return the results of ``call`` on all ``engines`` at once, as ``wait`` does."""
        return self.wait({engine: call(engine) for engine in engines}, doing=doing, watched=watched)


class Heartbeats:
    """Signs of life of engines, each of which is asked for the next when it has given one.

    Time is counted in calls of ``check``, one per ``TICK_S``: an engine is not blamed for time in
    which this process itself was frozen or its machine asleep.
    """

    def __init__(
        self, called: Sequence[Engine], *, watched: Sequence[Engine] = (), timeout_s: float
    ) -> None:
        """``watched`` engines have no call in flight: only their heartbeat tells that they died."""
        self._engines = [*called, *watched]
        self._watched = frozenset(watched)
        self._timeout_s = timeout_s
        self._asked: dict[Engine, ray.ObjectRef] = {}
        self._silent_s: dict[Engine, float] = {}

    def check(self, doing: str) -> None:
        """Ask who has answered for the next sign of life.

        Raises:
            EngineError: a watched engine failed at it.
            LostEngineError: an engine has been silent for too long, or a watched one died.
        """
        waiting = list(self._asked.values())
        answered, _ = (
            ray.wait(waiting, num_returns=len(waiting), timeout=0) if waiting else ([], [])
        )
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
            if self._silent_s[engine] > self._timeout_s:
                raise LostEngineError(
                    f"{engine.name} gave no sign of life for {self._timeout_s:.0f} s while {doing} "
                    "(cluster.heartbeat_timeout_s)"
                )


def wait_for_all(
    calls: Mapping[str, ray.ObjectRef],
    *,
    doing: str,
    timeout_s: float,
    check: Callable[[], None] = lambda: None,
) -> list[Any]:
    """Return the results of remote calls, in order; each has the name of the engine it is on.

    The first failure is raised at once: when one rank of a group dies, the others may wait for it
    in a collective for ever. ``check`` is called every ``TICK_S``, and may raise.

    Raises:
        EngineError: an engine raised what it would raise again.
        LostEngineError: an engine died, or did not answer within ``timeout_s``.
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


def future_of(call: ray.ObjectRef, *, name: str, doing: str) -> Future[None]:
    """The end of a remote call on the engine ``name``; its failure is an EngineError.

    Cancelling it ends the waiting alone.
    """
    named: Future[None] = Future()

    def tell(ended: Future[None]) -> None:
        error = ended.exception()
        if not named.set_running_or_notify_cancel():
            return
        if error is None:
            named.set_result(None)
        else:
            named.set_exception(engine_error(name, doing, error))

    call.future().add_done_callback(tell)
    return named


def engine_error(name: str, doing: str, error: ray.exceptions.RayError) -> EngineError:
    """Say which engine failed at what, and why; the remote traceback is the error's cause."""
    if not isinstance(error, ray.exceptions.RayTaskError):
        return LostEngineError(f"{name} failed while {doing}: {_first_line(error)}")
    cause = error.cause
    # What a collective, the device or vLLM's engine raises. (Bad input is a ValueError, a full
    # disk an OSError, weights that are not finite an ArithmeticError.)
    if isinstance(cause, ray.exceptions.RayError):
        return LostEngineError(f"{name} failed while {doing}: {_first_line(cause)}")
    kind = LostEngineError if isinstance(cause, RuntimeError) else EngineError
    return kind(f"{name} failed while {doing}: {type(cause).__name__}: {cause}")


def _result(call: ray.ObjectRef, *, name: str, doing: str) -> Any:
    try:
        return ray.get(call)
    except ray.exceptions.RayError as error:
        raise engine_error(name, doing, error) from error


def _first_line(error: BaseException) -> str:
    """The first line of Ray's message; the rest repeats the actor's names and numbers."""
    return str(error).partition("\n")[0]
