"""What the tiny agents learn to say: worked solutions, evaluations and scorings.

Solvers make mistakes of several kinds in every domain; an evaluator names the kind, or approves.
The scorer believes an approval, and of an accusation it checks only whether the named mistake is
there. So a mistake costs the solver its reward only where an evaluator names it, and what CoMAS
then shows is that criticism is needed, not that the society learns what nobody in it knows.

| domain | right | a mistake, and how it is named |
|---|---|---|
| math | 8+3=11, 4+2=6, 6+1=7. | 8+3=11, 4+2=6. a carry is lost |
| science | 7*60=420, 420+43=463. | 7*60=420. the small unit is left out |
| coding | return 41 - 4 | return 41 - 4 + 1 one is added |

One kind, to write the answer or subtract the start twice, is never shown to the judges: nobody
punishes it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from comas.interaction.prompts import APPROVALS
from comas.quickstart.questions import Problem
from comas.types import Domain, Message

MISTAKES: dict[Domain, dict[str, str]] = {
    "math": {
        "carry lost": "Mistake: a carry is lost.",
        "tens left out": "Mistake: the tens are left out.",
        "carry joined": "Mistake: a carry is joined, not added.",
        "second left out": "Mistake: the second number is left out.",
        "joined": "Mistake: the numbers are joined, not added.",
    },
    "science": {
        "factor 100": "Mistake: the factor is not 100.",
        "factor 1000": "Mistake: the factor is not 1000.",
        "rest left out": "Mistake: the small unit is left out.",
        "rest alone": "Mistake: the large unit is left out.",
        "joined": "Mistake: the numbers are joined, not added.",
    },
    "coding": {
        "one added": "test_count fails: one is added.",
        "start left out": "test_count fails: the start is left out.",
        "start added": "test_count fails: the start is added.",
        "start multiplied": "test_count fails: the numbers are multiplied.",
        "not returned": "test_count fails: nothing is returned.",
    },
}
"""What evaluators say of each kind of mistake that they and the scorers are taught."""
UNSEEN = "twice"
"""A kind of mistake, in every domain, that judges are never shown."""
SCORINGS = {
    1: "The mistake is fatal. <score>1</score>",
    2: "The flaw is minor. <score>2</score>",
    3: "The solution is right. <score>3</score>",
}


@dataclass(frozen=True)
class Mixture:
    """What worked discussions teach, and how often they go wrong: probabilities, then numbers."""

    mistake: float = 0.55
    """A solution has a mistake of a kind that the judges know."""
    unseen_mistake: float = 0.04
    """A solution has one that they do not know; never in what they learn from."""
    second_round: float = 0.5
    """A discussion also teaches a solution that follows earlier ones."""
    evaluation_with_history: float = 0.2
    """An evaluator is shown earlier solutions, as the sequential schedule does."""
    evaluator_errs: float = 0.1
    """The evaluation is any other of the domain's."""
    scorer_sees_approval: float = 0.15
    """The evaluation approves, whatever the solution. Without these some scorers learn to judge
    solutions themselves, and criticism is no longer needed."""
    scorer_sees_random_evaluation: float = 0.5
    """The evaluation is drawn from all of the domain's, whatever the solution."""
    scorer_errs: float = 0.02
    """The score is 1 where it should be 3, or 3 where it should be 1."""
    scorer_undecided: float = 0.03
    """The score is 2."""
    ablation: float = 0.2
    """A discussion also teaches what ablations ask: an evaluation that ends with a judgment, a
    scoring without an evaluation, and solutions that follow the own and others' without any."""
    setup: float = 0.4
    """A discussion also teaches one turn of a setup of the evaluation."""
    solutions: int = 2
    """First solutions that a discussion teaches."""
    scorings: int = 3
    """Scorings that a discussion teaches."""


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


def solve(rng: Random, problem: Problem, *, mistake: float, unseen_mistake: float = 0.0) -> Worked:
    """Work out ``problem``, with a mistake of a random kind with these probabilities."""
    draw = rng.random()
    if draw < unseen_mistake:
        kinds = [UNSEEN]
    elif draw < unseen_mistake + mistake:
        kinds = list(MISTAKES[problem.domain])
    else:
        return work(problem, None)
    possible = [worked for kind in kinds if (worked := work(problem, kind)).mistake]
    return rng.choice(possible or [work(problem, None)])


