"""Checkpoints: writing them, and choosing the one that a run resumes from.

Loading a checkpoint executes code in it (DeepSpeed unpickles its files), and neither a flipped byte
in an optimiser's state nor another step's checkpoint would raise an error. So each is sealed with
its run, its step and the SHA-256 of its files, signed with the user's key.
"""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter

from comas.run.seals import SEAL_NAME, DamagedError, key_path, read_signed, write_signed
from comas.utils import files
from comas.utils.files import MAX_LISTED_ERRORS, written_aside

logger = logging.getLogger(__name__)

_STEP_NAME = re.compile(r"step_(\d+)(?:\.jsonl(?:\.gz)?)?")


class ForeignError(ValueError):
    """A checkpoint sealed with another user's key, or for another run."""


def step_name(step: int) -> str:
    """``10 -> "step_0010"``"""
    return f"step_{step:04d}"


def steps_in(folder: Path) -> list[tuple[int, Path]]:
    """Return (step, path) of each step's file or folder in ``folder``, in order."""
    found = ((_STEP_NAME.fullmatch(path.name), path) for path in folder.iterdir())
    return sorted((int(match[1]), path) for match, path in found if match)


@dataclass(frozen=True)
class _Seal:
    files: dict[str, str]
    """Relative path -> SHA-256."""
    run: str
    """``Origin.run``."""
    step: int


_SEAL = TypeAdapter(_Seal)


class Checkpoints:
    """The sealed folders ``step_0010`` in ``folder``.

    Args:
        run: the identity of the run, which a checkpoint's seal has to name.
        key: the user's key, which signs the seals.
        foreign: also load checkpoints of other users and runs.
    """

    def __init__(self, folder: Path, *, run: str, key: bytes, foreign: bool) -> None:
        self.folder = folder
        self._run = run
        self._key = key
        self._foreign = foreign

    @contextmanager
    def writing(self, step: int) -> Iterator[Path]:
        """Yield a folder that becomes the checkpoint of ``step`` if the block succeeds."""
        with written_aside(self.folder / step_name(step)) as partial:
            yield partial
            seal = _Seal(_digests(partial), self._run, step)
            write_signed(partial / SEAL_NAME, asdict(seal), self._key)

    def remove_old(self, *, keep: int, best: int | None) -> None:
        """Remove all but the newest ``keep`` and that of the step ``best``."""
        for step, folder in steps_in(self.folder)[:-keep]:
            if step != best:
                files.remove(folder)

    def newest(self) -> tuple[int, Path] | None:
        """Return (step, folder) of the newest undamaged checkpoint of this run and user; None if
        there are no checkpoints. Others are skipped with a warning.

        Raises ValueError when none of them can be loaded.
        """
        refused: list[ValueError] = []
        for step, _ in reversed(steps_in(self.folder)):
            try:
                return step, self.checked(step)
            except (DamagedError, ForeignError) as error:
                logger.warning("skipping a checkpoint: %s", error)
                refused.append(error)
        foreign = [error for error in refused if isinstance(error, ForeignError)]
        if foreign:
            raise ValueError(
                f"resume: {foreign[0]}, and loading a checkpoint runs code in it. If you trust "
                "whoever wrote it, add resume_foreign=true"
            )
        if refused:
            raise ValueError(
                f"resume: every checkpoint in {self.folder} is damaged; restore one from a copy, "
                "or start a new run"
            )
        return None

    def checked(self, step: int) -> Path:
        """Return the checkpoint of ``step``, after checking its seal. Raises DamagedError, and
        ForeignError unless foreign ones are accepted."""
        folder = self.folder / step_name(step)
        try:
            self._check_seal(folder, step)
        except ForeignError as error:
            if not self._foreign:
                raise
            logger.warning("loading a checkpoint because of resume_foreign=true: %s", error)
        return folder

    def _check_seal(self, folder: Path, step: int) -> None:
        """Compare ``folder`` with its seal, then check who wrote it: a damaged checkpoint is never
        loaded. Opens no file that only the seal names.

        Raises:
            DamagedError: the folder is empty or missing, its files or its step differ from the
                seal, or the seal cannot be read.
            ForeignError: it has no seal, or one of another user or run.
        """
        path = folder / SEAL_NAME
        if not folder.is_dir() or not any(folder.iterdir()):
            raise DamagedError(f"{folder} is empty or missing")
        if not path.is_file():
            raise ForeignError(f"{folder} has no seal")
        sealed, is_ours = read_signed(path, _SEAL, self._key)
        found = _digests(folder)
        names = sealed.files.keys() | found.keys()
        if wrong := sorted(name for name in names if sealed.files.get(name) != found.get(name)):
            # Escaped: a stranger may have chosen names that steer a terminal.
            shown = (name.encode("unicode_escape").decode() for name in wrong[:MAX_LISTED_ERRORS])
            more = len(wrong) - MAX_LISTED_ERRORS
            listed = ", ".join(shown) + f" (and {more} more)" * (more > 0)
            raise DamagedError(f"{folder}: {listed} differs from what was written")
        if sealed.step != step:
            raise DamagedError(f"{folder} holds the checkpoint of step {sealed.step}")
        if not is_ours:
            raise ForeignError(f"{folder} was not sealed with the key in {key_path()}")
        if sealed.run != self._run:
            raise ForeignError(f"{folder} was not sealed for this run")


def _digests(folder: Path) -> dict[str, str]:
    names = (path for path in folder.rglob("*") if path != folder / SEAL_NAME)
    return files.sha256_of(names, within=folder)
