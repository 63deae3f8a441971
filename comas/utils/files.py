"""Atomic writes, JSON lines that survive a kill, and locks on folders.

Files and folders are written completely or not at all, and errors name the path.
"""

import fcntl
import hashlib
import itertools
import json
import logging
import os
import reprlib
import shlex
import shutil
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from io import FileIO
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

PARTIAL = ".partial-"
"""Prefix of incomplete files and folders, which are removed when a run is opened."""
LOCK_NAME = ".lock"
STARTED_IN = "COMAS_STARTED_IN"  # of comas/config/paths.py
MAX_LISTED_ERRORS = 5
PROBE_BYTES = 1 << 20
"""A disk with less free space than this counts as full."""

log = logging.getLogger(__name__)

T = TypeVar("T")
json_type: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)
"""pydantic's reader of JSON of a type, made once."""


class FileError(ValueError):
    """A file or folder is not writable, in use, or damaged."""


@contextmanager
def explaining_errors(path: Path) -> Iterator[None]:
    """Turn an OSError into a FileError that names ``path`` and the remedy."""
    try:
        yield
    except OSError as error:
        system = os.statvfs(next(each for each in path.absolute().parents if each.exists()))
        room = f"{system.f_bavail * system.f_frsize >> 20} MiB and {system.f_favail} inodes"
        raise FileError(
            f"cannot write {path}: {error.strerror} ({room} are free there). Free "
            "space there, make it writable, or choose another folder; completed work is kept"
        ) from error


def from_here(path: Path) -> Path:
    """Return ``path`` for messages: relative to the user's folder if it is inside it."""
    path, folder = path.resolve(), Path(os.environ.get(STARTED_IN) or Path.cwd()).resolve()
    return path.relative_to(folder) if path.is_relative_to(folder) else path


def in_command(path: Path) -> str:
    """Return ``path`` quoted for a command line that people copy: ``'my runs/comas'``."""
    return shlex.quote(str(from_here(path)))


def write_text(path: Path, text: str) -> None:
    """Replace the content of ``path`` by ``text`` atomically."""
    write_files({path: text})


def write_files(contents: Mapping[Path, str | bytes]) -> None:
    """Replace files (path -> content) in this order, after all contents are on the disk."""
    for path, content in contents.items():
        with explaining_errors(path), _partial(path).open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
    for path in contents:
        with explaining_errors(path):
            _partial(path).replace(path)


@contextmanager
def written_aside(folder: Path) -> Iterator[Path]:
    """Yield an empty folder that replaces ``folder`` at the end of the block, and is deleted on an
    error. A full disk is reported as such, whatever error a library raises for it."""
    partial = _partial(folder)
    with explaining_errors(partial):
        remove(partial)
        partial.mkdir(parents=True)
    try:
        yield partial
    except Exception:
        with explaining_errors(folder):  # torch reports a full disk as "unexpected pos"
            (partial / "probe").write_bytes(bytes(PROBE_BYTES))
            sync(partial / "probe")
        raise
    else:
        with explaining_errors(folder):
            # The data must be on the disk before the final name is.
            for file in partial.rglob("*"):
                if file.is_file():
                    sync(file)
            remove(folder)
            partial.rename(folder)
            sync(folder.parent)
    finally:
        # After Ctrl-C ranks may still write to it; opening the run removes the rest.
        with suppress(OSError):
            remove(partial)


def new_folder(parent: Path, stem: str) -> Path:
    """Create a private folder (mode 700): ``parent/stem``, or ``parent/stem-2``, ..."""
    with explaining_errors(parent):
        parent.mkdir(parents=True, exist_ok=True)
        for number in itertools.count(1):
            path = parent.resolve() / (stem if number == 1 else f"{stem}-{number}")
            with suppress(FileExistsError):
                path.mkdir(mode=0o700)
                return path
    raise AssertionError("itertools.count never ends")


def remove(path: Path) -> None:
    """Delete a file or folder if it exists. A folder is renamed first, so that one that is half
    deleted never looks complete."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
    elif path.name.startswith(PARTIAL):
        shutil.rmtree(path)
    else:
        remove(path.rename(path.with_name(f"{PARTIAL}old-{path.name}")))


def _partial(path: Path) -> Path:
    return path.with_name(PARTIAL + path.name)


def sync(path: Path) -> None:
    """Flush a file, or the directory entries of a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256_of(paths: Iterable[Path], *, within: Path) -> dict[str, str]:
    """Return path relative to ``within`` -> SHA-256, reading several files at once."""

    def digest(path: Path) -> tuple[str, str]:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        return str(path.relative_to(within)), found

    with ThreadPoolExecutor() as threads:
        return dict(threads.map(digest, sorted(path for path in paths if path.is_file())))


