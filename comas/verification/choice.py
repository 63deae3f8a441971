r"""Multiple choice: the letter in the last ``\boxed{}``, however it is written."""

import re
import unicodedata
from collections.abc import Mapping

from comas.verification.boxed import last_boxed_list
from comas.verification.forms import Verdict

# Invisible, or only changes the font or layout.
_MARKUP = re.compile(
    r"\\(?:text)?color(?:box)?\s*\{[^{}]*\}|\\(?:text|math)(?:bf|it|rm|sf|tt|up|normal|cal|circled)?(?![a-zA-Z])"
    r"|\\(?:mbox|hbox|fbox|emph|underline|circled|bm|pmb|bf|rm|it|boldsymbol)(?![a-zA-Z])"
    r"|\\(?:left|right|q?quad|displaystyle)(?![a-zA-Z])"
    r"|\\(?:tiny|small|normalsize|large|Large|LARGE|huge|Huge)(?![a-zA-Z])"
    r"|\\(?:[,;:!> ()\[\]]|$)|[{}$*~\"'`\u200b-\u200d\u2060\ufeff]|\s+"
)
_INTRODUCTION = re.compile(
    r"(?:the )?(?:(?:correct|final|best|right) )*(?:answer|option|choice)(?: is| ?[:=])?"
    r"(?: (?:the )?(?:option|choice|letter))?:?(?: |(?=[(\[]))",
    re.IGNORECASE,
)
_ENCLOSED = re.compile(r"[(\[] ?(?P<letter>[a-zA-Z]) ?[)\]](?P<option>.*)")
_FOLLOWED = re.compile(
    r"(?P<letter>[a-zA-Z])(?: ?[.):;]+| ?,?$| [-\u2013\u2014] | (?=\()"
    r"| is (?:the )?(?:correct|right|best)(?: (?:answer|option|choice))?\.?$)(?P<option>.*)"
)
# A letter and what may separate it from the text of its option.
_LETTER = re.compile(r"[(\[]? ?(?P<letter>[a-zA-Z])(?![^\W_])[\s()\[\].,:;]*(?:[-\u2013\u2014] )?")
_LISTED = re.compile(r"^\(([A-Z])\) ", re.MULTILINE)
_PUNCTUATION = re.compile(r"[\s()\[\].,:;]+")
# At the start of what should be an option's text: a second letter, or a word that leads to one.
_GOES_ON = re.compile(
    r"[\s.]*(?:[,;/&+]|(?:or|and|nor|not|but|to|is (?:not|incorrect|wrong|false))\b"
    r"|[(\[]? ?[a-zA-Z] ?(?:[)\].:,;/&]|(?:or|and)\b|$))",
    re.IGNORECASE,
)
_ANOTHER_ENCLOSED = re.compile(r"\([A-Z]\)")
_ANOTHER_FOLLOWED = re.compile(r"(?<![\w(])[A-Z](?:\)|[.:] )")
_GOLD = re.compile(r"[A-Z]")


def verify_choice(response: str, gold: str) -> Verdict:
    r"""Judge whether the last ``\boxed{}`` of ``response`` names ``gold``, a letter from A to Z.

    The letter may have either case, brackets or markup, an introduction ("Option A") or the text of
    its option after it. A box that names no letter or several is unanswered. So is a letter with
    another option's text, if ``gold`` lists the options: ``"B\n(A) Right, Left\n(B) Not right, To
    the left"``.

    Raises ValueError if the first line of ``gold`` is not one capital letter.

    Example: ``verify_choice(r"\boxed{\textbf{(B) } 3}", "B") == "correct"``
    """
    wanted, _, listed = gold.strip().partition("\n")
    if not _GOLD.fullmatch(wanted):
        raise ValueError(f"the gold answer {wanted!r} is not a letter from A to Z")
    answer = last_boxed_list(response)
    letter = read_letter(answer, read_options(listed)) if answer is not None else None
    if letter is None:
        return "unanswered"
    return "correct" if letter == wanted else "wrong"


def read_letter(text: str, options: Mapping[str, str] | None = None) -> str | None:
    r"""Return the letter that ``text`` names, in upper case; None if it names none or several.

    The text of its option (``options``: letter -> text) may follow; if options are unknown, any
    text that cannot name another letter: ``r"\text{(a) Wrong}"`` gives ``"A"``, "A dog" None.
    """
    plain = _plain(text)
    if introduction := _INTRODUCTION.match(plain):
        plain = plain[introduction.end() :]
    if options and (marker := _LETTER.match(plain)):
        rest = _key(plain[marker.end() :])
        described = {letter for letter, option in options.items() if rest == _key(option)}
        if rest and described:  # a bare "B" has no text, though an option may be "{}"
            return named if (named := marker["letter"].upper()) in described else None
    enclosed = _ENCLOSED.fullmatch(plain)
    marker = enclosed or _FOLLOWED.fullmatch(plain)
    if marker is None or _GOES_ON.match(marker["option"]):
        return None
    another = _ANOTHER_ENCLOSED if enclosed else _ANOTHER_FOLLOWED
    return None if another.search(marker["option"]) else marker["letter"].upper()


def read_options(listed: str) -> dict[str, str]:
    """Return letter -> text of lines such as ``(A) Right, Left``; a text may have several lines."""
    _, *parts = _LISTED.split(listed) if listed else [""]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _plain(text: str) -> str:
    return " ".join(_MARKUP.sub(" ", unicodedata.normalize("NFKC", text)).split())


def _key(text: str) -> str:
    """Equal for texts that differ only in case, spaces, brackets and stops."""
    return _PUNCTUATION.sub("", _plain(text)).casefold()
