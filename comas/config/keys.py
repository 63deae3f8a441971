"""How a schema declares its keys: dataclasses whose fields are keys, or sections of keys."""

import dataclasses
import re
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from types import UnionType
from typing import Annotated, Any, TypeVar

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from comas.config.paths import LeadsTo

Schema = TypeVar("Schema")

STRICT = ConfigDict(strict=True, allow_inf_nan=False)
FOLDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
FOLDER_NAME_IN_WORDS = "must be a folder name: letters, digits and . _ - , at most 64"


@dataclass(frozen=True)
class Key:
    """A key of a schema."""

    kind: Any
    """The type of its value."""
    default: Any
    bounds: Any = None
    """pydantic's bounds of a number."""
    example: Any = None
    """A value to show if the default is null."""
    leads_to: LeadsTo | None = None
    """What the value, or each entry in it, names; its path is made absolute when read."""


def key(
    default: Any, *, example: Any = None, leads_to: LeadsTo | None = None, **bounds: Any
) -> Any:
    """Declare a key by its default and the fields of ``Key``. ``bounds`` are those of pydantic's
    ``Field`` (ge, gt, le); bounds of the entries of a list or mapping belong into its type."""
    metadata = {"bounds": Field(**bounds), "example": example, "leads_to": leads_to}
    if isinstance(default, list | dict):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


def keys_of(config: Any) -> dict[str, Key]:
    """Return the dotted name (``section.key``) of every key of a configuration -> the key, with its
    value there as the default."""
    keys: dict[str, Key] = {}
    hints = _hints_of(type(config))  # type: ignore[arg-type]
    for declared in dataclasses.fields(config):
        value = getattr(config, declared.name)
        if dataclasses.is_dataclass(value):
            keys |= {f"{declared.name}.{name}": inner for name, inner in keys_of(value).items()}
        else:
            keys[declared.name] = Key(hints[declared.name], value, **declared.metadata)
    return keys


@cache
def _hints_of(section: type) -> dict[str, Any]:
    return typing.get_type_hints(section, include_extras=True)


@cache
def _adapter_of(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind, config=STRICT)


def types_of(schema: type) -> dict[str, dict[str, type]]:
    """Return section -> name -> dataclass, for sections with several types (``A | B``)."""
    members = {name: typing.get_args(kind) for name, kind in _hints_of(schema).items()}
    return {
        section: {each.name: each for each in types}
        for section, types in members.items()
        if types and all(map(dataclasses.is_dataclass, types))
    }


def defaults_of(schema: type[Schema], settings: Mapping[str, Any]) -> Schema:
    """Return the defaults; a section with several types has the one that ``section.name`` sets."""
    config = schema()
    for section, types in types_of(schema).items():
        name = settings.get(f"{section}.name")
        if isinstance(name, str) and name in types:
            setattr(config, section, types[name]())
    return config


def owner_of(name: str, keys: Mapping[str, Key]) -> str | None:
    """Return the key that the setting ``name`` sets, whole or by one entry of a mapping; None if
    there is no such key.

    Example: ``rollout.vllm_options.enforce_eager`` sets an entry of ``rollout.vllm_options``.
    """
    parts = name.split(".")
    above = (".".join(parts[:end]) for end in range(1, len(parts) + 1))
    owner = next((known for known in above if known in keys), None)
    if owner is None or owner == name:
        return owner
    kind = keys[owner].kind
    kinds = typing.get_args(kind) if isinstance(kind, UnionType) else (kind,)
    return owner if any(typing.get_origin(each) is dict for each in kinds) else None


def leaves(values: Mapping[str, Any], section: str | None = None) -> dict[str, Any]:
    """Return the values that are not mappings, by their dotted names.

    Example: ``{"rollout": {"batch_size": 4}, "seed": 1}`` gives ``{"rollout.batch_size": 4,
    "seed": 1}``
    """
    found: dict[str, Any] = {}
    for name, value in values.items():
        whole = name if section is None else f"{section}.{name}"
        found |= leaves(value, whole) if isinstance(value, dict) and value else {whole: value}
    return found


def typed(value: Any, key: Key) -> Any:
    """Return ``value`` as ``key`` holds it. Raises ValueError, naming what is allowed, or
    OverflowError.

    Example: for a float, ``typed(2, key) == 2.0``, and ``typed("2", key)`` raises.
    """
    kind: Any = Annotated[key.kind, key.bounds]  # type: ignore[name-defined]
    try:
        return _adapter_of(kind).validate_python(value)
    except ValidationError as error:
        said = [each["msg"].removeprefix("Input should be ") for each in error.errors()]
        said += ["null"] * (type(None) in typing.get_args(key.kind))
        raise ValueError(f"must be {', or '.join(dict.fromkeys(said))}") from error
