"""Seals: files of a run are signed with this user's key, which is kept outside of its folder.

A resume acts on the folder's config.yaml and runs code that lies in its checkpoints, so it asks
first whose they are, and whether somebody edited them since.
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
from typing import Any

from pydantic import TypeAdapter

from comas.config.loading import Changes
from comas.utils import files
from comas.utils.files import FileError, read_json

logger = logging.getLogger(__name__)

SEAL_NAME = "seal.json"
CONFIG = "config.yaml"
INPUTS = "inputs.json"
"""Where the run found the models and questions that ``CONFIG`` names: ``quickstart/models/qwen2``
leads elsewhere when its recipe changes, but a run goes on with what it began with."""
SOURCES = "sources"
"""The folder that keeps the user's own files as they were; nothing in it is ever run."""
KEY_BYTES = 32
SHOWN_CHARS = len("sha256 1a2b3c4d5e6f")
"""Of a digest or commit, in messages."""
_OBJECT = TypeAdapter(dict[str, Any])


class DamagedError(ValueError):
    """Something is not what was written there."""


# ---------------------------------------------------------------- the user's key


def key_path() -> Path:
    """Return where this user's key is: below ``XDG_STATE_HOME``, or ~/.local/state."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    return Path(state).absolute() / "comas/seal.key"


def user_key() -> bytes:
    """Return this user's key, which is made where there is none. Raises FileError where it can
    neither be read nor made, or is damaged: an empty key is known to everybody."""
    path = key_path()
    try:
        if not path.exists():
            _make_key(path)
        key = path.read_bytes()
    except OSError as error:
        raise FileError(
            f"the key that seals runs, {path}, can neither be read nor made: {error.strerror}. "
            "Set XDG_STATE_HOME to a folder that you can write to"
        ) from error
    if len(key) != KEY_BYTES:
        raise FileError(
            f"the key that seals runs, {path}, is damaged: it has {len(key)} bytes, not "
            f"{KEY_BYTES}. Bring it back from a copy, or delete it: another is made, and runs that "
            "were begun with the lost one need resume_foreign=true"
        )
    return key


def _make_key(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    aside = path.with_name(f".{path.name}-{os.getpid()}")
    try:
        aside.touch(mode=0o600)
        aside.write_bytes(secrets.token_bytes(KEY_BYTES))
        files.sync(aside)  # or a crash of the machine may leave the name and no key
        with suppress(FileExistsError):
            os.link(aside, path)  # whoever is first: two runs may make it at once
    finally:
        aside.unlink(missing_ok=True)


# ---------------------------------------------------------------- signed files


def write_signed(path: Path, content: Mapping[str, Any], key: bytes) -> None:
    """Write ``content`` as JSON, with its ``signature`` under ``key``."""
    signed = {**content, "signature": _signature(content, key)}
    files.write_text(path, json.dumps(signed, indent=1))


def read_signed(path: Path, kind: TypeAdapter[Any], key: bytes | None) -> tuple[Any, bool]:
    """Return what ``write_signed`` wrote, as ``kind``, and whether the signature is that of
    ``key``. Raises DamagedError where it cannot be read."""
    try:
        content = read_json(path, _OBJECT, remedy="")
        found = kind.validate_python(content)
        said = str(content.pop("signature")).encode()
    except (ValueError, KeyError) as error:
        raise DamagedError(f"{path} cannot be read") from error
    is_ours = key is not None and hmac.compare_digest(_signature(content, key).encode(), said)
    return found, is_ours


def _signature(content: Mapping[str, Any], key: bytes) -> str:
    return hmac.new(key, json.dumps(content, sort_keys=True).encode(), hashlib.sha256).hexdigest()


# ---------------------------------------------------------------- what it was begun with


@dataclasses.dataclass(frozen=True)
class Origin:
    """Contents of a run's seal: of files on which a resume acts before it looks at checkpoints
    (``CONFIG`` may name a Ray cluster to join)."""

    run: str
    """Made up as the run begins, and kept wherever its folder is moved."""
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """SHA-256 of ``CONFIG`` and ``INPUTS``, and by their whole paths of the user's own files that
    the run depends on (plug-ins)."""
    inputs: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """What its questions, planted solutions and base models were: ``{"data.train": "sha256 ..."}``
    (``Inputs.contents``)."""
    models: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """SHA-256 of what was written into ``models/``, by the paths there; cards may be edited."""
    newest_checkpoint: int | None = None
    """The step of the one that was written last; None: there was none yet."""


_ORIGIN = TypeAdapter(Origin)
_INPUTS = TypeAdapter(dict[str, str])


def read_origin(run: Path, key: bytes | None) -> tuple[Origin | None, str | None]:
    """Return what the seal of a run says, if it can be read, and why it is not to be relied on."""
    path = run / SEAL_NAME
    if not path.is_file():
        return None, f"{run} has no seal"
    try:
        origin, is_ours = read_signed(path, _ORIGIN, key)
    except DamagedError as error:
        return None, str(error)
    return origin, None if is_ours else f"{run} was not sealed with the key in {key_path()}"


def check_origin(run: Path, *, resume_changed: bool, resume_foreign: bool) -> None:
    """Raise ValueError, with the key that lets the run go on all the same, if it is another user's
    or its files were edited."""
    origin, doubt = read_origin(run, user_key())
    if doubt is not None:
        if not resume_foreign:
            raise ValueError(
                f"resume: {doubt}, and going on acts on its config.yaml and runs code in its "
                "checkpoints. If you trust whoever wrote it, add resume_foreign=true"
            )
        logger.warning("going on as resume_foreign=true asks: %s", doubt)
    if origin is not None and not resume_changed:
        refuse_changes(run, edits(run, origin))


def edits(run: Path, origin: Origin) -> Changes:
    """Return which files have changed since the seal was written; none is run."""
    changes: dict[str, tuple[str, str]] = {}
    for name, sealed in origin.files.items():
        path = run / name  # of a whole path it is that path
        now = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
        if now != sealed:
            changes[name] = (f"sha256 {sealed[:12]}", f"sha256 {now[:12]}" if now else "gone")
    return changes


def changed_inputs(origin: Origin, contents: Mapping[str, str]) -> Changes:
    """Return which of the inputs that are found now are not what they were."""
    return {
        f"contents of {name}": (then[:SHOWN_CHARS], now[:SHOWN_CHARS])
        for name, then in origin.inputs.items()
        if (now := contents.get(name, then)) != then
    }


def kept_source(run: Path, path: Path) -> Path | None:
    """Return where a run keeps the text of the user's file at ``path``; None: it does not."""
    origin, _ = read_origin(run, None)
    digest = None if origin is None else origin.files.get(str(path))
    kept = None if digest is None else run / SOURCES / kept_name(str(path), digest)
    return kept if kept is not None and kept.is_file() else None


