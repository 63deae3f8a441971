"""Registries of named objects: shipped ones, those of installed packages, and a user's own, named
``file.py:object`` or ``module:object``.

The text of a ``file.py`` is read once and handed to worker processes and Ray actors
(``texts_read``, ``adopt_texts``), so all run the same code; a module edited meanwhile is refused.
"""

import asyncio
import hashlib
import importlib
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, reduce
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from comas.config.paths import PathError, find, tried

Entry = TypeVar("Entry")

HOW_TO_NAME_ONE = "name an object of your own: path/to/file.py:object or module:object"
_texts: dict[str, str] = {}
"""Absolute path -> text of each file.py that this process has read or was handed."""
_files: set[str] = set()
"""The files in which plug-ins of this process are defined."""


class PluginError(ValueError):
    """An error of a plug-in, with its file and line, and the remedy."""

    def __init__(self, constraint: str, remedy: str) -> None:
        super().__init__(constraint, remedy)  # both, so that it can be pickled
        self.constraint, self.remedy = constraint, remedy

    def __str__(self) -> str:
        return f"{self.constraint}; {self.remedy}"


@dataclass(frozen=True)
class PluginFile:
    """The file and line in which a plug-in is defined."""

    path: Path
    text: str
    line: int

    @property
    def digest(self) -> str:
        return digest_of(self.text)

    def __str__(self) -> str:
        return f"{self.path}, line {self.line}"


class Registry(dict[str, Entry]):
    """The objects that a key may name: shipped ones are items, other names looked up as plug-ins.

    Example: ``REWARD_SCHEMES["interaction"]`` is shipped, ``REWARD_SCHEMES["my.py:reward"]`` is the
    object ``reward`` of my.py; ``list(REWARD_SCHEMES)`` names the shipped ones only.
    """

    def __init__(
        self,
        shipped: Mapping[str, Entry],
        *,
        group: str,
        wanted: str,
        adapt: Callable[[Any], Entry | None],
        prefixes: Mapping[str, Any] | None = None,
    ) -> None:
        """``group``: the entry points by which packages register their plug-ins.
        ``wanted``: a description of a valid plug-in.
        ``adapt``: returns the entry for a plug-in, or None if it cannot be one; raises TypeError if
        it cannot be called as it will be (``check_call``).
        ``prefixes``: the "trl" of "trl:my.py:f" -> a function that converts f for ``adapt``;
        raises TypeError as ``adapt`` does."""
        super().__init__(shipped)
        self.group = group
        self.wanted = wanted
        self._adapt = adapt
        self._prefixes = prefixes or {}
        self._looked_up: dict[str, Entry] = {}

    def __missing__(self, name: str) -> Entry:
        """Look up a plug-in. Raises PluginError if there is none or it cannot be used."""
        if name in self._looked_up:
            return self._looked_up[name]
        found, foreign = self._look_up(name), self._prefixes.get(name.partition(":")[0])
        why = f"it is of type {type(found).__name__}"
        try:
            entry = self._adapt(found if foreign is None else foreign(found))
        except TypeError as error:
            entry, why = None, str(error)
        if entry is None:
            raise PluginError(f"{self.source_of(name) or name}: {why}", f"make it {self.wanted}")
        self._looked_up[name] = entry
        return entry

    def find(self, name: str) -> Entry | None:
        """Return the entry of ``name``, or None instead of a PluginError."""
        try:
            return self[name]
        except PluginError:
            return None

    def source_of(self, name: str) -> PluginFile | None:
        """Return where a plug-in is defined; None for shipped entries and modules without a Python
        file. Raises PluginError as a look-up does."""
        if name in self:
            return None
        location, attribute = self._split(name)
        path = getattr(_module_at(location), "__file__", None)  # a builtin has none
        if path is None or not path.endswith(".py"):
            return None
        text = _texts[_read(path)]
        return PluginFile(Path(path), text, _line_of(attribute, text))

    def label(self, name: str) -> str:
        """Return a short name for folders and tables: ``label("my.py:TWICE") == "TWICE"``."""
        return name.rpartition(":")[2]

    def known(self) -> str:
        """Return all names, including those of installed packages, separated by commas."""
        registered = (point.name for point in entry_points(group=self.group))
        return ", ".join(dict.fromkeys([*self, *registered]))

    def _look_up(self, name: str) -> Any:
        location, attribute = self._split(name)
        module = _module_at(location)
        try:
            return reduce(getattr, attribute.split("."), module)
        except AttributeError as error:
            where = getattr(module, "__file__", None) or location
            has = [n for n, x in vars(module).items() if n[0] != "_" and not inspect.ismodule(x)]
            others = f", or name another object: {', '.join(has)}" if has else ""
            remedy = f"define {self.wanted}, there{others}"
            raise PluginError(f"{where} has no {attribute}", remedy) from error

    def _split(self, name: str) -> tuple[str, str]:
        """Return the file or module and the object in it, without a prefix."""
        prefix, _, rest = name.partition(":")
        location, colon, attribute = (rest if prefix in self._prefixes else name).rpartition(":")
        if colon and location and attribute:
            return location, attribute
        for point in entry_points(group=self.group, name=name):
            return point.module, point.attr
        choose = f"choose one of: {known}; or " if (known := self.known()) else ""
        raise PluginError("is not a known name", choose + HOW_TO_NAME_ONE)


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def texts_read() -> dict[str, str]:
    """Return absolute path -> text of every file.py that this process has read."""
    return dict(_texts)


