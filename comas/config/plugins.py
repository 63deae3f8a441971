"""Names that stand for objects: those that are shipped, those that installed packages register, and
a user's own: ``file.py:object`` or ``module:object``.

What is read of a ``file.py`` is kept, and handed to worker processes and Ray actors
(``texts_read``, ``adopt_texts``): all processes of a run have the same code, also when the file is
edited meanwhile.
"""

import asyncio
import hashlib
import importlib
import importlib.util
import inspect
import os
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
from typing import Any, NoReturn, TypeVar

from comas.config.paths import PathError, find, tried

Entry = TypeVar("Entry")

HOW_TO_NAME_ONE = "name an object of your own: path/to/file.py:object or module:object"
_texts: dict[str, str] = {}
"""What this process has read of each file.py, or was handed; by its whole path."""
_files: set[str] = set()
"""Where the plug-ins of this process are defined."""


class PluginError(ValueError):
    """What is wrong with a plug-in, with the line of its file, and what to do about it."""

    def __init__(self, constraint: str, remedy: str) -> None:
        super().__init__(constraint, remedy)  # both, as it may be pickled
        self.constraint, self.remedy = constraint, remedy

    def __str__(self) -> str:
        return f"{self.constraint}; {self.remedy}"


@dataclass(frozen=True)
class PluginFile:
    """The file in which a plug-in is defined, and at which line."""

    path: Path
    text: str
    line: int

    @property
    def digest(self) -> str:
        """SHA-256 of the text."""
        return digest_of(self.text)

    def __str__(self) -> str:
        return f"{self.path}, line {self.line}"


class Registry(dict[str, Entry]):
    """What a key may name. It holds what is shipped; any other name is looked up as a plug-in.

    Example: ``REWARD_SCHEMES["interaction"]`` is ours, ``REWARD_SCHEMES["my.py:reward"]`` what
    my.py defines as ``reward``; ``list(REWARD_SCHEMES)`` are ours alone.
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
        """``group``: of the entry points by which packages register theirs.
        ``wanted``: what a plug-in has to be, in words.
        ``adapt``: makes an entry of what a plug-in is, or None where it can be none; raises
        TypeError where it cannot be called as it will be (``check_call``).
        ``prefixes``: "trl" of "trl:my.py:f" -> what makes of f something for ``adapt``, and says
        itself what is ``wanted``."""
        super().__init__(shipped)
        self.group = group
        self.wanted = wanted
        self._adapt = adapt
        self._prefixes = prefixes or {}
        self._looked_up: dict[str, Entry] = {}

    def __missing__(self, name: str) -> Entry:
        """Look up a plug-in. Raises PluginError where there is none, or it cannot be used."""
        if name in self._looked_up:
            return self._looked_up[name]
        found, foreign = self._look_up(name), self._prefixes.get(name.partition(":")[0])
        why = f"it is of type {type(found).__name__}"
        try:
            entry = self._adapt(found if foreign is None else foreign(found))
        except TypeError as error:
            entry, why = None, str(error)
        if entry is None:
            where, wanted = self.source_of(name) or name, getattr(foreign, "wanted", self.wanted)
            raise PluginError(f"{where}: {why}", f"make it {wanted}")
        self._looked_up[name] = entry
        return entry

    def find(self, name: str) -> Entry | None:
        """What ``name`` stands for; None where that is an error."""
        try:
            return self[name]
        except PluginError:
            return None

    def source_of(self, name: str) -> PluginFile | None:
        """Where a plug-in is defined; None for what is shipped, or is no Python file.

        Raises PluginError as a look-up does.
        """
        if name in self:
            return None
        location, attribute = self._split(name)
        module = _module_at(location)
        text = _text_of(module)
        if text is None:
            return None
        assert module.__file__ is not None
        return PluginFile(Path(module.__file__), text, _line_of(attribute, text))

    def label(self, name: str) -> str:
        """A short name, for folders and tables: ``label("my.py:TWICE") == "TWICE"``."""
        return name.rpartition(":")[2]

    def known(self) -> str:
        """All names that can be chosen, those of installed packages included."""
        registered = [point.name for point in entry_points(group=self.group)]
        return ", ".join([*self, *(name for name in registered if name not in self)])

    def _look_up(self, name: str) -> Any:
        location, attribute = self._split(name)
        module = _module_at(location)
        try:
            return reduce(getattr, attribute.split("."), module)
        except AttributeError as error:
            foreign = self._prefixes.get(name.partition(":")[0])
            fitting = [
                name
                for name, found in vars(module).items()
                if not name.startswith("_") and self._fits(found, foreign, module)
            ]
            where, wanted = getattr(module, "__file__", None) or location, self.wanted
            remedy = f"name one of: {', '.join(fitting)}" if fitting else f"define {wanted}, there"
            raise PluginError(f"{where} has no {attribute}", remedy) from error

    def _fits(self, found: Any, foreign: Any, module: ModuleType) -> bool:
        """Whether what a module holds could be an entry, and was not imported by it."""
        is_code = inspect.isroutine(found) or inspect.isclass(found)
        if is_code and found.__module__ != module.__name__:
            return False
        try:
            return self._adapt(found if foreign is None else foreign(found)) is not None
        except TypeError:
            return False

    def _split(self, name: str) -> tuple[str, str]:
        """The file or module, and the object in it, without a prefix."""
        prefix, _, rest = name.partition(":")
        location, colon, attribute = (rest if prefix in self._prefixes else name).rpartition(":")
        if colon and location and attribute:
            return location, attribute
        for point in entry_points(group=self.group, name=name):
            return point.module, point.attr
        remedy = f"choose one of: {self.known()}; or {HOW_TO_NAME_ONE}"
        raise PluginError("is not a known name", remedy)


def digest_of(text: str) -> str:
    """SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def texts_read() -> dict[str, str]:
    """Whole path -> text of every file.py that was looked up in this process."""
    return dict(_texts)


