"""Faults of runs. To add one, write a function and a line in FAULTS."""

import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from random import Random

import psutil

from comas.utils.terminal import ENDING, EXIT_INTERRUPTED
from scripts.chaos.trial import CALL_TIMEOUT_S, PATIENCE_S, Trial, TrialError

Fault = Callable[[Trial, Random], None]
"""Injects a fault into a run once."""

NAMES = {
    "rollout engine": "ray::RolloutActor",
    "policy rank": "ray::PolicyActor",
    "raylet": "raylet",
    "gcs": "gcs_server",
    "verifier worker": "verifiers",
}
"""Kind of process -> name in its command line."""
VICTIM_S = 60.0
LONGEST_GAP_S = 1.0
"""Between two signals."""


def strike(number: signal.Signals, kind: str, run: Trial, rng: Random) -> None:
    """Send a signal to a random process of a kind, waiting until there is one. Raises TrialError
    when there is none in time."""
    deadline = time.monotonic() + VICTIM_S
    while not (victims := run.processes(NAMES[kind])):
        if run.has_ended() or time.monotonic() > deadline:
            raise TrialError(f"there is no {kind} to strike\n{run.end_of_log()}")
        time.sleep(0.1)
    rng.choice(victims).send_signal(number)


def kill_driver(run: Trial, rng: Random) -> None:
    """Kill the driver only, leaving orphans."""
    run.driver.kill()
    run.driver.wait()


def interrupt_driver(numbers: Sequence[signal.Signals], run: Trial, rng: Random) -> None:
    """Send the signals of Ctrl-C, a closed terminal or ``kill`` in quick succession: the run must
    stop its engines and exit with its own status."""
    for number in numbers:
        with suppress(psutil.NoSuchProcess):
            run.driver.send_signal(number)
        time.sleep(rng.uniform(0, LONGEST_GAP_S))
    status = run.driver.wait(timeout=PATIENCE_S)
    if status != EXIT_INTERRUPTED:
        names = ", ".join(number.name for number in numbers)
        raise TrialError(f"{names} ended it with exit status {status}\n{run.end_of_log()}")


def freeze_driver(run: Trial, rng: Random) -> None:
    """Stop the driver for a while, as when a laptop sleeps: no engine may count as lost."""
    run.driver.send_signal(signal.SIGSTOP)
    time.sleep(CALL_TIMEOUT_S + 20)  # longer than any call may take
    run.driver.send_signal(signal.SIGCONT)


FAULTS: dict[str, Fault] = {
    "SIGINT driver": partial(interrupt_driver, (signal.SIGINT,)),
    "three signals driver": partial(interrupt_driver, ENDING),
    "SIGKILL driver": kill_driver,
    "SIGSTOP driver": freeze_driver,
    **{f"SIGKILL {kind}": partial(strike, signal.SIGKILL, kind) for kind in NAMES},
    **{
        f"SIGSTOP {kind}": partial(strike, signal.SIGSTOP, kind)
        for kind in ("rollout engine", "policy rank", "verifier worker")
    },
}
