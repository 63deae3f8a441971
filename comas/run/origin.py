"""What a run is and what it was begun with, under its user's seal: ``seal.json`` in its folder.

``inputs.json`` says where the run found the models and questions that ``config.yaml`` names: a name
such as ``quickstart/models/qwen2`` leads elsewhere when the recipe behind it changes, but a run
goes on with what it began with, and is compared with that. A resume acts on both files (the
configuration may name a Ray cluster to join) before any checkpoint is looked at, so these have a
seal as well, which holds their texts: an edit by hand is told from the settings that the run was
begun with.
"""

import hashlib
import json
import logging
import os
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter

from comas.config.faults import one_line
from comas.config.keys import leaves
from comas.config.loading import Changes, changed_values
from comas.config.yaml_texts import parse
from comas.run.seal import (
    SEAL_NAME,
    DamagedError,
    key_path,
    read_key,
    read_signed,
    write_signed,
)
from comas.utils.files import read_json, write_texts

logger = logging.getLogger(__name__)

CONFIG = "config.yaml"
INPUTS = "inputs.json"
SOURCES = "sources"
"""The folder that keeps the user's own files as they were; nothing in it is ever run."""


@dataclass(frozen=True)
class Origin:
    """What the seal of a run says."""

    run: str
    """Made up as the run begins, and kept wherever its folder is moved."""
    config: str
    """The text of config.yaml."""
    inputs: str
    """The text of inputs.json."""
    newest_checkpoint: int | None = None
    """The step of the one that was written last; None: there was none yet."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Whole path -> SHA-256 of the user's own files that the run depends on (plug-ins)."""

    @property
    def texts(self) -> dict[str, str]:
        """The contents of the files that are sealed, by their names."""
        return {CONFIG: self.config, INPUTS: self.inputs}


_ORIGIN = TypeAdapter(Origin)
_INPUTS = TypeAdapter(dict[str, str])


def new_origin() -> Origin:
    """The origin of a run that begins."""
    return Origin(secrets.token_hex(16), config="", inputs="")


def write_origin(run: Path, origin: Origin, key: bytes) -> None:
    """Write config.yaml and inputs.json, and then the seal."""
    write_texts({run / name: text for name, text in origin.texts.items()})
    seal_origin(run, origin, key)


def seal_origin(run: Path, origin: Origin, key: bytes) -> None:
    """Write the seal alone: the files may have been edited since."""
    write_signed(run / SEAL_NAME, asdict(origin), key)


def read_origin(run: Path, key: bytes | None) -> tuple[Origin | None, str | None]:
    """What the seal of a run says, if it can be read, and why it is not to be relied on."""
    path = run / SEAL_NAME
    if not path.is_file():
        return None, f"{run} has no seal (runs of version 0.11.1 and older have none)"
    try:
        origin, is_ours = read_signed(path, _ORIGIN, key)
    except DamagedError as error:
        return None, str(error)
    return origin, None if is_ours else f"{run} was not sealed with the key in {key_path()}"


def check_origin(run: Path, *, resume_changed: bool, resume_foreign: bool) -> None:
    """Ask whose run this is, and whether its files were edited, before anybody acts on them.

    Raises ValueError, with the key that lets the run go on all the same.
    """
    origin, doubt = read_origin(run, read_key())
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
    """What was changed by hand since the seal was written; raises ValueError where a file cannot be
    read."""
    changes: dict[str, tuple[str, str]] = {}
    for name, sealed in origin.texts.items():
        path = run / name
        text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else "{}"
        if text != sealed:
            changes |= changed_values(_values(sealed, path), _values(text, path))
    return {**changes, **_edited_sources(origin.sources)}


def _edited_sources(sources: Mapping[str, str]) -> Changes:
    """The user's own files that are not what they were, or gone. They are read, never run."""
    changes = {}
    for path, sealed in sources.items():
        is_here = Path(path).is_file()
        now = hashlib.sha256(Path(path).read_bytes()).hexdigest() if is_here else "gone"
        if now != sealed:
            kept = f"sha256 {sealed[:12]}, kept as {SOURCES}/{kept_name(path, sealed)}"
            changes[path] = (kept, f"sha256 {now[:12]}" if is_here else now)
    return changes


def kept_source(run: Path, path: Path) -> Path | None:
    """Where a run keeps the text of the user's file at ``path``; None: it does not."""
    origin, _ = read_origin(run, None)
    digest = None if origin is None else origin.sources.get(str(path))
    kept = None if digest is None else run / SOURCES / kept_name(str(path), digest)
    return kept if kept is not None and kept.is_file() else None


def kept_name(path: str, digest: str) -> str:
    """Under what name a run keeps a source: ``my.py -> 1a2b3c4d5e6f-my.py``."""
    return f"{digest[:12]}-{Path(path).name}"


def refuse_changes(run: Path, changes: Changes) -> None:
    """Raise ValueError unless there are none."""
    if changes:
        raise ValueError(
            f"resume: {run} was begun with other settings ({in_words(changes)}); leave them as "
            "they were, or add resume_changed=true to go on with the new ones"
        )


def in_words(changes: Changes) -> str:
    """``seed: 0 -> 1; training.num_steps: null -> 60``"""
    return "; ".join(f"{name}: {old} -> {new}" for name, (old, new) in changes.items())


def _values(text: str, path: Path) -> dict[str, Any]:
    """The leaves of a YAML or JSON file."""
    try:
        values, _ = parse(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"resume: {path} is not YAML: {one_line(error)}. Mend it") from error
    if not isinstance(values, dict):
        raise ValueError(f"resume: {path} does not hold names with values. Mend it")
    return leaves(values)


# ---------------------------------------------------------------- inputs.json


def inputs_as_json(run: Path, locations: Mapping[str, str]) -> str:
    """The file's text: the location of every name that leads to a file or folder, and not to the
    hub.

    What lies beside the run, under the same ``saves``, may be moved together with it.
    """
    local = {
        name: Path(location).resolve()
        for name, location in locations.items()
        if Path(location).exists()
    }
    noted = {
        name: os.path.relpath(location, run)
        if location.is_relative_to(run.parent)
        else str(location)
        for name, location in local.items()
    }
    return json.dumps(noted, indent=1) + "\n"


def read_inputs(run: Path) -> dict[str, str]:
    """Name -> location, as ``inputs_as_json`` notes them; a run of an older version has none.

    Raises FileError when the file is damaged.
    """
    path = run / INPUTS
    remedy = "Delete it to have the names of config.yaml looked up anew (with resume_changed=true)"
    noted = read_json(path, _INPUTS, remedy=remedy) if path.is_file() else {}
    return {name: os.path.normpath(run / location) for name, location in noted.items()}
