"""What vLLM and DeepSpeed themselves say of options, by their own schemas.

``complaints`` asks them in a process of its own (``python -m comas.engines.schemas``): importing
them takes many seconds, and changes the environment of later processes.
"""

import difflib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Annotated, Any, NamedTuple

from pydantic import TypeAdapter, ValidationError


class Complaint(NamedTuple):
    """What a library does not take."""

    key: str
    """Dotted, as in ``compilation_config.mode``."""
    value: Any
    said: str
    """In the library's or pydantic's words, such as "Input should be a valid boolean"."""


def complaints(
    *, vllm: Mapping[str, Any], deepspeed: Mapping[str, Any], plain: Mapping[str, Any]
) -> dict[str, list[Complaint]]:
    """What each library says of its options, ``"vllm"`` of arguments of its ``EngineArgs`` and
    ``"deepspeed"`` of entries that replace those of the configuration ``plain``.

    Raises RuntimeError when they cannot be asked.
    """
    asked = {"vllm": vllm, "deepspeed": deepspeed, "plain": plain}
    found = json.loads(_answer(json.dumps(asked, sort_keys=True, default=str)))
    return {library: [Complaint(*said) for said in own] for library, own in found.items()}


@cache
def _answer(asked: str) -> str:
    command = [sys.executable, "-m", "comas.engines.schemas"]
    process = subprocess.run(command, input=asked, capture_output=True, text=True, check=False)
    if process.returncode != 0:
        raise RuntimeError(f"vLLM and DeepSpeed cannot be asked:\n{process.stderr[-2000:]}")
    return process.stdout.splitlines()[-1]  # after what the libraries print


def vllm_complaints(options: Mapping[str, Any]) -> Iterator[Complaint]:
    """What the types of ``EngineArgs`` do not take, or the bounds of the configurations that its
    arguments go to."""
    from vllm import EngineArgs
    from vllm import config as configs

    types = {field.name: field.type for field in fields(EngineArgs)}
    bounds = {
        name: tuple(field.metadata)
        for config in vars(configs).values()
        for name, field in getattr(config, "__pydantic_fields__", {}).items()
        if field.metadata
    }
    for name, value in options.items():
        if name not in types:
            close = difflib.get_close_matches(name, types, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            yield Complaint(name, value, f"it is no argument of EngineArgs{hint}")
            continue
        section, _, entry = name.partition("_")
        whole = types.get(f"{section}_config")
        if is_dataclass(whole) and entry in {field.name for field in fields(whole)}:
            # Such as attention_backend, of which vLLM makes the section's entry, by name.
            inner = _refused(whole, entry, {entry: value})
            found = [Complaint(name, value, complaint.said) for complaint in inner]
        else:
            found = _refused(types[name], name, value)
        yield from found
        if not found and name in bounds and value is not None:
            yield from _refused(Annotated[Any, *bounds[name]], name, value)


def deepspeed_complaints(
    options: Mapping[str, Any], plain: Mapping[str, Any]
) -> Iterator[Complaint]:
    """What ``DeepSpeedConfig`` does not take; entries that it reads unseen have to be of the type
    of their default."""
    from deepspeed.runtime.config import DeepSpeedConfig, DeepSpeedConfigError

    defaults = vars(DeepSpeedConfig(dict(plain)))
    for name, value in options.items():
        if name not in defaults and not isinstance(value, dict):  # a section, read into an object
            yield Complaint(name, value, "it has entries of its own: Input should be a mapping")
            continue
        default = defaults.get(name)
        if default is not None and (found := _refused(type(default), name, value)):
            yield from found
            continue
        try:
            DeepSpeedConfig({**plain, name: value})
        except ValidationError as error:
            yield from _in_words(error, name, value)
        except (
            *(AssertionError, AttributeError, TypeError, ValueError),
            DeepSpeedConfigError,
        ) as error:
            yield Complaint(name, value, str(error))


def _refused(wanted: Any, name: str, value: Any) -> list[Complaint]:
    try:
        TypeAdapter(wanted).validate_python(value)
    except ValidationError as error:
        return list(_in_words(error, name, value))
    return []


def _in_words(error: ValidationError, name: str, value: Any) -> Iterator[Complaint]:
    """One complaint for each entry of ``value``, the option ``name``, that is refused."""
    found: dict[str, tuple[Any, list[str]]] = {}
    for detail in error.errors():
        path, inner = [name], value
        for part in detail["loc"]:
            # Others name the section itself, or a member of a union.
            if isinstance(inner, dict) and part in inner:
                inner = inner[part]
                path.append(str(part))
        found.setdefault(".".join(path), (inner, []))[1].append(detail["msg"])
    for key, (inner, said) in found.items():
        yield Complaint(key, inner, ", or ".join(dict.fromkeys(said)))


def _main() -> None:
    asked = json.load(sys.stdin)
    found = {
        "vllm": list(vllm_complaints(asked["vllm"])) if asked["vllm"] else [],
        "deepspeed": list(deepspeed_complaints(asked["deepspeed"], asked["plain"]))
        if asked["deepspeed"]
        else [],
    }
    sys.stdout.write(f"\n{json.dumps(found, default=str)}\n")


if __name__ == "__main__":
    _main()
