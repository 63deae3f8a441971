"""The outer structure of a LaTeX text: what stands within which brackets."""

import re

_BRACKET = re.compile(r"(?P<open>\\\{|[(\[{])|(?P<close>\\\}|[)\]}])|\\.", re.DOTALL)


def split(text: str, separator: re.Pattern[str]) -> list[str]:
    """The stripped parts of ``text`` between separators that stand outside all brackets.

    Example: ``split("(1, 2), 3", re.compile(","))`` gives ``["(1, 2)", "3"]``.
    """
    depths = _depths(text)
    cuts = [m for m in separator.finditer(text) if depths[m.start()] == 0]
    starts = [0, *(cut.end() for cut in cuts)]
    ends = [*(cut.start() for cut in cuts), len(text)]
    return [text[start:end].strip() for start, end in zip(starts, ends, strict=True)]


def outside(text: str, pattern: re.Pattern[str]) -> list[re.Match[str]]:
    r"""The matches of ``pattern`` outside all brackets but LaTeX's own braces.

    Example: of ``r"\frac{1}{2} + (3)"`` the digits 1 and 2 are outside.
    """
    depths = _depths(text, braces=False)
    return [match for match in pattern.finditer(text) if depths[match.start()] == 0]


def unwrap(text: str) -> tuple[str, str, str]:
    r"""The pair of brackets around the whole of ``text``, with what stands between them.

    Example: ``"[2, 3)"`` gives ``("[", "2, 3", ")")``, ``"(x)(y)"`` gives ``("", "(x)(y)", "")``.
    """
    opening = _BRACKET.match(text)
    if opening is None or not opening["open"]:
        return "", text, ""
    depths = _depths(text)
    if depths[-1] != 0 or depths.index(0, opening.end()) != len(text):
        return "", text, ""
    *_, closing = _BRACKET.finditer(text)
    return opening[0], text[opening.end() : closing.start()].strip(), closing[0]


def is_balanced(text: str) -> bool:
    """Whether every bracket that is opened is closed, of whatever kind, and the reverse."""
    depths = _depths(text)
    return depths[-1] == 0 and min(depths) == 0


def _depths(text: str, *, braces: bool = True) -> list[int]:
    """The number of brackets open before each character, and at the end."""
    depths = [0] * (len(text) + 1)
    depth = position = 0
    for token in _BRACKET.finditer(text):
        depths[position : token.end()] = [depth] * (token.end() - position)
        position = token.end()
        if braces or token[0] not in "{}":
            depth += 1 if token["open"] else -1 if token["close"] else 0
    depths[position:] = [depth] * (len(text) + 1 - position)
    return depths
