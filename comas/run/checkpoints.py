"""Checkpoints: writing them, and choosing the one that a run resumes from.

Loading a checkpoint executes code in it (DeepSpeed unpickles its files), and neither a flipped byte
in an optimiser's state nor another step's checkpoint would raise an error. So each is sealed with
its run, its step and the SHA-256 of its files, signed with the user's key.
"""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from comas.run.seals import SEAL_NAME, DamagedError, Origin, key_path, read_seal, write_seal
from comas.utils import files
from comas.utils.terminal import printable

logger = logging.getLogger(__name__)

_STEP_NAME = re.compile(r"step_(\d+)(?:\.jsonl(?:\.gz)?)?")


def step_name(step: int) -> str:
    """``10 -> "step_0010"``"""
    return f"step_{step:04d}"


def steps_in(folder: Path) -> list[tuple[int, Path]]:
    """Return (step, path) of each step's file or folder in ``folder``, in order."""
    found = ((_STEP_NAME.fullmatch(path.name), path) for path in folder.iterdir())
    return sorted((int(match[1]), path) for match, path in found if match)


@dataclass(frozen=True)
class Checkpoints:
    """The sealed folders ``step_0010`` in ``folder``."""

    folder: Path
    run: str
    """The identity of the run, which a checkpoint's seal has to name."""
    key: bytes
    """The user's key, which signs the seals."""
    foreign: bool
    """True to load checkpoints of other users and runs as well."""

    @contextmanager
    def writing(self, step: int) -> Iterator[Path]:
        """Yield a folder that becomes the checkpoint of ``step`` if the block succeeds."""
        with files.written_aside(self.folder / step_name(step)) as partial:
            yield partial
            write_seal(partial, Origin(self.run, _digests(partial), step=step), self.key)

    def remove_old(self, *, keep: int, best: int | None) -> None:
        """Remove all but the newest ``keep`` and that of the step ``best``."""
        for step, folder in steps_in(self.folder)[:-keep]:
            if step != best:
                files.remove(folder)

    def newest(self) -> tuple[int, Path] | None:
        """Return (step, folder) of the newest checkpoint that may be loaded; None if there are no
        checkpoints. Others are skipped with a warning. Raises ValueError when none of them may be
        loaded."""
        refused: list[str] = []
        for step, _ in reversed(steps_in(self.folder)):
            try:
                return step, self.checked(step)
            except DamagedError as error:
                logger.warning("skipping a checkpoint: %s", error)
                refused.append(str(error))
        if refused:
            raise ValueError(
                f"resume: no checkpoint in {self.folder} can be loaded: {'; '.join(refused)}. "
                "Restore one from a copy, or start a new run"
            )
        return None

    def checked(self, step: int) -> Path:
        """Return the checkpoint of ``step``, after comparing it with its seal: a damaged one is
        never loaded. Opens no file that only the seal names. Raises DamagedError, also for the
        checkpoint of another user or run, unless ``foreign``."""
        folder = self.folder / step_name(step)
        why = "has no seal"
        if not folder.is_dir() or not any(folder.iterdir()):
            raise DamagedError(f"{folder} is empty or missing")
        if (folder / SEAL_NAME).is_file():
            sealed, is_ours = read_seal(folder, self.key)
            found = _digests(folder)
            names = sealed.files.keys() | found.keys()
            if wrong := sorted(name for name in names if sealed.files.get(name) != found.get(name)):
                # A stranger may have chosen names that steer a terminal.
                listed = printable(", ".join(wrong[: files.MAX_LISTED_ERRORS]))
                raise DamagedError(f"{folder}: {listed} differs from what was written")
            if sealed.step != step:
                raise DamagedError(f"{folder} holds the checkpoint of step {sealed.step}")
            if is_ours and sealed.run == self.run:
                return folder
            why = f"was not sealed for this run with the key in {key_path()}"
        if not self.foreign:
            raise DamagedError(
                f"{folder} {why}, and loading a checkpoint runs code in it: if you trust whoever "
                "wrote it, add resume_foreign=true"
            )
        logger.warning("loading a checkpoint because of resume_foreign=true: %s %s", folder, why)
        return folder


def _digests(folder: Path) -> dict[str, str]:
    names = (path for path in folder.rglob("*") if path != folder / SEAL_NAME)
    return files.sha256_of(names, within=folder)
