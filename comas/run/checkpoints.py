"""Checkpoints: how they are written, which of them a run goes on from, and which may be trusted.

Loading a checkpoint runs code that lies in it (DeepSpeed unpickles its files), and a flipped byte
in an optimiser's state, or a checkpoint under another step's name, trains on without a word. So a
checkpoint names its run, its step and the SHA-256 of its files, signed with the user's key.
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
from comas.utils.files import MAX_LISTED_FAULTS, written_aside

logger = logging.getLogger(__name__)

_STEP_NAME = re.compile(r"step_(\d+)(?:\.jsonl(?:\.gz)?)?")


class ForeignError(ValueError):
    """Something that was not sealed with this user's key, or for another run."""


def step_name(step: int) -> str:
    """``10 -> "step_0010"``"""
    return f"step_{step:04d}"


def steps_in(folder: Path) -> list[tuple[int, Path]]:
    """The steps that ``folder`` holds something of, in order."""
    found = ((_STEP_NAME.fullmatch(path.name), path) for path in folder.iterdir())
    return sorted((int(match[1]), path) for match, path in found if match)


# ---------------------------------------------------------------- choosing


class Checkpoints:
    """The sealed folders ``step_0010`` in ``folder``, of which the newest and the best are kept.

    Args:
        run: the identity of the run, which a checkpoint's seal has to name.
        key: the user's, which seals them.
        foreign: load one whoever wrote it, and for whichever run.
    """

    def __init__(self, folder: Path, *, run: str, key: bytes, foreign: bool) -> None:
        self.folder = folder
        self._run = run
        self._key = key
        self._foreign = foreign

    @contextmanager
    def writing(self, step: int) -> Iterator[Path]:
        """Yield a folder that becomes the checkpoint of ``step`` when the block ends well."""
        with written_aside(self.folder / step_name(step)) as partial:
            yield partial
            seal = _Seal(_digests(partial), self._run, step)
            write_signed(partial / SEAL_NAME, asdict(seal), self._key)

    def remove_old(self, *, keep: int, best: int | None) -> None:
        """Leave the newest ``keep``, and the one of the step ``best``."""
        for step, folder in steps_in(self.folder)[:-keep]:
            if step != best:
                files.remove(folder)

    def newest(self) -> tuple[int, Path] | None:
        """Return (step, folder) of the newest that is as it was written, for this run and by this
        user; None if there is none at all. Others are passed over with a warning.

        Raises ValueError when none of them can be loaded.
        """
        refused: list[ValueError] = []
        for step, folder in reversed(steps_in(self.folder)):
            try:
                self._check(step, folder)
                return step, folder
            except (DamagedError, ForeignError) as error:
                logger.warning("checkpoint passed over: %s", error)
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
        """Return the checkpoint of ``step``. Raises ValueError where ``newest`` passes it over."""
        folder = self.folder / step_name(step)
        self._check(step, folder)
        return folder

    def _check(self, step: int, folder: Path) -> None:
        """Raise DamagedError, and ForeignError unless foreign ones are wanted."""
        try:
            check_seal(folder, self._key, run=self._run, step=step)
        except ForeignError as error:
            if not self._foreign:
                raise
            logger.warning("loading a checkpoint as resume_foreign=true asks: %s", error)


# ---------------------------------------------------------------- seals


@dataclass(frozen=True)
class _Seal:
    files: dict[str, str]
    """Relative path -> SHA-256."""
    run: str
    """``Origin.run``."""
    step: int
    """The step after which it was written."""


_SEAL = TypeAdapter(_Seal)


def check_seal(folder: Path, key: bytes, *, run: str, step: int) -> None:
    """Compare ``folder`` with its seal, and only then ask who wrote it: what is damaged is never
    loaded, whoever is trusted. Nothing that the seal names is opened.

    Raises:
        DamagedError: it is empty or no folder, files are missing, changed or added, it is of
            another step, or the seal cannot be read.
        ForeignError: there is no seal, or it is not of the user's ``key`` and this ``run``.
    """
    path = folder / SEAL_NAME
    if not folder.is_dir() or not any(folder.iterdir()):
        raise DamagedError(f"{folder} holds nothing")
    if not path.is_file():
        raise ForeignError(f"{folder} has no seal")
    sealed, is_ours = read_signed(path, _SEAL, key)
    found = _digests(folder)
    names = sealed.files.keys() | found.keys()
    if wrong := sorted(name for name in names if sealed.files.get(name) != found.get(name)):
        # Without what would steer a terminal: a stranger may have chosen the names.
        shown = (name.encode("unicode_escape").decode() for name in wrong[:MAX_LISTED_FAULTS])
        more = len(wrong) - MAX_LISTED_FAULTS
        listed = ", ".join(shown) + f" (and {more} more)" * (more > 0)
        raise DamagedError(f"{folder}: {listed} is not what was written")
    if sealed.step != step:
        raise DamagedError(f"{folder} holds the checkpoint of step {sealed.step}")
    if not is_ours:
        raise ForeignError(f"{folder} was not sealed with the key in {key_path()}")
    if sealed.run != run:
        raise ForeignError(f"{folder} was not sealed for this run")


def _digests(folder: Path) -> dict[str, str]:
    """Relative path -> SHA-256 of every file but the seal."""
    names = (path for path in folder.rglob("*") if path != folder / SEAL_NAME)
    return files.sha256_of(names, within=folder)
