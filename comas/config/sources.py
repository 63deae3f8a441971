"""The sources of settings: the command line, and YAML files that may be based on others."""

import re
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import yaml

from comas.config.errors import COMMAND_LINE, ConfigError, InvalidSetting, Setting, one_line
from comas.config.keys import leaves
from comas.config.paths import REPOSITORY, PathError, find, tried
from comas.config.yaml_texts import parse

BASE = "base"
"""Key of a file that names the file it is based on; it then holds only the differences."""


def read_overrides(overrides: Sequence[str]) -> tuple[list[Setting], list[InvalidSetting]]:
    """Return the settings of ``key=value`` arguments (values in YAML), and the errors of others."""
    settings: list[Setting] = []
    errors: list[InvalidSetting] = []
    for override in overrides:
        try:
            settings += _read_override(override)
        except ConfigError as error:
            errors += error.errors
    return settings, errors


def _read_override(override: str) -> list[Setting]:
    name, equals, text = override.partition("=")
    given = Setting(name, text, COMMAND_LINE)
    if not name or not equals:
        given = Setting("override", override, COMMAND_LINE)
        remedy = "write key=value, without spaces around the equals sign, after CONFIG"
        raise _error(given, "is not of the form key=value", remedy)
    if name == BASE:
        remedy = "name that file as CONFIG, or write base: into a file of your own"
        raise _error(given, "is for files", remedy)
    try:
        value, _ = parse(text)
        found = leaves({name: value})
    except (yaml.YAMLError, RecursionError) as error:
        remedy = "close its brackets and quotes, or put all of it into quotes"
        raise _error(given, f"is not YAML: {one_line(error)}", remedy) from error
    plain = text.strip()
    is_bare = isinstance(value, str | None) and plain[:1] not in ("'", '"', "|", ">", "")
    if is_bare and value != plain and re.search(r"(?:^|\s)#|\n", plain):
        remedy = f"put the text into quotes of its own: {name}=\"'...'\""
        raise _error(given, "would lose line breaks, or what follows a #, as YAML", remedy)
    written = text.strip() if isinstance(value, bool | int | float) else None
    return [Setting(leaf, each, COMMAND_LINE, written=written) for leaf, each in found.items()]


def read_files(path: Path) -> list[list[Setting]]:
    """Return the settings of each file, those that ``path`` is based on before ``path`` itself.
    Raises ConfigError if one of them cannot be read or is based on itself."""
    named: Setting | None = Setting("CONFIG", str(path), "the configuration file")
    files: list[list[Setting]] = []
    seen: list[Path] = []
    while named is not None:
        path = _located(named)
        seen.append(path.resolve())
        if seen[-1] in seen[:-1]:
            circle = " -> ".join(map(_shown, seen[seen.index(seen[-1]) :]))
            raise _error(named, f"leads back to itself: {circle}", "remove `base` from one of them")
        settings, named = _read_file(path, named)
        files.append(settings)
    return files[::-1]


def _read_file(path: Path, named: Setting) -> tuple[list[Setting], Setting | None]:
    """Return the settings of one file, and its ``base``; errors are those of ``named``."""
    error = partial(_error, named)
    try:
        parsed = _parse(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as reason:
        raise error(f"cannot be read: {one_line(reason)}", "save it in UTF-8") from reason
    except OSError as reason:
        why = f"{reason.strerror}{tried(named.value, named.folder)}"
        raise error(f"cannot be read: {why}", f"name one of {_yaml_files(path.parent)}") from reason
    except (yaml.YAMLError, RecursionError) as reason:
        raise error(f"is not YAML: {one_line(reason)}", "mend the line that it names") from reason
    if parsed is None:
        raise error("does not hold sections with keys", "write it like configs/comas.yaml")
    values, lines = parsed
    folder, shown = path.absolute().parent, _shown(path)
    origins = {name: f"{shown}, line {lines[name]}" if name in lines else shown for name in values}
    settings = {n: Setting(n, value, origins[n], folder) for n, value in values.items()}
    base = settings.pop(BASE, None)
    if base is not None and not isinstance(base.value, str):
        raise _error(base, "must be the name of one file", "write it like base: configs/comas.yaml")
    return list(settings.values()), base


def _located(named: Setting) -> Path:
    """Return the file that ``named`` names, or the place where it was looked up last."""
    try:
        return find(named.value, named.folder) or REPOSITORY / Path(named.value).expanduser()
    except PathError as reason:
        raise _error(named, str(reason), f"name one of {_yaml_files(Path())}") from reason


def _error(named: Setting, constraint: str, remedy: str) -> ConfigError:
    return ConfigError([InvalidSetting((named,), constraint, remedy)])


@cache
def _parse(text: str) -> tuple[dict[str, Any], dict[str, int]] | None:
    """Return the values and the lines (from 1) of all keys in ``text``; None if it is no mapping.
    Cached, since many files may be based on the same one."""
    values, lines = parse(text)
    return (leaves(values), lines) if isinstance(values, dict) else None


def _yaml_files(folder: Path) -> str:
    """Return the configurations in ``folder``, or else in ``configs``, without hidden files."""
    folders = (folder, REPOSITORY / "configs")
    found = (sorted(f for f in place.glob("*.yaml") if f.name[0] != ".") for place in folders)
    files: list[Path] = next(filter(None, found), [])
    return ", ".join(map(_shown, files)) or "the files of configs/"


def _shown(path: Path) -> str:
    """Return a path for messages: relative to the repository if it lies in it."""
    whole = path.absolute()
    return str(whole.relative_to(REPOSITORY) if whole.is_relative_to(REPOSITORY) else path)
