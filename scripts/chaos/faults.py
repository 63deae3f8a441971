"""Faults of runs. To add one, write a function and a line in FAULTS."""

import itertools
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random

import psutil

from comas.utils.terminal import ENDING, EXIT_INTERRUPTED, EXIT_MACHINE
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


def spoil_checkpoint(spoil: Callable[[Path, Random], None], run: Trial, rng: Random) -> None:
    """Kill the driver and damage a file of the newest checkpoint, once there are two."""
    while len(_checkpoints(run)) < 2 and run.wait_until_beyond(run.step()):
        pass
    kill_driver(run, rng)
    newest = _checkpoints(run)[-1]
    spoil(rng.choice(sorted(path for path in newest.rglob("*") if path.is_file())), rng)


def truncate(path: Path, rng: Random) -> None:
    """Keep the first half of a file."""
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def flip_bits(path: Path, rng: Random) -> None:
    """Invert one byte."""
    content = bytearray(path.read_bytes())
    content[rng.randrange(len(content))] ^= 0xFF
    path.write_bytes(content)


def fill_disk(fill: Callable[[Path], None], run: Trial, rng: Random) -> None:
    """Keep the disk full until the run has ended with EXIT_MACHINE."""
    assert run.folder is not None
    filler = run.folder.parent / "filler"
    filler.mkdir()
    try:
        with suppress(OSError):
            fill(filler)
        status = run.driver.wait(timeout=PATIENCE_S)
    finally:
        shutil.rmtree(filler)
    if status != EXIT_MACHINE:
        raise TrialError(f"a full disk ended the run with exit status {status}\n{run.end_of_log()}")


def write_bytes(folder: Path) -> None:
    """Write until the disk is full."""
    with (folder / "bytes").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 20))


def make_files(folder: Path) -> None:
    """Create files until the inodes are used up."""
    for number in itertools.count():
        (folder / str(number)).touch()


FULL_DISK: dict[str, Fault] = {
    "full disk": partial(fill_disk, write_bytes),
    "no file more": partial(fill_disk, make_files),
}
"""Possible if the runs have their own disk."""
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
    **FULL_DISK,
    "truncated checkpoint": partial(spoil_checkpoint, truncate),
    "flipped bits in a checkpoint": partial(spoil_checkpoint, flip_bits),
    "missing file of a checkpoint": partial(spoil_checkpoint, lambda path, rng: path.unlink()),
}


def _checkpoints(run: Trial) -> list[Path]:
    assert run.folder is not None
    return sorted((run.folder / "checkpoints").glob("step_*"))
