"""Reading the score out of a scoring, or the judgment or rating out of an evaluation; what is
ambiguous is none of them."""

import re
from typing import Literal, cast, get_args

Judgment = Literal["correct", "incorrect"]
"""What an evaluator says of a solution, where evaluators decide."""


def parse_score(response_text: str) -> int | None:
    """The score 1, 2 or 3 between ``<score>`` and ``</score>``, or None.

    A score counts only when nothing has to be guessed: every tag belongs to a pair, and all
    pairs hold one and the same of the integers 1, 2, 3.

    >>> parse_score("The point does not hold. <score>3</score>")
    3
    >>> parse_score("<score>3</score> or rather <score>1</score>") is None
    True
    """
    content = _only_content(response_text, tag="score")
    return int(content) if content in ("1", "2", "3") else None


def parse_judgment(response_text: str) -> Judgment | None:
    """The judgment between ``<judgment>`` and ``</judgment>``, or None; as strict as for a score.

    >>> parse_judgment("A sign is lost. <judgment>incorrect</judgment>")
    'incorrect'
    """
    content = _only_content(response_text, tag="judgment")
    return cast(Judgment, content) if content in get_args(Judgment) else None


def parse_rating(response_text: str) -> int | None:
    """The rating 0 to 5 between ``<rating>`` and ``</rating>``, or None; as strict as for a score.

    >>> parse_rating("It is complete, but its result is wrong. <rating>3</rating>")
    3
    """
    content = _only_content(response_text, tag="rating")
    return int(content) if content in ("0", "1", "2", "3", "4", "5") else None


def _only_content(text: str, *, tag: str) -> str | None:
    """What all pairs of ``tag`` hold, when they agree and no tag is without its other half.

    Each tag is looked at once: a response that collapsed into a hundred thousand of them takes
    no longer than another of its length.
    """
    tags = list(re.finditer(f"</?{tag}>", text))
    opening, closing = tags[::2], tags[1::2]
    if [t[0] for t in tags] != [f"<{tag}>", f"</{tag}>"] * len(closing):
        return None
    pairs = zip(opening, closing, strict=True)
    contents = {text[first.end() : last.start()].strip() for first, last in pairs}
    return contents.pop() if len(contents) == 1 else None
