"""Solutions of the quick-start's questions: right ones, and ones with each mistake."""

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from comas.quickstart.questions import FUNCTIONS, SUMS, UNITS, Problem
from comas.quickstart.world import SLIP, UNSEEN
from comas.types import Domain


class Worked(NamedTuple):
    """A solution text, and its kind of mistake; None if it is right."""

    text: str
    mistake: str | None


def work(problem: Problem, mistake: str | None) -> Worked:
    """Return the solution with that mistake, or the right one if it changes no answer."""
    of_domain = _WORK[problem.domain]
    right = of_domain(problem, None)
    steps, answer = of_domain(problem, mistake)
    if answer == right[1]:
        return Worked("".join(right), None)
    return Worked(steps + answer, mistake)


def slip(rng: Random, problem: Problem) -> Worked:
    """Return a solution with one wrong digit, in a copied number or in the answer."""
    right = _result(problem)
    tolerance = 0.06 * right if problem.domain == "science" else 0.0  # graders grant 5 %
    while True:
        if problem.domain == "coding" or rng.random() < 0.5:
            a, b = problem.numbers
            numbers = rng.choice(((_miscopied(rng, a), b), (a, _miscopied(rng, b))))
            copied = problem._replace(numbers=numbers)
            text, answer = work(copied, None).text, _result(copied)
        else:
            steps, _ = work(problem, None).text.split("\\boxed")
            answer = _miscopied(rng, right)
            text = steps + _boxed(answer)
        if abs(answer - right) > tolerance:
            return Worked(text, SLIP)


def _miscopied(rng: Random, number: int) -> int:
    digits = str(number)
    place = rng.randrange(len(digits))
    digit = rng.choice([digit for digit in "123456789" if digit != digits[place]])
    return int(digits[:place] + digit + digits[place + 1 :])


def _result(problem: Problem) -> int:
    a, b = problem.numbers
    return {"math": a + b, "science": 60 * a + b, "coding": b - a}[problem.domain]


def _work_sum(problem: Problem, mistake: str | None) -> tuple[str, str]:
    """Add column by column, then the carry."""
    start = f"{SUMS[problem.wording].start}: "
    a, b = problem.numbers
    if mistake == "second left out":
        return f"{start}{a}. ", _boxed(a)
    if mistake == "joined":
        return f"{start}{a} {b}. ", _boxed(int(f"{a}{b}"))
    ones, tens = a % 10 + b % 10, a // 10 + b // 10
    steps = [f"{start}{a % 10}+{b % 10}={ones}"]
    if mistake == "tens left out":
        return f"{steps[0]}. ", _boxed(ones)
    steps.append(f"{a // 10}+{b // 10}={tens}")
    if mistake == "carry joined":
        return f"{', '.join(steps)}, {tens} {ones}. ", _boxed(int(f"{tens}{ones}"))
    if ones >= 10 and mistake != "carry lost":
        tens += 1
        steps.append(f"{tens - 1}+1={tens}")
    if mistake == "ones left out":
        return f"{', '.join(steps)}. ", _boxed(10 * tens)
    total = 10 * tens + ones % 10
    return f"{', '.join(steps)}. ", _boxed(total, twice=mistake == UNSEEN)


def _work_conversion(problem: Problem, mistake: str | None) -> tuple[str, str]:
    start = f"In {UNITS[problem.wording].wanted}: "
    a, b = problem.numbers
    if mistake == "rest alone":
        return f"{start}{b}. ", _boxed(b)
    factor = {"factor 10": 10, "factor 100": 100, "factor 1000": 1000}.get(mistake or "", 60)
    total = a * factor
    product = f"{start}{a}*{factor}={total}"
    if mistake == "rest left out":
        return f"{product}. ", _boxed(total)
    if mistake == "joined":
        return f"{product}, {b}. ", _boxed(int(f"{total}{b}"))
    answer = total + b
    steps = f"{product}, {total}+{b}={answer}. "
    return steps, _boxed(answer, twice=mistake == UNSEEN)


def _boxed(answer: int, *, twice: bool = False) -> str:
    return f"\\boxed{{{f'{answer}{answer}' if twice else answer}}}"


def _work_function(problem: Problem, mistake: str | None) -> tuple[str, str]:
    first, end = problem.numbers
    plan, result = {
        "one added": ("The end minus the start, plus one.", f"{end} - {first} + 1"),
        "start left out": ("The end.", f"{end}"),
        "start added": ("The end plus the start.", f"{end} + {first}"),
        "start multiplied": ("The end times the start.", f"{end} * {first}"),
        "turned round": ("The start minus the end.", f"{first} - {end}"),
        UNSEEN: ("The end minus the start, twice.", f"{end} - {first} - {first}"),
    }.get(mistake or "", ("The end minus the start.", f"{end} - {first}"))
    statement = f"print({result})" if mistake == "not returned" else f"return {result}"
    program = f"def {FUNCTIONS[problem.wording]}():\n    {statement}"
    return "", f"{plan}\n```python\n{program}\n```"


_WORK: dict[Domain, Callable[[Problem, str | None], tuple[str, str]]] = {
    "math": _work_sum,
    "science": _work_conversion,
    "coding": _work_function,
}
