"""A run's folder under ``saves``: all that is kept of it, and all that a resume needs.

saves/latest -> 20250131-094500-comas
saves/20250131-094500-comas/
    config.yaml  inputs.json  seal.json  versions.json  num_steps  train.log  metrics.jsonl
    ended                           why it ended early, until it is resumed
    sources/1a2b3c4d5e6f-my.py      what the user's own files were
    discussions/step_0001.jsonl
    tokens/step_0001.jsonl.gz
    validations/step_0000.jsonl
    checkpoints/step_0010/
    models/agent_0/  models/step
    best/agent_0/  best/step        the same of the best checkpoint, where they were asked for
    dropped/20250131-101500/        what a resume went back behind
"""

import dataclasses
import logging
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

from comas.config import changed_keys, config_as_yaml, load
from comas.config.plugins import digest_of
from comas.config.schema import Config
from comas.run import seals
from comas.run.checkpoints import Checkpoints, step_name, steps_in
from comas.run.provenance import note_process
from comas.run.records import (
    LOG,
    METRICS,
    NO_ANSWERS,
    TOKENS,
    VALIDATIONS,
    Record,
    Row,
    append_row,
    compressed,
    discussion_record,
    log_file,
    read_rows,
    token_records,
)
from comas.run.trackers import open_trackers
from comas.types import AnswerKey, Discussion, RewardedDiscussion, TurnKey
from comas.utils import files
from comas.utils.files import (
    PARTIAL,
    explaining_errors,
    from_here,
    json_lines,
    locked,
    new_folder,
    written_aside,
)
from comas.utils.model_folder import CARD

logger = logging.getLogger(__name__)

CHECKPOINTS, DROPPED = "checkpoints", "dropped"
MODELS, BEST = "models", "best"
"""The folders of the models after the last step, and of those of the best checkpoint."""
STEP_OF_MODELS = "step"
"""The file beside models that says after which step they were saved."""
NUM_STEPS = "num_steps"
"""The file that says how many steps a run is to make."""
ENDED = "ended"
"""The file that says why a run ended before its last step."""
SUBFOLDERS = ("discussions", TOKENS, VALIDATIONS, CHECKPOINTS)
"""Folders of what belongs to a step."""
BEFORE_ALL = -1
"""Stands for the step before step 0, which has a validation."""
IN_USE = "wait for it or stop it, or start a run of its own without resume="


