"""What each role is told, by domain: one user message per turn.

The wording is in ``prompts.yaml`` and, for the domains that the paper does not train on, in
``further_prompts.yaml``; a user's file (``interaction.prompts``) holds what is worded differently.
A prompt's constant text is used unchanged, so the quick-start tokenizers can hold it as single
tokens.
"""

import re
import string
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from comas.config.faults import one_line
from comas.config.paths import REPOSITORY, PathError, find, tried
from comas.types import Domain

SHIPPED_FILE = Path(__file__).parent / "prompts.yaml"
FURTHER_FILE = Path(__file__).parent / "further_prompts.yaml"

Wording = Mapping[str, Mapping[str, str]]
"""Section -> key -> text. A section is what a turn is asked with, whose keys are the domains, or
the history. A text quotes {question}, {discussion} (the history) and, by the names of their roles,
the texts that the turn answers."""
Template = str | Mapping[Domain, str]
"""What a turn is asked with: the name of a section of the wording, or texts of a plug-in's own."""


def _shipped() -> Wording:
    paper, further = (yaml.safe_load(file.read_text()) for file in (SHIPPED_FILE, FURTHER_FILE))
    return {section: {**texts, **further.get(section, {})} for section, texts in paper.items()}


SHIPPED: Wording = _shipped()

SOLUTION, EVALUATION, SCORING = "solution", "evaluation", "scoring"
EVALUATION_WITH_JUDGMENT = "evaluation_with_judgment"
"""The critic decides, as nobody scores."""
SCORING_ALONE = "scoring_alone"
"""The judge sees no evaluation."""
RATING = "rating"
"""An agent rates its own solution, as self-rewarding models do (arXiv 2401.10020)."""

APPROVALS: dict[Domain, str] = {
    "math": "No mistakes.",
    "science": "No mistakes.",
    "coding": "No test case fails.",
    "choice": "No mistakes.",
    "reasoning": "No mistakes.",
}
"""Evaluations that find nothing, for solutions that nobody is asked to evaluate."""


class HistoryItem(NamedTuple):
    """A past solution and one evaluation of it, if there is any, as later rounds see them."""

    solution: str
    evaluation: str | None
    is_own: bool = False
    """True if the solution is of the agent who sees it, where agents are told."""


def fill(
    template: Template,
    domain: Domain,
    *,
    question: str,
    history: Sequence[HistoryItem] = (),
    wording: Wording = SHIPPED,
    **quoted: str,
) -> str:
    """Return the prompt of ``domain``; ``quoted`` are the texts that it may quote, by role.

    Example: ``fill(SCORING, "math", question="What is 1 + 1?", solution="2", evaluation="Right.")``
    """
    texts = wording[template] if isinstance(template, str) else template
    discussion = discussion_text(history, wording)
    return texts[domain].format(question=question, discussion=discussion, **quoted)


def discussion_text(history: Sequence[HistoryItem], wording: Wording = SHIPPED) -> str:
    """Render the past items, oldest first; "(empty)" when there is none."""
    texts = wording["history"]
    if not history:
        return texts["empty"]
    return "".join(_item_text(item, texts) for item in history).lstrip("\n")


def _item_text(item: HistoryItem, texts: Mapping[str, str]) -> str:
    if item.evaluation is not None:
        return texts["item"].format(solution=item.solution, evaluation=item.evaluation)
    return texts["own_item" if item.is_own else "unevaluated_item"].format(solution=item.solution)


# ---------------------------------------------------------------- a user's file


class WordingError(ValueError):
    """Every fault of a file of prompts, each with its line."""


@cache
def wording_of(prompts: str | None) -> Wording:
    """Return the whole wording that ``interaction.prompts`` names: what is shipped, but for what
    the file words differently. It is read once in a process. Raises WordingError with its
    faults."""
    if prompts is None:
        return SHIPPED
    changed = read_wording(location_of(prompts))
    return {section: {**texts, **changed.get(section, {})} for section, texts in SHIPPED.items()}


