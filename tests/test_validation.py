"""Held-out questions are answered by each agent alone, or discussed, on seeds that stay."""

import asyncio
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

import pytest
from builders import discussion, generation, turn

from comas.config.schema import Config, Interaction, Society
from comas.data import QuestionSet
from comas.run.validation import (
    GREEDY,
    SAMPLED,
    answer_alone,
    last_solutions,
    validate,
    validate_discussions,
)
from comas.types import Discussion, Generate, Generation, Question, Request, TurnKey

QUESTIONS = [Question(f"q{i}", "math", f"What is {i} + {i}?") for i in range(3)]


def ask(*, num_agents: int = 2, seed: int = 0, overlong: str = "") -> list[list[str]]:
    async def generate(request: Request) -> Generation | None:
        question = next(q for q in QUESTIONS if q.text in request.prompt)
        if question.question_id == overlong:
            return None
        return generation(
            f"agent {request.agent_index}, {question.question_id}, seed {request.seed}"
        )

    return asyncio.run(answer_alone(QUESTIONS, generate=generate, num_agents=num_agents, seed=seed))


def test_every_agent_answers_every_question_itself():
    answers = [[text.rpartition(", ")[0] for text in of_agent] for of_agent in ask()]
    assert answers == [
        ["agent 0, q0", "agent 0, q1", "agent 0, q2"],
        ["agent 1, q0", "agent 1, q1", "agent 1, q2"],
    ]


def test_sampling_seeds_are_the_same_each_time_and_differ_by_agent_question_and_run():
    assert ask() == ask()
    seeds = {text.rpartition(" ")[2] for run in (0, 1) for row in ask(seed=run) for text in row}
    assert len(seeds) == 2 * 2 * 3


def test_a_question_over_the_prompt_limit_is_unanswered():
    assert [row[1] for row in ask(overlong="q1")] == ["", ""]


def test_each_way_of_sampling_has_accuracies_of_its_own():
    """Agent 0 is right about q0 when it samples and about all greedily, agent 1 about none."""
    asked: list[TurnKey] = []

    def agents(right: set[str]) -> Generate:
        async def say(request: Request) -> Generation:
            asked.append(request.turn)
            is_right = request.agent_index == 0 and request.turn[0].rpartition("/")[2] in right
            text = "right" if is_right else "false"
            return generation(text)

        return say

    ids = [question.question_id for question in QUESTIONS]
    metrics = validate(
        QuestionSet(tuple(QUESTIONS), dict.fromkeys(ids, "right")),
        Config(society=Society(num_agents=2)),
        generate={SAMPLED: agents({ids[0]}), GREEDY: agents(set(ids))},
        verifier=Judge(),  # type: ignore[arg-type]
    )
    num_questions = len(ids)
    assert metrics["validation/accuracy"] == 1 / (2 * num_questions)
    assert metrics["agent_0/validation/accuracy"] == 1 / num_questions
    assert metrics["validation/greedy/accuracy"] == 1 / 2
    assert metrics["agent_0/validation/greedy/accuracy"] == 1
    assert metrics["agent_1/validation/greedy/accuracy"] == 0
    assert len(asked) == len(set(asked)) == 2 * 2 * num_questions


class Judge:
    """Stands for the verifier: a solution is correct when it holds the answer's word."""

    def submit(self, items: Any, on_verdict: object = None) -> Future[list[str]]:
        verdicts: Future[list[str]] = Future()
        verdicts.set_result(["correct" if gold in text else "wrong" for _, text, gold in items])
        return verdicts


class Talk:
    """Agent 0 is right from round 1 on, agent 1 never; every score says what ``scores`` does."""

    def __init__(self, scores: Mapping[str, int]) -> None:
        self.scores = scores
        self.asked: dict[TurnKey, tuple[str, int]] = {}

    async def __call__(self, request: Request) -> Generation:
        self.asked[request.turn] = (request.prompt, request.seed)
        solution = request.turn[1][:5]
        text = "right" if solution == "r1.s0" else "false"
        if request.role == "scoring":
            text = f"<score>{self.scores[solution]}</score>"
        return generation(text)


SCORES = {"r0.s0": 1, "r0.s1": 2, "r1.s0": 3, "r1.s1": 2}


def discuss(talk: Talk, *, gold: str = "right") -> dict[str, float | None]:
    return validate_discussions(
        QuestionSet(tuple(QUESTIONS), {question.question_id: gold for question in QUESTIONS}),
        Config(
            society=Society(num_agents=2),
            interaction=Interaction(schedule="parallel", num_rounds=2, prompt_reuse=4),
        ),
        generate=talk,
        verifier=Judge(),  # type: ignore[arg-type]
    )


def test_accuracy_is_that_of_the_last_round_and_effectiveness_is_over_all_solutions():
    metrics = discuss(Talk(SCORES))
    assert metrics["validation/discussion/accuracy"] == 1 / 2  # of two solutions in round 1
    assert metrics["validation/discussion/accuracy/math"] == 1 / 2
    assert metrics["validation/discussion/verifier_failures"] == 0
    prefix = "validation/discussion/reward_effectiveness"
    # Of each discussion 1 solution is correct. From score 2 on 3 are said to be, from 3 on 1.
    assert metrics[f"{prefix}/from_score_2/precision"] == pytest.approx(1 / 3)
    assert metrics[f"{prefix}/from_score_2/balanced_accuracy"] == pytest.approx((1 + 1 / 3) / 2)
    assert metrics[f"{prefix}/from_score_3/balanced_accuracy"] == 1
    assert metrics["validation/discussion/scoring/confusion/score_2/incorrect"] == 2 * 3


def test_every_question_is_discussed_once_and_alike_at_each_validation():
    first, second = Talk(SCORES), Talk(SCORES)
    discuss(first)
    discuss(second)
    assert first.asked == second.asked
    assert len(first.asked) == 3 * 2 * 2 * 3  # questions, rounds, agents, roles


def test_what_the_verifier_says_reaches_neither_prompts_nor_seeds():
    truth, lie = Talk(SCORES), Talk(SCORES)
    accuracies = [
        discuss(talk, gold=gold)["validation/discussion/accuracy"]
        for talk, gold in ((truth, "right"), (lie, "false"))
    ]
    assert accuracies == [1 / 2, 1 / 2]
    assert truth.asked == lie.asked


@pytest.mark.parametrize("num_solvers", [1, 2])
def test_a_discussion_that_could_not_be_held_is_as_many_unanswered_solutions(num_solvers):
    def held(name: str, *rounds: int) -> Discussion:
        turns = (turn(f"r{r}.s{i}") for r in rounds for i in range(num_solvers))
        return discussion(*turns, name=name)

    discussions = [held("a", 0, 1), held("b"), held("c", 0)]
    verdicts = {(d.discussion_id, t.turn_id): "correct" for d in discussions for t in d.turns}
    assert last_solutions(discussions, verdicts) == [  # type: ignore[arg-type]
        *[("math", "correct")] * num_solvers,
        *[("math", "unanswered")] * 2 * num_solvers,
    ]
