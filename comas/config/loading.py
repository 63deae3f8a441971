"""From YAML and ``key=value`` overrides to a checked dataclass, or to every fault at once."""

import dataclasses
import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from comas.config.faults import (
    DEFAULT_ORIGIN,
    ConfigError,
    Conflict,
    Fault,
    Setting,
    one_line,
    yaml_text,
)
from comas.config.keys import Key, broken_bound, keys_of, leaves, owner_of, type_in_words
from comas.config.sources import read_files, read_overrides

Schema = TypeVar("Schema")
Check = Callable[[Schema], Iterable[Conflict]]
Changes = Mapping[str, tuple[str, str]]
"""Key -> (value before, value after), in YAML."""


def load(
    schema: type[Schema],
    path: Path | None,
    overrides: Sequence[str],
    *,
    check: Check[Schema] | None = None,
) -> Schema:
    """Read ``path``, apply ``overrides`` (``section.key=value``, values in YAML), then ``check``.

    Later settings win: defaults, the files that ``path`` is based on, ``path``, the overrides
    from left to right.

    Raises ConfigError with every fault that was found.
    """
    config, faults = read(schema, path, overrides, check=check)
    if faults:
        raise ConfigError(faults)
    return config


def read(
    schema: type[Schema],
    path: Path | None,
    overrides: Sequence[str],
    *,
    check: Check[Schema] | None = None,
) -> tuple[Schema, list[Fault]]:
    """Do as ``load`` does, but return the faults, with the default of every faulty key."""
    faults: list[Fault] = []
    settings: list[Setting] = []
    try:
        files = [] if path is None else read_files(path)
        settings = [setting for file in files for setting in file.settings]
    except ConfigError as error:
        faults += error.faults
        check = None  # of keys together: those of the file are not known
    from_command_line, override_faults = read_overrides(overrides)
    settings += from_command_line
    config, value_faults = _check_values(schema, _last_of_each(settings), check)
    return config, [*faults, *override_faults, *value_faults]


def config_as_yaml(config: Any) -> str:
    """Every key of ``config``; written to a file, ``load`` reads it as an equal one."""
    return OmegaConf.to_yaml(OmegaConf.structured(config))


def changed_keys(before: Any, after: Any) -> Changes:
    """What differs between two configurations of the same schema.

    Example: ``{"training.num_steps": ("31", "62")}``
    """
    return changed_values(leaves(dataclasses.asdict(before)), leaves(dataclasses.asdict(after)))


def changed_values(before: Mapping[str, Any], after: Mapping[str, Any]) -> Changes:
    """What differs between two sets of settings; one that a set lacks counts as null, as does an
    empty mapping, whose entries are settings."""
    before, after = (
        {key: value for key, value in values.items() if value != {}} for values in (before, after)
    )
    return {
        key: (yaml_text(before.get(key)), yaml_text(after.get(key)))
        for key in {**before, **after}
        if before.get(key) != after.get(key)
    }


# ---------------------------------------------------------------- values


def _last_of_each(settings: Iterable[Setting]) -> dict[str, Setting]:
    """Key -> its last setting. A mapping that is set whole forgets what was set of it before."""
    last: dict[str, Setting] = {}
    for setting in settings:
        last = {key: kept for key, kept in last.items() if not key.startswith(f"{setting.key}.")}
        last[setting.key] = setting
    return last


def _check_values(
    schema: type[Schema], settings: Mapping[str, Setting], check: Check[Schema] | None
) -> tuple[Schema, list[Fault]]:
    """The defaults with every valid setting in place, and the faults of all others."""
    merged, keys = OmegaConf.structured(schema), keys_of(schema)
    owners = {key: owner_of(key, keys) for key in settings}
    faults = [
        *_unknown_keys(schema, [s for s in settings.values() if owners[s.key] is None]),
        *_wrong_types(
            merged,
            [(s, owner) for s in settings.values() if (owner := owners[s.key]) is not None],
            keys,
        ),
    ]
    config: Any = OmegaConf.to_object(merged)
    values = {name: attrgetter(name)(config) for name in keys}
    values |= leaves(dataclasses.asdict(config))
    faulty = {setting.key for fault in faults for setting in fault.settings}
    conflicts = [*_broken_bounds(values, keys), *(check(config) if check else ())]
    for conflict in sorted(conflicts, key=lambda conflict: len(conflict.keys) > 1):
        if faulty.isdisjoint(conflict.keys):  # else a consequence of a fault already listed
            involved = [
                setting
                for key in conflict.keys
                for setting in [s for s in settings.values() if key in (s.key, owners[s.key])]
                or [Setting(key, values[key], DEFAULT_ORIGIN)]
            ]
            faults.append(Fault(tuple(involved), conflict.constraint, conflict.remedy))
        if len(conflict.keys) == 1:
            faulty.update(conflict.keys)
    return config, faults