def json_lines(records: Iterable[Mapping[str, Any]]) -> str:
    """Return the text of a JSONL file: one object per line."""
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def append_lines(path: Path, lines: Iterable[bytes], *, sync: bool = True) -> None:
    """Append lines, given without line breaks, to a file.

    First drops a partial last line, to which the next would be glued. Without ``sync``, the lines
    survive a crash of the process, but not one of the machine.
    """
    with explaining_errors(path), path.open("a+b", buffering=0) as file:
        _drop_torn_line(file)
        rest = memoryview(b"".join(line + b"\n" for line in lines))
        try:
            while rest:
                rest = rest[file.write(rest) :]
        except OSError:
            _drop_torn_line(file)
            raise
        if sync:
            os.fsync(file.fileno())


def read_lines(path: Path, parse: Callable[[bytes], T], *, remedy: str) -> list[T]:
    """Parse every line except a partial last one. Raises FileError with the line's number and
    ``remedy`` if ``parse`` raises ValueError."""
    items = []
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], start=1):
        try:
            items.append(parse(line))
        except ValueError as error:
            errors = errors_in_words(error)
            raise FileError(f"{path}, line {number} is damaged: {errors}. {remedy}") from error
    return items


def read_json(path: Path, kind: type[T], *, remedy: str) -> T:
    """Return a file's JSON. Raises FileError with ``remedy`` if it does not match ``kind``."""
    try:
        return json_type(kind).validate_json(path.read_bytes())
    except ValidationError as error:
        raise FileError(f"{path} is damaged: {errors_in_words(error)}. {remedy}") from error


def errors_in_words(error: ValueError) -> str:
    """Describe why JSON does not match its schema:
    ``"seeds.0: Input should be a valid integer, not 'x'; num_tasks: Field required"``."""
    if not isinstance(error, ValidationError):
        return str(error)
    errors = []
    for each in error.errors():
        at = "".join(f"{key}." for key in each["loc"])
        given = f", not {reprlib.repr(each['input'])}" * each["msg"].startswith("Input should")
        errors.append(f"{at[:-1]}: {each['msg']}{given}".removeprefix(": "))
    more = f" (and {len(errors) - MAX_LISTED_ERRORS} more)" * (len(errors) > MAX_LISTED_ERRORS)
    return "; ".join(errors[:MAX_LISTED_ERRORS]).replace("Value error, ", "") + more


def _drop_torn_line(file: FileIO) -> None:
    if file.seek(0, os.SEEK_END) == 0:
        return
    file.seek(-1, os.SEEK_END)
    if file.read(1) != b"\n":
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)


_held: set[Path] = set()


@contextmanager
def locked(folder: Path, *, remedy: str, waits: bool = False) -> Iterator[None]:
    """Lock ``folder`` for this block, or until this process ends. Raises FileError with ``remedy``
    if another process holds the lock; with ``waits``, it waits for that process instead."""
    with explaining_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    path = folder.resolve() / LOCK_NAME
    in_use = f"{path.parent} is being written by process {{}}: {remedy}"
    # Trap: a process loses its lock when it closes any handle of the file, so open only one.
    if path in _held:
        raise FileError(in_use.format(os.getpid()))
    with ExitStack() as stack:
        with explaining_errors(path):
            file = stack.enter_context(path.open("a+", encoding="utf-8"))
            try:
                # Not flock: a forked worker that outlives us would keep the lock
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                holder = file.read().strip()
                if not waits:
                    raise FileError(in_use.format(holder)) from None
                log.info("Waiting for process %s, which is writing %s", holder, path.parent)
                fcntl.lockf(file, fcntl.LOCK_EX)
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
        _held.add(path)
        try:
            yield
        finally:
            _held.remove(path)


def is_locked(folder: Path) -> bool:
    """True while this process or another one is inside a ``locked`` block of ``folder``."""
    path = folder.resolve() / LOCK_NAME
    if path in _held or not path.is_file():
        return path in _held
    # Only query: taking the lock for a moment could make a run that starts just then fail.
    with path.open("rb") as file:
        fields = "hhqqi"  # of struct flock: type, whence, start, length, process
        wanted = struct.pack(fields, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        found = struct.unpack(fields, fcntl.fcntl(file, fcntl.F_GETLK, wanted))
    return bool(found[0] != fcntl.F_UNLCK)
