"""Seals: files of a run are signed with this user's key, which is kept outside the run's folder.

A resume acts on the folder's config.yaml and executes code in its checkpoints, so it first checks
who wrote them and whether they were edited since.
"""

import dataclasses
import hashlib
import hmac
import json
import logging
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from types import MappingProxyType
from typing import Any

from comas.config.loading import Changes
from comas.config.schema import Config
from comas.utils import files
from comas.utils.files import FileError, json_type, read_json

logger = logging.getLogger(__name__)

SEAL_NAME = "seal.json"
CONFIG = "config.yaml"
INPUTS = "inputs.json"
"""Where the run found the models and questions that ``CONFIG`` names: a name may lead elsewhere
later (``quickstart/models/qwen2``, with another recipe), but a resumed run keeps its own."""
SOURCES = "sources"
"""Folder of copies of the user's own files; nothing in it is executed."""
KEY_BYTES = 32
SHOWN_CHARS = len("sha256 1a2b3c4d5e6f")
"""Characters of a digest or commit shown in messages."""


class DamagedError(ValueError):
    """A file or folder that differs from what was written."""


def key_path() -> Path:
    """Return the path of this user's key: below ``XDG_STATE_HOME``, or ~/.local/state."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    return Path(state).absolute() / "comas/seal.key"


def user_key() -> bytes:
    """Return this user's key, which is created on first use. Raises FileError if it cannot be read
    or created, or has the wrong length: an empty key would be known to everybody."""
    path = key_path()
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with NamedTemporaryFile(dir=path.parent) as file:  # for this user alone
                file.write(secrets.token_bytes(KEY_BYTES))
                file.flush()
                os.fsync(file.fileno())
                with suppress(FileExistsError):
                    os.link(file.name, path)  # two runs may make it at once; the first one wins
        key = path.read_bytes()
    except OSError as error:
        raise FileError(
            f"the key that seals runs, {path}, can neither be read nor created: {error.strerror}. "
            "Set XDG_STATE_HOME to a folder that you can write to"
        ) from error
    if len(key) != KEY_BYTES:
        raise FileError(
            f"the key that seals runs, {path}, has {len(key)} bytes, not {KEY_BYTES}. Restore it "
            "from a copy, or delete it: runs that were begun with the lost one then need "
            "resume_foreign=true"
        )
    return key


@dataclasses.dataclass(frozen=True)
class Origin:
    """The contents of the seal of a run, or of a checkpoint: what a resume checks before it acts on
    any other file (``CONFIG`` may name a Ray cluster to join)."""

    run: str
    """A random identity of the run, kept when its folder is moved."""
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """SHA-256 of ``CONFIG``, ``INPUTS`` and, by absolute path, the user's own files (plug-ins); in
    a checkpoint, of all its files."""
    inputs: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Digests of questions, planted solutions and base models: ``{"data.train": "sha256 ..."}``
    (``Inputs.contents``)."""
    newest_checkpoint: int | None = None
    """The step of the last checkpoint written; None before the first."""
    step: int | None = None


def write_seal(folder: Path, origin: Origin, key: bytes) -> None:
    """Write ``SEAL_NAME``: ``origin`` as JSON, with its ``signature`` under ``key``."""
    content = dataclasses.asdict(origin)
    signed = {**content, "signature": _signature(content, key)}
    files.write_text(folder / SEAL_NAME, json.dumps(signed, indent=1))


def read_seal(folder: Path, key: bytes | None) -> tuple[Origin, bool]:
    """Return the contents of a folder's seal, and whether ``key`` signed it. Raises DamagedError if
    it cannot be read."""
    path = folder / SEAL_NAME
    try:
        content = read_json(path, dict[str, Any], remedy="")
        found = json_type(Origin).validate_python(content)
        signature = str(content.pop("signature")).encode()
    except (ValueError, KeyError) as error:
        raise DamagedError(f"{path} cannot be read") from error
    ours = key is not None and hmac.compare_digest(_signature(content, key).encode(), signature)
    return found, ours


def _signature(content: Mapping[str, Any], key: bytes) -> str:
    return hmac.new(key, json.dumps(content, sort_keys=True).encode(), hashlib.sha256).hexdigest()