def location_of(name: str) -> Path:
    """Where a name leads, or would in the repository. Raises WordingError where it is no path."""
    try:
        return (find(name) or REPOSITORY / Path(name).expanduser()).resolve()
    except PathError as error:
        raise WordingError(str(error)) from error


@cache
def read_wording(path: Path) -> Wording:
    """Return what a user's file holds. Raises WordingError."""
    try:
        root: Any = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise WordingError(f"{path} cannot be read: {why}{tried(path)}") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise WordingError(f"{path} is not YAML: {one_line(error)}") from error
    wording: dict[str, dict[str, str]] = {}
    faults: list[str] = []
    if not isinstance(root, yaml.MappingNode):
        faults.append("line 1: it does not hold roles")
        root = yaml.MappingNode("", [])
    for where, section, node in _entries(root, "", SHIPPED, faults):
        if not isinstance(node, yaml.MappingNode):
            faults.append(f"{where} must hold texts, by {', '.join(SHIPPED[section])}")
            continue
        wording[section] = {}
        for at, key, value in _entries(node, f"{section}.", SHIPPED[section], faults):
            if not isinstance(value, yaml.ScalarNode) or not value.tag.endswith(":str"):
                faults.append(f"{at} must be a text")
                continue
            wording[section][key] = value.value
            found = faults_of_text(value.value, shipped=SHIPPED[section][key])
            faults += [f"{at} {fault}" for fault in found]
    if faults:
        raise WordingError("\n   ".join([f"{path}:", *faults]))
    return wording


def _entries(
    node: yaml.MappingNode, prefix: str, known: Mapping[str, object], faults: list[str]
) -> Iterator[tuple[str, str, yaml.Node]]:
    """Yield (place, name, value) of what a mapping holds; what is not known, or stands there twice,
    is a fault instead."""
    seen = set()
    for key, value in node.value:
        name = str(key.value)
        where = f"line {key.start_mark.line + 1}: {prefix}{name}"
        if name in seen:
            faults.append(f"{where} stands there twice")
        elif name not in known:
            faults.append(f"{where} is not known: there are {', '.join(known)}")
        else:
            yield where, name, value
        seen.add(name)


def quoted_in(text: str) -> list[str]:
    """Return the names of the fields that a text without faults quotes."""
    return [name for _, name, _, _ in string.Formatter().parse(text) if name is not None]


def faults_of_text(text: str, *, shipped: str) -> Iterator[str]:
    """Yield what is wrong with a text in the place of the ``shipped`` one: it has to quote the
    same, but for the history, and to ask for what is read in the response, by the same tag.

    Example: of ``"Judge {solution} of {task}"`` as a scoring: ``task`` is no field, the question
    and the evaluation are missing, and nothing asks for the score.
    """
    try:
        parts = list(string.Formatter().parse(text))
    except ValueError as error:
        yield f"has a brace by itself ({error}): write {{{{ and }}}} for those that are meant"
        return
    fields = quoted_in(shipped)
    may = f"it may quote {', '.join(f'{{{name}}}' for name in fields) or 'nothing'}"
    for _, name, spec, conversion in parts:
        if name is not None and (name not in fields or spec or conversion):
            asked = name + (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "")
            yield f"quotes {{{asked}}}: {may} (for braces that are meant, write {{{{ and }}}})"
    quoted = [name for _, name, _, _ in parts]
    missing = [f"{{{name}}}" for name in fields if name not in (*quoted, "discussion")]
    if missing:
        yield f"lacks {', '.join(missing)}"
    tag = re.search(r"<(\w+)>", shipped)
    if tag is not None and not re.search(rf"<{tag[1]}>.*</{tag[1]}>", text, re.S):
        yield f"must ask for what is read, between <{tag[1]}> and </{tag[1]}>"
