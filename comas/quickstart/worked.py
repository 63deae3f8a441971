"""Worked discussions, from which the tiny agents first learn to speak in every role.

The solver has a bad habit in every domain, which the evaluator and the scorer mostly see: so the
discussion's rewards can remove it. What CoMAS then shows is that a society can act on what it
can judge already, not that it learns something nobody in it knows.

| domain | right | habit |
|---|---|---|
| math | 8+3=11, 4+2=6, 6+1=7. | drops the carry: 8+3=11, 4+2=6. |
| science | 7*60=420. | a hundred to the unit: 7*100=700. |
| coding | return 41 - 1 | off by one: return 41 |
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from comas.interaction.prompts import EVALUATION, SCORING, SOLUTION, HistoryItem, fill
from comas.quickstart.questions import Problem, draw_problem
from comas.types import DOMAINS, Domain


@dataclass(frozen=True)
class Mixture:
    """How often the worked discussions go wrong. All values are probabilities."""

    habit: float = 0.65
    """A solution follows the habit, wherever the habit can strike."""
    habit_when_judged: float = 0.5
    """The same in what evaluators and scorers learn from: as many right as wrong solutions."""
    second_round: float = 0.5
    """A discussion also teaches a solution that follows earlier ones."""
    evaluation_with_history: float = 0.2
    """An evaluator is shown earlier solutions, as the sequential schedule does."""
    evaluator_errs: float = 0.15
    scorer_sees_wrong_evaluation: float = 0.35
    scorer_errs: float = 0.05
    """The score is 1 for a right solution, or 3 for a mistake that the evaluation names."""
    scorer_is_fooled: float = 0.12
    """The score is 3 for a mistake that the evaluation misses. A complaint that does not hold
    fools the scorer no more often than ``scorer_errs``, or accusing would pay."""
    scorer_undecided: float = 0.05
    """The score is 2."""


class Worked(NamedTuple):
    """A solution text, and whether it is right."""

    text: str
    is_right: bool


class Example(NamedTuple):
    """One turn to learn: a prompt as real models get it, and a response."""

    prompt: str
    response: str


def discussion_examples(rng: Random, mixture: Mixture) -> list[Example]:
    """The turns of one worked discussion of a random training question."""
    problem = draw_problem(rng, domain=rng.choice(DOMAINS), held_out=False)
    examples = [_solution_example(rng, problem, mixture, history=[])]
    if rng.random() < mixture.second_round:
        history = _draw_history(rng, problem, mixture)
        examples.append(_solution_example(rng, problem, mixture, history=history))
    examples.append(_evaluation_example(rng, problem, mixture))
    examples.append(_scoring_example(rng, problem, mixture))
    return examples


def solve(rng: Random, problem: Problem, *, habit: float) -> Worked:
    """Work out ``problem``, following the habit with that probability."""
    return _SOLVE[problem.domain](rng, problem.numbers, habit)


def evaluate(rng: Random, domain: Domain, solution: Worked, *, errs: float) -> str:
    """Criticise ``solution``; with probability ``errs`` say the opposite of the truth."""
    approves = solution.is_right != (rng.random() < errs)
    return (APPROVALS if approves else COMPLAINTS)[domain]


def score(rng: Random, solution: Worked, *, approved: bool, mixture: Mixture) -> str:
    """Score ``solution`` after an evaluation that ``approved`` of it or not."""
    is_misled = approved and not solution.is_right
    errs = mixture.scorer_is_fooled if is_misled else mixture.scorer_errs
    seems_right = solution.is_right != (rng.random() < errs)
    if rng.random() < mixture.scorer_undecided:
        return SCORINGS[2]
    return SCORINGS[3 if seems_right else 1]


def _solution_example(
    rng: Random, problem: Problem, mixture: Mixture, *, history: list[HistoryItem]
) -> Example:
    prompt = fill(SOLUTION, problem.domain, question=problem.text, history=history)
    return Example(prompt, solve(rng, problem, habit=mixture.habit).text)


def _evaluation_example(rng: Random, problem: Problem, mixture: Mixture) -> Example:
    has_history = rng.random() < mixture.evaluation_with_history
    history = _draw_history(rng, problem, mixture) if has_history else []
    worked = solve(rng, problem, habit=mixture.habit_when_judged)
    prompt = fill(
        EVALUATION, problem.domain, question=problem.text, history=history, solution=worked.text
    )
    response = evaluate(rng, problem.domain, worked, errs=mixture.evaluator_errs)
    return Example(prompt, response)


def _scoring_example(rng: Random, problem: Problem, mixture: Mixture) -> Example:
    worked = solve(rng, problem, habit=mixture.habit_when_judged)
    errs = mixture.scorer_sees_wrong_evaluation
    evaluation = evaluate(rng, problem.domain, worked, errs=errs)
    prompt = fill(
        SCORING,
        problem.domain,
        question=problem.text,
        solution=worked.text,
        evaluation=evaluation,
    )
    approved = evaluation == APPROVALS[problem.domain]
    return Example(prompt, score(rng, worked, approved=approved, mixture=mixture))


def _draw_history(rng: Random, problem: Problem, mixture: Mixture) -> list[HistoryItem]:
    """One or two earlier solutions with an evaluation of each."""
    history = []
    for _ in range(rng.choice((1, 2, 2))):
        worked = solve(rng, problem, habit=mixture.habit)
        evaluation = evaluate(rng, problem.domain, worked, errs=mixture.evaluator_errs)
        history.append(HistoryItem(worked.text, evaluation))
    return history


def _solve_sum(rng: Random, numbers: tuple[int, int], habit: float) -> Worked:
    """Column by column; the habit drops the carry."""
    a, b = numbers
    is_dropped = False
    carry, steps, digits = 0, [], ""
    for column in range(2):
        x, y = a // 10**column % 10, b // 10**column % 10
        total = x + y
        steps.append(f"{x}+{y}={total}")
        if carry and rng.random() < habit:
            is_dropped = True
        elif carry:
            total += 1
            steps.append(f"{x + y}+1={total}")
        carry, digit = divmod(total, 10)
        digits = f"{digit}{digits}"
    text = f"{', '.join(steps)}. \\boxed{{{int(f'{carry}{digits}')}}}"
    return Worked(text, not is_dropped)


def _solve_conversion(rng: Random, numbers: tuple[int, int], habit: float) -> Worked:
    """The habit takes a hundred to the unit."""
    a, b = numbers
    is_habit = rng.random() < habit
    factor = 100 if is_habit else 60
    text = f"{a}*{factor}={a * factor}. \\boxed{{{a * factor + b}}}"
    return Worked(text, not is_habit)


def _solve_function(rng: Random, numbers: tuple[int, int], habit: float) -> Worked:
    """The habit counts the end of the range in."""
    is_habit = rng.random() < habit
    plan, correction = ("counts", "") if is_habit else ("is left out", " - 1")
    text = f"The end {plan}.\n```python\ndef last():\n    return {numbers[1]}{correction}\n```"
    return Worked(text, not is_habit)


_SOLVE: dict[Domain, Callable[[Random, tuple[int, int], float], Worked]] = {
    "math": _solve_sum,
    "science": _solve_conversion,
    "coding": _solve_function,
}
APPROVALS: dict[Domain, str] = {
    "math": "No mistakes.",
    "science": "No mistakes.",
    "coding": "No test case fails.",
}
COMPLAINTS: dict[Domain, str] = {
    "math": "Mistake: a carry is lost.",
    "science": "Mistake: the unit is wrong.",
    "coding": "test_last fails: the end is not in the range.",
}
SCORINGS = {
    1: "The mistake is fatal. <score>1</score>",
    2: "The flaw is minor. <score>2</score>",
    3: "The solution is right. <score>3</score>",
}
