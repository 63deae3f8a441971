"""A run's folder under ``saves``: all that is kept of it, and all that a resume needs.

saves/latest -> 20250131-094500-comas
saves/20250131-094500-comas/
    config.yaml  inputs.json  versions.json  train.log  metrics.jsonl
    discussions/step_0001.jsonl
    tokens/step_0001.jsonl.gz
    checkpoints/step_0010/
    models/agent_0/  models/step
"""

import dataclasses
import itertools
import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

from comas import files
from comas.config import changed_keys, config_as_yaml, load
from comas.config.schema import Config
from comas.files import PARTIAL, blaming, json_lines, locked, written_aside
from comas.progress import progress_bar
from comas.run_directory.discussion_log import discussion_record
from comas.run_directory.inputs import write_inputs
from comas.run_directory.metrics_log import MetricsLog, read_rows
from comas.run_directory.provenance import note_process
from comas.run_directory.seal import DamagedError, ForeignError, check_seal, seal, user_key
from comas.run_directory.token_log import TOKENS, compressed, token_records
from comas.run_directory.trackers import Findings, open_trackers
from comas.types import Discussion, RewardedDiscussion, TurnKey

logger = logging.getLogger(__name__)

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
STEP_OF_MODELS = "step"
"""The file in ``models/`` that says after which step they were saved."""
STEP_NAME = re.compile(r"step_(\d+)(?:\.jsonl(?:\.gz)?)?")
IN_USE = "wait for it or stop it, or start a run of its own without resume="


