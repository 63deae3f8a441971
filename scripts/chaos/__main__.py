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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

from comas.quickstart.build import build_society
from comas.utils.terminal import command
from scripts.chaos.faults import FAULTS, FAULTS_OF_EVALUATION, FAULTS_OF_TRAINING, FULL_DISK
from scripts.chaos.trial import Evaluation, Training, Trial, TrialError, started, unused_memory
from scripts.command import read_arguments, say

DISK_MIB, DISK_FILES = 1024, 10_000
"""Size of the disk that is mounted for the runs, so that it can be filled."""
LONGEST_PAUSE_S = 6.0
"""Longest wait before the next fault, once a run goes on."""
LEFT_ALONE = 0.25
"""Share of a run's steps, at its end, without faults."""


@dataclass
class Arguments:
    faults: int = 40
    seed: int = 0
    steps: int = 40
    """Steps of a training run, which meets as many faults as fit."""
    kinds: str = ""
    """Some of the kinds, with commas in between; all by default."""
    minutes: float = 90.0
    """No run begins after them."""


class KindsError(ValueError):
    """Kinds of faults that there are not, or not here."""


def main(arguments: Arguments) -> int:
    """Print each fault with what came of it; returns 1 when something was lost.

    Raises KindsError when ``kinds`` has one that there is not, or none that can be had here.
    """
    begun = time.monotonic()
    rng = Random(arguments.seed)
    with small_disk() as (saves, can_be_filled):
        kinds = chosen_kinds(arguments.kinds, can_be_filled=can_be_filled)
        build_society(Path("saves"), seed=0)
        shutil.copytree("saves/quickstart", saves / "quickstart")
        planned = plan(kinds, num=arguments.faults, rng=rng)
        train = partial(Training, saves=saves, num_steps=arguments.steps)
        trained = reference_run(lambda at: train(at, name="reference"))
        evaluate = partial(Evaluation, saves=saves, subject=trained)
        wrong: list[list[str]] = []
        num_unmet = 0
        for make, faults in ((train, FAULTS_OF_TRAINING), (evaluate, FAULTS_OF_EVALUATION)):
            left = [kind for kind in planned if kind in faults]
            reference = trained if make is train else None
            for number in itertools.count(1):
                if not left or time.monotonic() - begun > 60 * arguments.minutes:
                    break
                if reference is None:
                    reference = reference_run(lambda at: evaluate(at, name="reference"))
                wrong += one_trial(partial(make, name=f"run{number}"), left, reference, rng=rng)
            num_unmet += len(left)
    num_wrong = sum(map(len, wrong))
    minutes = (time.monotonic() - begun) / 60
    met = f"{len(planned) - num_unmet} of {len(planned)} faults met"
    say(f"{met}, {num_wrong} things wrong, in {minutes:.0f} min")
    return int(num_wrong > 0 or num_unmet == len(planned))


def reference_run(make: Callable[[Path], Trial]) -> Path:
    """Run a trial without faults; returns its folder."""
    with started(make) as trial:
        say(f"a {type(trial).__name__.lower()} that nobody disturbs: {trial.num_steps} steps")
        trial.finish()
        assert trial.folder is not None
        return trial.folder


def one_trial(
    make: Callable[[Path], Trial], planned: list[str], reference: Path, *, rng: Random
) -> list[list[str]]:
    """Let a trial meet faults of ``planned``, and take them off it; returns what was wrong."""
    before = unused_memory()
    wrong: list[list[str]] = []
    with started(make) as trial:
        try:
            while planned and trial.wait_until_beyond(trial.step()):
                time.sleep(rng.uniform(0, LONGEST_PAUSE_S))
                if trial.step() > (1 - LEFT_ALONE) * trial.num_steps or trial.has_ended():
                    break
                wrong.append(one_fault(trial, planned.pop(0), rng))
            trial.finish()
        except TrialError as error:
            say(f"  WRONG: {error}")
            return [*wrong, [str(error)]]
        left = [*trial.differences(reference), *trial.leftovers(before)]
        for line in left:
            say(f"  WRONG: {line}")
        assert trial.folder is not None
        say(f"  its end: {'as undisturbed, and nothing is left' if not left else 'see above'}")
        if not left:
            shutil.rmtree(trial.folder)
    return [*wrong, left]


def one_fault(trial: Trial, kind: str, rng: Random) -> list[str]:
    """Strike, wait for the next step, and print what happened; returns what was wrong."""
    resumes, struck_at = trial.num_resumes, time.monotonic()
    FAULTS[kind](trial, rng)
    step = trial.step()  # what was on record before counts for nothing
    while not trial.wait_until_beyond(step):
        if trial.driver.wait() == 0:
            break
        trial.start()
    seconds = time.monotonic() - struck_at
    num_resumes = trial.num_resumes - resumes
    ways = {0: "by itself", 1: "by one resume"}
    way = ways.get(num_resumes, f"WRONG: by {num_resumes} resumes")
    say(f"{kind:30} after step {step:3}: {way}, next step after {seconds:.0f} s")
    return [way] if num_resumes > 1 else []


def chosen_kinds(text: str, *, can_be_filled: bool) -> list[str]:
    """The kinds that ``text`` names, all where it names none; without those of a full disk where
    the runs have no disk of their own.

    Raises KindsError with those there are when one is unknown, or none is left.
    """
    named = [kind.strip() for kind in text.split(",") if kind.strip()] or list(FAULTS)
    if unknown := [kind for kind in named if kind not in FAULTS]:
        raise KindsError(
            f"kinds={text}: there is no {', no '.join(unknown)}; choose from {', '.join(FAULTS)}"
        )
    kinds = [kind for kind in dict.fromkeys(named) if can_be_filled or kind not in FULL_DISK]
    if not kinds:
        raise KindsError(
            f"kinds={text}: no disk can be mounted here; run it as root where mount is allowed, or "
            "name other kinds"
        )
    return kinds


def plan(kinds: Sequence[str], *, num: int, rng: Random) -> list[str]:
    """``num`` faults: every kind as often as every other, give or take one."""
    assert kinds
    planned: list[str] = []
    while len(planned) < num:
        planned += rng.sample(kinds, len(kinds))
    return planned[:num]


@contextmanager
def small_disk() -> Iterator[tuple[Path, bool]]:
    """A folder for runs, and whether it is a disk of its own, which only root can mount."""
    with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        options = ["-t", "tmpfs", "-o", f"size={DISK_MIB}m,nr_inodes={DISK_FILES}", "tmpfs", name]
        mounted = os.geteuid() == 0 and subprocess.run(["mount", *options]).returncode == 0
        try:
            yield folder, mounted
        finally:
            if mounted:
                subprocess.run(["umount", "--lazy", name], check=True)


if __name__ == "__main__":
    assert __doc__ is not None
    arguments = read_arguments(Arguments, about=__doc__)
    sys.exit(command("comas", errors=(KindsError,))(main)(arguments))
