"""The runs of a study: planning them, and making those that are missing."""

import hashlib
import logging
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from comas.config import ConfigError, changed_keys, load
from comas.config.paths import REPOSITORY, find
from comas.config.schema import Config
from comas.preflight.configuration import load_config
from comas.quickstart import QUICKSTART_PREFIX
from comas.reproduction.results import read_result
from comas.reproduction.study import Study
from comas.run import seals
from comas.run.provenance import read_processes
from comas.run.records import METRICS, read_rows
from comas.run.status import end_of
from comas.utils.files import locked

log = logging.getLogger(__name__)

SETTLED = ("policy.zero_stage", "policy.adam_offload", "cluster.cpu_threads")
"""Keys that may be null; the run's own configuration then has the values chosen for its machine."""


@dataclass(frozen=True)
class PlannedRun:
    """One experiment with one seed."""

    experiment: str
    seed: int
    saves: Path
    config: Path
    settings: tuple[str, ...] = ()
    """``key=value`` of the experiment and of the study."""

    @property
    def label(self) -> str:
        """``muted, seed 1``"""
        return f"{self.experiment}, seed {self.seed}"

    @property
    def name(self) -> str:
        """``muted-seed1``"""
        return f"{self.experiment}-seed{self.seed}"

    @property
    def overrides(self) -> list[str]:
        return [*self.settings, f"seed={self.seed}", f"name={self.name}", f"saves={self.saves}"]

    @property
    def folder(self) -> Path | None:
        pattern = re.compile(rf"\d{{8}}-\d{{6}}-{re.escape(self.name)}(-\d+)?")
        found = [path for path in self.saves.glob("*/") if pattern.fullmatch(path.name)]
        return max([path for path in found if (path / "config.yaml").is_file()], default=None)

    @property
    def finished(self) -> Path | None:
        """The run's folder, once its agents of the last planned step have been saved."""
        folder = self.folder
        return folder if folder and (end_of(folder) or "").startswith("ended ") else None

    @property
    def state(self) -> str:
        """``finished``, ``step 12``, or ``-`` before its first step."""
        rows = read_rows(self.folder / METRICS) if self.folder else []
        return "finished" if self.finished else f"step {rows[-1]['step']}" if rows else "-"


REMEDY = "remove it and its numbers in results=, or set new saves= and results="


def plan_runs(study: Study, saves: Path, folder: Path | None = None) -> list[PlannedRun]:
    """Return every run of the study, seed by seed. Their folders are in ``saves``; configurations
    are searched first in ``folder``, which holds the study's file. Raises ValueError when a
    configuration is wrong, or a run was made with other settings, or with other contents of its
    data or models than an earlier seed; warns of other held-out questions."""
    commands = {name: study.words(name) for name in study.chosen}
    runs = [
        PlannedRun(name, seed, saves, find(config, folder) or Path(config), tuple(settings))
        for seed in study.seeds
        for name, [config, *settings] in commands.items()
    ]
    made_with: dict[tuple[str, str], str] = {}
    for run in runs:
        for key, digest in _check(run).items():
            if made_with.setdefault((run.experiment, key), digest) != digest:
                raise ValueError(
                    f"{run.folder} had other contents of {key} than an earlier seed; {REMEDY}"
                )
            if key == "data.validation" and made_with.setdefault(("", key), digest) != digest:
                log.warning("%s: validated on other questions than earlier runs", run.folder)
    return runs


def _check(run: PlannedRun) -> dict[str, str]:
    """Return the digests of a run's data and models, if it was begun. Raises ValueError if the
    configuration is wrong, or the run was made with another one."""
    try:
        config = load_config(run.config, run.overrides)
    except ConfigError as error:
        raise ValueError(f"{run.experiment}: {error}") from error
    folder = run.folder
    if folder is None:
        return {}
    before = load(Config, folder / "config.yaml", [])
    # Its location makes no difference, nor does that of the repository.
    first = next(iter(read_processes(folder)), {})
    root = Path(first.get("command", [REPOSITORY / "comas/__main__.py"])[0]).parent.parent
    changed = [
        f"{key}: {old} -> {new}"
        for key, (old, new) in changed_keys(replace(before, saves=config.saves), config).items()
        if old.replace(f"{root}/", "") != new.replace(f"{REPOSITORY}/", "")
        if new != "null" or key not in SETTLED
    ]
    origin, _ = seals.read_origin(folder, None)
    # Of the user's own plug-ins and prompts; a run records the commit of the package.
    changed += [
        f"{name}: {old} -> {new}"
        for name, (old, new) in (seals.edits(folder, origin) if origin else {}).items()
        if Path(name).is_absolute() and not Path(name).is_relative_to(REPOSITORY / "comas")
        if not _stands_here(Path(name), old, root)
    ]
    if changed:
        raise ValueError(f"{folder} was made with other settings ({'; '.join(changed)}); {REMEDY}")
    data = {"data.train": config.data.train, "data.validation": config.data.validation}
    if config.society.cold_start is None:  # which makes other weights with each seed
        data |= {name: name for name in config.models}
    own = [key for key, name in data.items() if not name.startswith(QUICKSTART_PREFIX)]
    return {key: origin.inputs[key] for key in own if origin and key in origin.inputs}


def _stands_here(path: Path, digest: str, root: Path) -> bool:
    """Return True if this repository has the file that ``path`` was in the repository ``root``."""
    here = REPOSITORY / path.relative_to(root) if path.is_relative_to(root) else path
    found = here.is_file() and hashlib.sha256(here.read_bytes()).hexdigest()
    return here != path and f"sha256 {found}".startswith(digest)


def make_runs(runs: Sequence[PlannedRun], *, metric: str) -> int:
    """Train the unfinished runs one after another, each in its own process, and log ``metric``. The
    output of each is kept beside its folder. Returns how many failed; raises RuntimeError when two
    did so in a row. After Ctrl-C, the current run can be resumed."""
    missing = [run for run in runs if run.finished is None]
    failures: list[PlannedRun] = []
    for number, run in enumerate(missing, start=1):
        log.info("%s (%d of %d to be made)", run.label, number, len(missing))
        try:
            with locked(run.saves / f".{run.name}", remedy="wait, or choose other runs by only="):
                if run.finished is None:  # unless another process made it meanwhile
                    _make(run)
        except RuntimeError as error:
            if failures and failures[-1] is missing[number - 2]:
                raise
            failures.append(run)
            log.error("%s", error)
            continue
        assert run.folder is not None
        result = read_result(run.folder, run.experiment, seed=run.seed, metrics=[metric])
        log.info("  %s: %s -> %s", metric, result.before[metric], result.after[metric])
    return len(failures)


def _make(run: PlannedRun) -> None:
    output = run.saves / f"{run.name}.log"
    begun = run.folder
    what = [f"resume={begun}"] if begun else [str(run.config), *run.overrides]
    with output.open("a") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "comas", *what],
            stdout=file,
            stderr=subprocess.STDOUT,
            process_group=0,  # gets Ctrl-C from us alone, once
        )
        try:
            process.wait()
        finally:  # interrupts it, whatever ends us, and again with each further Ctrl-C
            while process.poll() is None:
                with suppress(KeyboardInterrupt):
                    process.send_signal(signal.SIGINT)
                    process.wait()
    if process.returncode != 0:
        raise RuntimeError(
            f"{run.label} ended with status {process.returncode}; what it said is in {output}"
        )
