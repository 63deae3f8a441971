"""Held-out questions are answered by each agent alone, on seeds that stay the same."""

from __future__ import annotations

import asyncio

from comas.types import Generation, Question, TurnKey
from comas.validation import answer_alone

QUESTIONS = [Question(f"q{i}", "math", f"What is {i} + {i}?") for i in range(3)]


def ask(*, num_agents: int = 2, seed: int = 0, overlong: str = "") -> list[list[str]]:
    async def generate(
        agent_index: int, prompt: str, *, turn: TurnKey, seed: int
    ) -> Generation | None:
        question = next(q for q in QUESTIONS if q.text in prompt)
        if question.question_id == overlong:
            return None
        text = f"agent {agent_index}, {question.question_id}, seed {seed}"
        return Generation((1,), (2,), text, (-0.5,), "stop", policy_version=0)

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
