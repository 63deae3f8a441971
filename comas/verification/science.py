r"""Science: a decimal number in the last ``\boxed{}``, within a relative tolerance.

Questions ask for a decimal number without its unit. A unit or a name (``v = 2.5 \text{ m/s}``) is
accepted but not checked, since the gold has none. Two numbers, a range, an uncertainty (``2.5 \pm
0.1``) or an unevaluated expression (``\frac{1}{2}``, ``3\pi``) are unanswered.
"""

import math
import re

from comas.verification.boxed import last_boxed_list
from comas.verification.forms import Verdict
from comas.verification.latex import MAX_ANSWER_CHARS, normalize, unwrap
from comas.verification.units import is_unit
from comas.verification.words import strip_phrases

RELATIVE_TOLERANCE = 0.05
ZERO_TOLERANCE = 1e-6
"""The absolute tolerance for a gold of zero."""

_RELATION = re.compile(r"=|\\approx(?![a-zA-Z])|\\sim(?![a-zA-Z])")
_NUMBER = re.compile(
    r"""
    (?P<sign>[-+]?)\ ?
    (?P<mantissa>
        (?=10\ ?(?:\^|\*\*))                # a power of ten alone
      | [1-9]\d{0,2}(?:,\d{3})+(?:\.\d*)?   # 89,034.79
      | \d+\.?\d* | \.\d+
    )
    (?:
        \ ?(?:[eE]|\\text\ ?\{[eE]\})\ ?(?P<exponent>[-+]?\d+|\{\ ?[-+]?\d+\ ?\})
      | (?:\ ?(?:\\times(?![a-zA-Z])|\\cdot(?![a-zA-Z])|\*|[xX])\ ?|(?<![\d.]))
        10\ ?(?:\^|\*\*)\ ?(?P<power>[-+]?\d+|\{\ ?[-+]?\ ?\d+\ ?\})
    )?
    \ ?(?P<percent>%)?\ ?(?P<unit>.*)
    """,
    re.VERBOSE | re.ASCII | re.DOTALL,
)


# Braces without effect: around a factor, or around a number in an exponent.
_IDLE_BRACES = re.compile(
    r"(?:(?<=\\times)|(?<=\\cdot)|(?<![\w}^])(?<!\^\ ))(\ ?)"
    r"\{\ ?((?:\\times|\\cdot|[-+\d.,^* ])+)\}"
)
_EXPONENT = re.compile(r"\^\ ?\{\ ?([-+]?)\ ?(\d+)\ ?\}")


def verify_science(response: str, gold: str) -> Verdict:
    r"""Judge whether the last ``\boxed{}`` of ``response`` is within 5 % of ``gold``.

    A percent sign is read both ways, 2.5 % as 2.5 and as 0.025, since a question may ask for
    either. A gold of zero allows 1e-6.

    Raises ValueError if ``gold`` is not a finite number.

    Example: ``verify_science(r"\boxed{3.2 \times 10^{-5}}", "0.000033") == "correct"``
    """
    expected = read_number(gold)
    if not expected or not math.isfinite(expected[0]):
        raise ValueError(f"the gold answer {gold!r} is not a number")
    answer = last_boxed_list(response)
    readings = read_number(answer) if answer is not None else ()
    if not readings:
        return "unanswered"
    bounds = [(of, RELATIVE_TOLERANCE * abs(of) if of else ZERO_TOLERANCE) for of in expected]
    is_close = any(abs(value - of) <= most for value in readings for of, most in bounds)
    return "correct" if is_close else "wrong"


def is_exact(response: str, gold: str) -> bool:
    """Return True if the answer equals ``gold`` to nine digits, or if either is no number."""
    wanted = read_number(gold)
    found = read_number(last_boxed_list(response) or "")
    pairs = [(value, each) for value in found for each in wanted]
    return not pairs or any(math.isclose(value, each) for value, each in pairs)


def read_number(text: str) -> tuple[float, ...]:
    r"""Return the possible values of ``text``: one, two with a percent sign, or none.

    The last side of an equation counts. Commas or thin spaces may separate thousands.

    Example: ``"x = 2.5"`` gives ``(2.5,)``, ``"2.5\%"`` ``(2.5, 0.025)``, ``"2 to 3"`` ``()``.
    """
    if len(text) > MAX_ANSWER_CHARS:
        return ()
    last_side = _RELATION.split(strip_phrases(normalize(text)))[-1].strip().removeprefix(r"\$")
    while (inner := _unwrap(last_side)) != last_side:
        last_side = inner
    for pattern, plain in ((_IDLE_BRACES, r"\1\2"), (_EXPONENT, r"^\1\2"), (_IDLE_BRACES, r"\1\2")):
        last_side = pattern.sub(plain, last_side)
    number = _NUMBER.fullmatch(last_side)
    if number is None or (number["unit"] and not is_unit(number["unit"])):
        return ()
    mantissa = number["mantissa"].replace(",", "") or "1"
    exponent = (number["exponent"] or number["power"] or "0").strip("{} ").replace(" ", "")
    value = float(f"{number['sign']}{mantissa}e{exponent}")
    return (value, value / 100) if number["percent"] else (value,)


def _unwrap(text: str) -> str:
    opening, inner, _ = unwrap(text.removeprefix(r"\text").lstrip())
    return inner if opening == "{" else text
