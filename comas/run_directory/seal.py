"""Seals on checkpoints: whether one is whole, and whether this user wrote it.

Loading a checkpoint runs code that lies in it (DeepSpeed unpickles its files), and a flipped byte
in an optimiser's state trains on without a word. So a checkpoint names the SHA-256 of its files,
signed with a key that is kept outside of it.
"""

import errno
import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from comas.files import MAX_LISTED_FAULTS, FileError, read_json, write_text

SEAL_NAME = "seal.json"
_REMEDY = "Set XDG_STATE_HOME to a folder that you can write to"


@dataclass(frozen=True)
class _Seal:
    files: dict[str, str]
    """Relative path -> SHA-256."""
    signature: str


_SEAL = TypeAdapter(_Seal)


class DamagedError(ValueError):
    """A file of a checkpoint is not what was written."""


class ForeignError(ValueError):
    """A checkpoint that was not sealed with this user's key."""


def seal(folder: Path, key: bytes) -> None:
    """Write down what ``folder`` holds, and sign it with the user's ``key``."""
    files = _digests(folder)
    signature = _sign(files, key)
    write_text(folder / SEAL_NAME, json.dumps({"files": files, "signature": signature}, indent=1))


def check_seal(folder: Path, key: bytes) -> None:
    """Compare ``folder`` with its seal, and only then ask who wrote it: what is damaged is never
    to be loaded, whoever is trusted. Nothing that the seal names is opened.

    Raises:
        DamagedError: files are missing, changed or added, or the seal cannot be read.
        ForeignError: there is no seal, or it is not of the user's ``key``.
    """
    path = folder / SEAL_NAME
    if not path.is_file():
        raise ForeignError(f"{folder} has no seal")
    try:
        sealed = read_json(path, _SEAL, remedy="")
    except FileError as error:
        raise DamagedError(f"{path} cannot be read") from error
    found = _digests(folder)
    names = sealed.files.keys() | found.keys()
    if wrong := [name for name in names if sealed.files.get(name) != found.get(name)]:
        raise DamagedError(f"{folder}: {_listed(wrong)} is not what was written")
    if not hmac.compare_digest(_sign(sealed.files, key).encode(), sealed.signature.encode()):
        raise ForeignError(f"{folder} was not sealed with the key in {key_path()}")


def key_path() -> Path:
    """Where this user's key is: below ``XDG_STATE_HOME``, or ~/.local/state.

    Raises FileError where there is neither.
    """
    try:
        state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    except RuntimeError as error:
        raise FileError(
            f"the key that signs checkpoints has no place: HOME is not set, and user {os.getuid()} "
            f"is not in the system's list of users. {_REMEDY}"
        ) from error
    return Path(state).absolute() / "comas/seal.key"


def user_key() -> bytes:
    """This user's key; it is made where there is none.

    Raises FileError, with the path and what to do, when it can neither be read nor made.
    """
    path = key_path()
    with _blaming_key(path):
        if not path.is_file():
            _make_key(path)
        return path.read_bytes()


def look_for_key() -> str:
    """Whether this user's key is there or still to be made, in words; nothing is made.

    Raises FileError, as ``user_key`` would.
    """
    path = key_path()
    with _blaming_key(path):
        if path.exists():
            path.read_bytes()
            return "here"
        existing = next(folder for folder in path.parents if folder.exists())
        if not existing.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, f"{existing} is a file, not a folder")
        if not os.access(existing, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, f"{existing} cannot be written")
        return "made at the start"


@contextmanager
def _blaming_key(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FileError(
            f"the key that signs checkpoints, {path}, can neither be read nor made: "
            f"{error.strerror}. {_REMEDY}"
        ) from error


def _make_key(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    aside = path.with_name(f".{path.name}-{os.getpid()}")
    try:
        aside.touch(mode=0o600)
        aside.write_bytes(secrets.token_bytes(32))
        with suppress(FileExistsError):
            os.link(aside, path)  # whoever is first: two runs may make it at once
    finally:
        aside.unlink(missing_ok=True)


def _sign(files: dict[str, str], key: bytes) -> str:
    return hmac.new(key, json.dumps(files, sort_keys=True).encode(), hashlib.sha256).hexdigest()


def _digests(folder: Path) -> dict[str, str]:
    """Relative path -> SHA-256 of every file but the seal, several read at once."""
    paths = sorted(p for p in folder.rglob("*") if p.is_file() and p != folder / SEAL_NAME)
    with ThreadPoolExecutor() as threads:
        digests = threads.map(_digest, paths)
        return {
            str(p.relative_to(folder)): digest for p, digest in zip(paths, digests, strict=True)
        }


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _listed(names: Iterable[str]) -> str:
    """The first few, without what would steer a terminal: a stranger may have chosen them."""
    shown = [name.encode("unicode_escape").decode() for name in sorted(names)]
    more = len(shown) - MAX_LISTED_FAULTS
    return ", ".join(shown[:MAX_LISTED_FAULTS]) + f" (and {more} more)" * (more > 0)