def adopt_texts(texts: Mapping[str, str]) -> None:
    """Take the texts that another process has read for what stands in these files."""
    _texts.update(texts)


@contextmanager
def blaming_plugins() -> Iterator[None]:
    """Let what a plug-in raises within the block be a PluginError that names its file and line."""
    try:
        yield
    except (PluginError, KeyboardInterrupt, asyncio.CancelledError, GeneratorExit):
        raise  # Ctrl-C and the end of a coroutine are nobody's fault
    except BaseException as error:  # whatever somebody else's code may raise, sys.exit() too
        place = _place_of(error)
        if place is None:
            raise
        what = error.msg if isinstance(error, SyntaxError) else error
        blame = f"{place}: {type(error).__name__}: {what}"
        raise PluginError(blame, "mend that line of the plug-in") from error


def check_call(found: Any, *positional: str, named: Iterable[str] = ()) -> None:
    """Raise TypeError unless ``found`` can be called with so many arguments, and those of these
    names. (Of some builtins Python does not know how they are called.)"""
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


def _place_of(error: BaseException) -> str | None:
    """``/home/me/my.py, line 7 (reward)``: where a plug-in raised; None: it was none."""
    if isinstance(error, SyntaxError) and error.filename in _files:
        return f"{error.filename}, line {error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    for frame in reversed([frame for frame in frames if frame.filename in _files]):
        within = "" if frame.name == "<module>" else f" ({frame.name})"
        return f"{frame.filename}, line {frame.lineno}{within}"
    return None


_exit = os._exit


def _watch(path: str) -> None:
    """Note that plug-ins are defined in a file, before anything of it runs; from then on
    ``os._exit``, by which one would end the run without a word, raises SystemExit in this process.
    """
    process = os.getpid()

    def exit_unless_plugin(status: int) -> NoReturn:
        is_plugin = any(frame.filename in _files for frame in traceback.extract_stack())
        if is_plugin and os.getpid() == process:  # not in a child that it has forked
            raise SystemExit(f"os._exit({status})")
        _exit(status)

    _files.add(path)
    os._exit = exit_unless_plugin


# ---------------------------------------------------------------- files and modules


def _module_at(location: str) -> ModuleType:
    """The module that a path to a .py file, or a dotted name, leads to."""
    if location.endswith(".py"):
        return _file_as_module(_located(location))
    try:
        spec = importlib.util.find_spec(location)
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        raise PluginError(
            f"there is no module {location}",
            f"install its package, add its folder to PYTHONPATH, or {HOW_TO_NAME_ONE}",
        )
    _watch(str(spec.origin))
    with blaming_plugins():
        return importlib.import_module(location)


def _located(location: str) -> Path:
    try:
        found = find(location)
    except PathError as error:
        raise PluginError(str(error), "name a .py file that is there") from error
    if found is None and str(whole := Path(location).expanduser().resolve()) in _texts:
        return whole  # what another process has read
    if found is None:
        why = f"No such file or directory{tried(location)}"
        raise PluginError(f"{location} cannot be read: {why}", "name a .py file that is there")
    return found


@cache
def _file_as_module(path: Path) -> ModuleType:
    path = path.resolve()
    try:
        # Not read_text(), by which a seal would miss how its lines end.
        text = _texts.get(str(path)) or path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        remedy = "name a .py file that can be read"
        raise PluginError(f"{path} cannot be read: {why}", remedy) from error
    _watch(str(path))
    _texts[str(path)] = text
    module = ModuleType(f"plugin_{path.stem}_{digest_of(str(path))[:8]}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # where dataclasses look for their module
    with blaming_plugins():
        exec(compile(text, str(path), "exec"), vars(module))
    return module


def _text_of(module: ModuleType) -> str | None:
    """The text that a module was made of; None where that is no Python file."""
    path = getattr(module, "__file__", None)  # a builtin has none
    if path is None or not path.endswith(".py"):
        return None
    return _texts[path] if path in _texts else Path(path).read_bytes().decode()


def _line_of(attribute: str, text: str) -> int:
    """The line that begins with the name, or defines it; 1 where none does."""
    name = re.escape(attribute.partition(".")[0])
    found = re.search(rf"^(?:(?:async )?def |class )?{name}\b", text, re.M)
    return 1 if found is None else text.count("\n", 0, found.start()) + 1
