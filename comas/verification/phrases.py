r"""Words around an answer: what introduces it, what says of which letters it holds, and which words
make another answer of it."""

import re
from typing import NamedTuple

from comas.verification.latex import bare


def _words(text: str) -> list[str]:
    return text.split()


_NUMBERS = _words(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen"
)
_TENS = _words("twenty thirty forty fifty sixty seventy eighty ninety")
_NUMBER_OF = {
    **{word: number for number, word in enumerate(_NUMBERS)},
    **{
        f"{tens} {one}" if one != "zero" else tens: 10 * number + digit
        for number, tens in enumerate(_TENS, start=2)
        for digit, one in enumerate(_NUMBERS[:10])
    },
}
_PARTS = "half halves thirds quarters fourths fifths sixths sevenths eighths ninths tenths"
ALTERING = frozenset(_NUMBERS + _TENS) | frozenset(
    _words(
        f"""{_PARTS} third quarter fourth fifth sixth seventh eighth ninth tenth
        not no non nor neither never none isnt without except excluding but unlike
        more less fewer greater larger bigger smaller than least most or and plus minus
        negative over under above below beyond between within up until about around
        roughly nearly almost approximately circa maybe perhaps possibly probably
        either both times fold add added subtract twice double doubles triple triples thrice gross
        dozen dozens pair pairs couple couples score scores hundred hundreds
        thousand thousands million millions billion billions trillion trillions bn mn
        hundredth hundredths thousandth thousandths lakh lakhs crore crores root square
        factorial inverse reciprocal opposite complement log logarithm mod modulo base
        wrong incorrect false invalid impossible rejected excluded fails cannot cant doesnt
        is are was were too instead other another if unless any anything
        """
    )
)
"""Words beside a number, or in the name of it, that make another number of it, or none."""

_LEAD = r"(?:and|so|thus|hence|therefore|then|finally|consequently|clearly|in (?:total|conclusion))"
_VERB = r"(?:is|are|was|equals?|becomes?|(?:will|would|must|should) be|comes to)"
_EXACTLY = r"(?: (?:simply|just|exactly|equal to|given by|the same as|found to be))?"
_ANSWER = (
    r"(?:(?:the|our|my|your|an?) )?(?:(?:final|correct|right|exact|only|required|desired|simplified"
    r"|numerical|resulting|overall) )*(?:answer|result|solution|ans|value|option|choice)"
    r"(?: (?:here|set|in simplest form|to the (?:question|problem)))?"
)
_FOUND = r"(?:(?:we|i|you|one)(?: can| must)? )?(?:get|have|obtain|find|conclude|see)(?: that)?"
_INTRODUCTION = re.compile(
    rf"(?:{_LEAD}[ ,:]+)*"
    rf"(?:{_LEAD}|{_FOUND}|{_ANSWER}|(?P<subject>[a-z][a-z' -]*?)(?= ?:| {_VERB}\b))?"
    rf" ?(?:{_VERB}{_EXACTLY})? ?[:=,]*",
)
_SIGNS_BEFORE = re.compile(r"(?:\\(?:therefore|implies|because|so)(?![a-zA-Z])|[=:]| |\*\*)+")
_SIGNS_BEHIND = re.compile(r"(?: |\*\*|\\(?:blacksquare|square|checkmark)(?![a-zA-Z]))+$")
_WORDS_BEFORE = re.compile(
    r"\\text ?\{(?P<text>[^{}]*)\} ?(?P<sign>[:=]?)"
    r"|(?P<bare>[A-Za-z]+[':]?(?:[ ,]+[A-Za-z]+[':]?)*)(?= ?[-+\d\\$(\[{:=]| [A-Za-z]$)"
)
_OPTION = re.compile(
    r"\\text ?\{ ?(?:\([A-J]\)|[A-J][).:]) ?\}(?=.)|\([A-J]\) (?=[-+\d\\])|[A-J]\) ?(?=[-+\d\\(])"
)
_IS = re.compile(
    r"\\text ?\{ ?(?:is|equals?|is equal to) ?\}|(?<=[\w}) ]) (?:is|equals) (?=[-\d\\])"
)
_IS_THE_ANSWER = re.compile(rf"\\text ?\{{ ?{_VERB} {_ANSWER} ?\}}$")

