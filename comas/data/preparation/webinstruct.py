r"""Numeric questions of physics, chemistry and biology: WebInstruct-verified (Ma et al., 2025).

Its answers are short texts, mostly a number with its unit. The number becomes the gold answer, and
the question ends with the unit:

| answer in the dataset | gold answer | unit |
|---|---|---|
| ``16.8 m/s`` | ``16.8`` | m/s |
| ``1.35 \times 10^{-5} W/m^2`` | ``1.35e-5`` | W/m^2 |
| ``$82,570$`` | ``82570`` | none |
| ``5 m and 6 s``, ``about 3``, ``x + 2`` | left out | |
"""

import re

from comas.data.preparation.record_set import Item, LeftOut, RecordSet, Row, Source, with_unit

CATEGORIES = ("Physics", "Chemistry", "Biology")
NUMERIC_TYPES = ("Float", "Integer")
MAX_UNIT_CHARS = 30

_NUMBER_WITH_UNIT = re.compile(
    r"""
    (?P<sign>[-+]?) \s*
    (?P<mantissa> \d{1,3}(?:,\d{3})+(?:\.\d+)? | \d+(?:\.\d*)? | \.\d+ )
    (?: [eE](?P<exponent>[-+]?\d+)
      | \s* (?:\\times|\\cdot|\u00d7|\u00b7|\*|xx|x) \s*
        10 \s* \^ \s* [({]? \s* (?P<power>[-+]?\d+) \s* [)}]?
    )?
    (?P<gap> (?:\s|\\[,;:!\ ]|~)* )
    (?P<unit> .* )
    """,
    re.VERBOSE | re.ASCII,
)
_TEXT_COMMAND = re.compile(r"\\(?:text|mathrm|rm)\s*\{([^{}]*)\}")
_DEGREES = re.compile(r"\^\s*\{?\s*\\circ\s*\}?")
# Any other digit in a unit belongs to a second number.
_UNIT_EXPONENT = re.compile(r"\^\s*[({]?\s*[-+]?\d+\s*[)}]?|(?<=[A-Za-z])[-+]?\d+")
_NO_UNIT_START = re.compile(r"[.,;:/=<>+^-]|[xX*] ?10|[eE][-+]?\d")  # or a power of ten


def convert(row: Row) -> Item | LeftOut:
    """Split the answer into the gold number and the unit to ask for."""
    if row["category"] not in CATEGORIES:
        return LeftOut("it is of another category than physics, chemistry and biology")
    if row["answer_type"] not in NUMERIC_TYPES:
        return LeftOut("its answer is of a type that is not numeric")
    split = split_unit(row["answer"])
    if split is None:
        return LeftOut("its answer is not one number with at most a unit")
    number, unit = split
    return Item(row["question"].strip(), number, details=with_unit(f'"{unit}"' if unit else ""))


def split_unit(answer: str) -> tuple[str, str] | None:
    """(number, unit) of an answer: ``("3.2e4", "kg/m^3")`` of ``3.2 x 10^4 kg/m^3``; None unless it
    is one number with at most a unit."""
    text = answer.replace("\u2212", "-").replace("$", "").strip().rstrip(".").strip()
    match = _NUMBER_WITH_UNIT.fullmatch(text)
    if match is None:
        return None
    unit = _DEGREES.sub("\u00b0", _TEXT_COMMAND.sub(r"\1", match["unit"])).strip(" *\u00b7")
    if len(unit) > MAX_UNIT_CHARS or _NO_UNIT_START.match(unit):
        return None
    if any(character.isdigit() for character in _UNIT_EXPONENT.sub("", unit)):
        return None
    exponent = match["exponent"] or match["power"]
    mantissa = match["mantissa"].replace(",", "").rstrip(".")
    sign = "-" if match["sign"] == "-" else ""
    return f"{sign}{mantissa}{f'e{int(exponent)}' if exponent else ''}", unit


WEBINSTRUCT = RecordSet(
    name="webinstruct",
    form="science",
    source=Source(
        hub_name="TIGER-Lab/WebInstruct-verified",
        configs=("default",),
        split="train",
        revision="3e8a350b3a935d68fe70bdf379692500abc9ff51",
        licence="apache-2.0",
        columns={"question": str, "answer": str, "answer_type": str, "category": str},
    ),
    convert=convert,
)
