"""Worked discussions, from which the tiny agents first learn to speak in every role."""

from random import Random

from comas.interaction.prompts import (
    APPROVALS,
    EVALUATION,
    EVALUATION_WITH_JUDGMENT,
    RATING,
    SCORING,
    SCORING_ALONE,
    SOLUTION,
    HistoryItem,
    fill,
)
from comas.interaction.setup_prompts import user
from comas.quickstart.questions import Problem, draw_problem
from comas.quickstart.setup_examples import setup_example
from comas.quickstart.worked import (
    Example,
    evaluate,
    evaluations,
    rate,
    score,
    show,
    solve,
)
from comas.quickstart.world import MISTAKES, Mixture
from comas.types import Domain

LESSONS: dict[Domain, int] = {"math": 4, "coding": 2, "science": 4}
"""Worked discussions of each domain, in proportion: the more arithmetic, the more of them."""


def discussion_examples(rng: Random, mixture: Mixture, model: str) -> list[Example]:
    """The turns of one worked discussion of a random training question."""
    (domain,) = rng.choices(list(LESSONS), list(LESSONS.values()))
    problem = draw_problem(rng, domain=domain, held_out=False)
    is_ablation = rng.random() < mixture.ablation
    examples = [
        _solution_example(rng, problem, mixture, model, history=[])
        for _ in range(mixture.solutions)
    ]
    if rng.random() < mixture.second_round:
        history = _draw_history(rng, problem, mixture, model)
        if is_ablation:
            history = [
                HistoryItem(item.solution, None, is_own=place == 0)
                for place, item in enumerate(history)
            ]
        examples.append(_solution_example(rng, problem, mixture, model, history=history))
    examples.append(_evaluation_example(rng, problem, mixture, model))
    examples += [_scoring_example(rng, problem, mixture, model) for _ in range(mixture.scorings)]
    if is_ablation:
        examples += _ablation_examples(rng, problem, mixture, model)
    if rng.random() < mixture.setup:
        examples.append(setup_example(rng, problem, mixture, model))
    return examples


def _solution_example(
    rng: Random, problem: Problem, mixture: Mixture, model: str, *, history: list[HistoryItem]
) -> Example:
    prompt = fill(SOLUTION, problem.domain, question=problem.text, history=history)
    worked = solve(rng, problem, model, mixture)
    return Example((user(prompt),), worked.text)


def _evaluation_example(rng: Random, problem: Problem, mixture: Mixture, model: str) -> Example:
    has_history = rng.random() < mixture.evaluation_with_history
    history = _draw_history(rng, problem, mixture, model) if has_history else []
    worked = show(rng, problem, mixture)
    prompt = fill(
        EVALUATION, problem.domain, question=problem.text, history=history, solution=worked.text
    )
    response = evaluate(rng, problem.domain, worked, model, mixture)
    return Example((user(prompt),), response)


def _scoring_example(rng: Random, problem: Problem, mixture: Mixture, model: str) -> Example:
    domain = problem.domain
    worked = show(rng, problem, mixture)
    evaluation = (
        MISTAKES[domain][worked.mistake] if worked.mistake else rng.choice(evaluations(domain))
    )
    if rng.random() < mixture.scorer_sees_random_evaluation:
        evaluation = rng.choice(evaluations(domain))
    if rng.random() < mixture.scorer_sees_approval:
        evaluation = APPROVALS[domain]
    prompt = fill(
        SCORING, domain, question=problem.text, solution=worked.text, evaluation=evaluation
    )
    return Example(
        (user(prompt),), score(rng, domain, worked, evaluation=evaluation, mixture=mixture)
    )


def _ablation_examples(
    rng: Random, problem: Problem, mixture: Mixture, model: str
) -> list[Example]:
    """An evaluation with a judgment, a scoring without an evaluation, and a rating."""
    domain = problem.domain
    worked = show(rng, problem, mixture)
    evaluation = evaluate(rng, domain, worked, model, mixture)
    judgment = "correct" if evaluation == APPROVALS[domain] else "incorrect"
    judging, scoring, rating = (
        fill(template, domain, question=problem.text, solution=worked.text)
        for template in (EVALUATION_WITH_JUDGMENT, SCORING_ALONE, RATING)
    )
    return [
        Example((user(judging),), f"{evaluation} <judgment>{judgment}</judgment>"),
        Example((user(scoring),), score(rng, domain, worked, evaluation=None, mixture=mixture)),
        Example((user(rating),), rate(rng, worked, mixture)),
    ]


def _draw_history(rng: Random, problem: Problem, mixture: Mixture, model: str) -> list[HistoryItem]:
    """One or two earlier solutions with an evaluation of each."""
    history = []
    for _ in range(rng.choice((1, 2, 2))):
        worked = show(rng, problem, mixture)
        evaluation = evaluate(rng, problem.domain, worked, model, mixture)
        history.append(HistoryItem(worked.text, evaluation))
    return history
