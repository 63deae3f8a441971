"""A temporary folder of this process's own, for itself and for all that it starts.

Ray, vLLM and multiprocessing leave their sockets and files behind when they are killed, and what is
frozen outlives whoever started it. Here both are known by the folder, which TMPDIR names: nothing
else is removed, and nobody else is killed.
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
"""How the names of our folders begin, and a file that no other folder of such a name has."""
VARIABLE = "TMPDIR"
MAX_OUTER_CHARS = 24
"""A socket's name has at most 107 characters, and Ray's are 83 below the folder around ours."""
_REMEDY = "set TMPDIR to another folder"


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Let TMPDIR be a new folder, this user's alone, while the block runs; raises FileError.

    After it, the folder is removed, and what was started with it and still runs is killed. Before
    it, the same is done for the folders of processes that ended without it.
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


def outer_folder() -> Path:
    """The temporary folder that this process shares with others."""
    folder = Path(tempfile.gettempdir())
    return folder.parent if folder.name.startswith(PREFIX) else folder


def _sweep(outer: Path) -> None:
    for mark in outer.glob(f"{PREFIX}*/{MARK}"):
        folder = mark.parent
        with suppress(FileError, FileNotFoundError):  # in use, or removed by another sweep
            if folder.lstat().st_uid == os.getuid():
                with locked(folder, remedy=_REMEDY):
                    _clear(folder)


def _clear(folder: Path) -> None:
    end_processes(variable=VARIABLE, value=str(folder))
    # Errors are ignored: others, such as multiprocessing, remove what is theirs at the same time.
    for path in folder.iterdir():
        if path.name in (LOCK_NAME, MARK):
            continue  # last: without them, the folder would never be found again
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
    tempfile.tempdir = None  # looked up anew
