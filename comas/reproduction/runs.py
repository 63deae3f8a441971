"""The runs behind a report: which there are, which are missing, and making those."""

import logging
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from comas.config import changed_keys, load
from comas.config.schema import Config
from comas.preflight.configuration import load_config
from comas.preflight.locations import society_folder
from comas.quickstart import QUICKSTART_PREFIX
from comas.reproduction.experiments import PLANS, Experiment
from comas.reproduction.frozen import Frozen
from comas.reproduction.results import GREEDY, read_result, seconds_of_rows
from comas.reproduction.settings import Settings
from comas.run.directory import read_inputs, trained_steps
from comas.run.provenance import began
from comas.run.records import read_rows

log = logging.getLogger(__name__)

POLL_S = 2.0
"""How often the step of the run under way is looked at, in seconds."""


@dataclass(frozen=True)
class PlannedRun:
    """One experiment with one seed: what it is started with, and where it is."""

    experiment: Experiment
    seed: int
    saves: Path
    num_steps: int | None
    """As ``Settings.num_steps``."""
    learning_rate: float | None = None
    """Another than that of the experiment's configuration."""

    @property
    def key(self) -> tuple[str, int]:
        """As of its ``RunResult``."""
        return self.experiment.name, self.seed

    @property
    def label(self) -> str:
        """``muted, seed 1``"""
        rate = "" if self.learning_rate is None else f", learning rate {self.learning_rate:g}"
        return f"{self.experiment.name}, seed {self.seed}{rate}"

    @property
    def name(self) -> str:
        """``muted-seed1``"""
        rate = "" if self.learning_rate is None else f"-lr{self.learning_rate:g}"
        return f"{self.experiment.name}-seed{self.seed}{rate}"

    @property
    def overrides(self) -> list[str]:
        """What it is started with beside the experiment's configuration."""
        steps = [] if self.num_steps is None else [f"training.num_steps={self.num_steps}"]
        if self.learning_rate is not None:
            steps.append(f"optimization.learning_rate={self.learning_rate}")
        names = [f"seed={self.seed}", f"name={self.name}", f"saves={self.saves}"]
        return [*self.experiment.overrides, *names, *steps]

    @property
    def folder(self) -> Path | None:
        """The run's folder, where it has begun."""
        pattern = re.compile(rf"\d{{8}}-\d{{6}}-{re.escape(self.name)}(-\d+)?")
        found = [path for path in self.saves.glob("*/") if pattern.fullmatch(path.name)]
        begun = [path for path in found if (path / "config.yaml").is_file()]
        return max(begun, default=None)

    @property
    def finished(self) -> Path | None:
        """The run's folder, once its trained agents have been saved."""
        folder = self.folder
        return folder if folder and trained_steps(folder) is not None else None


def plan_runs(settings: Settings, frozen: Frozen | None = None) -> list[PlannedRun]:
    """Every run that the settings ask for, seed by seed, with what has been done of it.

    Where the study is ``frozen``, all runs since then are of that society, whatever has been
    rewritten in its code.

    Raises:
        ValueError: a configuration is wrong, or a run was made with other settings or another
            society.
    """
    experiments = [
        experiment
        for experiment in PLANS[settings.study].experiments
        if settings.only is None or experiment.name in settings.only
    ]
    rates: Sequence[float | None] = settings.learning_rates or [None]
    return [
        _checked(
            PlannedRun(experiment, seed, Path(settings.saves), settings.num_steps, rate), frozen
        )
        for seed in settings.seeds
        for experiment in experiments
        for rate in rates
    ]


def configurations(settings: Settings) -> dict[str, Config]:
    """The configuration of every experiment of the study, without a seed."""
    steps = [] if settings.num_steps is None else [f"training.num_steps={settings.num_steps}"]
    return {
        experiment.name: load_config(experiment.config, [*experiment.overrides, *steps])
        for experiment in PLANS[settings.study].experiments
    }


