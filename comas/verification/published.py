r"""The graders of the published results, and math-verify as most of the field calls it.

They keep their faults, so that our numbers compare with published ones. A response without an
answer is "unanswered" here and wrong there, which gives the same accuracy.
"""

import re
from typing import Any

from math_verify import parse, verify

from comas.verification.boxed import last_plainly_boxed
from comas.verification.forms import Verdict

RELATIVE_TOLERANCE = 0.05

_BOXED_LETTER = re.compile(r"\\boxed\{([A-D])\}")
_PLAIN_NUMBER = re.compile(r"[-+]?(?:[0-9][0-9,]*(?:\.[0-9]*)?|\.[0-9]+)")


def verify_math_published(response: str, gold: str) -> Verdict:
    r"""Judge the whole response against the bare gold by math-verify's defaults.

    Faults: it may read only a part of a bare gold, so that 45 passes for ``45 \pi``, 29 for
    ``\frac 29`` and 2 for a vector that ends in 2, while ``\boxed{gold}`` fails for many golds
    (radicals, tuples, intervals, matrices, words, ``\pm``). Numbers outside a box count. A step
    over math-verify's limit of 5 s (of wall time) is no answer, or wrong.

    Raises ValueError outside the main thread (workers of ``Verifier`` have one), where
    math-verify's limits do not work.
    """
    return _by_math_verify(response, expected=parse(gold))


def verify_math_by_library(response: str, gold: str) -> Verdict:
    r"""Judge the whole response against the boxed gold by math-verify, as lm-evaluation-harness
    does for minerva_math (``math_verify``) and open-r1 for its rewards.

    No box is needed: it reads ``The answer is $\frac{1}{2}$.``. Faults: it rounds decimals to 6
    places, reads ``2(3)`` as a sum, and knows neither words nor most units.

    Raises ValueError if math-verify cannot read the gold, and outside the main thread.
    """
    expected = parse(rf"$\boxed{{{gold}}}$")
    if not expected:
        raise ValueError(f"math-verify cannot read the gold answer {gold!r}")
    return _by_math_verify(response, expected=expected)


def _by_math_verify(response: str, *, expected: list[Any]) -> Verdict:
    answer = parse(response)
    if not answer:
        return "unanswered"
    return "correct" if verify(expected, answer) else "wrong"


def verify_choice_published(response: str, gold: str) -> Verdict:
    r"""Judge the last ``\boxed{}`` that holds exactly A, B, C or D.

    Faults: ``\boxed{(A)}``, ``\boxed{\text{A}}``, ``\boxed{A.}``, ``\boxed{ A }`` and
    ``\boxed{A) ...}`` are skipped, so that an earlier box counts, and E is never right.
    """
    letters = _BOXED_LETTER.findall(response)
    if not letters:
        return "unanswered"
    return "correct" if letters[-1] == gold.strip()[:1] else "wrong"


def verify_science_published(response: str, gold: str) -> Verdict:
    r"""Judge whether the last ``\boxed{}``, read by Python's ``float``, is within 5 % of the gold.

    Faults: any notation but plain digits is unanswered (``\boxed{x = 2.5}``, ``\boxed{2.5\%}``,
    ``\boxed{3.2e-5}``), ``\boxed{89,034.79}`` is wrong, since ``float`` does not read it, and a
    gold of zero must be hit exactly.

    Raises ValueError if ``gold`` is not a number.
    """
    wanted = float(gold)
    answer = last_plainly_boxed(response)
    if answer is None or not _PLAIN_NUMBER.fullmatch(answer):
        return "unanswered"
    if "," in answer:
        return "wrong"
    return "correct" if abs(float(answer) - wanted) <= RELATIVE_TOLERANCE * abs(wanted) else "wrong"