class RunDirectory:
    """The open folder of one run; a context manager that holds its lock and its log.

    ``path`` is the folder. Every method that writes raises FileError with the path
    and the reason when it cannot.
    """

    def __init__(self, path: Path, config: Config) -> None:
        """Use ``create`` or ``open``."""
        self.path = path
        self._config = config
        self._key = user_key()  # Here, as the first checkpoint would be too late to miss it.
        with ExitStack() as stack:
            stack.enter_context(locked(path, remedy=IN_USE))
            self._prepare()
            stack.enter_context(_log_file(path / "train.log"))
            self._metrics = MetricsLog(path / "metrics.jsonl")
            self._trackers = open_trackers(config, path)
            _point_latest_at(path)
            self._resources = stack.pop_all()

    @classmethod
    def create(cls, config: Config) -> Self:
        """Make ``saves/<date>-<time>-<name>/`` and let ``saves/latest`` point at it."""
        run = cls(_new_folder(Path(config.saves), config.name), config)
        run.keep_config()
        return run

    @classmethod
    def open(cls, config: Config) -> Self:
        """Continue the run that ``config.resume`` names.

        Its config.yaml stays what it was until ``keep_config``.

        Raises:
            ValueError: settings differ from those it had, and ``resume_changed`` is not set.
        """
        assert config.resume is not None
        path = Path(config.resume).resolve()
        before = _as_kept(load(Config, path / "config.yaml", []))
        changes = changed_keys(before, _as_kept(config))
        shown = "; ".join(f"{name}: {old} -> {new}" for name, (old, new) in changes.items())
        if changes and not config.resume_changed:
            raise ValueError(
                f"resume: {path} was begun with other settings ({shown}); leave them as they were, "
                "or add resume_changed=true to go on with the new ones"
            )
        run = cls(path, config)
        if changes:
            logger.warning("this run goes on with other settings: %s", shown)
        return run

    def keep_config(self) -> None:
        """Write the configuration that the run now has; a resumed one, when it has loaded."""
        files.write_text(self.path / "config.yaml", config_as_yaml(_as_kept(self._config)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            logger.debug("the run ended early", exc_info=error)
        self.close(failed=kind is not None)

    def close(self, *, failed: bool = False) -> None:
        """Finish the trackers, end the log and release the lock."""
        with self._resources:
            for tracker in self._trackers:
                tracker.close(failed=failed)

    def note_inputs(self, locations: Mapping[str, str]) -> None:
        """Write down where the models and questions that the config names were found."""
        write_inputs(self.path, locations)

    # ------------------------------------------------------------ what a step leaves

    def log_metrics(self, step: int, metrics: Mapping[str, float | None]) -> None:
        """Write one row to metrics.jsonl and to the trackers, once per step.

        Keys are names with slashes, such as ``agent_0/reward/solution``. None stands for a
        value that is not there; one that is not finite becomes null, with a warning.
        """
        row = self._metrics.append(step, metrics)
        for tracker in self._trackers:
            tracker.log(row)

    def log_findings(self, findings: Findings) -> None:
        """Give the trackers the run's figures and a table of discussions."""
        for tracker in self._trackers:
            tracker.log_findings(findings)

    def save_discussions(
        self,
        step: int,
        discussions: Sequence[RewardedDiscussion],
        *,
        verdicts: Mapping[TurnKey, str] = MappingProxyType({}),
    ) -> None:
        """Write every discussion of a step, one per line, with rewards and the given verdicts.

        ``verdicts`` maps (discussion_id, turn_id) to what the verifier says, for the solutions
        that it judged.
        """
        records = (discussion_record(item, verdicts=verdicts) for item in discussions)
        path = self.path / "discussions" / f"{step_name(step)}.jsonl"
        files.write_text(path, json_lines(records))

    def save_tokens(
        self,
        step: int,
        discussions: Sequence[Discussion],
        *,
        advantages: Mapping[TurnKey, Sequence[float]],
    ) -> None:
        """Write what every turn of a step read and said, token by token, with ``advantages``.

        Those may be of turns of earlier steps, which the step's update was on as well. Nothing is
        written where ``logging.tokens`` is not set.
        """
        if self._config.logging.tokens:
            path = self.path / TOKENS / f"{step_name(step)}.jsonl.gz"
            files.write_bytes(path, compressed(token_records(discussions, advantages)))

    # ------------------------------------------------------------ checkpoints and models

    @contextmanager
    def checkpoint_folder(self, step: int) -> Iterator[Path]:
        """Yield a folder that becomes the checkpoint of ``step`` when the block ends well.

        Then the oldest are removed, so that ``training.keep_checkpoints`` remain.
        """
        with written_aside(self.path / "checkpoints" / step_name(step)) as partial:
            yield partial
            seal(partial, self._key)
        for _, folder in self._checkpoints()[: -self._config.training.keep_checkpoints]:
            files.remove(folder)

    def latest_checkpoint(self) -> tuple[int, Path] | None:
        """(step, folder) of the newest checkpoint that is as it was written; None: none was.

        A damaged one is passed over, with a warning, also with ``resume_foreign``.

        Raises:
            ValueError: there must have been one and is none, all are damaged, or the newest of the
                others was not written by this user and ``resume_foreign`` is not set.
        """
        checkpoints = self._checkpoints()
        if not checkpoints:
            self._check_that_none_was_made()
            return None
        for step, folder in reversed(checkpoints):
            try:
                with progress_bar(f"checking {folder.name}"):
                    check_seal(folder, self._key)
            except DamagedError as error:
                logger.warning("damaged checkpoint passed over: %s", error)
                continue
            except ForeignError as error:
                self._accept_foreign(error)
            return step, folder
        raise ValueError(
            f"resume: every checkpoint in {self.path / 'checkpoints'} is damaged; restore one from "
            "a copy, or start a new run"
        )

    @contextmanager
    def models_folder(self, step: int) -> Iterator[Path]:
        """Yield a folder that becomes ``models/``, the agents trained for ``step`` steps, when
        the block ends well."""
        with written_aside(self.path / "models") as partial:
            (partial / STEP_OF_MODELS).write_text(f"{step}\n")
            yield partial

    def is_finished(self, num_steps: int) -> bool:
        """Whether ``models/`` holds agents that were trained for ``num_steps`` steps or more."""
        trained = trained_steps(self.path)
        return trained is not None and trained >= num_steps

    def drop_after(self, step: int) -> None:
        """Forget the metrics, discussions and checkpoints of steps after ``step``.

        Call it when going on from ``step``, so that no step is there twice; -1 drops all of
        them, with the validation of step 0.
        """
        self._metrics.drop_after(step)
        for tracker in self._trackers:
            tracker.begin_anew()
        for folder in (self.path / name for name in ("discussions", TOKENS, "checkpoints")):
            for later, path in _steps(folder):
                if later > step:
                    files.remove(path)

    # ------------------------------------------------------------ inside

    def _check_that_none_was_made(self) -> None:
        rows = read_rows(self.path / "metrics.jsonl")
        before = load(Config, self.path / "config.yaml", [])
        reached = rows[-1]["step"] if rows else 0
        if reached > before.training.save_every:
            raise ValueError(
                f"resume: {self.path} reached step {reached}, but {self.path / 'checkpoints'} "
                "holds no checkpoint: bring the folder back (is a disk not mounted?), or start a "
                "new run"
            )

    def _accept_foreign(self, error: ForeignError) -> None:
        if not self._config.resume_foreign:
            raise ValueError(
                f"resume: {error}, and loading a checkpoint runs code in it. If you trust whoever "
                "wrote it, add resume_foreign=true"
            ) from error
        logger.warning("loading a checkpoint as resume_foreign=true asks: %s", error)

    def _prepare(self) -> None:
        subfolders = ("discussions", TOKENS, "checkpoints")
        folders = (self.path, *(self.path / name for name in subfolders))
        with blaming(self.path):
            for folder in folders:
                folder.mkdir(exist_ok=True)
                for partial in folder.glob(f"{PARTIAL}*"):
                    files.remove(partial)
        note_process(self.path)

    def _checkpoints(self) -> list[tuple[int, Path]]:
        return _steps(self.path / "checkpoints")


def _as_kept(config: Config) -> Config:
    """``config`` without what is said of one resume only."""
    return dataclasses.replace(config, resume=None, resume_changed=False, resume_foreign=False)


def trained_steps(run: Path) -> int | None:
    """For how many steps the agents in ``models/`` of a run's folder were trained; None: there
    are none yet."""
    noted = run / "models" / STEP_OF_MODELS
    return int(noted.read_text()) if noted.is_file() else None


def step_name(step: int) -> str:
    """``10 -> "step_0010"``"""
    return f"step_{step:04d}"


def _steps(folder: Path) -> list[tuple[int, Path]]:
    """The steps that ``folder`` holds something of, in order."""
    found = ((STEP_NAME.fullmatch(path.name), path) for path in folder.iterdir())
    return sorted((int(match[1]), path) for match, path in found if match)


def _new_folder(saves: Path, name: str) -> Path:
    stem = f"{datetime.now():%Y%m%d-%H%M%S}-{name}"
    with blaming(saves):
        saves.mkdir(parents=True, exist_ok=True)
        for number in itertools.count(1):
            path = saves.resolve() / (stem if number == 1 else f"{stem}-{number}")
            with suppress(FileExistsError):
                path.mkdir()
                return path
    raise AssertionError("itertools.count never ends")


def _point_latest_at(run: Path) -> None:
    latest = run.parent / "latest"
    aside = run.parent / f"{PARTIAL}latest-{os.getpid()}"
    with blaming(latest):
        files.remove(aside)
        aside.symlink_to(run.name)
        aside.replace(latest)


@contextmanager
def _log_file(path: Path) -> Iterator[None]:
    """Let everything that is logged in this process also go to ``path``."""
    with blaming(path):
        handler = _RunLog(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter(LOG_FORMAT))
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
        with suppress(OSError):  # of what it could not write, which it has told
            handler.close()


class _RunLog(logging.FileHandler):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """A full disk ends the log, with a word; what matters more ends the run by itself."""
        logging.getLogger().removeHandler(self)
        logger.warning("%s ends here: %s", self.baseFilename, sys.exc_info()[1])
