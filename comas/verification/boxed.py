r"""Finds the answer in ``\boxed{}``."""

import re
from itertools import pairwise
from typing import NamedTuple

# An escaped character (as in \{ or \\) opens and closes nothing.
_BRACES = r"\\.|(?P<open>\{)|(?P<close>\})"
_PLAIN_TOKEN = re.compile(rf"(?P<box>\\boxed\s*\{{)|(?P<bare>(?!))|{_BRACES}", re.DOTALL)
# Without braces, a formula ends with its mathematics, with its line, or at the next word.
_FORMULA = (
    r"(?=[-+(]?\s*(?:\d|\\[a-zA-Z]|[a-zA-Z](?!'?[a-zA-Z]|\s[a-z])))"
    r"(?:\\[a-zA-Z]+|\\[^a-zA-Z()\[\]\n]|\{(?:[^{}]|\{[^{}]*\})*\}|[^\\{}$\n`*a-zA-Z]"
    r"|[a-zA-Z](?![a-zA-Z]))+"
)
_TOKEN = re.compile(
    rf"(?P<box>\\(?:boxed|fbox|framebox)\s*\{{)|\\boxed[ \t]*(?P<bare>{_FORMULA})|{_BRACES}",
    re.DOTALL,
)
# As when a response repeats its instructions: "in \boxed{}", "in \boxed{...}".
_PLACEHOLDER = re.compile(r"(?:[\s.~_\u2026]|\\(?:[lc]?dots|q?quad)(?![a-zA-Z])|\\[,;:! ])*")
_BLANK = r"(?:\s|\$|\*|\\[()\[\],;: ]|\\q?quad)*"
_AND = r"(?:and(?: also)?|as well as)"
_JOINT = re.compile(
    rf"{_BLANK}(?:[,;/&]|\\(?:lor|vee|land|wedge|cup|&)|[,;]?\s*(?:{_AND}"
    rf"|\\text\s*\{{\s*,?\s*{_AND}\s*\}})){_BLANK}",
    re.IGNORECASE,
)
_MAX_JOINT_CHARS = 60
# Any part of a sentence with "or": "(or else \boxed{B})", but not "not this, or".
_EITHER = re.compile(r"(?!.*\b(?:not?|wait)\b)[^.?!\d]*\bor\b[^.?!\d]*", re.DOTALL | re.IGNORECASE)


class _Box(NamedTuple):
    start: int
    end: int
    """End of its content."""
    content: str


def last_boxed(response: str) -> str | None:
    r"""Return the stripped content of the last balanced ``\boxed{...}``; None if there is none.

    The innermost of nested boxes counts; boxes that are cut off, empty, or hold only dots do not.
    ``\fbox{...}`` and ``\boxed 5`` are boxes too.
    """
    boxes = _filled(response)
    return boxes[-1].content if boxes else None


def last_plainly_boxed(response: str) -> str | None:
    r"""Return the content of the last ``\boxed{...}``, None if it is empty or missing: the rule
    that published results and data sets were made with."""
    boxes = _boxes(response, _PLAIN_TOKEN)
    return boxes[-1].content or None if boxes else None


def last_boxed_list(response: str) -> str | None:
    r"""Do what ``last_boxed`` does, but read boxes joined by a comma, "and" or "or" as one list:
    ``"so \boxed{2} or \boxed{5}"`` gives ``"2 or 5"``."""
    boxes = _joined(response)
    contents = dict.fromkeys(box.content for box in boxes)
    return (" or " if _is_choice(response, boxes) else ", ").join(contents) or None


def last_alternatives(response: str) -> list[str]:
    r"""Return the boxes of ``last_boxed_list`` if joined by "or", else empty: ``\boxed{1/2} or
    \boxed{0.5}`` may be one answer in two forms."""
    boxes = _joined(response)
    return [box.content for box in boxes] if _is_choice(response, boxes) else []


def _joined(response: str) -> list[_Box]:
    """Return the last box with those that it is joined to."""
    boxes = _filled(response)
    joined = boxes[-1:]
    for box, following in reversed([*pairwise(boxes)]):
        between = response[box.end + 1 : following.start]
        is_short = len(between) <= _MAX_JOINT_CHARS
        if not (is_short and any(joint.fullmatch(between) for joint in (_JOINT, _EITHER))):
            break
        joined.insert(0, box)
    return joined


def _is_choice(response: str, boxes: list[_Box]) -> bool:
    joints = (response[a.end : b.start] for a, b in pairwise(boxes))
    return any(re.search(r"or\b|/|\\vee", joint, re.IGNORECASE) for joint in joints)


def _filled(response: str) -> list[_Box]:
    return [box for box in _boxes(response) if not _PLACEHOLDER.fullmatch(box.content)]


def _boxes(response: str, token_pattern: re.Pattern[str] = _TOKEN) -> list[_Box]:
    """Return all innermost balanced boxes, in order, in linear time."""
    boxes: list[_Box] = []
    opened: list[re.Match[str]] = []
    for token in token_pattern.finditer(response):
        if token["bare"]:
            content = token["bare"].rstrip(" .,;:\t")
            boxes.append(_Box(token.start(), token.start("bare") + len(content), content.strip()))
        elif token["box"] or token["open"]:
            opened.append(token)
        elif token["close"] and opened:
            opening = opened.pop()
            is_innermost = not boxes or boxes[-1].start < opening.start()
            if opening["box"] and is_innermost:
                content = response[opening.end() : token.start()].strip()
                boxes.append(_Box(opening.start(), token.start(), content))
    return boxes
