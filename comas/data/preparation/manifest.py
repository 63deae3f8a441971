"""``checksums.json``: the built files, their sources and their SHA-256."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import TypeAdapter

from comas.config.keys import leaves
from comas.utils.files import read_json, write_files

FILE_NAME = "checksums.json"


@dataclass(frozen=True)
class Entry:
    """One built file: its records by source, omitted rows by reason, and everything that determines
    its content (``recipe``: sources with their revisions, seed, sizes)."""

    sha256: str
    records: dict[str, int]
    left_out: dict[str, int]
    origin: str
    """"hub", or "local copy", whose revision is unknown."""
    recipe: dict[str, Any]


_CONTENT = TypeAdapter(dict[Literal["files"], dict[str, Entry]])


class Manifest:
    """The built files of one folder. Entries are written before their files, so a file without an
    entry is the user's own."""

    def __init__(self, folder: Path, entries: dict[str, Entry]) -> None:
        self._folder = folder
        self._entries = entries

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the manifest of a folder, if any. Raises FileError if it is damaged."""
        path = folder / FILE_NAME
        if not path.exists():
            return cls(folder, {})
        remedy = "Delete it, and build again with --rebuild"
        return cls(folder, read_json(path, _CONTENT, remedy=remedy).get("files", {}))

    def __getitem__(self, name: str) -> Entry:
        return self._entries[name]

    def is_built(self, name: str) -> bool:
        """Return True if the file has an entry and exists, whatever its content."""
        return name in self._entries and (self._folder / name).is_file()

    def errors(self, names: Iterable[str], recipe: Mapping[str, Any]) -> list[str]:
        """Return why existing files do not match ``recipe``."""
        errors = (self._error(name, recipe) for name in names if (self._folder / name).is_file())
        return [error for error in errors if error is not None]

    def _error(self, name: str, recipe: Mapping[str, Any]) -> str | None:
        path = self._folder / name
        if name not in self._entries:
            return f"{path} exists, but was not built by this command"
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
        """Write files (name -> text, entry) and their entries, each atomically."""
        self._entries.update({name: entry for name, (_, entry) in contents.items()})
        entries = {name: asdict(entry) for name, entry in sorted(self._entries.items())}
        texts = {self._folder / name: text for name, (text, _) in contents.items()}
        for path in texts:
            path.parent.mkdir(parents=True, exist_ok=True)
        manifest = json.dumps({"files": entries}, indent=2) + "\n"
        write_files({self._folder / FILE_NAME: manifest} | texts)
