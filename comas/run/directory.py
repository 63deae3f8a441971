"""A run's folder under ``saves``: its records, and everything that a resume needs.

Besides what configs/README.md lists, it holds ``seal.json``, ``num_steps``, ``ended`` (why it ended
early, until it is resumed), ``sources/`` (copies of the user's own files), ``best/`` (models of the
best checkpoint, if exported) and ``dropped/`` (later steps, moved aside by a resume).
"""

import json
import logging
import math
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from comas.config import changed_keys, config_as_yaml, load
from comas.config.plugins import digest_of
from comas.config.schema import Config
from comas.run import records, seals, status
from comas.run.checkpoints import Checkpoints, step_name, steps_in
from comas.run.provenance import note_process
from comas.run.records import DISCUSSIONS, LOG, METRICS, TOKENS, VALIDATIONS, Record
from comas.run.status import BEST, MODELS, trained_steps
from comas.run.trackers import close_trackers, open_trackers
from comas.types import AnswerKey, Discussion, RewardedDiscussion, TurnKey
from comas.utils import files
from comas.utils.files import PARTIAL, explaining_errors, from_here, json_lines

logger = logging.getLogger(__name__)

CHECKPOINTS, DROPPED = "checkpoints", "dropped"
SUBFOLDERS = (DISCUSSIONS, TOKENS, VALIDATIONS, CHECKPOINTS)
"""Folders with one entry per step."""
BEFORE_ALL = -1
"""The step before step 0, which has a validation."""
IN_USE = "wait for it or stop it, or start a run of its own without resume="


