"""The checkpoints of one run: sealed folders, of which the newest and the best one are kept."""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from comas.run.seal import DamagedError, ForeignError, check_seal, seal
from comas.utils import files
from comas.utils.files import written_aside
from comas.utils.progress import progress_bar

logger = logging.getLogger(__name__)

STEP_NAME = re.compile(r"step_(\d+)(?:\.jsonl(?:\.gz)?)?")


class Checkpoints:
    """The folders ``step_0010`` in ``folder``.

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
            seal(partial, self._key, run=self._run, step=step)

    def remove_old(self, *, keep: int, best: int | None) -> None:
        """Leave the newest ``keep``, and the one of the step ``best``."""
        for step, folder in steps_in(self.folder)[:-keep]:
            if step != best:
                files.remove(folder)

    def newest(self) -> tuple[int, Path] | None:
        """(step, folder) of the newest that is as it was written, for this run and by this user;
        None: there is none at all. Any other is passed over, with a warning.

        Raises ValueError when there are some, but none that can be loaded.
        """
        found = steps_in(self.folder)
        if not found:
            return None
        foreign: ForeignError | None = None
        for step, folder in reversed(found):
            try:
                self._check(step, folder)
            except DamagedError as error:
                logger.warning("damaged checkpoint passed over: %s", error)
            except ForeignError as error:
                logger.warning("checkpoint passed over: %s", error)
                foreign = foreign or error
            else:
                return step, folder
        if foreign is not None:
            raise ValueError(
                f"resume: {foreign}, and loading a checkpoint runs code in it. If you trust "
                "whoever wrote it, add resume_foreign=true"
            )
        raise ValueError(
            f"resume: every checkpoint in {self.folder} is damaged; restore one from a copy, or "
            "start a new run"
        )

    def of_step(self, step: int) -> Path | None:
        """The checkpoint of ``step``, checked as the newest is; None: it is not there.

        Raises ValueError when it is not as it was written, or not of this user and run.
        """
        folder = self.folder / step_name(step)
        if not folder.is_dir():
            return None
        try:
            self._check(step, folder)
        except ForeignError as error:
            raise ValueError(f"{error}: add resume_foreign=true if you trust it") from error
        return folder

    def _check(self, step: int, folder: Path) -> None:
        """Raises DamagedError, and ForeignError unless foreign ones are wanted."""
        try:
            with progress_bar(f"checking {folder.name}"):
                check_seal(folder, self._key, run=self._run, step=step)
        except ForeignError as error:
            if not self._foreign:
                raise
            logger.warning("loading a checkpoint as resume_foreign=true asks: %s", error)


def step_name(step: int) -> str:
    """``10 -> "step_0010"``"""
    return f"step_{step:04d}"


def steps_in(folder: Path) -> list[tuple[int, Path]]:
    """The steps that ``folder`` holds something of, in order."""
    found = ((STEP_NAME.fullmatch(path.name), path) for path in folder.iterdir())
    return sorted((int(match[1]), path) for match, path in found if match)