def kept_name(path: str, digest: str) -> str:
    """Return the name of a source in a run: ``my.py -> 1a2b3c4d5e6f-my.py``."""
    return f"{digest[:12]}-{Path(path).name}"


def refuse_changes(run: Path, changes: Changes) -> None:
    """Raise ValueError unless there are none."""
    if changes:
        raise ValueError(
            f"resume: {run} was begun with other settings or files ({in_words(changes)}); leave "
            f"them as they were ({SOURCES}/ has your own Python files), or add resume_changed=true "
            "to go on with the new ones"
        )


def in_words(changes: Changes) -> str:
    """``seed: 0 -> 1; training.num_steps: null -> 60``"""
    return "; ".join(f"{name}: {old} -> {new}" for name, (old, new) in changes.items())


def inputs_as_json(run: Path, locations: Mapping[str, str]) -> str:
    """Return the file's text: the location of every name that leads to a file or folder, relative
    to the run if it lies beside it, under the same ``saves``: they may be moved together."""
    noted = {}
    for name, location in locations.items():
        path = Path(location).resolve()
        if path.exists():
            is_beside = path.is_relative_to(run.parent)
            noted[name] = os.path.relpath(path, run) if is_beside else str(path)
    return json.dumps(noted, indent=1) + "\n"


def read_inputs(run: Path) -> dict[str, str]:
    """Return name -> location, as ``inputs_as_json`` notes them; a run of an older version has
    none. Raises FileError when the file is damaged."""
    path = run / INPUTS
    remedy = "Delete it to have the names of config.yaml looked up anew (with resume_changed=true)"
    noted = read_json(path, _INPUTS, remedy=remedy) if path.is_file() else {}
    return {name: os.path.normpath(run / location) for name, location in noted.items()}