def work(problem: Problem, mistake: str | None) -> Worked:
    """The solution with that mistake, or the right one where it would not change the answer."""
    of_domain = _WORK[problem.domain]
    right = of_domain(problem.numbers, None)
    steps, answer = of_domain(problem.numbers, mistake)
    if answer == right[1]:
        return Worked("".join(right), None)
    return Worked(steps + answer, mistake)


def evaluations(domain: Domain) -> list[str]:
    """All that an evaluator may say of a solution."""
    return [APPROVALS[domain], *MISTAKES[domain].values()]


def evaluate(rng: Random, domain: Domain, solution: Worked, *, errs: float) -> str:
    """Criticise ``solution``; with probability ``errs`` say something else than the truth."""
    truth = MISTAKES[domain][solution.mistake] if solution.mistake else APPROVALS[domain]
    if rng.random() < errs:
        return rng.choice([other for other in evaluations(domain) if other != truth])
    return truth


def score(
    rng: Random, domain: Domain, solution: Worked, *, evaluation: str, mixture: Mixture
) -> str:
    """Score ``solution``: an approval is believed, an accusation is checked."""
    if evaluation == APPROVALS[domain]:
        return SCORINGS[3]
    if rng.random() < mixture.scorer_undecided:
        return SCORINGS[2]
    holds = evaluation == MISTAKES[domain].get(solution.mistake or "")
    errs = rng.random() < mixture.scorer_errs
    return SCORINGS[1 if holds != errs else 3]


def _work_sum(numbers: tuple[int, int], mistake: str | None) -> tuple[str, str]:
    """Column by column, then the carry."""
    a, b = numbers
    if mistake == "second left out":
        return f"{a}. ", _boxed(a)
    if mistake == "joined":
        return f"{a} {b}. ", _boxed(int(f"{a}{b}"))
    ones, tens = a % 10 + b % 10, a // 10 + b // 10
    steps = [f"{a % 10}+{b % 10}={ones}"]
    if mistake == "tens left out":
        return f"{steps[0]}. ", _boxed(ones)
    steps.append(f"{a // 10}+{b // 10}={tens}")
    if mistake == "carry joined":
        return f"{', '.join(steps)}, {tens} {ones}. ", _boxed(int(f"{tens}{ones}"))
    if ones >= 10 and mistake != "carry lost":
        tens += 1
        steps.append(f"{tens - 1}+1={tens}")
    total = 10 * tens + ones % 10
    return f"{', '.join(steps)}. ", _boxed(total, twice=mistake == UNSEEN)


def _work_conversion(numbers: tuple[int, int], mistake: str | None) -> tuple[str, str]:
    """The large unit times the factor, plus the rest."""
    a, b = numbers
    if mistake == "rest alone":
        return f"{b}. ", _boxed(b)
    factor = {"factor 100": 100, "factor 1000": 1000}.get(mistake or "", 60)
    total = a * factor
    product = f"{a}*{factor}={total}"
    if mistake == "rest left out":
        return f"{product}. ", _boxed(total)
    if mistake == "joined":
        return f"{product}, {b}. ", _boxed(int(f"{total}{b}"))
    answer = total + b
    steps = f"{product}, {total}+{b}={answer}. "
    return steps, _boxed(answer, twice=mistake == UNSEEN)


def _boxed(answer: int, *, twice: bool = False) -> str:
    return f"\\boxed{{{f'{answer}{answer}' if twice else answer}}}"


def _work_function(numbers: tuple[int, int], mistake: str | None) -> tuple[str, str]:
    """The end minus the start."""
    first, end = numbers
    result = {
        "one added": f"{end} - {first} + 1",
        "start left out": f"{end}",
        "start added": f"{end} + {first}",
        "start multiplied": f"{end} * {first}",
        UNSEEN: f"{end} - {first} - {first}",
    }.get(mistake or "", f"{end} - {first}")
    statement = f"print({result})" if mistake == "not returned" else f"return {result}"
    return "", f"The end minus the start.\n```python\ndef count():\n    {statement}\n```"


_WORK: dict[Domain, Callable[[tuple[int, int], str | None], tuple[str, str]]] = {
    "math": _work_sum,
    "science": _work_conversion,
    "coding": _work_function,
}