class RunDirectory:
    """The open folder of one run; a context manager that holds its lock and its log.

    ``path`` is the folder. Every method that writes raises FileError with the path
    and the reason when it cannot.
    """

    def __init__(self, path: Path, config: Config) -> None:
        """Use ``create`` or ``open``."""
        self.path = path
        self.config = config
        self._key = seals.user_key()  # Here, as the first checkpoint would be too late to miss it.
        self._origin = seals.read_origin(path, self._key)[0] or seals.Origin(secrets.token_hex(16))
        self._checkpoints = Checkpoints(
            path / CHECKPOINTS, run=self._origin.run, key=self._key, foreign=config.resume_foreign
        )
        with ExitStack() as stack:
            stack.enter_context(locked(path, remedy=IN_USE))
            self._prepare()
            stack.enter_context(log_file(path / LOG))
            files.append_lines(path / METRICS, [])
            self._trackers = open_trackers(config, path)
            _point_latest_at(path)
            self._resources = stack.pop_all()

    @classmethod
    def create(cls, config: Config) -> Self:
        """Make ``saves/<date>-<time>-<name>/`` and let ``saves/latest`` point at it."""
        run = cls(new_folder(Path(config.saves), f"{_now()}-{config.name}"), config)
        run.keep_settings({})
        return run

    @classmethod
    def open(cls, config: Config, contents: Mapping[str, str] = MappingProxyType({})) -> Self:
        """Continue the run that ``config.resume`` names, whose origin has been checked
        (``check_origin``); its settings stay what they were until ``keep_settings``.

        Raises ValueError as ``changes_since_start`` does.
        """
        changes = changes_since_start(config, contents)
        assert config.resume is not None
        run = cls(Path(config.resume).resolve(), config)
        if changes:
            logger.warning("this run goes on with other settings or files: %s", changes)
        return run

    def keep_settings(
        self,
        locations: Mapping[str, str],
        sources: Mapping[str, str] = MappingProxyType({}),
        contents: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Write and seal the configuration that the run has once it has loaded, where its models
        and questions were found and their digests (``Inputs.contents``), and the user's own files
        (whole path -> text), of which earlier texts stay."""
        digests = {path: digest_of(text) for path, text in sources.items()}
        if sources:
            folder = self.path / seals.SOURCES
            with explaining_errors(folder):
                folder.mkdir(exist_ok=True)
            names = {path: seals.kept_name(path, digests[path]) for path in sources}
            files.write_files({folder / names[path]: text for path, text in sources.items()})
        texts = {
            seals.CONFIG: config_as_yaml(_as_kept(self.config)),
            seals.INPUTS: seals.inputs_as_json(self.path, locations),
        }
        files.write_files({self.path / name: text for name, text in texts.items()})
        sealed = {name: digest_of(text) for name, text in texts.items()} | digests
        self._origin = dataclasses.replace(self._origin, files=sealed, inputs=dict(contents))
        self._seal()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Finish the trackers, end the log and release the lock."""
        if error is not None:
            logger.debug("the run ended early", exc_info=error)
            reason = "interrupted" if isinstance(error, KeyboardInterrupt) else f"error: {error}"
            with suppress(files.FileError):  # of a full disk, which is then the error itself
                # Errors quote file names and plug-ins, which may hold half a surrogate pair.
                files.write_text(self.path / ENDED, reason.encode(errors="replace").decode())
        with self._resources:
            for tracker in self._trackers:
                tracker.close(failed=kind is not None)

    # ------------------------------------------------------------ what a step leaves

    def log_metrics(self, step: int, metrics: Mapping[str, float | None]) -> Row:
        """Write one row to metrics.jsonl (see ``append_row``) and to the trackers, once per step;
        returns it. None stands for a value that is not there."""
        row = append_row(self.path / METRICS, step, metrics)
        for tracker in self._trackers:
            tracker.log(row)
        return row

    def save_discussions(
        self,
        step: int,
        discussions: Sequence[RewardedDiscussion],
        *,
        verdicts: Mapping[TurnKey, str] = MappingProxyType({}),
        answers: AnswerKey = NO_ANSWERS,
    ) -> None:
        """Write every discussion of a step, one per line, with rewards, and where they are known
        the verdicts on solutions and the reference answers."""
        records = [discussion_record(d, verdicts=verdicts, answers=answers) for d in discussions]
        path = self.path / "discussions" / f"{step_name(step)}.jsonl"
        files.write_text(path, json_lines(records))
        for tracker in self._trackers:
            tracker.log_discussions(records)

    def save_tokens(
        self,
        step: int,
        discussions: Sequence[Discussion],
        *,
        advantages: Mapping[TurnKey, Sequence[float]],
    ) -> None:
        """Write what every turn of a step read and said, token by token, with ``advantages``, also
        those of turns of earlier steps, which the update was on as well."""
        path = self.path / TOKENS / f"{step_name(step)}.jsonl.gz"
        files.write_files({path: compressed(token_records(discussions, advantages))})

    def save_validation(self, step: int, records: Sequence[Record]) -> None:
        """Write what every agent answered to every held-out question, one answer per line."""
        path = self.path / VALIDATIONS / f"{step_name(step)}.jsonl"
        files.write_text(path, json_lines(records))

    # ------------------------------------------------------------ checkpoints and models

    @contextmanager
    def checkpoint_folder(self, step: int) -> Iterator[Path]:
        """Yield a folder that becomes the checkpoint of ``step`` when the block ends well; then all
        but ``training.keep_checkpoints`` and that of ``training.keep_best`` are removed."""
        with self._checkpoints.writing(step) as partial:
            yield partial
        self._origin = dataclasses.replace(self._origin, newest_checkpoint=step)
        self._seal()
        keep = self.config.training.keep_checkpoints
        self._checkpoints.remove_old(keep=keep, best=self.best_step())

    @property
    def newest_checkpoint(self) -> int | None:
        """The step of the checkpoint that was written last; None: there was none yet."""
        return self._origin.newest_checkpoint

    def latest_checkpoint(self) -> tuple[int, Path] | None:
        """(step, folder) of the newest checkpoint that is as it was written, for this run and by
        this user (with ``resume_foreign``: by anybody); others are passed over with a warning.
        None: none was written.

        Raises ValueError when there has been one, and none can be used.
        """
        newest, step = self._checkpoints.newest(), self.newest_checkpoint
        if newest is None and step is not None:
            raise ValueError(
                f"resume: {self.path} had a checkpoint of step {step}, but "
                f"{self._checkpoints.folder} holds none: bring the folder back (is a disk not "
                "mounted?), or start a new run"
            )
        return newest

    def best_checkpoint(self) -> tuple[int, Path]:
        """(step, folder) of the checkpoint of ``training.keep_best``, checked as the newest is.

        Raises ValueError when the run has none, or it cannot be used.
        """
        metric, step = self.config.training.keep_best, self.best_step()
        if not step:
            why = f"no {metric} is above that of step 0" if metric else "training.keep_best is null"
            raise ValueError(f"{self.path} has no best checkpoint: {why}")
        return step, self._checkpoints.checked(step)

    @contextmanager
    def models_folder(self, step: int, *, name: str = MODELS) -> Iterator[Path]:
        """Yield a folder that becomes ``models/``, the agents trained for ``step`` steps, when
        the block ends well; or ``BEST``."""
        with written_aside(self.path / name) as partial:
            (partial / STEP_OF_MODELS).write_text(f"{step}\n")
            yield partial
        if name == MODELS:
            self._origin = dataclasses.replace(self._origin, models=self._model_digests())
            self._seal()

    def note_num_steps(self, num_steps: int) -> None:
        """Write down how many steps the run is to make, for whoever follows it."""
        files.write_text(self.path / NUM_STEPS, f"{num_steps}\n")

    def is_finished(self, num_steps: int) -> bool:
        """True if the agents in ``models/`` have made so many steps; if a file of theirs is not as
        it was written, which is a warning, they have not."""
        trained = trained_steps(self.path)
        if trained is None or trained < num_steps:
            return False
        if harmed := self._harmed_models():
            logger.warning(
                "%s: %s is not what was written; the models have to be written again from the "
                "newest checkpoint",
                from_here(self.path / MODELS),
                ", ".join(harmed[: files.MAX_LISTED_FAULTS]),
            )
        return not harmed

    def best_step(self) -> int | None:
        """Return the step of the best validation so far; None: none is sought."""
        metric = self.config.training.keep_best
        return None if metric is None else best_step(read_rows(self.path / METRICS), metric)

    def go_back_to(self, step: int) -> None:
        """Move whatever the run has of steps after ``step`` aside, to ``dropped/<date>-<time>/``,
        so that none is there twice; ``BEFORE_ALL`` takes everything."""
        rows = read_rows(self.path / METRICS)
        later = [row for row in rows if row["step"] > step]
        paths = list(self._paths_after(step))
        if later or paths:
            aside = new_folder(self.path / DROPPED, _now())
            with explaining_errors(aside):
                files.write_text(aside / METRICS, json_lines(later))
                for path in paths:
                    target = aside / path.relative_to(self.path)
                    target.parent.mkdir(exist_ok=True)
                    shutil.move(path, target)  # where a subfolder is on another disk, no rename can
            what = f"came after step {step}" if step >= 0 else "it had, as this run begins again,"
            logger.info("what %s is now in %s", what, from_here(aside))
        files.write_text(
            self.path / METRICS, json_lines(row for row in rows if row["step"] <= step)
        )

    # ------------------------------------------------------------ inside

    def _seal(self) -> None:
        seals.write_signed(self.path / seals.SEAL_NAME, dataclasses.asdict(self._origin), self._key)

    def _paths_after(self, step: int) -> Iterator[Path]:
        for folder in (self.path / name for name in SUBFOLDERS):
            yield from (path for later, path in steps_in(folder) if later > step)
        for name in (MODELS, BEST):
            folder, trained = self.path / name, trained_steps(self.path, name=name)
            is_due = trained is not None and trained <= step
            if folder.is_dir() and not (is_due and (name == BEST or not self._harmed_models())):
                yield folder

    def _model_digests(self) -> dict[str, str]:
        folder = self.path / MODELS
        return files.sha256_of(
            (path for path in folder.rglob("*") if path.name != CARD), within=folder
        )

    def _harmed_models(self) -> list[str]:
        """The files of ``models/`` that are gone or not as they were written; what was added there
        does no harm."""
        now = self._model_digests()
        return [name for name, then in self._origin.models.items() if now.get(name) != then]

    def _prepare(self) -> None:
        folders = (self.path, *(self.path / name for name in SUBFOLDERS))
        with explaining_errors(self.path):
            for folder in folders:
                folder.mkdir(exist_ok=True)
                for partial in folder.glob(f"{PARTIAL}*"):
                    files.remove(partial)
            files.remove(self.path / ENDED)
        note_process(self.path)


def _now() -> str:
    return f"{datetime.now():%Y%m%d-%H%M%S}"


def _as_kept(config: Config) -> Config:
    """``config`` without what is said of one resume only."""
    return dataclasses.replace(config, resume=None, resume_changed=False, resume_foreign=False)


def changes_since_start(config: Config, contents: Mapping[str, str]) -> str:
    """Return in words what differs from what the run that ``config.resume`` names was begun with:
    settings, sealed files and the ``contents`` of its inputs; "" if nothing does.

    Raises ValueError that names the differences, unless ``config.resume_changed``.
    """
    assert config.resume is not None
    path = Path(config.resume).resolve()
    before = _as_kept(load(Config, path / seals.CONFIG, []))
    changes = changed_keys(before, _as_kept(config))
    origin, _ = seals.read_origin(path, seals.user_key())
    if origin is not None:
        inputs = seals.changed_inputs(origin, contents)
        changes = {**seals.edits(path, origin), **inputs, **changes}
    if not config.resume_changed:
        seals.refuse_changes(path, changes)
    return seals.in_words(changes)


def trained_steps(run: Path, *, name: str = MODELS) -> int | None:
    """Return for how many steps the agents in ``models/`` (or ``BEST``) of a run's folder were
    trained; None: there are none yet, or the file that says it is damaged."""
    return number_in(run / name / STEP_OF_MODELS)


def number_in(path: Path) -> int | None:
    """Return the number that a file holds; None: there is no such file, or no number in it."""
    text = path.read_text(errors="replace") if path.is_file() else ""
    return int(text) if text.strip().isdecimal() else None


def end_of(run: Path) -> str | None:
    """Return how a run ended; None: it is under way.

    Example: ``stopped after step 5 of 6 (2025-01-31 09:45): error: cannot write ...``
    """
    rows, num_steps = read_rows(run / METRICS), noted_num_steps(run)
    step = rows[-1]["step"] if rows else 0
    after = f"after step {step}" + (f" of {num_steps}" if num_steps is not None else "")
    if trained_steps(run) == step and num_steps in (step, None):
        return f"ended {after}"
    if files.is_locked(run):
        return None
    said = run / ENDED
    reason = (
        said.read_text() if said.is_file() else "no reason is on record: it may have been killed"
    )
    last_sign = said if said.is_file() else run / METRICS
    when = datetime.fromtimestamp(last_sign.stat().st_mtime)
    return f"stopped {after} ({when:%Y-%m-%d %H:%M}): {reason}"


def noted_num_steps(run: Path) -> int | None:
    """Return how many steps a run is to make; None: it has not begun."""
    return number_in(run / NUM_STEPS)


def best_step(rows: Iterable[Row], metric: str) -> int | None:
    """Return the step of the highest value of ``metric``, the first of equal ones, if any."""
    measured = [row for row in rows if row.get(metric) is not None]
    return max(measured, key=lambda row: row[metric])["step"] if measured else None


def _point_latest_at(run: Path) -> None:
    latest = run.parent / "latest"
    aside = run.parent / f"{PARTIAL}latest-{os.getpid()}"
    with explaining_errors(latest):
        files.remove(aside)
        aside.symlink_to(run.name)
        aside.replace(latest)
