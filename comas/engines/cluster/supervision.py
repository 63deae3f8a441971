"""Waiting for engines, and their errors."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import ray

from comas.utils.progress import progress_bar

TICK_S = 1.0
"""Seconds between two checks while engines are waited for."""
STARTING = "starting"
MAX_RECOVERIES = 3
"""Restarts of a run in a row, without a new step in between."""


class EngineError(RuntimeError):
    """An engine failed, and would fail again; the message names it."""


class LostEngineError(EngineError):
    """An engine died, hangs, or failed for a reason of the machine; a restart may help."""


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
                try:
                    results[name] = ray.get(ready[0])
                except ray.exceptions.RayError as error:
                    raise engine_error(name, doing, error) from error
            elif remaining <= 0:
                starting = "Download models beforehand, and see that no other job has the GPUs."
                longer = "If the work really takes longer, raise cluster.call_timeout_s."
                remedy = starting if doing == STARTING else longer
                names = ", ".join(sorted(pending.values()))
                raise LostEngineError(
                    f"no answer while {doing} within {timeout_s:.0f} s from: {names}. {remedy}"
                )
            else:
                check()
    return [results[name] for name in calls]


def engine_error(name: str, doing: str, error: ray.exceptions.RayError) -> EngineError:
    """Return an error that names the engine, what it did, and the reason."""
    cause = error.cause if isinstance(error, ray.exceptions.RayTaskError) else error
    if isinstance(cause, ray.exceptions.RayError):
        # Indented lines repeat the actor's names and numbers.
        lines = [line for line in str(cause).splitlines() if line and not line.startswith("\t")]
        return LostEngineError(f"{name} failed while {doing}: {' '.join(lines)}")
    # Collectives, devices and vLLM raise RuntimeError; bad input raises ValueError, a full disk
    # OSError, and non-finite weights ArithmeticError.
    kind = LostEngineError if isinstance(cause, RuntimeError) else EngineError
    return kind(f"{name} failed while {doing}: {type(cause).__name__}: {cause}")
