"""A user's file of prompts (``interaction.prompts``), which replaces some of the shipped ones."""

import re
import string
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from comas.config.errors import one_line
from comas.config.paths import REPOSITORY, find, tried
from comas.config.yaml_texts import parse
from comas.interaction.prompts import SHIPPED, Wording

bytes_of = cache(Path.read_bytes)
"""Reads a file once, so that a run keeps the text that it uses."""
CUT = re.compile(r"(\.\d+)?")
"""Format of a quoted field: its whole text, its first characters (``.240``), or none (``.0``)."""


@cache
def wording_of(prompts: str | None) -> Wording:
    """Return the shipped wording with the changes of the file ``prompts``. Raises ValueError."""
    if prompts is None:
        return SHIPPED
    changed = read_wording(location_of(prompts))
    return {section: {**texts, **changed.get(section, {})} for section, texts in SHIPPED.items()}


def location_of(name: str) -> Path:
    """Resolve a name, by default to a path in the repository. Raises ValueError."""
    return (find(name) or REPOSITORY / Path(name).expanduser()).resolve()


@cache
def read_wording(path: Path) -> Wording:
    """Read a user's file. Raises ValueError with all errors in it, and their lines."""
    try:
        wording, lines = parse(bytes_of(path).decode())
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        named = path.relative_to(REPOSITORY) if path.is_relative_to(REPOSITORY) else path
        raise ValueError(f"{path} cannot be read: {why}{tried(named)}") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"{path} is not YAML: {one_line(error)}") from error
    faults = [f"line {lines.get(name, 1)}: {name} {fault}" for name, fault in _faults(wording)]
    if faults:
        raise ValueError("\n   ".join([f"{path}:", *faults]))
    return wording


def _faults(wording: Any) -> Iterator[tuple[str, str]]:
    """Yield (name of a section or text, error)."""
    if not isinstance(wording, dict):
        yield "it", "does not hold roles"
        return
    for section, texts in wording.items():
        if section not in SHIPPED:
            yield section, f"is not known: there are {', '.join(SHIPPED)}"
        elif not isinstance(texts, dict):
            yield section, f"must hold texts, by {', '.join(SHIPPED[section])}"
        else:
            for key, text in texts.items():
                name, shipped = f"{section}.{key}", SHIPPED[section].get(key)
                if shipped is None:
                    yield name, f"is not known: there are {', '.join(SHIPPED[section])}"
                elif not isinstance(text, str):
                    yield name, "must be a text"
                else:
                    yield from ((name, fault) for fault in faults_of_text(text, shipped=shipped))


def quoted_in(text: str) -> list[str]:
    """Return the names of the fields that a valid text quotes."""
    return [name for _, name, _, _ in string.Formatter().parse(text) if name is not None]


def faults_of_text(text: str, *, shipped: str) -> Iterator[str]:
    """Yield the errors of a text that replaces the ``shipped`` one. It has to ask for the same tag,
    and to quote the same fields except the history, optionally cut, as in ``{solution:.240}``.

    Example: ``"Judge {solution} of {task}"`` as a scoring has an unknown field, lacks the question
    and the evaluation, and does not ask for the score.
    """
    try:
        parts = list(string.Formatter().parse(text))
    except ValueError as error:
        yield f"has a brace by itself ({error}): write {{{{ and }}}} for those that are meant"
        return
    fields = quoted_in(shipped)
    may = f"it may quote {', '.join(f'{{{name}}}' for name in fields) or 'nothing'}"
    for _, name, spec, conversion in parts:
        is_cut = spec is not None and CUT.fullmatch(spec)
        if name is not None and (name not in fields or conversion or not is_cut):
            asked = name + (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "")
            yield f"quotes {{{asked}}}: {may} (for braces that are meant, write {{{{ and }}}})"
    missing = [f"{{{n}}}" for n in fields if n not in (*quoted_in(text), "discussion")]
    if missing:
        yield f"lacks {', '.join(missing)}"
    tag = re.search(r"<(\w+)>", shipped)
    if tag is not None and not re.search(rf"<{tag[1]}>.*</{tag[1]}>", text, re.S):
        yield f"must ask for what is read, between <{tag[1]}> and </{tag[1]}>"
