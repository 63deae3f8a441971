"""Reads YAML files and ``key=value`` overrides into a checked dataclass, or lists all errors."""

import dataclasses
import difflib
import operator
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from functools import reduce
from pathlib import Path
from typing import Any

from comas.config.errors import ConfigError, Conflict, InvalidSetting, Setting, yaml_text
from comas.config.keys import Key, Schema, defaults_of, keys_of, leaves, owner_of, typed, types_of
from comas.config.paths import whole
from comas.config.sources import read_files, read_overrides
from comas.config.yaml_texts import dump

Check = Callable[[Schema], Iterable[Conflict]]
Changes = Mapping[str, tuple[str, str]]
"""Key -> (value before, value after), as YAML."""


def load(
    schema: type[Schema],
    path: Path | None,
    overrides: Sequence[str],
    *,
    check: Check[Schema] | None = None,
) -> Schema:
    """Read ``path``, after the files that it is based on, and ``overrides`` (``section.key=value``,
    values in YAML), then ``check`` the result. Later settings win; naming another type of a section
    drops earlier settings of keys that this type does not have. Raises ConfigError with all errors
    at once."""
    config, errors = read(schema, path, overrides, check=check)
    if errors:
        raise ConfigError(errors)
    return config


def read(
    schema: type[Schema],
    path: Path | None,
    overrides: Sequence[str],
    *,
    check: Check[Schema] | None = None,
) -> tuple[Schema, list[InvalidSetting]]:
    """Do what ``load`` does, but return the errors, and defaults in place of invalid values."""
    errors: list[InvalidSetting] = []
    sources: list[list[Setting]] = []
    try:
        sources = [] if path is None else read_files(path)
    except ConfigError as error:
        errors += error.errors
        check = None  # the file's keys are unknown
    from_command_line, override_errors = read_overrides(overrides)
    settings = _last_of_each(schema, [*sources, from_command_line])
    config, value_errors = _check_values(schema, settings, check)
    return config, [*errors, *override_errors, *value_errors]


def config_as_yaml(config: Any) -> str:
    """Return all keys as YAML, which ``load`` reads as an equal configuration."""
    return dump(dataclasses.asdict(config))


def changed_keys(before: Any, after: Any) -> Changes:
    """Return the differences between two configurations of the same schema.

    Example: ``{"training.num_steps": ("31", "62")}``
    """
    old, new = (  # an empty mapping counts as null, since its entries are settings
        {key: value for key, value in leaves(dataclasses.asdict(each)).items() if value != {}}
        for each in (before, after)
    )
    known = keys_of(after)  # of which one that is null may be absent, unlike an entry of a mapping
    return {
        key: (yaml_text(old.get(key)), yaml_text(new.get(key)))
        for key in {**old, **new}
        if old.get(key) != new.get(key) or (key not in known and (key in old) != (key in new))
    }


def _last_of_each(schema: type, sources: Iterable[Iterable[Setting]]) -> dict[str, Setting]:
    """Return key -> its last setting. Setting a mapping as a whole drops its earlier entries, and
    naming the type of a section drops the keys that it does not have."""
    last: dict[str, Setting] = {}
    for settings in sources:
        named = {setting.key: setting.value for setting in settings}
        keys = keys_of(defaults_of(schema, named))
        chosen = [f"{section}." for section in types_of(schema) if f"{section}.name" in named]
        last = {k: s for k, s in last.items() if owner_of(k, keys) or not k.startswith((*chosen,))}
        for setting in settings:
            last = {k: s for k, s in last.items() if not k.startswith(f"{setting.key}.")}
            last[setting.key] = setting
    return last


def _check_values(
    schema: type[Schema], settings: Mapping[str, Setting], check: Check[Schema] | None
) -> tuple[Schema, list[InvalidSetting]]:
    """Return the defaults with all valid settings applied, and the errors of the others."""
    config = defaults_of(schema, {name: setting.value for name, setting in settings.items()})
    keys = keys_of(deepcopy(config))  # whose defaults stay as they are
    errors: list[InvalidSetting] = []
    known: list[Setting] = []
    for setting in settings.values():
        if (owner := owner_of(setting.key, keys)) is None:
            errors.append(InvalidSetting((setting,), *_why_unknown(setting.key, schema, keys)))
            continue
        known.append(setting)
        *sections, name = owner.split(".")
        entry = setting.key.removeprefix(owner).split(".")[1:]
        try:
            value = _accepted(setting, keys[owner], entry)
            _put(vars(reduce(getattr, sections, config)), [name, *entry], value)
        except (ValueError, OverflowError) as error:
            errors.append(InvalidSetting((setting,), str(error), _example(owner, keys)))
    values = leaves(dataclasses.asdict(config))  # type: ignore[call-overload]
    invalid = {setting.key for error in errors for setting in error.settings}
    for conflict in check(config) if check else ():
        if invalid.isdisjoint(conflict.keys):  # else a consequence of another error
            involved = [
                setting
                for key in conflict.keys
                for setting in [s for s in known if f"{s.key}.".startswith(f"{key}.")]
                or [Setting(key, values[key])]
            ]
            errors.append(InvalidSetting(tuple(involved), conflict.constraint, conflict.remedy))
    return config, errors


