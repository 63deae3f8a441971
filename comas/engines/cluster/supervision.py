"""Waiting for engines: with a time limit, for all at once, and failing at the first failure."""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import wraps
from typing import Any, TypeVar

import ray

from comas.progress import progress_bar


class EngineError(RuntimeError):
    """An engine died, failed or did not answer in time; the message names it."""


Results = TypeVar("Results")


def _shown(wait: Callable[..., Results]) -> Callable[..., Results]:
    """``wait``, shown while it lasts, with the time that is left by how long the last one took."""
    took_s: dict[str, float] = {}

    @wraps(wait)
    def wait_and_show(calls: Mapping[str, ray.ObjectRef], *, doing: str, **limits: Any) -> Results:
        started = time.monotonic()
        with progress_bar(f"each engine is {doing}", expected_s=took_s.get(doing)):
            results = wait(calls, doing=doing, **limits)
        took_s[doing] = time.monotonic() - started
        return results

    return wait_and_show


@_shown
def wait_for_all(calls: Mapping[str, ray.ObjectRef], *, doing: str, timeout_s: float) -> list[Any]:
    """The results of remote calls, in order; each call has the name of the engine it is on.

    The first failure is raised at once: when one rank of a group dies, the others may wait
    for it in a collective for ever.

    Raises:
        EngineError: an engine died, raised, or did not answer within ``timeout_s``.
    """
    pending = {call: name for name, call in calls.items()}
    results: dict[str, Any] = {}
    deadline = time.monotonic() + timeout_s
    while pending:
        remaining = max(deadline - time.monotonic(), 0.0)
        ready, _ = ray.wait(list(pending), num_returns=1, timeout=remaining)
        if not ready:
            raise EngineError(
                f"no answer while {doing} within {timeout_s:.0f} s from: "
                f"{', '.join(sorted(pending.values()))}. If the work really takes longer, raise "
                "cluster.start_timeout_s or cluster.call_timeout_s."
            )
        name = pending.pop(ready[0])
        try:
            results[name] = ray.get(ready[0])
        except ray.exceptions.RayError as error:
            raise engine_error(name, doing, error) from error
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
    if isinstance(error, ray.exceptions.RayTaskError):
        cause = error.cause
        return EngineError(f"{name} failed while {doing}: {type(cause).__name__}: {cause}")
    return EngineError(f"{name} failed while {doing}: {error}")