class RunDirectory(AbstractContextManager["RunDirectory"]):
    """The open folder ``path`` of one run: a context manager that holds its lock and its log. Every
    method that writes raises FileError with the path and the reason when it cannot."""

    def __init__(self, path: Path, config: Config) -> None:
        """Use ``create`` or ``open``."""
        self.path = path
        self.config = config
        self.trains = True  # False to export models: then no error is the end of the run
        self._key = seals.user_key()  # An unusable key fails here, not at the first checkpoint.
        self.origin = seals.read_origin(path, self._key)[0] or seals.Origin(secrets.token_hex(16))
        self._checkpoints = Checkpoints(
            path / CHECKPOINTS, run=self.origin.run, key=self._key, foreign=config.resume_foreign
        )
        with ExitStack() as stack:
            stack.enter_context(files.locked(path, remedy=IN_USE))
            self._prepare()
            stack.enter_context(records.log_file(path / LOG))
            files.append_lines(path / METRICS, [])
            self._trackers = open_trackers(config, path)
            latest, aside = (path.parent / name for name in ("latest", f"{PARTIAL}{path.name}"))
            try:
                aside.symlink_to(path.name)
                aside.replace(latest)
            except OSError as error:
                files.remove(aside)
                logger.warning("%s does not lead to this run: %s", latest, error)
            self._resources = stack.pop_all()

    @classmethod
    def create(cls, config: Config) -> Self:
        """Make ``saves/<date>-<time>-<name>/`` or nothing, and point ``saves/latest`` at it."""
        path = files.new_folder(Path(config.saves), f"{_now()}-{config.name}")
        with ExitStack() as stack:
            stack.callback(files.remove, path)  # as when a tracker does not start
            # Before trackers open, which name their run by its identity.
            seals.write_seal(path, seals.Origin(secrets.token_hex(16)), seals.user_key())
            run = cls(path, config)
            stack.pop_all()
        run.keep_settings({})
        return run

    @classmethod
    def open(cls, config: Config, contents: Mapping[str, str] = MappingProxyType({})) -> Self:
        """Continue the run that ``config.resume`` names, after ``check_origin``; its settings on
        disk stay unchanged until ``keep_settings``. Raises ValueError as ``changes_since_start``
        does."""
        changes = changes_since_start(config, contents)
        assert config.resume is not None
        run = cls(Path(config.resume).resolve(), config)
        if changes:
            logger.warning("this run continues with other settings or files: %s", changes)
        return run

    def keep_settings(
        self,
        locations: Mapping[str, str],
        sources: Mapping[str, str] = MappingProxyType({}),
        contents: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Write and seal the configuration, after the run has loaded.

        Args:
            locations: where its models and questions were found.
            sources: whole path -> text of the user's own files; earlier versions are kept.
            contents: digests of its inputs (``Inputs.contents``).
        """
        digests = {path: digest_of(text) for path, text in sources.items()}
        copies = {
            f"{seals.SOURCES}/{seals.kept_name(path, digests[path])}": text
            for path, text in sources.items()
        }
        settings = {
            seals.CONFIG: config_as_yaml(_as_kept(self.config)),
            seals.INPUTS: seals.inputs_as_json(self.path, locations),
        }
        files.write_files({self.path / name: text for name, text in (copies | settings).items()})
        sealed = {name: digest_of(text) for name, text in settings.items()} | digests
        self._seal(files=sealed, inputs=dict(contents))

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        """Note why the run ended early; close the trackers and the log, and release the lock."""
        if error is not None:
            logger.debug("the run ended early", exc_info=error)
        if failed := self.trains and error is not None:
            reason = "interrupted" if isinstance(error, KeyboardInterrupt) else f"error: {error}"
            with suppress(files.FileError):  # a full disk is then the error itself
                # Errors quote file names and plug-ins, which may hold half a surrogate pair.
                files.write_text(self.path / status.ENDED, reason.encode(errors="replace").decode())
        with self._resources:
            close_trackers(self._trackers, failed=failed)

    # ------------------------------------------------------------ records of a step

    def log_metrics(self, step: int, metrics: Mapping[str, float | None]) -> None:
        """Write one row to metrics.jsonl, synced to disk, and to the trackers. Values that are not
        finite become null, with a warning."""
        broken = [k for k, v in metrics.items() if v is not None and not math.isfinite(v)]
        if broken:
            logger.warning("step %d: not finite, written as null: %s", step, ", ".join(broken))
        row = {"step": step} | {k: None if k in broken else v for k, v in metrics.items()}
        files.append_lines(self.path / METRICS, [json.dumps(row, allow_nan=False).encode()])
        for tracker in self._trackers:
            tracker.log(dict(row))  # which it may change

    def save_discussions(
        self,
        step: int,
        discussions: Sequence[RewardedDiscussion],
        *,
        verdicts: Mapping[TurnKey, str] = MappingProxyType({}),
        answers: AnswerKey = MappingProxyType({}),
    ) -> None:
        """Write the discussions of a step, one per line, with rewards and any known verdicts and
        reference answers."""
        lines = [
            records.discussion_record(each, verdicts=verdicts, answers=answers)
            for each in discussions
        ]
        self.write_lines(DISCUSSIONS, step, lines)
        for tracker in self._trackers:
            tracker.log_discussions(lines)

    def save_tokens(
        self,
        step: int,
        discussions: Sequence[Discussion],
        *,
        advantages: Mapping[TurnKey, Sequence[float]],
    ) -> None:
        """Write the tokens of a step's prompts and responses, and the ``advantages`` of its update,
        which may also cover turns of earlier steps."""
        path = self.path / TOKENS / f"{step_name(step)}.jsonl.gz"
        tokens = records.token_records(discussions, advantages)
        files.write_files({path: records.compressed(tokens)})

    def write_lines(self, folder: str, step: int, lines: Sequence[Record]) -> None:
        """Write what belongs to a step into ``folder`` of the run, one record per line."""
        files.write_text(self.path / folder / f"{step_name(step)}.jsonl", json_lines(lines))

    # ------------------------------------------------------------ checkpoints and models

    @contextmanager
    def checkpoint_folder(self, step: int) -> Iterator[Path]:
        """Yield a folder that becomes the checkpoint of ``step`` if the block succeeds; then remove
        all but the newest ``training.keep_checkpoints`` and the best."""
        with self._checkpoints.writing(step) as partial:
            yield partial
        self._seal(newest_checkpoint=step)
        keep = self.config.training.keep_checkpoints
        self._checkpoints.remove_old(keep=keep, best=self.best_step())

    def latest_checkpoint(self) -> tuple[int, Path] | None:
        """Return (step, folder) of the newest usable checkpoint (see ``Checkpoints.newest``); None
        if none was written. Raises ValueError when there were some, and none can be used."""
        newest, step = self._checkpoints.newest(), self.origin.newest_checkpoint
        if newest is None and step is not None:
            raise ValueError(
                f"resume: {self.path} had a checkpoint of step {step}, but "
                f"{self._checkpoints.folder} holds none: restore the folder (is a disk not "
                "mounted?), or start a new run"
            )
        return newest

    def best_checkpoint(self) -> tuple[int, Path]:
        """Return (step, folder) of the checkpoint of ``training.keep_best``, after checking it.
        Raises ValueError when there is none, or it cannot be used."""
        metric, step = self.config.training.keep_best, self.best_step(is_saving=False)
        if not step:
            why = f"no {metric} is above that of step 0" if metric else "training.keep_best is null"
            raise ValueError(f"{self.path} has no best checkpoint: {why}")
        return step, self._checkpoints.checked(step)

    @contextmanager
    def models_folder(self, step: int, *, name: str = MODELS) -> Iterator[Path]:
        """Yield a folder that becomes ``models/`` (or ``BEST``), with the agents after ``step``, if
        the block succeeds."""
        with files.written_aside(self.path / name) as partial:
            (partial / status.STEP_OF_MODELS).write_text(f"{step}\n")
            yield partial

    def note_num_steps(self, num_steps: int) -> None:
        """Write the planned number of steps, for processes that follow the run, which goes on."""
        if trained_steps(self.path) is not None:
            note_process(self.path)
        files.remove(self.path / status.ENDED)
        files.write_text(self.path / status.NUM_STEPS, f"{num_steps}\n")

    def is_finished(self, num_steps: int) -> bool:
        """True if ``models/`` holds the agents after ``num_steps``."""
        trained = trained_steps(self.path)
        return trained is not None and trained >= num_steps

    def best_step(self, *, is_saving: bool = True) -> int | None:
        """Return the step of the best validation so far, of those whose checkpoint is kept or, with
        ``is_saving``, comes next; None without ``training.keep_best``, which a resume may set."""
        metric, rows = self.config.training.keep_best, records.read_rows(self.path / METRICS)
        kept = {step for step, _ in steps_in(self.path / CHECKPOINTS)} | {0}
        usable = [row for row in rows if row["step"] in kept or (is_saving and row is rows[-1])]
        return None if metric is None else status.best_step(usable, metric)

    def go_back_to(self, step: int) -> None:
        """Move everything that belongs to later steps than ``step`` to ``dropped/<date>-<time>/``;
        with ``BEFORE_ALL``, all steps."""
        rows = records.read_rows(self.path / METRICS)
        later = [row for row in rows if row["step"] > step]
        paths = list(self._paths_after(step))
        if later or paths:
            aside = files.new_folder(self.path / DROPPED, _now())
            with explaining_errors(aside):
                files.write_text(aside / METRICS, json_lines(later))
                for path in paths:
                    target = aside / path.relative_to(self.path)
                    target.parent.mkdir(exist_ok=True)
                    shutil.move(path, target)  # a subfolder on another disk cannot be renamed
            what = f"everything after step {step}" if step >= 0 else "all steps, to start again,"
            logger.info("%s was moved to %s", what, from_here(aside))
        files.write_text(
            self.path / METRICS, json_lines(row for row in rows if row["step"] <= step)
        )
        if self.origin.newest_checkpoint is not None:  # a damaged one was skipped
            self._seal(newest_checkpoint=step if step > 0 else None)

    # ------------------------------------------------------------ inside

    def _seal(self, **changes: Any) -> None:
        """Write the seal anew, with ``changes`` of fields of ``Origin``."""
        self.origin = replace(self.origin, **changes)
        seals.write_seal(self.path, self.origin, self._key)

    def _paths_after(self, step: int) -> Iterator[Path]:
        for folder in (self.path / name for name in SUBFOLDERS):
            yield from (path for later, path in steps_in(folder) if later > step)
        for name in (MODELS, BEST):
            folder, trained = self.path / name, trained_steps(self.path, name=name)
            if folder.is_dir() and (trained is None or trained > step):
                yield folder

    def _prepare(self) -> None:
        folders = (self.path, *(self.path / name for name in (*SUBFOLDERS, seals.SOURCES)))
        with explaining_errors(self.path):
            for folder in folders:
                folder.mkdir(exist_ok=True)
                for partial in folder.glob(f"{PARTIAL}*"):
                    files.remove(partial)
        if trained_steps(self.path) is None:  # else note_num_steps does, if it trains
            note_process(self.path)


def _now() -> str:
    return f"{datetime.now():%Y%m%d-%H%M%S}"


def _as_kept(config: Config) -> Config:
    """Return ``config`` without the keys that hold for one resume only."""
    return replace(config, resume=None, resume_changed=False, resume_foreign=False)


def changes_since_start(config: Config, contents: Mapping[str, str]) -> str:
    """Describe the settings, sealed files and input ``contents`` that differ from those with which
    the run ``config.resume`` was begun; "" if none does. Raises ValueError that names the
    differences, unless ``config.resume_changed``."""
    assert config.resume is not None
    path = Path(config.resume).resolve()
    changes = changed_keys(_as_kept(load(Config, path / seals.CONFIG, [])), _as_kept(config))
    origin, _ = seals.read_origin(path, seals.user_key())
    if origin is not None:
        changes = {**seals.edits(path, origin, contents), **changes}
    if not config.resume_changed:
        seals.refuse_changes(path, changes)
    if (key := "society.cold_start") in changes:
        raise ValueError(f"{key} of a run cannot be changed, as its models were taught: leave it")
    return seals.in_words(changes)
