r"""Multiple choice: the letter in the last ``\boxed{}``, however it is written."""

import re

from comas.verification.boxed import last_boxed
from comas.verification.verdict import Verdict

# What prints nothing, or only changes how text is set.
_MARKUP = re.compile(
    r"\\(?:text|math)(?:bf|it|rm|sf|tt|normal)?(?![a-zA-Z])"
    r"|\\(?:mbox|bf|rm|it|boldsymbol|left|right|q?quad)(?![a-zA-Z])"
    r"|\\[,;:!> ()\[\]]|[{}$*~\"'`]|\s+"
)
_INTRODUCTION = re.compile(
    r"(?:the )?(?:(?:correct|final|best|right) )*(?:answer|option|choice)(?: is| ?[:=])?"
    r"(?: (?:the )?(?:option|choice|letter))?:?(?: |(?=[(\[]))",
    re.IGNORECASE,
)
_ENCLOSED = re.compile(r"[(\[] ?(?P<letter>[a-zA-Z]) ?[)\]](?P<option>.*)")
_FOLLOWED = re.compile(
    r"(?P<letter>[a-zA-Z])(?: ?[.):]+| [-\u2013\u2014] | (?=\()|$)(?P<option>.*)"
)
# At the start of what should be an option's text: a second letter, or a word that leads to one.
_GOES_ON = re.compile(
    r"[\s.]*(?:[,;/&+]|(?:or|and|nor|not|but|to)\b|[(\[]? ?[a-zA-Z] ?(?:[)\].:]|$))", re.IGNORECASE
)
_ANOTHER_ENCLOSED = re.compile(r"\([A-Z]\)")
_ANOTHER_FOLLOWED = re.compile(r"(?<![\w(])[A-Z](?:\)|[.:] )")
_GOLD = re.compile(r"[A-Z]")


def verify_choice(response: str, gold: str) -> Verdict:
    r"""Whether the last ``\boxed{}`` of ``response`` names the option ``gold``, a letter A to Z.

    The letter may be in either case, in brackets or markup, introduced ("Option A") or followed
    by its option's text. A box that names no letter or several is unanswered, never guessed.

    Raises ValueError when ``gold`` is not one capital letter.

    Example: ``verify_choice(r"\boxed{\textbf{(B) } 3}", "B") == "correct"``
    """
    if not _GOLD.fullmatch(gold.strip()):
        raise ValueError(f"the gold answer {gold!r} is not a letter from A to Z")
    answer = last_boxed(response)
    letter = read_letter(answer) if answer is not None else None
    if letter is None:
        return "unanswered"
    return "correct" if letter == gold.strip() else "wrong"


def read_letter(text: str) -> str | None:
    r"""The one letter that ``text`` names, in upper case; None if it names none or several.

    Example: ``r"\text{(a) Wrong}"`` gives ``"A"``; "A or B", "AB" and "A dog" give None.
    """
    plain = " ".join(_MARKUP.sub(" ", text).split())
    if introduction := _INTRODUCTION.match(plain):
        plain = plain[introduction.end() :]
    enclosed = _ENCLOSED.fullmatch(plain)
    marker = enclosed or _FOLLOWED.fullmatch(plain)
    if marker is None or _GOES_ON.match(marker["option"]):
        return None
    another = _ANOTHER_ENCLOSED if enclosed else _ANOTHER_FOLLOWED
    return None if another.search(marker["option"]) else marker["letter"].upper()
