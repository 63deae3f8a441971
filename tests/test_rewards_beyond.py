"""Rewards beyond the paper's, computed by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from builders import discussion, turn

from comas.reward_formulation import REWARD_SCHEMES
from comas.types import Discussion, Question, Rewards, Turn


def scored(question_id: str, *scores: int | None) -> Discussion:
    """A solution with one evaluation and its scorings."""
    texts = ["none" if score is None else f"<score>{score}</score>" for score in scores]
    scorings = [turn(f"r0.s0.e0.t{i}", text) for i, text in enumerate(texts)]
    said = (turn("r0.s0"), turn("r0.s0.e0"), *scorings)
    return discussion(*said, question=Question(question_id, "math", "?"))


def paid(scheme: str, *discussions: Discussion) -> Rewards:
    return REWARD_SCHEMES[scheme](discussions, evidence={})


def scorings_paid(*discussions: Discussion) -> list[tuple[float | None, ...]]:
    return [item.rewards[2:] for item in paid("peer_prediction", *discussions).discussions]


# ---------------------------------------------------------------- peer prediction


def test_agreement_pays_beyond_what_strangers_say():
    # Of question b half say 3; of a all say 3 and none 1.
    rewards = paid("peer_prediction", scored("a", 3, 3), scored("b", 1, 3))
    first, second = (item.rewards for item in rewards.discussions)
    assert first == (1.0, 0.0, 0.25, 0.25)
    assert second == (0.5, 0.5, 0.0, -0.5)
    assert rewards.metrics == {
        "scoring/invalid_rate": 0.0,
        "scoring/agreement": 0.5,
        "scoring/agreement_by_chance": pytest.approx((0.5 + 0.5 + 0 + 1) / 4),
    }


def test_to_say_the_same_of_everything_pays_nothing():
    assert scorings_paid(scored("a", 3, 3), scored("b", 3, 3)) == [(0.0, 0.0), (0.0, 0.0)]


def test_a_scorer_who_reads_gains_and_one_who_guesses_does_not():
    read = scorings_paid(scored("a", 3, 3), scored("b", 1, 1))
    assert read == [(0.5, 0.5), (0.5, 0.5)]
    guessed = scorings_paid(scored("a", 3, 1), scored("b", 3, 1))
    assert all(reward < 0 for own in guessed for reward in own)


def test_copies_of_a_question_are_no_strangers():
    assert scorings_paid(scored("a", 3, 3), scored("a", 1, 1)) == [(0.0, 0.0), (0.0, 0.0)]


def test_who_has_no_peer_gets_nothing_and_who_gives_no_score_pays():
    assert scorings_paid(scored("a", 3), scored("b", 1, None)) == [(0.0,), (0.0, -1.0)]


# ---------------------------------------------------------------- pairwise


def solutions(*scores: int | None) -> Discussion:
    """Solutions with an evaluation each; None: nobody scored it."""
    said: list[Turn] = []
    for i, score in enumerate(scores):
        said += [turn(f"r0.s{i}"), turn(f"r0.s{i}.e0")]
        if score is not None:
            said.append(turn(f"r0.s{i}.e0.t0", f"<score>{score}</score>"))
    return discussion(*said)


def test_a_solution_is_paid_for_those_that_it_is_scored_above():
    [item] = paid("pairwise", solutions(3, 2, 2)).discussions
    assert item.rewards == (1.0, 0.0, 0.0, 0.25, 0.75, 0.0, 0.25, 0.75, 0.0)


def test_a_judge_who_approves_of_everything_pays_all_the_same():
    [item] = paid("pairwise", solutions(3, 3, 3, 3)).discussions
    assert item.rewards == (0.5, 0.5, 0.0) * 4


def test_what_cannot_be_compared_is_not_trained():
    [alone] = paid("pairwise", solutions(3)).discussions
    assert alone.rewards == (None, None, 0.0)
    [two] = paid("pairwise", solutions(3, None, 1)).discussions
    assert two.rewards == (1.0, 0.0, 0.0, None, None, 0.0, 1.0, 0.0)


# ---------------------------------------------------------------- a vote by confidence


def said_with(probability: float, answer: str, *, place: int) -> Turn:
    spoken = turn(f"r0.s{place}", rf"\boxed{{{answer}}}")
    logprobs = (math.log(probability), math.log(probability))
    return replace(spoken, generation=replace(spoken.generation, rollout_logprobs=logprobs))


def test_a_confident_solution_outvotes_two_doubtful_ones():
    votes = ((0.9, "7"), (0.4, "8"), (0.4, "8"))
    said = discussion(*(said_with(p, a, place=i) for i, (p, a) in enumerate(votes)))
    assert paid("majority", said).discussions[0].rewards == (0.0, 1.0, 1.0)
    by_confidence = paid("confident_majority", said)
    assert by_confidence.discussions[0].rewards == (1.0, 0.0, 0.0)
    assert by_confidence.metrics == {"majority/share": pytest.approx(1 / 3)}