def _unknown_keys(schema: type, settings: Iterable[Setting]) -> Iterator[Fault]:
    keys = keys_of(schema)
    sections = {name.partition(".")[0] for name in keys if "." in name}
    renamed = {key.rules.formerly: name for name, key in keys.items()}
    hints: Callable[[str], str | None] = getattr(schema, "hint_for", lambda name: None)
    for setting in settings:
        if (name := renamed.get(setting.key)) is not None:
            constraint = f"{setting.key} was renamed {name}"
            yield Fault((setting,), constraint, f"write {name} instead")
        elif setting.key in sections:
            yield Fault((setting,), "is a section, not a key", _example(setting.key, keys))
        else:
            lacks_section = any(name.endswith(f".{setting.key}") for name in keys)
            known_elsewhere = None if lacks_section else hints(setting.key)
            remedy = known_elsewhere or _nearest(setting.key, schema)
            yield Fault((setting,), "is not a known key", remedy)


def _wrong_types(
    merged: DictConfig, settings: Sequence[tuple[Setting, str]], keys: Mapping[str, Key]
) -> Iterator[Fault]:
    """Put each setting into ``merged``, each with the key that it is of; one that does not fit its
    type is a fault instead."""
    for setting, owner in settings:
        try:
            OmegaConf.update(merged, setting.key, setting.value)
        except (OmegaConfBaseException, OverflowError):
            constraint = f"must be {type_in_words(keys[owner].kind)}"
            yield Fault((setting,), constraint, _example(owner, keys))
    for setting, owner in settings:  # an interpolation such as ${seed}: only known when all are in
        key, words = keys[owner], type_in_words(keys[owner].kind)
        try:
            value = OmegaConf.select(merged, setting.key, throw_on_missing=True)
            is_nested = "mapping" not in words and _holds_lists(value)
        except OmegaConfBaseException as error:
            reason, remedy = one_line(error), "write the value itself"
        else:
            reason, remedy = "it holds lists itself", _example(owner, keys)
            if not is_nested:
                continue
        yield Fault((setting,), f"must be {words}: {reason}", remedy)
        OmegaConf.update(merged, owner, key.default, merge=False)


def _holds_lists(value: Any) -> bool:
    """Whether ``value`` is a list with lists or sections in it, which OmegaConf takes for entries
    of any list."""
    if not isinstance(value, ListConfig):
        return False
    entries = OmegaConf.to_container(value, resolve=True, throw_on_missing=True)
    assert isinstance(entries, list)
    return any(isinstance(entry, list | dict) for entry in entries)


def _broken_bounds(values: Mapping[str, Any], keys: Mapping[str, Key]) -> Iterator[Conflict]:
    for name, key in keys.items():
        broken = broken_bound(values[name], key.rules)
        if broken and values[name] in key.rules.former_values:
            value = key.rules.former_values[values[name]]
            constraint = f"{name}={values[name]} was renamed {name}={value}"
            yield Conflict((name,), constraint, f"write {value} instead")
        elif broken:
            yield Conflict((name,), broken, _example(name, keys))


# ---------------------------------------------------------------- remedies


def _nearest(name: str, schema: type) -> str:
    """Name the known key that was probably meant, or what there is to choose from."""
    known = list(keys_of(schema))
    section, _, last = name.rpartition(".")
    close = [k for k in known if k.rpartition(".")[2] == last]  # right but for the section
    close = close or difflib.get_close_matches(name, known, n=1)
    if not close:
        by_last = {k.rpartition(".")[2]: k for k in known}
        close = [by_last[n] for n in difflib.get_close_matches(last, by_last, n=1)]
    if close:
        return f"did you mean {' or '.join(close)}?"
    of_section = [k for k in known if k.startswith(f"{section}.")]
    if of_section:
        return f"the keys of this section: {', '.join(of_section)}"
    names = dict.fromkeys(k.partition(".")[0] for k in known)
    where = f"{schema.__module__.replace('.', '/')}.py"
    return f"the keys and sections are: {', '.join(names)} ({where})"


def _example(name: str, keys: Mapping[str, Key]) -> str:
    """A valid setting of the key ``name``, or of a key of the section ``name``."""
    shown = next(known for known in keys if known == name or known.startswith(f"{name}."))
    key = keys[shown]
    value = key.default if key.rules.example is None else key.rules.example
    return f"write it like {shown}={yaml_text(value)}"
