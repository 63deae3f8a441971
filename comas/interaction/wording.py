"""Files of prompts: what each role is told by domain, and how the history is shown.

The shipped one is ``prompts.yaml``, which says what a file may hold, with ``further_prompts.yaml``
beside it for the domains that the paper does not train on; a user's own (``interaction.prompts``)
holds what is worded differently.
"""

import re
import string
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import yaml

from comas.config.faults import one_line
from comas.config.paths import REPOSITORY, PathError, find, tried
from comas.types import ALL_DOMAINS

SHIPPED_FILE = Path(__file__).parent / "prompts.yaml"
FURTHER_FILE = Path(__file__).parent / "further_prompts.yaml"

Wording = Mapping[str, Mapping[str, str]]
"""Section -> key -> text. A section is a role, whose keys are the domains, or the history."""


class Fields(NamedTuple):
    """What a text has to quote, what it may quote beside that, and what it has to ask for."""

    required: tuple[str, ...]
    optional: tuple[str, ...] = ()
    mark: str | None = None
    """The tag of what is read in the response."""


FIELDS: dict[str, Fields] = {
    "solution": Fields(("question",), ("discussion",)),
    "evaluation": Fields(("question", "solution"), ("discussion",)),
    "evaluation_with_judgment": Fields(("question", "solution"), ("discussion",), "judgment"),
    "rating": Fields(("question", "solution"), ("discussion",), "rating"),
    "scoring": Fields(("question", "solution", "evaluation"), (), "score"),
    "scoring_alone": Fields(("question", "solution"), (), "score"),
}
"""Of the prompts of each role. Where later rounds are shown earlier ones, a solution's quotes
{discussion}, which ``comas/preflight/conflicts.py`` checks."""
FIELDS_OF_HISTORY: dict[str, Fields] = {
    "empty": Fields(()),
    "item": Fields(("solution", "evaluation")),
    "unevaluated_item": Fields(("solution",)),
    "own_item": Fields(("solution",)),
}
"""Of the parts of {discussion}."""


class Texts(dict[str, str]):
    """The texts of a section, and behind them those of ``further_prompts.yaml``.

    The quick-start's tokenizers are made of all texts that the shipped sections hold, and its
    agents know no others: so those of further domains are found, but not held.
    """

    def __init__(self, section: str, texts: Mapping[str, str]) -> None:
        super().__init__(texts)
        self._section = section

    def __missing__(self, key: str) -> str:
        return read_wording(FURTHER_FILE)[self._section][key]


class WordingError(ValueError):
    """Every fault of a file of prompts, each with its line."""


def location_of(name: str) -> Path:
    """Where a name leads, or would in the repository. Raises WordingError where it is no path."""
    try:
        return (find(name) or REPOSITORY / Path(name).expanduser()).resolve()
    except PathError as error:
        raise WordingError(str(error)) from error


@cache
def read_wording(path: Path) -> Wording:
    """What a file of prompts holds. Raises WordingError."""
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise WordingError(f"{path} cannot be read: {why}{tried(path)}") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise WordingError(f"{path} is not YAML: {one_line(error)}") from error
    found: dict[str, dict[str, str]] = {}
    faults = list(_read_sections(root, found))
    if faults:
        raise WordingError("\n   ".join([f"{path}:", *faults]))
    return {section: Texts(section, texts) for section, texts in found.items()}


def merged(own: Wording, shipped: Wording) -> Wording:
    """``shipped`` with everything that ``own`` words differently."""
    return {
        section: Texts(section, {**texts, **own.get(section, {})})
        for section, texts in shipped.items()
    }


def _read_sections(root: yaml.Node | None, found: dict[str, dict[str, str]]) -> Iterator[str]:
    """Put every text into ``found``; yields the faults."""
    if not isinstance(root, yaml.MappingNode) or not root.value:
        yield "line 1: it does not hold roles"
        return
    for name, section in root.value:
        role = str(name.value)
        fields = _fields_of(role)
        where = f"line {name.start_mark.line + 1}: {role}"
        if fields is None:
            yield f"{where} is no role: there are {', '.join([*FIELDS, 'history'])}"
        elif role in found:
            yield f"{where} stands there twice"
        elif not isinstance(section, yaml.MappingNode):
            yield f"{where} must hold texts, by {', '.join(fields)}"
        else:
            found[role] = {}
            yield from _read_texts(role, section, fields, found[role])


def _fields_of(section: str) -> dict[str, Fields] | None:
    """Key -> fields of a section; None: there is no such section."""
    if section == "history":
        return FIELDS_OF_HISTORY
    return dict.fromkeys(ALL_DOMAINS, FIELDS[section]) if section in FIELDS else None


def _read_texts(
    section: str, node: yaml.MappingNode, fields: Mapping[str, Fields], found: dict[str, str]
) -> Iterator[str]:
    for key, value in node.value:
        name = str(key.value)
        where = f"line {key.start_mark.line + 1}: {section}.{name}"
        if name not in fields:
            yield f"{where} is not known: {section} has {', '.join(fields)}"
        elif name in found:
            yield f"{where} stands there twice"
        elif not isinstance(value, yaml.ScalarNode) or not value.tag.endswith(":str"):
            yield f"{where} must be a text"
        else:
            found[name] = value.value
            yield from (f"{where} {fault}" for fault in faults_of_text(value.value, fields[name]))


def quoted_in(text: str) -> set[str]:
    """The names of the fields that a text without faults quotes."""
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


def faults_of_text(text: str, fields: Fields) -> Iterator[str]:
    """What is wrong with a text that may quote ``fields``.

    Example: of ``"Judge {solution} of {task}"`` as a scoring: ``task`` is no field, the question
    and the evaluation are missing, and nothing asks for the score.
    """
    try:
        parts = list(string.Formatter().parse(text))
    except ValueError as error:
        yield f"has a brace by itself ({error}): write {{{{ and }}}} for those that are meant"
        return
    allowed = (*fields.required, *fields.optional)
    may = f"it may quote {', '.join(f'{{{name}}}' for name in allowed) or 'nothing'}"
    quoted = [name for _, name, _, _ in parts if name is not None]
    for _, name, spec, conversion in parts:
        if name is not None and (name not in allowed or spec or conversion):
            asked = name + (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "")
            yield f"quotes {{{asked}}}: {may} (for braces that are meant, write {{{{ and }}}})"
    if missing := [f"{{{name}}}" for name in fields.required if name not in quoted]:
        yield f"lacks {', '.join(missing)}"
    if fields.mark is not None and not re.search(rf"<{fields.mark}>.*</{fields.mark}>", text, re.S):
        yield f"must ask for what is read, between <{fields.mark}> and </{fields.mark}>"
