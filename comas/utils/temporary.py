"""A private temporary folder for this process and all its children.

When killed, Ray, vLLM and multiprocessing leave sockets and files behind, and stopped processes
outlive their parent. All of these are recognised by the folder in TMPDIR; nothing else is removed
or killed.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from comas.utils.files import LOCK_NAME, FileError, explaining_errors, locked
from comas.utils.processes import end_processes

PREFIX, MARK = "comas-", ".temporary"
"""The prefix of our folders, and the file that marks them as ours."""
VARIABLE = "TMPDIR"
MAX_OUTER_CHARS = 24
"""The most characters of the outer folder: a socket path has at most 107, Ray needs 83."""
_REMEDY = "set TMPDIR to another folder"


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Set TMPDIR to a new private folder during the block; raises FileError.

    Afterwards, removes the folder and kills processes that still use it. Beforehand, does the same
    for folders that killed processes left behind.
    """
    try:
        outer = Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        raise FileError(
            f"no temporary file can be written ({error.strerror}): make room there, {_REMEDY}, or "
            "allow files of some size (ulimit -f)"
        ) from error
    if len(str(outer)) > MAX_OUTER_CHARS:
        outer = Path("/tmp")
    _sweep(outer)
    with explaining_errors(outer):
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=outer))
    before = os.environ.get(VARIABLE)
    with locked(folder, remedy=_REMEDY):
        (folder / MARK).touch()
        _use(str(folder))
        try:
            yield folder
        finally:
            _use(before)
            _clear(folder)


def _sweep(outer: Path) -> None:
    for mark in outer.glob(f"{PREFIX}*/{MARK}"):
        folder = mark.parent
        with suppress(FileError, FileNotFoundError):  # in use, or removed by another sweep
            if folder.lstat().st_uid == os.getuid():
                with locked(folder, remedy=_REMEDY):
                    _clear(folder)


def _clear(folder: Path) -> None:
    for mark in folder.glob(f"{PREFIX}*/{MARK}"):  # of a study's run that was killed
        _clear(mark.parent)
    end_processes(variable=VARIABLE, value=str(folder))
    # Errors are ignored: multiprocessing may remove its files at the same time.
    for path in folder.iterdir():
        if path.name in (LOCK_NAME, MARK):
            continue  # last: they mark the folder for the next sweep
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    if {path.name for path in folder.iterdir()} <= {LOCK_NAME, MARK}:
        shutil.rmtree(folder, ignore_errors=True)


def _use(folder: str | None) -> None:
    if folder is None:
        del os.environ[VARIABLE]
    else:
        os.environ[VARIABLE] = folder
    tempfile.tempdir = None  # forces a new lookup
