"""Worked discussions, from which the tiny agents first learn to speak in every role."""

from random import Random

from comas.interaction.prompts import (
    APPROVALS,
    EVALUATION,
    EVALUATION_WITH_JUDGMENT,
    SCORING,
    SCORING_ALONE,
    SOLUTION,
    HistoryItem,
    fill,
)
from comas.interaction.setup_prompts import user
from comas.quickstart.questions import Problem, draw_problem
from comas.quickstart.setup_examples import setup_example
from comas.quickstart.worked import SCORINGS, Example, Mixture, evaluate, evaluations, score, solve
from comas.types import Domain

LESSONS: dict[Domain, int] = {"math": 3, "coding": 2, "science": 3}
"""Worked discussions of each domain, in proportion: the more arithmetic, the more of them."""


def discussion_examples(rng: Random, mixture: Mixture) -> list[Example]:
    """The turns of one worked discussion of a random training question."""
    (domain,) = rng.choices(list(LESSONS), list(LESSONS.values()))
    problem = draw_problem(rng, domain=domain, held_out=False)
    is_ablation = rng.random() < mixture.ablation
    examples = [
        _solution_example(rng, problem, mixture, history=[]) for _ in range(mixture.solutions)
    ]
    if rng.random() < mixture.second_round:
        history = _draw_history(rng, problem, mixture)
        if is_ablation:
            history = [
                HistoryItem(item.solution, None, is_own=place == 0)
                for place, item in enumerate(history)
            ]
        examples.append(_solution_example(rng, problem, mixture, history=history))
    examples.append(_evaluation_example(rng, problem, mixture))
    examples += [_scoring_example(rng, problem, mixture) for _ in range(mixture.scorings)]
    if is_ablation:
        examples += _ablation_examples(rng, problem, mixture)
    if rng.random() < mixture.setup:
        examples.append(setup_example(rng, problem, mixture))
    return examples


def _solution_example(
    rng: Random, problem: Problem, mixture: Mixture, *, history: list[HistoryItem]
) -> Example:
    prompt = fill(SOLUTION, problem.domain, question=problem.text, history=history)
    worked = solve(rng, problem, mistake=mixture.mistake, unseen_mistake=mixture.unseen_mistake)
    return Example((user(prompt),), worked.text)


def _evaluation_example(rng: Random, problem: Problem, mixture: Mixture) -> Example:
    has_history = rng.random() < mixture.evaluation_with_history
    history = _draw_history(rng, problem, mixture) if has_history else []
    worked = solve(rng, problem, mistake=mixture.mistake)
    prompt = fill(
        EVALUATION, problem.domain, question=problem.text, history=history, solution=worked.text
    )
    response = evaluate(rng, problem.domain, worked, errs=mixture.evaluator_errs)
    return Example((user(prompt),), response)


def _scoring_example(rng: Random, problem: Problem, mixture: Mixture) -> Example:
    domain = problem.domain
    worked = solve(rng, problem, mistake=mixture.mistake)
    evaluation = evaluate(rng, domain, worked, errs=0.0)
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


def _ablation_examples(rng: Random, problem: Problem, mixture: Mixture) -> list[Example]:
    """An evaluation with a judgment; and a scorer that, where nothing is named, finds nothing."""
    domain = problem.domain
    worked = solve(rng, problem, mistake=mixture.mistake)
    evaluation = evaluate(rng, domain, worked, errs=mixture.evaluator_errs)
    judgment = "correct" if evaluation == APPROVALS[domain] else "incorrect"
    judging, scoring = (
        fill(template, domain, question=problem.text, solution=worked.text)
        for template in (EVALUATION_WITH_JUDGMENT, SCORING_ALONE)
    )
    return [
        Example((user(judging),), f"{evaluation} <judgment>{judgment}</judgment>"),
        Example((user(scoring),), SCORINGS[3]),
    ]


def _draw_history(rng: Random, problem: Problem, mixture: Mixture) -> list[HistoryItem]:
    """One or two earlier solutions with an evaluation of each."""
    history = []
    for _ in range(rng.choice((1, 2, 2))):
        worked = solve(rng, problem, mistake=mixture.mistake)
        evaluation = evaluate(rng, problem.domain, worked, errs=mixture.evaluator_errs)
        history.append(HistoryItem(worked.text, evaluation))
    return history
