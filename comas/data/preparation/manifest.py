"""``checksums.json``: what was built, from what, and the SHA-256 of every file."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from pydantic import ConfigDict, TypeAdapter

from comas.config.keys import leaves
from comas.utils.files import read_json, write_files

FILE_NAME = "checksums.json"
_STRICT = ConfigDict(extra="forbid")


@dataclass(frozen=True)
class Entry:
    """One built file."""

    sha256: str
    records: dict[str, int]
    """source -> lines of the file"""
    left_out: dict[str, int]
    """reason -> rows or candidates of the dataset that are not in the file"""
    origin: str
    """"hub", or "local copy", of which nobody knows the revision."""
    recipe: dict[str, Any]
    """All that decides the content: sources with their revisions, seed, sizes."""

    __pydantic_config__ = _STRICT


@dataclass(frozen=True)
class _Content:
    files: dict[str, Entry]

    __pydantic_config__ = _STRICT


_CONTENT = TypeAdapter(_Content)


class Manifest:
    """The built files of one folder. Every entry is there before its file is, so a file that is
    there without an entry is the user's own."""

    def __init__(self, folder: Path, entries: dict[str, Entry]) -> None:
        self._folder = folder
        self._entries = entries

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Raises FileError when the file is there, but is not what this writes."""
        path = folder / FILE_NAME
        if not path.exists():
            return cls(folder, {})
        remedy = "Delete it, and build again with --rebuild"
        return cls(folder, read_json(path, _CONTENT, remedy=remedy).files)

    def __getitem__(self, name: str) -> Entry:
        return self._entries[name]

    def is_built(self, name: str) -> bool:
        """True if the file is there, as far as its name goes."""
        return name in self._entries and (self._folder / name).is_file()

    def faults(self, recipes: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """Why files on disk (name -> recipe) cannot stay as what their recipes describe."""
        faults = (self._fault(name, recipe) for name, recipe in recipes.items())
        return [fault for fault in faults if fault is not None]

    def _fault(self, name: str, recipe: Mapping[str, Any]) -> str | None:
        path = self._folder / name
        if not path.is_file():
            return None
        if name not in self._entries:
            return f"{path} is there, but was not built by this command"
        entry = self._entries[name]
        if hashlib.sha256(path.read_bytes()).hexdigest() != entry.sha256:
            return f"{path} changed since it was built: its SHA-256 is not that of {FILE_NAME}"
        before, wanted = leaves(entry.recipe), leaves(json.loads(json.dumps(recipe)))
        differences = [
            f"{key} {before.get(key)!r} instead of {wanted.get(key)!r}"
            for key in sorted({*before, *wanted})
            if before.get(key) != wanted.get(key)
        ]
        return f"{path} was built with {', '.join(differences)}" if differences else None

    def store(self, contents: Mapping[str, tuple[str, Entry]]) -> None:
        """Write files (name -> text, entry) and their entries, each file at once or not at all."""
        self._entries.update({name: entry for name, (_, entry) in contents.items()})
        content = _Content(dict(sorted(self._entries.items())))
        manifest = json.dumps(asdict(content), indent=2) + "\n"
        texts = {self._folder / name: text for name, (text, _) in contents.items()}
        for path in texts:
            path.parent.mkdir(parents=True, exist_ok=True)
        write_files({self._folder / FILE_NAME: manifest} | texts)


def checksum(text: str) -> str:
    """The SHA-256 of a file that holds ``text``."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
