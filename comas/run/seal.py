"""Seals: of what run and step a checkpoint is, whether it is whole, and whether this user wrote it.

Loading a checkpoint runs code that lies in it (DeepSpeed unpickles its files), and a flipped byte
in an optimiser's state, or a checkpoint under another step's name, trains on without a word. So a
checkpoint names its run, its step and the SHA-256 of its files, signed with the user's key, which
is kept outside of it.
"""

import errno
import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from comas.utils.files import MAX_LISTED_FAULTS, FileError, read_json, sync, write_text

SEAL_NAME = "seal.json"
KEY_BYTES = 32
_REMEDY = "Set XDG_STATE_HOME to a folder that you can write to"


@dataclass(frozen=True)
class _Seal:
    files: dict[str, str]
    """Relative path -> SHA-256."""
    run: str | None = None
    """``Origin.run``; None in a seal of version 0.11.1 or older."""
    step: int | None = None
    """The step after which it was written; None as above."""


_SEAL = TypeAdapter(_Seal)


class DamagedError(ValueError):
    """Something is not what was written there."""


class ForeignError(ValueError):
    """Something that was not sealed with this user's key, or for another run."""


def seal(folder: Path, key: bytes, *, run: str, step: int) -> None:
    """Write down what ``folder`` holds, and of what run and step, signed with ``key``."""
    write_signed(folder / SEAL_NAME, asdict(_Seal(_digests(folder), run, step)), key)


def check_seal(folder: Path, key: bytes, *, run: str, step: int) -> None:
    """Compare ``folder`` with its seal, and only then ask who wrote it: what is damaged is never
    to be loaded, whoever is trusted. Nothing that the seal names is opened.

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
    if wrong := [name for name in names if sealed.files.get(name) != found.get(name)]:
        raise DamagedError(f"{folder}: {_listed(wrong)} is not what was written")
    if sealed.step not in (None, step):
        raise DamagedError(f"{folder} holds the checkpoint of step {sealed.step}")
    if not is_ours:
        raise ForeignError(f"{folder} was not sealed with the key in {key_path()}")
    if sealed.run != run:
        raise ForeignError(f"{folder} was not sealed for this run")


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


# ---------------------------------------------------------------- signed files


def write_signed(path: Path, content: Mapping[str, Any], key: bytes) -> None:
    """Write ``content`` as JSON, with its ``signature`` under ``key``."""
    write_text(path, json.dumps({**content, "signature": _signature(content, key)}, indent=1))


def read_signed(path: Path, kind: TypeAdapter[Any], key: bytes | None) -> tuple[Any, bool]:
    """What ``write_signed`` wrote, as ``kind``, and whether the signature is that of ``key``.

    Raises DamagedError where it cannot be read.
    """
    try:
        content = read_json(path, TypeAdapter(dict[str, Any]), remedy="")
        found = kind.validate_python(content)
        said = content.pop("signature")
    except (ValueError, KeyError) as error:
        raise DamagedError(f"{path} cannot be read") from error
    if key is None:
        return found, False
    return found, hmac.compare_digest(_signature(content, key).encode(), str(said).encode())


def _signature(content: Mapping[str, Any], key: bytes) -> str:
    return hmac.new(key, json.dumps(content, sort_keys=True).encode(), hashlib.sha256).hexdigest()


# ---------------------------------------------------------------- the user's key


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
    with _key_errors(path):
        if not path.exists():
            _check_place(path)
            return None
        key = path.read_bytes()
    if len(key) != KEY_BYTES:
        raise FileError(
            f"the key that seals runs, {path}, is damaged: it has {len(key)} bytes, not "
            f"{KEY_BYTES}. Bring it back from a copy, or delete it: another is made, and runs that "
            "were begun with the lost one need resume_foreign=true"
        )
    return key


def user_key() -> bytes:
    """This user's key; it is made where there is none. Raises FileError as ``read_key`` does."""
    if read_key() is None:
        path = key_path()
        with _key_errors(path):
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
def _key_errors(path: Path) -> Iterator[None]:
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
            file.write(secrets.token_bytes(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())  # or a crash of the machine may leave the name and no key
        with suppress(FileExistsError):
            os.link(aside, path)  # whoever is first: two runs may make it at once
        sync(path.parent)
    finally:
        aside.unlink(missing_ok=True)
