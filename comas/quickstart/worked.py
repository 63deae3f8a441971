"""What the tiny agents learn to say: worked solutions, evaluations and scorings."""

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from comas.interaction.prompts import APPROVALS
from comas.quickstart.questions import FUNCTIONS, SUMS, UNITS, Problem
from comas.quickstart.world import HABITS, MISTAKES, SLIP, UNSEEN, Mixture
from comas.types import Domain, Message

SCORINGS = {
    1: "The mistake is fatal. <score>1</score>",
    2: "The flaw is minor. <score>2</score>",
    3: "The solution is right. <score>3</score>",
}


RATINGS = {
    False: "Its result is wrong. <rating>1</rating>",
    True: "All of it is right. <rating>5</rating>",
}
"""Ratings of one's own solution, by whether it is found to be right."""


class Example(NamedTuple):
    """One turn to learn: a conversation as real models get it, and what is said then."""

    messages: tuple[Message, ...]
    response: str

    @property
    def prompt(self) -> str:
        """The text of the conversation."""
        return "\n".join(message["content"] for message in self.messages)


class Worked(NamedTuple):
    """A solution text, and the kind of its mistake; None: it is right."""

    text: str
    mistake: str | None


def solve(rng: Random, problem: Problem, model: str, mixture: Mixture) -> Worked:
    """Work out ``problem`` as ``model`` does: mostly with the mistake that is its habit there."""
    others = _kinds(problem)
    shares = [
        mixture.habit,
        mixture.unseen_mistake,
        *[mixture.other_mistake / len(others)] * len(others),
    ]
    kinds = [habit(problem, model), UNSEEN, *others, None]
    (kind,) = rng.choices(kinds, [*shares, 1 - sum(shares)])
    return work(problem, kind)


def habit(problem: Problem, model: str) -> str:
    """The likeliest mistake of ``model`` with ``problem``."""
    return HABITS[model][problem.domain][problem.wording]


def show(rng: Random, problem: Problem, mixture: Mixture) -> Worked:
    """A solution for a judge to look at, whoever may have made it."""
    draw = rng.random()
    if draw < mixture.shown_right:
        return work(problem, None)
    if draw < mixture.shown_right + mixture.shown_slip:
        return slip(rng, problem)
    return show_mistake(rng, problem, mixture)


def show_mistake(rng: Random, problem: Problem, mixture: Mixture) -> Worked:
    """A solution with a mistake that judges are taught, slips apart."""
    possible = mistaken(problem)
    habits = {habit(problem, model) for model in HABITS}
    likely = [worked for worked in possible if worked.mistake in habits]
    return rng.choice(likely if likely and rng.random() < mixture.shown_habit else possible)


def mistaken(problem: Problem) -> list[Worked]:
    """The solutions with each mistake that can be made, of those that judges are taught."""
    solutions = (work(problem, kind) for kind in _kinds(problem))
    return [worked for worked in solutions if worked.mistake]


def slip(rng: Random, problem: Problem) -> Worked:
    """The right way with one digit wrong: of a number that is copied, or of the answer."""
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


def _kinds(problem: Problem) -> list[str]:
    return [kind for kind in MISTAKES[problem.domain] if kind != SLIP]


def _miscopied(rng: Random, number: int) -> int:
    digits = str(number)
    place = rng.randrange(len(digits))
    digit = rng.choice([digit for digit in "123456789" if digit != digits[place]])
    return int(digits[:place] + digit + digits[place + 1 :])


def _result(problem: Problem) -> int:
    a, b = problem.numbers
    return {"math": a + b, "science": 60 * a + b, "coding": b - a}[problem.domain]


def work(problem: Problem, mistake: str | None) -> Worked:
    """The solution with that mistake, or the right one where it would not change the answer."""
    of_domain = _WORK[problem.domain]
    right = of_domain(problem, None)
    steps, answer = of_domain(problem, mistake)
    if answer == right[1]:
        return Worked("".join(right), None)
    return Worked(steps + answer, mistake)


def evaluations(domain: Domain) -> list[str]:
    """All that an evaluator may say of a solution."""
    return [APPROVALS[domain], *MISTAKES[domain].values()]


def evaluate(rng: Random, domain: Domain, solution: Worked, model: str, mixture: Mixture) -> str:
    """Criticise ``solution`` as ``model`` does."""
    named = MISTAKES[domain]
    if solution.mistake is None:
        accuses = rng.random() < mixture.accuses
        return rng.choice([*named.values()]) if accuses else APPROVALS[domain]
    own = solution.mistake in HABITS[model][domain]
    if rng.random() < (mixture.overlooks_own if own else mixture.overlooks):
        return APPROVALS[domain]
    truth = named[solution.mistake]
    if rng.random() < mixture.misnames:
        return rng.choice([other for other in named.values() if other != truth])
    return truth


def score(
    rng: Random, domain: Domain, solution: Worked, *, evaluation: str | None, mixture: Mixture
) -> str:
    """Score ``solution``; None: without an evaluation."""
    if rng.random() < mixture.scorer_undecided:
        return SCORINGS[2]
    doubt = mixture.doubts_wrong if solution.mistake else mixture.doubts_right
    if evaluation is None:
        says_1 = doubt.nothing
    elif evaluation == APPROVALS[domain]:
        says_1 = doubt.approval
    elif evaluation == MISTAKES[domain].get(solution.mistake or ""):
        says_1 = doubt.true_accusation
    else:
        says_1 = doubt.false_accusation
    return SCORINGS[1 if rng.random() < says_1 else 3]


def rate(rng: Random, solution: Worked, mixture: Mixture) -> str:
    """Rate ``solution``, as well as a scorer judges without an evaluation."""
    doubt = mixture.doubts_wrong if solution.mistake else mixture.doubts_right
    return RATINGS[rng.random() >= doubt.nothing]


def _work_sum(problem: Problem, mistake: str | None) -> tuple[str, str]:
    """Column by column, then the carry."""
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
    """The large unit times the factor, plus the rest."""
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
    """The plan in words, then the program."""
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
