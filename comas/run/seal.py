"""Seals: of what run and step a checkpoint is, whether it is whole, and whether this user wrote it.

Loading a checkpoint runs code that lies in it (DeepSpeed unpickles its files), and a flipped byte
in an optimiser's state, or a checkpoint under another step's name, trains on without a word. So a
checkpoint names its run, its step and the SHA-256 of its files, signed with a key that is kept
outside of it (``comas/run/key.py``).
"""

import hashlib
import hmac
import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from comas.run.key import key_path
from comas.utils.files import MAX_LISTED_FAULTS, read_json, write_text

SEAL_NAME = "seal.json"


@dataclass(frozen=True)
class _Seal:
    files: dict[str, str]
    """Relative path -> SHA-256."""
    run: str | None = None
    """``Origin.run``; None in a seal of version 0.11.1 or older."""
    step: int | None = None
    """As ``run``."""


_SEAL = TypeAdapter(_Seal)


class DamagedError(ValueError):
    """Something is not what was written there."""


class ForeignError(ValueError):
    """Something that was not sealed with this user's key, or for another run."""


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


def _signature(content: Mapping[str, Any], key: bytes) -> str:
    return hmac.new(key, json.dumps(content, sort_keys=True).encode(), hashlib.sha256).hexdigest()


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
