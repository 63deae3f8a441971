"""Lets quick-start runs meet faults at random moments, and checks that none is lost by them.

Every kind of fault is met in turn, in an order and at moments that the seed decides. After each
the run has to go on by itself or by one resume; at its end its metrics (but times), discussions
and models have to equal those of a run that nobody disturbed, and nothing may be left of it: no
process, no temporary file, no shared memory.
"""

import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from comas.quickstart.build import build_society
from scripts.benchmarks import read_arguments
from scripts.chaos.faults import FAULTS, FULL_DISK
from scripts.chaos.trial import Trial, TrialError, trial, unused_memory

DISK_MIB = 1024
"""Of the disk of its own that the runs get, so that it can be filled."""
LONGEST_PAUSE_S = 6.0
"""Before the next fault, once a run goes on."""
STEPS_TO_GO = 4
"""A run that has fewer steps before it is left alone."""
CONFIG = "configs/quickstart.yaml"


@dataclass
class Arguments:
    faults: int = 40
    seed: int = 0
    steps: int = 40
    """Of a run, which meets as many faults as fit."""
    kinds: str = ""
    """Some of the kinds, with commas in between; all by default."""
    minutes: float = 90.0
    """No run begins after them."""


def main(arguments: Arguments) -> int:
    """Print each fault with what came of it; returns 1 when something was lost."""
    started = time.monotonic()
    rng = Random(arguments.seed)
    with small_disk() as (saves, can_be_filled):
        kinds = [kind for kind in arguments.kinds.split(",") if kind] or list(FAULTS)
        if not can_be_filled and FULL_DISK in kinds:
            say(f"left out, as no disk can be mounted here: {FULL_DISK}")
            kinds.remove(FULL_DISK)
        planned = plan(kinds, num=arguments.faults, rng=rng)
        overrides = [
            CONFIG,
            f"training.num_steps={arguments.steps}",
            "training.validate_every=20",
            "training.save_every=2",
            "cluster.heartbeat_timeout_s=10",
        ]
        build_society(Path("saves"), seed=0)
        shutil.copytree("saves/quickstart", saves / "quickstart", dirs_exist_ok=True)
        say(f"a run of {arguments.steps} steps that nobody disturbs")
        with trial(saves, "reference", overrides) as run:
            run.finish()
            reference = run.folder
            assert reference is not None
        counter = itertools.count(1)
        faults_of_runs = []
        while planned and time.monotonic() - started < 60 * arguments.minutes:
            number = next(counter)
            faults_of_runs += one_run(saves, f"run{number}", overrides, planned, reference, rng=rng)
    say(summary(faults_of_runs, num_planned=arguments.faults, seconds=time.monotonic() - started))
    return int(bool(planned) or any(faults_of_runs))


def one_run(
    saves: Path,
    name: str,
    overrides: Sequence[str],
    planned: list[str],
    reference: Path,
    *,
    rng: Random,
) -> list[list[str]]:
    """Let a run meet faults of ``planned``, and take them off it; returns what was wrong."""
    shared_before = unused_memory()
    wrong: list[list[str]] = []
    with trial(saves, name, overrides) as run:
        try:
            while planned and run.wait_until_beyond(run.step()):
                if run.step() > total_steps(overrides) - STEPS_TO_GO:
                    break
                time.sleep(rng.uniform(0, LONGEST_PAUSE_S))
                wrong.append(one_fault(run, planned.pop(0), rng))
            run.finish()
        except TrialError as error:
            return [*wrong, [str(error)]]
        left = [*run.differences(reference), *run.leftovers(shared_before)]
        for line in left:
            say(f"  WRONG: {line}")
        assert run.folder is not None
        say(f"  its end: {'as undisturbed, and nothing is left' if not left else 'see above'}")
        if not left:
            shutil.rmtree(run.folder)
    return [*wrong, left]


def one_fault(run: Trial, kind: str, rng: Random) -> list[str]:
    """Strike, wait for the next step, and print what happened; returns what was wrong."""
    step, resumes = run.step(), run.num_resumes
    struck_at = time.monotonic()
    FAULTS[kind](run, rng)
    while not run.wait_until_beyond(step):
        if run.driver.wait() == 0:
            break
        run.start()
    seconds = time.monotonic() - struck_at
    num_resumes = run.num_resumes - resumes
    ways = {0: "by itself", 1: "by one resume"}
    way = ways.get(num_resumes, f"WRONG: by {num_resumes} resumes")
    say(f"{kind:30} after step {step:3}: {way}, next step after {seconds:.0f} s")
    return [way] if num_resumes > 1 else []


def plan(kinds: Sequence[str], *, num: int, rng: Random) -> list[str]:
    """``num`` faults: every kind as often as every other, give or take one."""
    planned: list[str] = []
    while len(planned) < num:
        planned += rng.sample(kinds, len(kinds))
    return planned[:num]


def total_steps(overrides: Sequence[str]) -> int:
    """``training.num_steps`` of the overrides."""
    return int(next(o for o in overrides if o.startswith("training.num_steps=")).split("=")[1])


@contextmanager
def small_disk() -> Iterator[tuple[Path, bool]]:
    """A folder for runs, and whether it is a disk of its own, which only root can mount."""
    with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        options = ["-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", name]
        mounted = os.geteuid() == 0 and subprocess.run(["mount", *options]).returncode == 0
        try:
            yield folder, mounted
        finally:
            if mounted:
                subprocess.run(["umount", "--lazy", name], check=True)


def summary(wrong: Sequence[Sequence[str]], *, num_planned: int, seconds: float) -> str:
    """The last line."""
    num_wrong = sum(map(len, wrong))
    return f"{num_planned} faults planned, {num_wrong} things wrong, in {seconds:.0f} s"


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    assert __doc__ is not None
    sys.exit(main(read_arguments(Arguments, about=__doc__)))
