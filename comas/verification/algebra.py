r"""Compares expressions by math-verify, with exact values.

Where math-verify's reading differs from a mathematician's, the text is rewritten or refused:
decimals (it rounds to 6 places), ``2(3)`` and ``5 6`` (it adds them, as in a mixed number), primes
and subscripts of numbers (it drops them), ``i`` (a variable to it).
"""

import math
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any

import sympy
from latex2sympy2_extended import NormalizationConfig, latex2sympy, normalize_latex
from latex2sympy2_extended.latex2sympy2 import ConversionConfig
from math_verify import verify
from math_verify.grader import should_treat_as_complex
from math_verify.parser import get_last_eq
from sympy.functions.elementary.hyperbolic import HyperbolicFunction

PRECISION = 50
"""Decimal places for numbers that cannot be compared exactly, added to the digits of both sides:
1/2004! and 1/2006! differ in the 5,749th place."""
MAX_DIGITS = 200_000
"""An answer that takes more digits to compute is wrong: a tower of powers would take for ever."""

_INTEGER = re.compile(r"[-+]?[0-9]{1,1000}")
_NORMALIZATION = NormalizationConfig(malformed_operators=True, nits=True, boxed="none")
_parse = partial(
    latex2sympy,
    normalization_config=None,
    conversion_config=ConversionConfig(lowercase_symbols=False),
)
_REFUSED = re.compile(
    r"""
      ['"]                            # dropped
    | :.*:                            # read as fractions of fractions
    | \\[pb]?mod(?![a-zA-Z])         # read as letters
    | \d_                             # the base of a number: dropped
    | (?<![\d_^])\d[\d.]*\ +[\d.]    # two numbers side by side: added
    | \.\d*\.|\\[lc]?dots
    | (?<!_)(?<!_[ {])\\text          # words, but for those of a subscript: taken for a factor
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMAND = re.compile(r"\\[a-zA-Z]+")
_LETTERS = re.compile(
    r"(\\(?:text|begin|end|mathbb|operatorname) ?\{[^{}]*\}|\\[a-zA-Z]+)|(?<=[a-zA-Z])(?=[a-zA-Z])"
)
_DECIMAL = re.compile(
    r"(?=\.?\d)(\d*)\.(\d*)(?:\\(?:overline|bar|dot|overparen)\s*\{?\s*((?<!\{)\d|\d+(?=\s*\}))\s*\}?)?"
)
_F = r"\\(?:arc)?(?:sin|cos|tan|cot|sec|csc|ln|log)"
_REWRITES = [
    (re.compile(pattern), replacement)
    for pattern, replacement in [
        (r"\\text ?\{ ?([a-zA-Z]) ?\}", r"\1 "),
        (r"(\d+(?:\.\d+)?) ?\u00b0", r"(\\frac{\1\\pi}{180})"),
        (r"(?<=\d) ?[xX] ?(?=10 ?\^)", r"\\cdot "),
        (r"(?<=\.)(\d*)\((\d+)\)", r"\1\\overline{\2}"),
        (r"(?<![\d.])(\d+) (\d+)/(\d+)(?![\d.])", r"\1\\frac{\2}{\3}"),
        (r"(?<=\d)[eE]\s*([-+]?\d+)", r"\\cdot 10^{\1}"),
        (r"(?<![\d_^.])(\d+)\s*(?=\(|\\binom)", r"\1\\cdot "),
        (r"(?<=\\mathbb\{R\})\s*-(?=\s*(?:\\\{|[(\[]))", r"\\setminus "),
        (  # a function of one factor: math-verify would take in all that follow
            rf"({_F}(?![a-zA-Z])(?:[_^] ?(?:\{{[^{{}}]*\}}|\w))*) ?"
            r"(\d+(?:\.\d+)?|(?:\d+ ?)?(?:[a-zA-Z](?![a-zA-Z])|\\(?!frac|sqrt)[a-zA-Z]+))"
            rf"(?= ?(?:\\(?:cdot|times)(?![a-zA-Z])|/ ?{_F}))",
            r"\1(\2)",
        ),
        (r"!\s*(?=[(\d])", r"!\\cdot "),
        (r"\)\s*(?=[(\d]|\\frac|\\binom)", r")\\cdot "),
    ]
]


def is_equal_expression(gold: str, answer: str) -> bool:
    r"""Return True if ``answer`` has the value of ``gold``, both normalized LaTeX without a unit;
    False if it cannot be read or compared. Raises ValueError if the gold cannot be read."""
    if _INTEGER.fullmatch(answer) and _INTEGER.fullmatch(gold):
        return int(answer) == int(gold)
    if _has_letters_in_other_case(gold, answer):
        return False
    expected = read_gold(gold)
    actual = read_computable(answer)
    return actual is not None and are_equal(expected, actual)


def read_computable(text: str) -> Any | None:
    """Do as ``read`` does, but return None for an expression of over ``MAX_DIGITS`` digits."""
    expression = read(text)
    return None if expression is None or _digits(expression) >= MAX_DIGITS else expression


def are_equal(expected: Any, actual: Any) -> bool:
    """Return True if math-verify finds two results of ``read`` equal, with exact values."""
    digits = min(_digits(expected) + _digits(actual), MAX_DIGITS)
    return verify(expected, actual, numeric_precision=PRECISION + int(digits), timeout_seconds=None)


def _digits(expression: Any, sizes: Mapping[Any, float] = MappingProxyType({})) -> float:
    """Estimate, rather too high, the digits or terms needed to compute ``expression``: at least
    those of numerator and denominator. ``sizes``: the digits of variables."""
    parts = [_digits(part, sizes) for part in getattr(expression, "args", ())]
    most = max(parts, default=0.5)
    match expression:
        case sympy.Symbol():
            return sizes.get(expression, most)
        case sympy.Rational():
            return math.log10(max(abs(expression.p), expression.q))
        case sympy.Pow():
            base, exponent = parts
            return max(base, 0.3) * 10 ** min(exponent, 9)
        case sympy.exp() | HyperbolicFunction():
            return max(most, 0.5 * 10 ** min(most, 9))
        case sympy.factorial() | sympy.binomial() | sympy.gamma():
            return most * 10 ** min(most, 9)
        case sympy.Sum() | sympy.Product():
            bounds = [_digits(bound, sizes) for _, *ends in expression.limits for bound in ends]
            size = max(bounds, default=9)
            num_terms = 10 ** min(size, 9)
            at_the_end = {**sizes, **dict.fromkeys(expression.variables, size)}
            last = _digits(expression.function, at_the_end)
            is_sum = isinstance(expression, sympy.Sum)
            return max(last, most * num_terms) if is_sum else last * num_terms
        case sympy.Add() | sympy.Mul():
            return sum(parts)
    return most


def _has_letters_in_other_case(gold: str, answer: str) -> bool:
    """Return True if x is in one and X in the other, as in x_1 and X_1, which are equal to
    math-verify, or in i and I, which are both the imaginary unit."""
    in_gold, in_answer = set(_COMMAND.sub("", gold)), set(_COMMAND.sub("", answer))
    named = in_gold | in_answer
    return any(letter.isalpha() and letter.swapcase() in named for letter in in_gold ^ in_answer)


@lru_cache(maxsize=4096)
def read_gold(gold: str) -> Any:
    """Do what ``read`` does, once for all answers. Raises ValueError if the gold cannot be read."""
    expression = read(gold)
    if expression is None:
        raise ValueError(f"the gold answer {gold!r} cannot be read as math")
    return expression


def read(text: str) -> Any | None:
    """Return the expression of the whole ``text``; None if math-verify cannot read it."""
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    if _REFUSED.search(text):
        return None
    text = _DECIMAL.sub(_as_fraction, text)
    text = _LETTERS.sub(lambda match: match[1] or " ", text)  # or tr is a trace
    text = normalize_latex(text, _NORMALIZATION)
    is_real = not should_treat_as_complex(text)
    for part in dict.fromkeys((text, get_last_eq(text))):  # the last side of an unreadable chain
        with suppress(Exception):  # latex2sympy raises bare ones
            return _canonical(_parse(part, is_real=is_real))
    return None


def _as_fraction(decimal: re.Match[str]) -> str:
    r"""Write ``0.75`` as ``\frac{75}{100}``, and ``0.\overline{3}`` as ``\frac{3}{9}``."""
    whole, places, repeated = decimal[1], decimal[2], decimal[3] or ""
    if not repeated:
        return rf"\frac{{{whole}{places}}}{{{10 ** len(places)}}}" if places else whole
    numerator = int(whole + places + repeated) - int(whole + places or "0")
    return rf"\frac{{{numerator}}}{{{(10 ** len(repeated) - 1) * 10 ** len(places)}}}"


def _canonical(expression: Any) -> Any:
    """Make ``i`` the imaginary unit and every variable real, as most are to math-verify."""
    replaced = {
        symbol: sympy.I if symbol.name == "i" else sympy.Symbol(symbol.name, real=True)
        for symbol in expression.free_symbols
    }
    return expression.xreplace({a: b for a, b in replaced.items() if a != b})
