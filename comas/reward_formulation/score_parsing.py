"""Reading the score out of a scoring response; what is ambiguous is no score."""

import re

_TAGGED = re.compile(r"<score>(.*?)</score>", re.DOTALL)
_ANY_TAG = re.compile(r"</?score>")


def parse_score(response_text: str) -> int | None:
    """The score 1, 2 or 3 between ``<score>`` and ``</score>``, or None.

    A score counts only when nothing has to be guessed: every tag belongs to a pair, and all
    pairs hold one and the same of the integers 1, 2, 3.

    >>> parse_score("The point does not hold. <score>3</score>")
    3
    >>> parse_score("<score>3</score> or rather <score>1</score>") is None
    True
    """
    contents = _TAGGED.findall(response_text)
    if 2 * len(contents) != len(_ANY_TAG.findall(response_text)):
        return None
    scores = {content.strip() for content in contents}
    if len(scores) != 1 or not scores <= {"1", "2", "3"}:
        return None
    return int(scores.pop())
