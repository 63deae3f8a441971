"""The identity of a results folder: another model, or other settings, may not add to it."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from comas.utils.files import read_json, write_text
from evaluation.inference_log import ANSWERS

FILE = "subject.json"
FORMAT_KEY, FORMAT = "format", 3
"""Incremented whenever the files of a results folder change their keys, or a setup its prompts."""
TASKS = "tasks"
TITLE = "title"
SAMPLING = "sampling"
SETUP_FILES = "setup_files"
MAY_GROW = (TASKS, SETUP_FILES)

Identity = Mapping[str, Any]
"""All that determines the answers, as JSON values: "tasks" holds a fingerprint of each benchmark,
"sampling" how the models are asked, "setup_files" the SHA-256 of the files of setups that are
plug-ins, and "title" says, for people, where the models were found."""


def check_identity(folder: Path, identity: Identity) -> None:
    """Raise ValueError, with the differences, if ``folder`` holds results of another identity.

    Benchmarks and setups may be added.
    """
    path = folder / FILE
    if not path.is_file():
        if next(folder.glob(f"**/{ANSWERS}"), None):
            raise ValueError(f"{folder} holds results, but no {FILE} to say whose. {_REMEDY}")
        return
    before = _read(path)
    differences = list(_differences(_leaves(before), _leaves(identity)))
    if differences:
        listed = "\n  ".join(differences)
        raise ValueError(
            f"{folder} holds results of another model or of other settings:\n  {listed}\n{_REMEDY}"
        )


def write_identity(folder: Path, identity: Identity) -> None:
    """Claim ``folder``, new or not; the benchmarks and setups in it stay claimed."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FILE
    before = _read(path) if path.is_file() else {}
    claimed = {key: before.get(key, {}) | identity[key] for key in MAY_GROW}
    merged = {FORMAT_KEY: FORMAT, **identity, **claimed}
    write_text(path, json.dumps(merged, indent=1) + "\n")


def read_sampling(folder: Path) -> Mapping[str, Any]:
    """How the answers in ``results/NAME``, or in ``results/NAME/<subject>``, were sampled.

    Raises ValueError when another version of this program wrote them.
    """
    path = next((p / FILE for p in (folder, folder.parent) if (p / FILE).is_file()), None)
    return {} if path is None else dict(_read(path)[SAMPLING])


def fingerprint(value: object) -> str:
    """Equal for equal JSON values; 64 bits, enough to notice a change."""
    return hashlib.blake2b(json.dumps(value).encode(), digest_size=8).hexdigest()


_KEPT = TypeAdapter(dict[str, Any])
_REMEDY = "Choose another NAME, or delete that folder. Nothing was changed."


def _read(path: Path) -> dict[str, Any]:
    """The identity in subject.json. Raises ValueError when it is damaged, or its format is not
    ours."""
    identity = read_json(path, _KEPT, remedy=_REMEDY)
    found = identity.pop(FORMAT_KEY, 1)
    if found != FORMAT:
        raise ValueError(
            f"{path.parent} holds results in format {found}, and this version of the program "
            f"reads format {FORMAT}. To use them, check out the version that wrote them; "
            "to evaluate anew, choose another NAME or delete that folder. Nothing was changed."
        )
    return identity


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for key in sorted(before.keys() | now.keys()):
        may_be_added = key.partition(".")[0] in MAY_GROW and not (key in before and key in now)
        if key != TITLE and not may_be_added and before.get(key) != now.get(key):
            yield f"{key}: {before.get(key)} there, {now.get(key)} now"


def _leaves(value: Any, prefix: str = "") -> dict[str, Any]:
    """``{"models": [{"fingerprint": "a"}]} -> {"models.0.fingerprint": "a"}``"""
    if isinstance(value, list | tuple):
        value = dict(enumerate(value))
    if not isinstance(value, Mapping):
        return {prefix.removesuffix("."): value}
    return {
        k: v for name, each in value.items() for k, v in _leaves(each, f"{prefix}{name}.").items()
    }
