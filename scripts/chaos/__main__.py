"""Injects faults into quick-start runs at random moments, and checks that the runs survive.

All kinds of faults take turns; the seed decides order and moments. After each fault, the run must
continue by itself or by one resume. At its end, its metrics (except times), discussions and models
must equal those of an undisturbed run, and no process, temporary file or shared memory may be left.
"""

import itertools
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

from comas.quickstart.build import build_society
from comas.utils.terminal import command
from scripts.chaos.faults import FAULTS
from scripts.chaos.trial import Trial, TrialError, started, unused_memory
from scripts.command import read_arguments, say

LONGEST_PAUSE_S = 6.0
"""Longest wait before the next fault, once a run continues."""
LEFT_ALONE = 0.25
"""Share of a run's steps, at its end, without faults."""


@dataclass
class Arguments:
    faults: int = 40
    seed: int = 0
    steps: int = 40
    """Steps of a run, with as many faults as fit."""
    kinds: str = ""
    """Kinds of faults, separated by commas; default: all."""
    minutes: float = 90.0
    """No run begins afterwards."""


def main(arguments: Arguments) -> int:
    """Print each fault and its outcome; return 1 when a run did not survive. Raises ValueError when
    ``kinds`` has an unknown kind."""
    begun = time.monotonic()
    rng = Random(arguments.seed)
    kinds = chosen_kinds(arguments.kinds)
    with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as name:
        saves = Path(name)
        build_society(Path("saves"), seed=0)
        shutil.copytree("saves/quickstart", saves / "quickstart")
        left = plan(kinds, num=arguments.faults, rng=rng)
        make = partial(Trial, saves=saves, num_steps=arguments.steps)
        with started(partial(make, name="reference")) as trial:
            say(f"a run that nobody disturbs: {trial.num_steps} steps")
            trial.finish()
            reference = trial.folder
        assert reference is not None
        num_wrong = 0
        for number in itertools.count(1):
            if not left or time.monotonic() - begun > 60 * arguments.minutes:
                break
            num_wrong += one_trial(partial(make, name=f"run{number}"), left, reference, rng=rng)
    num_met = arguments.faults - len(left)
    met = f"{num_met} of {arguments.faults} faults met"
    say(f"{met}, {num_wrong} things wrong, in {(time.monotonic() - begun) / 60:.0f} min")
    return int(num_wrong > 0 or num_met == 0)


def one_trial(
    make: Callable[[Path], Trial], planned: list[str], reference: Path, *, rng: Random
) -> int:
    """Run a trial with faults taken from ``planned``; return the number of failed checks."""
    before = unused_memory()
    num_wrong = 0
    with started(make) as trial:
        try:
            while planned and trial.wait_until_beyond(trial.step()):
                time.sleep(rng.uniform(0, LONGEST_PAUSE_S))
                if trial.step() > (1 - LEFT_ALONE) * trial.num_steps or trial.has_ended():
                    break
                num_wrong += one_fault(trial, planned.pop(0), rng)
            trial.finish()
        except TrialError as error:
            say(f"  WRONG: {error}")
            return num_wrong + 1
        left = [*trial.differences(reference), *trial.leftovers(before)]
        for line in left:
            say(f"  WRONG: {line}")
        assert trial.folder is not None
        say(f"  its end: {'as undisturbed, and nothing is left' if not left else 'see above'}")
        if not left:
            shutil.rmtree(trial.folder)
    return num_wrong + len(left)


def one_fault(trial: Trial, kind: str, rng: Random) -> bool:
    """Inject a fault, wait for the next step, print the outcome; return True if it failed."""
    resumes, struck_at = trial.num_resumes, time.monotonic()
    FAULTS[kind](trial, rng)
    step = trial.step()
    while not trial.wait_until_beyond(step):
        if trial.driver.wait() == 0:
            break
        trial.start()
    seconds = time.monotonic() - struck_at
    num_resumes = trial.num_resumes - resumes
    way = {0: "by itself", 1: "by one resume"}.get(num_resumes, f"WRONG: by {num_resumes} resumes")
    say(f"{kind:30} after step {step:3}: {way}, next step after {seconds:.0f} s")
    return num_resumes > 1


def chosen_kinds(text: str) -> list[str]:
    """Return the kinds named in ``text``, or all. Raises ValueError for any other name."""
    named = [kind.strip() for kind in text.split(",") if kind.strip()]
    if not set(named) <= set(FAULTS):
        raise ValueError(f"kinds={text}: choose from {', '.join(FAULTS)}")
    return named or list(FAULTS)


def plan(kinds: Sequence[str], *, num: int, rng: Random) -> list[str]:
    """Return ``num`` faults, with all kinds equally often (up to one)."""
    planned: list[str] = []
    while len(planned) < num:
        planned += rng.sample(kinds, len(kinds))
    return planned[:num]


if __name__ == "__main__":
    sys.exit(command("comas")(main)(read_arguments(Arguments)))