def read_origin(run: Path, key: bytes | None) -> tuple[Origin | None, str | None]:
    """Return the contents of a run's seal (None if unreadable), and why it cannot be trusted (None
    if ``key`` signed it)."""
    if not (run / SEAL_NAME).is_file():
        return None, f"{run} has no seal"
    try:
        origin, is_ours = read_seal(run, key)
    except DamagedError as error:
        return None, str(error)
    if origin.step is not None:
        return None, f"{run} is a checkpoint, not a run"
    return origin, None if is_ours else f"{run} was not sealed with the key in {key_path()}"


def check_origin(run: Path, config: Config) -> None:
    """Raise ValueError if another user wrote the run or its files were edited, unless
    ``config.resume_foreign`` or ``config.resume_changed`` allows it."""
    origin, why = read_origin(run, user_key())
    if why is not None:
        if not config.resume_foreign:
            raise ValueError(
                f"resume: {why}, and resuming acts on its config.yaml and runs code in its "
                "checkpoints. If you trust whoever wrote it, add resume_foreign=true"
            )
        logger.warning("continuing because of resume_foreign=true: %s", why)
    if origin is not None and not config.resume_changed:
        refuse_changes(run, edits(run, origin))


def edits(run: Path, origin: Origin, contents: Mapping[str, str] = MappingProxyType({})) -> Changes:
    """Return the sealed files that have changed since, and the inputs whose digests in ``contents``
    differ from the sealed ones, with their digests; executes none."""
    changes = {
        f"contents of {name}": (then[:SHOWN_CHARS], now[:SHOWN_CHARS])
        for name, then in origin.inputs.items()
        if (now := contents.get(name, then)) != then
    }
    for name, sealed in origin.files.items():
        path = run / name  # if ``name`` is absolute, just that
        found = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
        if found != sealed:
            changes[name] = (f"sha256 {sealed[:12]}", f"sha256 {found[:12]}" if found else "gone")
    return changes


def kept_source(run: Path, path: Path) -> Path | None:
    """Return the run's copy of the user's file ``path``; None if it has none, or it was edited."""
    origin, _ = read_origin(run, None)
    digest = None if origin is None else origin.files.get(str(path))
    kept = run / SOURCES / kept_name(str(path), digest or "")
    is_kept = kept.is_file() and hashlib.sha256(kept.read_bytes()).hexdigest() == digest
    return kept if is_kept else None


def kept_name(path: str, digest: str) -> str:
    """Return the name of a copy in ``SOURCES``: ``my.py -> 1a2b3c4d5e6f-my.py``."""
    return f"{digest[:12]}-{Path(path).name}"


def refuse_changes(run: Path, changes: Changes) -> None:
    if changes:
        raise ValueError(
            f"resume: {run} was begun with other settings or files ({in_words(changes)}); restore "
            f"them ({SOURCES}/ has copies of your Python files), or add resume_changed=true to "
            "continue with the new ones"
        )


def in_words(changes: Changes) -> str:
    """``seed: 0 -> 1; training.num_steps: null -> 60``"""
    return "; ".join(f"{name}: {old} -> {new}" for name, (old, new) in changes.items())


def inputs_as_json(run: Path, locations: Mapping[str, str]) -> str:
    """Return the text of ``INPUTS``: where each name that leads to a file or folder was found.
    Locations under the same ``saves`` are relative to the run, so that they can be moved together.
    """
    noted = {}
    for name, location in locations.items():
        path = Path(location).resolve()
        if path.exists():
            is_beside = path.is_relative_to(run.parent)
            noted[name] = os.path.relpath(path, run) if is_beside else str(path)
    return json.dumps(noted, indent=1) + "\n"


def read_inputs(run: Path) -> dict[str, str]:
    """Return name -> location from ``INPUTS``; empty for runs of older versions, which lack it.
    Raises FileError when the file is damaged."""
    path = run / INPUTS
    remedy = "Delete it to have the names of config.yaml looked up anew (with resume_changed=true)"
    noted = read_json(path, dict[str, str], remedy=remedy) if path.is_file() else {}
    return {name: os.path.normpath(run.resolve() / location) for name, location in noted.items()}
