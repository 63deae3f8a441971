"""Instruments of collapse, by numbers computed by hand."""

import math
from dataclasses import replace

import pytest
from builders import discussion, turn
from tables import cases

from comas.ideas.confident_majority import confidence
from comas.run.metrics.instruments import Rewarded, entropy, instruments, reliability, reward_noise
from comas.types import RewardedDiscussion, Turn


def said(turn_id: str, text: str = "", *, agent: int = 0, probability: float = 0.5) -> Turn:
    spoken = turn(turn_id, text, agent=agent)
    logprobs = (math.log(probability),)
    return replace(spoken, generation=replace(spoken.generation, rollout_logprobs=logprobs))


def judged(name: str, *, solver: int, probability: float, reward: float) -> RewardedDiscussion:
    """A solution that the other one of two agents evaluates and its solver scores."""
    said_of_it = discussion(
        said("r0.s0", rf"\boxed{{{name}}}", agent=solver, probability=probability),
        said("r0.s0.e0", "It is wrong.", agent=1 - solver),
        said("r0.s0.e0.t0", f"<score>{round(1 + 2 * reward)}</score>", agent=solver),
        name=name,
    )
    return RewardedDiscussion(said_of_it, (reward, 1 - reward, 0.0))


BATCH = [
    judged("a", solver=0, probability=0.9, reward=1.0),
    judged("b", solver=0, probability=0.3, reward=0.0),
    judged("c", solver=1, probability=0.6, reward=0.5),
    judged("d", solver=1, probability=0.6, reward=1.0),
]
VERDICTS = {
    (name, "r0.s0"): verdict
    for name, verdict in zip("abcd", ("wrong", "correct", "unanswered", "correct"), strict=True)
}


def test_noise_its_skew_and_its_self_bias_are_those_counted_by_hand():
    known = [
        Rewarded(1.0, 0.9, 0.0),
        Rewarded(0.0, 0.3, 1.0),
        Rewarded(0.5, 0.6, 0.0),
        Rewarded(1.0, 0.6, 1.0),
    ]
    # Errors 1, -1, 1/2, 0 of mean 1/8; confidences 0.9, 0.3, 0.6, 0.6 of mean 0.6.
    covariance = 0.3 * 7 / 8 + 0.3 * 9 / 8
    norms = math.sqrt(2 * 0.3**2) * math.sqrt((7**2 + 9**2 + 3**2 + 1) / 8**2)
    assert reward_noise([Rewarded(1.0, 0.9, 1.0)]) == {
        "instruments/noise": 0.0,
        "instruments/skew": None,
        "instruments/self_bias": None,
    }
    assert reward_noise([*known, Rewarded(1.0, 0.1, None)]) == pytest.approx(
        {
            "instruments/noise": 2.5 / 4,
            "instruments/skew": 0.5 / 2.5,
            "instruments/self_bias": covariance / norms,
        }
    )


def test_tokens_of_a_tool_make_no_solution_more_confident():
    item = judged("a", solver=0, probability=0.25, reward=1.0)
    generation = item.discussion.turns[0].generation
    with_tool = replace(
        generation, rollout_logprobs=(math.log(0.25), 0.0, 0.0), sampled=(True, False, False)
    )
    assert list(with_tool.sampled_logprobs) == [math.log(0.25)]
    solution = replace(item.discussion.turns[0], generation=with_tool)
    turns = (solution, *item.discussion.turns[1:])
    spoken = replace(item, discussion=replace(item.discussion, turns=turns))
    plain = judged("a", solver=0, probability=0.25, reward=1.0)
    measured = [
        instruments([first, *BATCH[1:]], verdicts=VERDICTS, num_agents=2)
        for first in (spoken, plain)
    ]
    assert measured[0] == measured[1]
    assert confidence(spoken.discussion, solution) == pytest.approx(0.25)


@cases(
    "answers, expected",
    # Equal answers are 0.5 apart, different ones 1 and 0.5.
    ({"q": [("7", 1.0), ("7", 0.5), ("8", 0.0)]}, 1 - 0.25 / ((1 + 0.25) / 2)),
    ({"q": [("7", 1.0), ("7", 1.0), ("8", 0.0)]}, 1.0),
    # Other questions are not compared with: those two pairs alone.
    ({"q": [("7", 1.0), ("7", 0.0)], "r": [("7", 1.0), ("8", 0.0)]}, 0.0),
    ({"q": [("7", 1.0), ("8", 0.0)]}, None),
    ({"q": [("7", 1.0), ("7", 1.0), ("8", 1.0)]}, None),
    ({}, None),
)
def test_a_reward_is_reliable_where_it_depends_on_the_answer(answers, expected):
    found = reliability(answers)
    assert found == (None if expected is None else pytest.approx(expected))


def test_the_entropy_of_scores_is_zero_where_all_are_the_same():
    assert entropy([3, 3, 3]) == 0.0
    assert entropy([1, 1, 3, 3]) == pytest.approx(math.log(2))
    assert entropy([None, 1, 2, 3]) == pytest.approx(math.log(4))
    assert entropy([]) is None


def test_a_batch_shows_what_its_judges_do():
    shown = instruments(BATCH, verdicts=VERDICTS, num_agents=2)
    # Scores 3, 1, 2, 3; every evaluation is the same; one solution in each discussion.
    assert shown["instruments/score_entropy"] == pytest.approx(
        0.5 * math.log(2) + 0.5 * math.log(4)
    )
    assert shown["instruments/commonest_evaluation"] == 1.0
    assert shown["instruments/diversity"] is None
    assert shown["instruments/noise"] == pytest.approx(2.5 / 4)
    # Agent 1 evaluated the solutions with 1 and 0, agent 0 those with 0.5 and 1.
    assert shown["agent_0/influence/evaluation"] == pytest.approx(0.25)
    assert shown["agent_1/influence/evaluation"] == pytest.approx(-0.25)
    assert shown["agent_0/influence/scoring"] == pytest.approx(-0.25)
    assert shown["response_length/scoring"] == 1.0


def test_coupling_needs_no_verdicts():
    shown = instruments(BATCH, verdicts={}, num_agents=2)
    # Rewards 1, 0, 1/2, 1 of mean 5/8; confidences as above.
    covariance = 0.3 * 3 / 8 + 0.3 * 5 / 8
    norms = math.sqrt(2 * 0.3**2) * math.sqrt((3**2 + 5**2 + 1 + 3**2) / 8**2)
    assert shown["instruments/coupling"] == pytest.approx(covariance / norms)
    assert shown["instruments/noise"] is None


def test_reliability_compares_the_solutions_of_a_question_in_all_its_discussions():
    first, second = (
        discussion(*(said(f"r0.s{i}", rf"\boxed{{{n}}}") for i, n in enumerate(numbers)))
        for numbers in ((7, 7, 8), (8, 8))
    )
    rewarded = [RewardedDiscussion(first, (1.0, 0.5, 0.0)), RewardedDiscussion(second, (0.5, None))]
    shown = instruments(rewarded, verdicts={}, num_agents=1)
    # By pairs within a discussion: 7 and 7, 7 and 8, 7 and 8, and 8 and 8.
    assert shown["instruments/diversity"] == pytest.approx(2 / 4)
    assert shown["agent_0/influence/evaluation"] is None
    # Sevens are 0.5 apart, eights, too; a seven and an eight 1, 0.5, 0.5 and 0.
    assert shown["instruments/reliability"] == pytest.approx(1 - 0.25 / (1.5 / 4))