def _accepted(setting: Setting, key: Key, entry: Sequence[str]) -> Any:
    """Return the value of a setting of ``key``, or of an entry in it, with absolute paths. Raises
    ValueError or OverflowError if it is not allowed."""
    kind = typing.get_args(key.kind)[1] if entry else key.kind
    # A shell removes quotes, so name=007 on the command line is a text.
    is_text = kind in (str, str | None) and setting.written is not None
    value = setting.written if is_text else setting.value
    for name in reversed(entry):
        value = {name: value}
    value = reduce(operator.getitem, entry, typed(value, key))
    if key.leads_to is None or not isinstance(value, str | list):
        return value
    if isinstance(value, str):
        return whole(value, key.leads_to, setting.folder)
    is_command = bool(entry)  # of interaction.program: its first word may be in PATH
    return [
        whole(path, "file" if is_command else key.leads_to, setting.folder)
        if isinstance(path, str) and (not is_command or "/" in path or path.endswith(".py"))
        else path
        for path in value
    ]


def _why_unknown(name: str, schema: type, keys: Mapping[str, Key]) -> tuple[str, str]:
    """Return the error and remedy for a setting of no key."""
    section = name.partition(".")[0]
    former: Callable[[str], tuple[str, str] | None] = getattr(schema, "former", lambda name: None)
    if (said := former(name)) is not None:
        return said
    if any(known.startswith(f"{name}.") for known in keys):
        return "is a section, not a key", _example(name, keys)
    above = next((known for known in keys if name.startswith(f"{known}.")), None)
    if above is not None:
        return f"is no key: {above} has no entries; quote a colon", _example(above, keys)
    types = types_of(schema).get(section, {})
    inner = name.partition(".")[2]
    others = [each for each, kind in types.items() if owner_of(inner, keys_of(kind()))]
    if others:
        remedy = f"leave it out, or set {section}.name to {' or '.join(others)}"
        return f"is no key of this type of {section}", remedy
    return "is not a known key", _nearest(name, schema, keys)


def _put(values: dict[str, Any], path: Sequence[str], value: Any) -> None:
    """``_put({"a": {}}, ["a", "b"], 1)`` makes it ``{"a": {"b": 1}}``"""
    for name in path[:-1]:
        if not isinstance(values.get(name), dict):
            values[name] = {}
        values = values[name]
    values[path[-1]] = value


def _nearest(name: str, schema: type, known: Iterable[str]) -> str:
    """Return a remedy with the known key that was probably meant, or with all to choose from."""
    known = list(known)
    section, _, last = name.rpartition(".")
    # By the last parts: a section that is the same would make any two of its keys alike.
    alike = difflib.get_close_matches(last, [k.rpartition(".")[2] for k in known], n=1)
    like_it = [k for k in known if k.rpartition(".")[2] in alike]
    if close := difflib.get_close_matches(name, like_it, n=1, cutoff=0):
        return f"did you mean {close[0]}?"
    if of_section := [k for k in known if k.startswith(f"{section}.")]:
        return f"the keys of this section: {', '.join(of_section)}"
    names = dict.fromkeys(k.partition(".")[0] for k in known)
    where = f"{schema.__module__.replace('.', '/')}.py"
    return f"the keys and sections are: {', '.join(names)} ({where})"


def _example(name: str, keys: Mapping[str, Key]) -> str:
    """Return a remedy with a valid setting of the key, or of a key of the section, ``name``."""
    shown = next(known for known in keys if known == name or known.startswith(f"{name}."))
    key = keys[shown]
    value = key.default if key.example is None else key.example
    return f'write it like "{shown}={yaml_text(value)}"'
