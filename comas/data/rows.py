"""Reads the rows of a file, or of a dataset on the hub, by column names."""

import codecs
import csv
import glob
import io
import json
import logging
import re
import reprlib
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from pydantic_core import from_json

from comas.config.paths import tried
from comas.utils.invocation import of_checkout, program

HUB = "hub:"
"""Prefix of the name of a dataset on the hub."""
HUB_NAME = re.compile(r"hub:([^/@]+/[^/@]+)(?:@([^/]+))?(?:/([^/]+)(?:/([^/]+))?)?")
HUB_FORM = "hub:OWNER/NAME[@COMMIT][/CONFIG[/SPLIT]], such as hub:openai/gsm8k/main/test"
DEFAULT_SPLIT = "train"
SHORT_FLOATS = ("float16", "float32")

_NO_TEXT = (b"\x1f\x8b", b"PK\x03\x04", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ", b"BZh", b"PAR1")
"""First bytes of gzip, zip, zstd, xz, bzip2 and Parquet files."""

# It logs every retry; the final error says what happened.
logging.getLogger("huggingface_hub.utils._http").setLevel(logging.ERROR)


class DataError(ValueError):
    """Data that cannot be used: lists every invalid record and the remedy."""


@dataclass(frozen=True)
class Invalid:
    """A record that cannot be used."""

    reason: str


def read_rows(name: str) -> Iterator[tuple[str, Any]]:
    """Yield (location, row) of a CSV, Parquet, JSON or JSONL file, or of a dataset on the hub, such
    as ``("row 1", {"question": "Janet's ducks ...", "answer": "... #### 18"})``.

    A row is a mapping, ``Invalid``, or any other JSON value. Cells of a CSV stay text ("007").
    Raises DataError if it cannot be read.
    """
    if name.startswith(HUB):
        path, revision, config, split = _hub_parts(name)
        return _numbered(
            hub_rows(path, config=config, split=split or DEFAULT_SPLIT, revision=revision)
        )
    path = Path(name)
    match path.suffix.lower():
        case ".csv":
            return _csv_rows(path)
        case ".parquet":
            return _numbered(_parquet_rows(path))
        case ".tsv" | ".xlsx" | ".arrow" | ".txt":
            raise _unreadable(path, "a file is .jsonl, .json, .csv (with commas) or .parquet")
    return json_rows(path)


def source_of(name: str) -> str:
    """Return the default ``source`` of records: "openai/gsm8k", or a file's name, "mine"."""
    return str(_hub_parts(name)[0]) if name.startswith(HUB) else Path(name).stem


def json_rows(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield (location, row) of each record of a JSON list or JSONL; ``Invalid`` for a line that is
    broken or repeats a key. Raises DataError if the file or its JSON list cannot be read."""
    content = _utf8(path)
    if content.lstrip().startswith(b"["):
        try:
            records = _parsed(content)
        except ValueError as error:
            raise DataError(
                f"{path} begins like a JSON list, but cannot be read as one: {error}"
            ) from error
        yield from ((f"record {number}", row) for number, row in enumerate(records, start=1))
        return
    # Not splitlines(), which would also split at U+2028 within a JSON string.
    for number, line in enumerate(content.split(b"\n"), start=1):
        line = line.removeprefix(codecs.BOM_UTF8)  # of files that were joined
        if line.strip():
            try:
                row = _parsed(line)
            except ValueError as error:
                row = Invalid(f"Invalid JSON: {error}")
            yield f"line {number}", row


class _AsWritten(float):
    """A JSON number whose text keeps all its digits."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text


def _parsed(content: bytes) -> Any:
    """Return the value of JSON; raises ValueError if it is invalid or repeats a key."""
    from_json(content)  # refuses half of a surrogate pair, unlike json.loads
    return json.loads(content, object_pairs_hook=_object, parse_float=_AsWritten)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        key, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise ValueError(f"the key {key!r} occurs more than once in {reprlib.repr(found)}")
    return found


def hub_rows(
    name: str, *, config: str | None, split: str, revision: str | None
) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of a dataset on the hub. Raises DataError if it cannot be read."""
    import datasets
    from datasets.exceptions import DatasetsError

    try:
        yield from datasets.load_dataset(name, name=config, split=split, revision=revision)
    except (httpx.HTTPError, DatasetsError, OSError, ValueError) as error:
        raise DataError(
            f"{name}: neither the hub nor its local cache (HF_HOME) has config {config!r}, split "
            f"{split!r}: {' '.join(str(error).split())}. For a gated dataset accept its terms at "
            f"https://huggingface.co/datasets/{name} and log in ({program('hf')} auth login, or "
            "HF_TOKEN)"
        ) from error


def _utf8(path: Path) -> bytes:
    """Return the content of a file in UTF-8, without its byte order mark; raises DataError."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from error
    if content.startswith(_NO_TEXT):
        raise _unreadable(path, "it is not text: unpack it, or name it .parquet if it is Parquet")
    encoding = json.detect_encoding(content)
    if not encoding.startswith("utf-8"):
        raise _unreadable(path, f"it is in {encoding.upper()}: save it in UTF-8")
    return content.removeprefix(codecs.BOM_UTF8)


def _csv_rows(path: Path) -> Iterator[tuple[str, Any]]:
    content = _utf8(path)
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _unreadable(path, f"line {line}: {error}; save it as UTF-8") from error
    # For the whole process, since a question may be long.
    csv.field_size_limit(sys.maxsize)
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    begin = 1
    try:
        columns = reader.fieldnames or ()
        num_columns = len(columns)
        if repeated := [name for name, times in Counter(columns).items() if times > 1]:
            raise _unreadable(path, f"it names the column {repeated[0]!r} more than once")
        begin += reader.line_num
        for row in reader:
            yield f"line {reader.line_num}", _whole(row, num_columns)
            begin = reader.line_num + 1
    except csv.Error as error:
        raise _unreadable(path, f"the row that begins in line {begin}: {error}") from error


def _whole(row: dict[Any, Any], num_columns: int) -> dict[str, str | None] | Invalid:
    """Return ``row`` with None for empty cells; Invalid if it has not one value per column."""
    num_values = sum(value is not None for value in row.values())
    if None not in row and num_values == num_columns:
        return {column: value or None for column, value in row.items()}
    num_values += len(row[None]) - 1 if None in row else 0
    return Invalid(f"{num_values} values for the {num_columns} columns of the first line")


def _parquet_rows(path: Path) -> Iterator[Mapping[str, Any]]:
    import datasets

    try:
        # Streaming avoids the library's cache, which copies the file.
        file = glob.escape(str(path))  # else [1] would be a pattern
        rows = datasets.load_dataset("parquet", data_files=file, split="train", streaming=True)
        kinds = {name: getattr(kind, "dtype", "") for name, kind in (rows.features or {}).items()}
        short = {name: np.dtype(of).type for name, of in kinds.items() if of in SHORT_FLOATS}
        for row in rows:  # 0.1 in 32 bits is 0.10000000149011612 in 64
            yield row | {
                name: row[name] and float(str(of(row[name]))) for name, of in short.items()
            }
    except (OSError, ValueError) as error:
        raise _unreadable(path, getattr(error, "strerror", None) or str(error)) from error


def _hub_parts(name: str) -> tuple[Any, ...]:
    """Return path, revision, config and split, None if missing; raises DataError."""
    parts = HUB_NAME.fullmatch(name)
    if parts is None:
        raise DataError(f"{name!r} is not a dataset of the hub: write it like {HUB_FORM}")
    return parts.groups()


def _numbered(rows: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    return ((f"row {number}", row) for number, row in enumerate(rows, start=1))


def _unreadable(path: Path, reason: str) -> DataError:
    return DataError(
        f"{path} cannot be read: {reason.rstrip('.')}{tried(path)}. To build the paper's data: "
        f"{of_checkout('bash scripts/prepare_data.sh; to write your own: data/README.md')}"
    )
