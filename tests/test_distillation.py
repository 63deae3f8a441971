"""The best paid agent teaches the others; numbers by hand."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from builders import discussion, turn

from comas.ideas.distillation import distilled
from comas.types import Discussion, Rewards, TrainingSample, Turn

LOGPROBS = {0: (-0.5, -1.0), 1: (-1.0, -2.0), 2: (-3.0, -0.0)}
"""Of the two tokens of every response, under each agent's policy."""


def logprobs(samples: Sequence[TrainingSample]) -> list[Sequence[float]]:
    return [LOGPROBS[sample.agent_index] for sample in samples]


def said(turn_id: str, *, agent: int, text: str = "", prompt: str = "") -> Turn:
    spoken = turn(turn_id, text, agent=agent)
    tokens = replace(spoken.generation, response_token_ids=(2, 3), rollout_logprobs=(-0.1, -0.1))
    return replace(spoken, generation=tokens, prompt=prompt or f"{turn_id}?")


def talk(*scores: int, prompt: str = "question") -> Discussion:
    """Each agent's solution with that score; the next agent evaluates, and the one after scores."""
    turns: list[Turn] = []
    for i, score in enumerate(scores):
        turns += said(f"r0.s{i}", agent=i, prompt=prompt), said(f"r0.s{i}.e0", agent=(i + 1) % 3)
        turns.append(said(f"r0.s{i}.e0.t0", agent=(i + 2) % 3, text=f"<score>{score}</score>"))
    return discussion(*turns)


def paid(*discussions: Discussion) -> Rewards:
    return distilled(discussions, evidence={"response_logprobs": lambda: logprobs})


def test_students_are_paid_what_their_teacher_finds_likelier_and_the_teacher_as_in_the_paper():
    found = paid(talk(3, 1, 2))
    # Agent 0 teaches: its solution has 3. By agent 1: -1.5 - (-3) = 1.5; by agent 2: -1.5 + 3.
    # By agent 0: its solution 1, the scoring of agent 1's 0, the evaluation of agent 2's 1/2.
    assert found.discussions[0].rewards == (1.0, 1.5, 1.5, 1.5, 1.5, 0.0, 1.5, 0.5, 1.5)
    assert found.metrics["distillation/teacher"] == 0
    assert found.metrics["distillation/kl"] == -6 * 1.5 / 12  # of 6 responses of 2 tokens


def test_whoever_has_the_best_scores_teaches():
    found = paid(talk(1, 3, 2))
    # Agent 1 teaches: agent 0 is paid -3 - (-1.5), agent 2 -3 - (-3).
    assert [found.discussions[0].rewards[i] for i in (0, 3, 6)] == [-1.5, 1.0, 0.0]


def test_who_is_not_known_to_read_as_the_teacher_does_is_not_trained():
    apart = talk(3, 1, 2)
    *turns, _, _, _ = apart.turns
    other = replace(said("r0.s2", agent=2), prompt="another question")
    found = paid(replace(apart, turns=(*turns, other))).discussions[0].rewards
    assert found[6] is None and found[2] is None  # r0.s2 and r0.s0.e0.t0, of agent 2
    assert found[3] == 1.5  # r0.s1, of agent 1


def test_another_tokenizer_is_an_error_that_names_the_agents():
    first, *others = talk(3, 1, 2).turns
    other = replace(first, generation=replace(first.generation, prompt_token_ids=(9, 9)))
    with pytest.raises(ValueError, match=r"agent 0 into agent 1, who have different tokenizers"):
        paid(discussion(other, *others))
