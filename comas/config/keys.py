"""How a schema declares its keys: a dataclass whose fields are keys, or sections that hold keys."""

import dataclasses
import math
import re
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from types import UnionType
from typing import Any

from pydantic import ConfigDict, TypeAdapter

from comas.config.paths import LeadsTo

FOLDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
FOLDER_NAME_IN_WORDS = "must be a folder name: letters, digits and . _ - , at most 64"


@dataclass(frozen=True)
class Rules:
    """What is said of a key beside its type and its default; None leaves a bound open.

    Of a list they are said of its entries; of a mapping, ``one_of`` is said of the names and the
    others of the values.
    """

    at_least: float | None = None
    at_most: float | None = None
    above: float | None = None
    one_of: tuple[str, ...] | None = None
    example: Any = None
    """A value to show where the default is null."""
    leads_to: LeadsTo | None = None
    """What a text, or each of a list, may name; a path becomes whole when it is read."""


@dataclass(frozen=True)
class Key:
    """A key of a schema."""

    kind: Any
    """Its type."""
    default: Any
    rules: Rules

    @property
    def is_mapping(self) -> bool:
        """Whether its value is a mapping, any of whose entries may be set by its own name."""
        return typing.get_origin(without_null(self.kind)) is dict


def key(default: Any, **rules: Any) -> Any:
    """Declare a key: its default, and ``Rules`` by their names.

    Null is always allowed where the type admits it.
    """
    metadata = {"rules": Rules(**rules)}
    if isinstance(default, list | dict):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


def keys_of(schema: type, settings: Mapping[str, Any] | None = None) -> dict[str, Key]:
    """Every key of ``schema``, dotted (``section.key``), in its order.

    A section may be one of several dataclasses (``A | B``): the one whose ``name`` the setting
    ``section.name`` has, or else the first.
    """
    keys: dict[str, Key] = {}
    hints = typing.get_type_hints(schema)
    for declared in dataclasses.fields(schema):
        kind = hints[declared.name]
        if is_section(kind):
            chosen = chosen_type(kind, (settings or {}).get(f"{declared.name}.name"))
            section = keys_of(chosen)
            keys |= {f"{declared.name}.{name}": inner for name, inner in section.items()}
            if names := tuple(types_of(kind)):
                found = keys[f"{declared.name}.name"]
                rules = dataclasses.replace(found.rules, one_of=names)
                keys[f"{declared.name}.name"] = Key(found.kind, found.default, rules)
        else:
            make = declared.default_factory
            default = declared.default if make is dataclasses.MISSING else make()
            keys[declared.name] = Key(kind, default, declared.metadata.get("rules", Rules()))
    return keys


def is_section(kind: Any) -> bool:
    """True of a dataclass, and of several of which one is chosen."""
    return dataclasses.is_dataclass(kind) or bool(types_of(kind))


def types_of(kind: Any) -> dict[str, type]:
    """Name -> dataclass, of a section that is one of several; else nothing."""
    members = typing.get_args(kind)
    return {m.name: m for m in members} if all(map(dataclasses.is_dataclass, members)) else {}


def chosen_type(kind: Any, name: Any) -> type:
    """The dataclass that a section is."""
    types = types_of(kind)
    found = types.get(name) if isinstance(name, str) else None
    return found or next(iter(types.values()), kind)


def without_null(kind: Any) -> Any:
    """The type of a key's values, where it may be null as well.

    Example: ``dict[str, int] | None -> dict[str, int]``
    """
    kinds = typing.get_args(kind) if isinstance(kind, UnionType) else (kind,)
    return next(each for each in kinds if each is not type(None))


def owner_of(name: str, keys: Mapping[str, Key]) -> str | None:
    """The key that the setting ``name`` is of: itself, or the mapping that it is an entry of.

    Example: ``rollout.vllm_options.enforce_eager`` is of ``rollout.vllm_options``.
    """
    if name in keys:
        return name
    mappings = (known for known, key in keys.items() if key.is_mapping)
    return next((known for known in mappings if name.startswith(f"{known}.")), None)


def leaves(values: Mapping[str, Any], section: str = "") -> dict[str, Any]:
    """The values that are no mappings, by their dotted names.

    Example: ``{"rollout": {"batch_size": 4}, "seed": 1}`` gives ``{"rollout.batch_size": 4,
    "seed": 1}``
    """
    found: dict[str, Any] = {}
    for name, value in values.items():
        whole = f"{section}.{name}" if section else name
        found |= leaves(value, whole) if isinstance(value, dict) and value else {whole: value}
    return found


def typed(value: Any, kind: Any) -> Any:
    """``value`` as a key of type ``kind`` holds it. Raises ValueError or OverflowError where it is
    of another.

    Example: ``typed(2, float) == 2.0``, and ``typed("2", int)`` raises.
    """
    return _adapter(kind).validate_python(value)


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind, config=ConfigDict(strict=True))


def broken_bound(value: Any, rules: Rules) -> str | None:
    """Say which bound ``value`` breaks, or None. A null breaks none.

    Example: ``broken_bound(0, Rules(at_least=1)) == "must be at least 1"``
    """
    if isinstance(value, list):
        return next(filter(None, (broken_bound(entry, rules) for entry in value)), None)
    if isinstance(value, dict) and rules.one_of is not None:
        broken = broken_bound([*value], Rules(one_of=rules.one_of))
        return broken or broken_bound([*value.values()], dataclasses.replace(rules, one_of=None))
    if rules.one_of is not None and value is not None and value not in rules.one_of:
        return f"must be one of {', '.join(rules.one_of)}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return "must be finite"
    if rules.at_least is not None and value < rules.at_least:
        return f"must be at least {_number(rules.at_least)}"
    if rules.above is not None and value <= rules.above:
        return f"must be above {_number(rules.above)}"
    if rules.at_most is not None and value > rules.at_most:
        return f"must be at most {_number(rules.at_most)}"
    return None


def _number(bound: float) -> str:
    """Whole numbers with all of their digits."""
    return str(bound) if isinstance(bound, int) else f"{bound:g}"


def type_in_words(kind: Any) -> str:
    """``int | None`` -> "a whole number, or null"; ``list[str]`` -> "a list of texts"."""
    if typing.get_origin(kind) is dict:
        values = typing.get_args(kind)[1]
        return f"a mapping of names to {_WORDS[values][1]}" if values in _WORDS else "a mapping"
    if arguments := [a for a in typing.get_args(kind) if a is not type(None)]:
        if len(arguments) > 1:
            return ", or ".join(map(type_in_words, arguments))
        if typing.get_origin(kind) is list:
            of_mappings = typing.get_origin(arguments[0]) is dict
            return f"a list of {'mappings' if of_mappings else _WORDS[arguments[0]][1]}"
        return f"{type_in_words(arguments[0])}, or null"
    return _WORDS[kind][0]


_WORDS = {
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    str: ("a text", "texts"),
    bool: ("true or false", "true or false"),
}