def adopt_texts(texts: Mapping[str, str]) -> None:
    """Use the texts that another process has read in place of these files."""
    _texts.update(texts)


@contextmanager
def blaming_plugins() -> Iterator[None]:
    """Turn what a plug-in raises within the block into a PluginError with its file and line."""
    try:
        yield
    except (PluginError, KeyboardInterrupt, asyncio.CancelledError, GeneratorExit):
        raise  # nobody's error: Ctrl-C, the end of a coroutine
    except BaseException as error:  # a plug-in may raise anything, also by sys.exit()
        place = _place_of(error)
        if place is None:
            raise
        what = error.msg if isinstance(error, SyntaxError) else error
        blame = f"{place}: {type(error).__name__}: {what}"
        raise PluginError(blame, "mend that line of the plug-in") from error


def check_call(found: Any, *positional: str, named: Iterable[str] = ()) -> None:
    """Raise TypeError unless ``found`` can be called with these positional and ``named`` arguments.
    (Some builtins have no known signature and pass.)"""
    try:
        signature = inspect.signature(found)
    except ValueError:
        return
    try:
        signature.bind(*positional, **dict.fromkeys(named))
    except TypeError as error:
        written = ", ".join([*positional, *(f"{name}=" for name in named)])
        name = getattr(found, "__name__", type(found).__name__)
        raise TypeError(f"{name}{signature} is called with ({written}): {error}") from error


def function_of(*positional: str, named: Iterable[str] = ()) -> Callable[[Any], Any]:
    """Return an ``adapt`` (see ``Registry``) that takes any function of these arguments."""

    def adapt(found: Any) -> Any:
        if callable(found):
            check_call(found, *positional, named=named)
            return found
        return None

    return adapt


def _place_of(error: BaseException) -> str | None:
    """Return where a plug-in raised, ``/home/me/my.py, line 7 (reward)``; None if none did."""
    if isinstance(error, SyntaxError) and error.filename in _files:
        return f"{error.filename}, line {error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    for frame in reversed([frame for frame in frames if frame.filename in _files]):
        within = "" if frame.name == "<module>" else f" ({frame.name})"
        return f"{frame.filename}, line {frame.lineno}{within}"
    return None


def _module_at(location: str) -> ModuleType:
    """Return the module of a path to a .py file, or of a dotted name."""
    if location.endswith(".py"):
        return _file_as_module(_read(location))
    spec, why = None, ""
    try:
        spec = importlib.util.find_spec(location)
    except Exception as error:  # of its package, which is imported for this
        why = f" ({error!r})"
    if spec is None:
        raise PluginError(
            f"there is no module {location}{why}",
            f"install its package, add its folder to PYTHONPATH, or {HOW_TO_NAME_ONE}",
        )
    _files.add(path := str(spec.origin))
    is_read = path.endswith(".py") and location not in sys.modules
    if is_read and _texts[_read(path)].encode() != Path(path).read_bytes():
        raise PluginError(f"{path} was edited meanwhile", "restore it, or start the command again")
    with blaming_plugins():
        return importlib.import_module(location)


def _read(location: str) -> str:
    """Read a file, unless this or another process has read it; returns its absolute path."""
    try:
        path = (find(location) or Path(location).expanduser()).resolve()
        if str(path) not in _texts:
            # Not read_text(), which would hide line endings from the seal.
            if "\0" in (text := path.read_bytes().decode()):
                raise PathError(f"{path} holds NUL bytes: save it in UTF-8")
            _texts[str(path)] = text
    except (PathError, OSError, UnicodeDecodeError) as error:
        said = str(error)
        if not isinstance(error, PathError):
            where = tried(location) if isinstance(error, FileNotFoundError) else f" ({path})"
            why = getattr(error, "strerror", "it is not UTF-8")
            said = f"{location} cannot be read: {why}{where}"
        raise PluginError(said, "name a .py file that can be read") from error
    return str(path)


@cache
def _file_as_module(path: str) -> ModuleType:
    _files.add(path)
    module = ModuleType(f"plugin_{Path(path).stem}_{digest_of(path)[:8]}")
    module.__file__ = path
    sys.modules[module.__name__] = module  # dataclasses look up their module there
    with blaming_plugins():
        exec(compile(_texts[path].removeprefix("\ufeff"), path, "exec"), vars(module))
    return module


def _line_of(attribute: str, text: str) -> int:
    """Return the line that defines the attribute or starts with its name; 1 if there is none."""
    name = re.escape(attribute.partition(".")[0])
    found = re.search(rf"^(?:(?:async )?def |class )?{name}\b", text, re.M)
    return 1 if found is None else text.count("\n", 0, found.start()) + 1
