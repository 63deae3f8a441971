"""Random and adversarial texts break or delay no parser and no verifier (10,000 if slow)."""

import contextlib
import time
from random import Random

import pytest

from comas.verification import Verifier
from comas.verification.choice import verify_choice
from comas.verification.coding import examine_checker, last_python_block
from comas.verification.latex import normalize
from comas.verification.published import verify_choice_published, verify_science_published
from comas.verification.science import verify_science
from comas.verification.units import read_quantity

LATEX = r"""\boxed{ { } ( ) [ ] \{ \} , ; = \le < \cup \pm \mp x y i e \pi \infty 1 2 10 0 .5 ^ _
^{2} _{2} + - * / : \cdot \times \% \$ $ ^\circ & \\ | ! ' " % # \frac \frac{1}{2} \sqrt
\sqrt{2} \text{ \text{cm} \text{or} \sin \log \ln \mathbb{R} \in \approx \binom{5}{2} \int
\sum_{i=1}^{3} \lim \to \emptyset \angle \mathrm{m} \begin{pmatrix} \end{pmatrix} \left
\right \overline{3} f(x) 1e5 6,600 ^{99999} 10^{400} \dots \bmod \det \gcd(4,6) A (B) C)
Option or and \u{41} \x def assert import f(2)==4 None"""
FRAGMENTS = [
    *LATEX.split(),
    *(" ", "\n", "\t", "\x00", "\u221e", "\u221a", "\u00b2", "\u202e"),
    "\u0664",  # an Arabic digit
    "\ud800",  # half of a surrogate pair
    "\U0001d7d9",  # a mathematical digit
    *("```python\n", "\n```\n", r"\boxed{" * 50, "}" * 50, "(" * 200, "9" * 5000, "1+" * 300),
]
MATH_GOLDS = [
    *("5", r"\frac{2}{7}", r"\begin{pmatrix} 4 \\ -9 \end{pmatrix}", "(5, -8)", r"[0, \infty)"),
    *("4, 19", r"\text{north}", "x^2 + 1", "y = 2x", r"2 \pm i", r"45\pi", "x > 3"),
    *(r"(-\infty, 1) \cup (2, 3)", r"35\%"),
]
NUM_TEXTS = [1_000, pytest.param(10_000, marks=pytest.mark.slow)]


def texts(num: int) -> list[str]:
    """Always the same, so that failures are reproducible."""
    rng = Random(0)

    def piece() -> str:
        kind = rng.randrange(4)
        if kind == 0:
            return "".join(chr(rng.randrange(0x20, 0x3000)) for _ in range(rng.randrange(5)))
        return str(rng.randrange(-(10**6), 10**6)) if kind == 1 else rng.choice(FRAGMENTS)

    return ["".join(piece() for _ in range(rng.randrange(13))) for _ in range(num)]


@pytest.mark.filterwarnings("ignore::SyntaxWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("num_texts", NUM_TEXTS)
def test_no_text_breaks_a_parser(num_texts):
    for text in texts(num_texts):
        started = time.process_time()
        parse(text)
        assert time.process_time() - started < 5, text


def parse(text: str) -> None:
    boxed = rf"\boxed{{{text}}}"
    for response in (text, boxed):
        last_python_block(response)
        verify_choice(response, "B")
        verify_choice_published(response, "B")
        verify_science(response, "2.5")
        verify_science_published(response, "2.5")
    read_quantity(normalize(text[:400]))
    with contextlib.suppress(ValueError):  # documented: the text is no checker
        examine_checker(text)


@pytest.mark.stack
@pytest.mark.parametrize("num_texts", NUM_TEXTS)
def test_no_text_breaks_or_holds_up_a_math_verifier(num_texts, caplog):
    items = [
        ("math", rf"\boxed{{{text}}}", MATH_GOLDS[n % len(MATH_GOLDS)])
        for n, text in enumerate(texts(num_texts))
    ]
    with Verifier(cpu_limit_s=3.0) as verifier:
        verdicts = verifier.verify_batch(items)
    # A few cannot be computed, such as the factorial of a number of ten digits.
    num_failed = verdicts.count("failed")
    assert num_failed <= num_texts * 0.005
    assert caplog.text.count(f"{num_failed} x over the limit of CPU time") == min(num_failed, 1)
    assert verdicts.count("wrong") > num_texts / 2
