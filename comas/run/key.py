"""The user's key, with which runs and checkpoints are sealed; it is kept outside of them."""

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from comas.utils.files import FileError, sync

NUM_BYTES = 32
_REMEDY = "Set XDG_STATE_HOME to a folder that you can write to"


def key_path() -> Path:
    """Where this user's key is: below ``XDG_STATE_HOME``, or ~/.local/state.

    Raises FileError where there is neither.
    """
    try:
        state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    except RuntimeError as error:
        raise FileError(
            f"the key that seals runs has no place: HOME is not set, and user {os.getuid()} "
            f"is not in the system's list of users. {_REMEDY}"
        ) from error
    return Path(state).absolute() / "comas/seal.key"


def read_key() -> bytes | None:
    """This user's key; None where there is none yet.

    Raises FileError, with the path and what to do, when it can neither be read nor made, or is
    damaged: an empty key is known to everybody.
    """
    path = key_path()
    with _blaming_key(path):
        if not path.exists():
            _check_place(path)
            return None
        key = path.read_bytes()
    if len(key) != NUM_BYTES:
        raise FileError(
            f"the key that seals runs, {path}, is damaged: it has {len(key)} bytes, not "
            f"{NUM_BYTES}. Bring it back from a copy, or delete it: another is made, and runs that "
            "were begun with the lost one need resume_foreign=true"
        )
    return key


def user_key() -> bytes:
    """This user's key; it is made where there is none. Raises FileError as ``read_key`` does."""
    if read_key() is None:
        path = key_path()
        with _blaming_key(path):
            _make_key(path)
    key = read_key()
    assert key is not None
    return key


def look_for_key() -> str:
    """Whether this user's key is there or still to be made, in words; nothing is made.

    Raises FileError as ``read_key`` does.
    """
    return "made at the start" if read_key() is None else "here"


@contextmanager
def _blaming_key(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FileError(
            f"the key that seals runs, {path}, can neither be read nor made: "
            f"{error.strerror}. {_REMEDY}"
        ) from error


def _check_place(path: Path) -> None:
    """Raise OSError where ``path`` cannot be made."""
    existing = next(folder for folder in path.parents if folder.exists())
    if not existing.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, f"{existing} is a file, not a folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, f"{existing} cannot be written")


def _make_key(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    aside = path.with_name(f".{path.name}-{os.getpid()}")
    try:
        aside.touch(mode=0o600)
        with aside.open("wb") as file:
            file.write(secrets.token_bytes(NUM_BYTES))
            file.flush()
            os.fsync(file.fileno())  # or a crash of the machine may leave the name and no key
        with suppress(FileExistsError):
            os.link(aside, path)  # whoever is first: two runs may make it at once
        sync(path.parent)
    finally:
        aside.unlink(missing_ok=True)