_SETS = {"integer": "Z", "natural number": "N", "real number": "R", "whole number": "N"}
_KIND = rf"({'|'.join(_SETS)})s?"
_DOMAIN = re.compile(
    r"(?:[,;:|(]|\s|\\(?:quad|forall|mid)(?![a-zA-Z])|\b(?:for|where|with|all|any|every|each|some)\b)*"
    r"(?:(?<![\\a-zA-Z])(?P<letter>[a-z])\s*(?:\\in|(?:is )?in)\s*\\mathbb\{(?P<set>[NZQR])\}"
    r"(?P<sign>(?:[\^_]?\{?[+*-]\}?)*)"
    rf"|\b(?P<named>[a-z])\s+(?:is|are|being)?\s*(?:an?|any)?\s*(?P<kind>{_KIND})"
    rf"|(?P<of>{_KIND})\s*(?P<last>[a-z]))[\s)]*$"
)
_TEXT = re.compile(r"\\text ?\{([^{}]*)\}")


class Domain(NamedTuple):
    r"""A letter and the set that it runs through: ``k \in \mathbb{Z}``."""

    letter: str
    of: str


def undressed(text: str) -> str:
    r"""``text`` (normalized LaTeX) without what introduces or praises the answer.

    Words that make another answer of it (``ALTERING``) stay.

    Example: ``r"\therefore \text{ The answer is: } 25"`` gives ``"25"``.
    """
    before = None
    while text != before:
        before = text
        text = _SIGNS_BEFORE.sub("", text, count=1) if _SIGNS_BEFORE.match(text) else text
        text = _IS_THE_ANSWER.sub("", _SIGNS_BEHIND.sub("", text))
        if (option := _OPTION.match(text)) is not None:
            text = text[option.end() :]
        text = _without_introduction(bare(text))
    return _IS.sub(" = ", text)


def is_plain(words: str) -> bool:
    """Whether ``words`` only name or describe a number, and make no other of it."""
    return ALTERING.isdisjoint(re.findall(r"[^\W\d_]+", words.casefold().replace("'", "")))


def number_in_words(words: str) -> str | None:
    """ "Twenty-five" as "25"; None for other words, and from a hundred on."""
    number = _NUMBER_OF.get(" ".join(words.casefold().replace("-", " ").split()))
    return None if number is None else str(number)


def without_answer_is(words: str) -> str:
    """ "The answer is Evelyn" as "Evelyn"."""
    return re.sub(rf"^(?:{_LEAD}[ ,]+)*{_ANSWER} ?(?:{_VERB}|:) ", "", words.strip(), flags=re.I)


def split_domain(text: str) -> tuple[str, Domain | None]:
    r"""What stands before ``k \in \mathbb{Z}``, where k occurs in it.

    Example: ``r"k\pi, k \in \mathbb{Z}"`` gives ``r"k\pi"`` and ``Domain("k", "Z")``.
    """
    plain = _TEXT.sub(r" \1 ", text)
    if (clause := _DOMAIN.search(plain)) is None:
        return text, None
    body = plain[: clause.start()].strip(" ,;")
    letter = clause["letter"] or clause["named"] or clause["last"]
    kind = clause["set"] or _SETS[(clause["kind"] or clause["of"]).removesuffix("s")]
    if not re.search(rf"(?<![\\a-zA-Z]){letter}(?![a-zA-Z])|(?<=\d){letter}", body):
        return text, None
    return body, Domain(letter, kind + re.sub(r"[{}^_]", "", clause["sign"] or ""))


def _without_introduction(text: str) -> str:
    words = _WORDS_BEFORE.match(text)
    if words is None or words.end() == len(text):
        return text
    phrase = (words["text"] or words["bare"] or "").replace("~", " ").strip().casefold()
    phrase += words["sign"] or ""
    introduction = _INTRODUCTION.fullmatch(phrase)
    if introduction is None or not is_plain(introduction["subject"] or ""):
        return text
    return text[words.end() :].strip()
