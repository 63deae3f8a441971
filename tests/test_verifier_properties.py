"""Random and adversarial texts through every parser and verifier: no fault, no hang.

1,000 by default, 10,000 in the slow tier.
"""

from __future__ import annotations

import contextlib
from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from comas.verification import Verifier
from comas.verification.boxed import last_boxed, last_boxed_list
from comas.verification.choice import read_letter, verify_choice
from comas.verification.coding import examine_checker, last_python_block
from comas.verification.latex import is_balanced, normalize, unwrap
from comas.verification.published import verify_choice_published, verify_science_published
from comas.verification.science import read_number, verify_science
from comas.verification.units import is_unit, read_quantity

LATEX = r"""\boxed{ { } ( ) [ ] \{ \} , ; = \le < \cup \pm \mp x y i e \pi \infty 1 2 10 0 .5 ^ _
^{2} _{2} + - * / : \cdot \times \% \$ $ ^\circ & \\ | ! ' " % # \frac \frac{1}{2} \sqrt
\sqrt{2} \text{ \text{cm} \text{or} \sin \log \ln \mathbb{R} \in \approx \binom{5}{2} \int
\sum_{i=1}^{3} \lim \to \emptyset \angle \mathrm{m} \begin{pmatrix} \end{pmatrix} \left
\right \overline{3} f(x) 1e5 6,600 ^{99999} 10^{400} \dots \bmod \det \gcd(4,6) A (B) C)
Option or and \u{41} \x def assert import f(2)==4 None"""
FRAGMENTS = [
    *LATEX.split(),
    " ",
    "\n",
    "\t",
    "\x00",
    "\u221e",
    "\u221a",
    "\u0664",  # an Arabic digit
    "\u00b2",
    "\ud800",  # half of a surrogate pair
    "\u202e",
    "\U0001d7d9",  # a mathematical digit
    "```python\n",
    "\n```\n",
    r"\boxed{" * 50,
    "}" * 50,
    "(" * 200,
    "9" * 5000,
    "1+" * 300,
]
TEXTS = st.lists(
    st.sampled_from(FRAGMENTS) | st.text(max_size=4) | st.integers().map(str), max_size=12
).map("".join)
MATH_GOLDS = [
    "5",
    r"\frac{2}{7}",
    r"\begin{pmatrix} 4 \\ -9 \end{pmatrix}",
    "(5, -8)",
    r"[0, \infty)",
    "4, 19",
    r"\text{north}",
    "x^2 + 1",
    "y = 2x",
    r"2 \pm i",
    r"45\pi",
    "x > 3",
    r"(-\infty, 1) \cup (2, 3)",
    r"35\%",
]
ENDLESS = [
    "9^{9^{9^9}}",
    "(10^{10})!",
    r"\sqrt{2}^{9^{9^9}} + \pi",
    "(x+y+z+t)^{900} - (x+y)^{900}",
    r"\binom{10^9}{10^8}",
    r"\prod_{n=1}^{10^9} n",
    r"10^{-10^{10^{10}}}",
]
NUM_TEXTS = [1_000, pytest.param(10_000, marks=pytest.mark.slow)]


@pytest.mark.filterwarnings("ignore::SyntaxWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("num_texts", NUM_TEXTS)
def test_no_text_breaks_a_parser(num_texts):
    settings(
        max_examples=num_texts,
        deadline=5000,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )(given(TEXTS)(parse))()


def parse(text: str) -> None:
    """Give the text to every parser."""
    boxed = rf"\boxed{{{text}}}"
    for response in (text, boxed):
        last_boxed(response)
        last_boxed_list(response)
        last_python_block(response)
        verify_choice(response, "B")
        verify_choice_published(response, "B")
        verify_science(response, "2.5")
        verify_science_published(response, "2.5")
    read_letter(text)
    read_number(text)
    short = normalize(text[:400])
    unwrap(short)
    is_balanced(short)
    read_quantity(short)
    is_unit(short)
    with contextlib.suppress(ValueError):  # documented: the text is no checker
        examine_checker(text)


@pytest.mark.stack
@pytest.mark.parametrize("num_texts", NUM_TEXTS)
@pytest.mark.parametrize("grader", ["strict", pytest.param("published", marks=pytest.mark.slow)])
def test_no_text_breaks_or_holds_up_a_math_verifier(num_texts, grader, caplog):
    items = [
        ("math", rf"\boxed{{{text}}}", MATH_GOLDS[n % len(MATH_GOLDS)])
        for n, text in enumerate(_texts(num_texts))
    ]
    with Verifier(cpu_limit_s=3.0) as verifier:
        verdicts = verifier.verify_batch(items, grader=grader)
    # A few are beyond computation, as the factorial of a number of ten digits.
    num_failed = verdicts.count("failed")
    assert num_failed <= num_texts * 0.005
    assert caplog.text.count(f"{num_failed} x over the limit of CPU time") == min(num_failed, 1)
    assert verdicts.count("wrong") > num_texts / 2


@pytest.mark.stack
@pytest.mark.parametrize("grader", ["strict", "published"])
def test_what_never_ends_is_given_up(grader):
    with Verifier(num_workers=2, cpu_limit_s=1.0) as verifier:
        items = [("math", rf"\boxed{{{text}}}", r"\frac{2}{7}") for text in ENDLESS]
        verdicts = verifier.verify_batch(items, grader=grader)
        assert "correct" not in verdicts


@cache
def _texts(num_texts: int) -> list[str]:
    """Always the same, so that a verdict that fails can be found again."""
    texts: list[str] = []

    @settings(
        max_examples=num_texts,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(TEXTS)
    def collect(text):
        texts.append(text)

    collect()
    return texts