def make_runs(runs: Sequence[PlannedRun]) -> None:
    """Train what is not finished, one run after the other, in processes of their own.

    What each of them prints is kept beside its folder.

    Raises:
        RuntimeError: a run failed.
        KeyboardInterrupt: asked for; the run under way has stopped where it can be resumed.
    """
    missing = [run for run in runs if run.finished is None]
    with (
        tqdm(total=len(runs), initial=len(runs) - len(missing), unit="run", disable=None) as bar,
        logging_redirect_tqdm(),
    ):
        for number, run in enumerate(missing, start=1):
            log.info("%s (%d of %d to be made)", run.label, number, len(missing))
            folder = _make(run, bar)
            result = read_result(folder, run.experiment, seed=run.seed)
            before, after = result.before[GREEDY], result.after[GREEDY]
            log.info("  held-out, greedy: %.2f -> %.2f", before, after)
            bar.update()


def seconds_of(run: PlannedRun) -> float | None:
    """How long a finished run took, without its start."""
    folder = run.finished
    return seconds_of_rows(read_rows(folder / "metrics.jsonl")) if folder else None


def _checked(run: PlannedRun, frozen: Frozen | None) -> PlannedRun:
    config = load_config(run.experiment.config, run.overrides)
    folder = run.folder
    if folder is not None:
        _check_settings(folder, config)
        if frozen is None or began(folder) < datetime.fromisoformat(frozen.date):
            _check_society(folder, config)
    return run


def _check_settings(folder: Path, config: Config) -> None:
    """Refuse a run that was made with another configuration than it would be today."""
    before = load(Config, folder / "config.yaml", [])
    # Where the folder lies, and by which path it is named, changes nothing.
    changes = changed_keys(replace(before, saves=config.saves), config)
    # What is left to the machine is decided in the run's own configuration.
    changed = [f"{k}: {old} -> {new}" for k, (old, new) in changes.items() if new != "null"]
    if changed:
        raise ValueError(
            f"{folder} was made with other settings ({'; '.join(changed)}); remove that folder to "
            "make the run again, or set saves= to another folder"
        )


def _check_society(folder: Path, config: Config) -> None:
    """Refuse a run of a quick-start society that would be made otherwise today."""
    made_today = society_folder(Path(config.saves), seed=config.seed).name
    for name, location in read_inputs(folder).items():
        if name.startswith(QUICKSTART_PREFIX) and made_today not in Path(location).parts:
            raise ValueError(
                f"{folder} began with {location}, and this version of the code makes another "
                f"society ({made_today}); remove that folder to make the run again, or set saves= "
                "to another folder"
            )


def _make(run: PlannedRun, bar: tqdm) -> Path:
    """Train ``run`` to its end; returns its folder."""
    run.saves.mkdir(parents=True, exist_ok=True)
    output = run.saves / f"{run.name}.log"
    begun = run.folder
    what = [f"resume={begun}"] if begun else [str(run.experiment.config), *run.overrides]
    with output.open("a") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "comas", *what],
            stdout=file,
            stderr=subprocess.STDOUT,
            process_group=0,  # Ctrl-C reaches it through us, once
        )
        with _stopped_with_us(process):
            while process.poll() is None:
                _show_step(bar, run)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=POLL_S)
    if process.returncode != 0:
        raise RuntimeError(
            f"{run.label} ended with status {process.returncode}; what it said is in {output}"
        )
    folder = run.folder
    assert folder is not None
    return folder


@contextmanager
def _stopped_with_us(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """End ``process`` as Ctrl-C does when the block ends before it, whatever ends the block."""
    try:
        yield
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait()


def _show_step(bar: tqdm, run: PlannedRun) -> None:
    folder = run.folder
    rows = read_rows(folder / "metrics.jsonl") if folder else []
    bar.set_postfix_str(f"{run.label}: " + (f"step {rows[-1]['step']}" if rows else "starting"))
