"""``checksums.json``: the built files, their sources and their SHA-256."""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from comas.config.keys import leaves
from comas.data.records import Record
from comas.utils.files import json_lines, read_json, write_files

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


Contents = Mapping[str, tuple[Sequence[Record], Mapping[str, int]]]
"""File -> its records, and the number of omitted rows by reason."""
_CONTENT = TypeAdapter(dict[Literal["files"], dict[str, Entry]])


class Manifest(dict[str, Entry]):
    """The built files of one folder: name -> entry. Entries are written before their files, so a
    file without an entry is the user's own."""

    def __init__(self, folder: Path) -> None:
        """Read the manifest of a folder, if any. Raises FileError if it is damaged."""
        self._folder, path = folder, folder / FILE_NAME
        if path.exists():
            remedy = "Delete it, and build again with --rebuild"
            self.update(read_json(path, _CONTENT, remedy=remedy).get("files", {}))

    def is_built(self, name: str) -> bool:
        """Return True if the file has an entry and exists, whatever its content."""
        return name in self and (self._folder / name).is_file()

    def error(self, name: str, recipe: Mapping[str, Any]) -> str | None:
        """Return why an existing file does not match ``recipe``; None if it does."""
        path = self._folder / name
        if not path.is_file():
            return None
        if name not in self:
            return f"{path} exists, but was not built by this command"
        if hashlib.sha256(path.read_bytes()).hexdigest() != self[name].sha256:
            return f"{path} changed since it was built: its SHA-256 is not that of {FILE_NAME}"
        before, wanted = leaves(self[name].recipe), leaves(json.loads(json.dumps(recipe)))
        differences = [
            f"{key} {before.get(key)!r} instead of {wanted.get(key)!r}"
            for key in sorted({*before, *wanted})
            if before.get(key) != wanted.get(key)
        ]
        return f"{path} was built with {', '.join(differences)}" if differences else None

    def store(self, contents: Contents, *, origin: str, recipe: dict[str, Any]) -> None:
        """Write files and their entries, each atomically."""
        texts = {}
        for name, (records, left_out) in contents.items():
            rows = ({k: v for k, v in vars(each).items() if k != "columns"} for each in records)
            texts[self._folder / name] = text = json_lines(rows)
            digest = hashlib.sha256(text.encode()).hexdigest()
            sources = Counter(record.source for record in records)
            self[name] = Entry(digest, dict(sources), dict(left_out), origin, recipe)
            (self._folder / name).parent.mkdir(parents=True, exist_ok=True)
        entries = {name: asdict(entry) for name, entry in sorted(self.items())}
        manifest = json.dumps({"files": entries}, indent=2) + "\n"
        write_files({self._folder / FILE_NAME: manifest} | texts)
