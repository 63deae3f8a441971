"""How a schema declares its keys: a dataclass whose fields are keys, or sections that hold keys."""

import dataclasses
import operator
import re
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, reduce
from types import UnionType
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

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
    example: Any = field(default=None, hash=False)
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


def owner_of(name: str, keys: Mapping[str, Key]) -> str | None:
    """The key that the setting ``name`` is of: itself, or the mapping that it is an entry of.

    Example: ``rollout.vllm_options.enforce_eager`` is of ``rollout.vllm_options``.
    """
    if name in keys:
        return name
    owner = next((known for known in keys if name.startswith(f"{known}.")), None)
    if owner is None:
        return None
    kind = keys[owner].kind
    kinds = typing.get_args(kind) if isinstance(kind, UnionType) else (kind,)
    return owner if any(typing.get_origin(each) is dict for each in kinds) else None


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


def typed(value: Any, key: Key) -> Any:
    """``value`` as ``key`` holds it. Raises ValueError, which says what is allowed, or
    OverflowError.

    Example: of a float, ``typed(2, key) == 2.0``, and ``typed("2", key)`` raises.
    """
    try:
        return _adapter(key.kind, key.rules).validate_python(value)
    except ValidationError as error:
        faults = dict.fromkeys(
            fault["msg"].removeprefix("Input should be ") for fault in error.errors()
        )
        or_null = ["null"] if type(None) in typing.get_args(key.kind) else []
        raise ValueError(f"must be {', or '.join([*faults, *or_null])}") from error


@cache
def _adapter(kind: Any, rules: Rules) -> TypeAdapter[Any]:
    return TypeAdapter(_bounded(kind, rules), config=ConfigDict(strict=True, allow_inf_nan=False))


def _bounded(kind: Any, rules: Rules) -> Any:
    """The type of key ``kind`` with its rules, in pydantic's terms.

    Example: ``list[int] -> list[Annotated[int, Field(ge=1)]]``
    """
    arguments = typing.get_args(kind)
    if typing.get_origin(kind) is dict:
        names = str if rules.one_of is None else Literal[rules.one_of]
        values = _bounded(arguments[1], dataclasses.replace(rules, one_of=None))
        return dict[names, values]  # type: ignore[valid-type]
    if arguments:
        inner = [_bounded(each, rules) for each in arguments]
        return list[inner[0]] if typing.get_origin(kind) is list else reduce(operator.or_, inner)  # type: ignore[valid-type]
    if kind is str and rules.one_of is not None:
        return Literal[rules.one_of]
    if kind in (int, float):
        return Annotated[kind, Field(ge=rules.at_least, le=rules.at_most, gt=rules.above)]
    return kind
