"""The controls: rewards from which what the scorer decides is taken away, computed by hand."""

from collections import Counter
from random import Random

from builders import discussion, turn
from hypothesis import given
from hypothesis import strategies as st
from tables import cases

from comas.reward_formulation import REWARD_SCHEMES, offer_evidence
from comas.types import Discussion


def scored(number: int, score: int | None) -> Discussion:
    """A solution, its evaluation and its scoring."""
    said = "no idea" if score is None else f"<score>{score}</score>"
    turns = turn("r0.s0"), turn("r0.s0.e0"), turn("r0.s0.e0.t0", said)
    return discussion(*turns, name=f"d{number}")


def rewards(name: str, *scores: int | None, verdicts=(), seed: int = 0):
    discussions = [scored(number, score) for number, score in enumerate(scores)]
    of_turns = {(f"d{number}", "r0.s0"): verdict for number, verdict in enumerate(verdicts)}
    evidence = offer_evidence(lambda: of_turns, seed=seed, step=1)
    rewarded = REWARD_SCHEMES[name](discussions, evidence=evidence)
    assert [item.discussion for item in rewarded.discussions] == discussions
    assert rewarded.metrics == {
        "scoring/invalid_rate": sum(score is None for score in scores) / len(scores)
    }
    return [item.rewards for item in rewarded.discussions]


@cases(
    "name, of_3, of_2, of_1, of_none",
    # (score - 1) / 2, the rest to the evaluator
    ("interaction", (1.0, 0.0, 0.0), (0.5, 0.5, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, -1.0)),
    # 1 - (3 - 1) / 2 = 0 and 1 - 0 = 1; 1 - 0 = 1 and 1 - 1 = 0
    ("flipped", (0.0, 1.0, 0.0), (0.5, 0.5, 0.0), (1.0, 0.0, 0.0), (0.0, 0.0, -1.0)),
    # (2 - 1) / 2 whatever is said, and the format still counts
    ("constant", (0.5, 0.5, 0.0), (0.5, 0.5, 0.0), (0.5, 0.5, 0.0), (0.5, 0.5, -1.0)),
    # (3 - 1) / 2
    ("approving", (1.0, 0.0, 0.0), (1.0, 0.0, 0.0), (1.0, 0.0, 0.0), (1.0, 0.0, -1.0)),
)
def test_what_a_control_makes_of_each_score(name, of_3, of_2, of_1, of_none):
    assert rewards(name, 3, 2, 1, None) == [of_3, of_2, of_1, of_none]


def test_the_verifier_is_a_scorer_who_is_always_right():
    verdicts = ("correct", "wrong", "unanswered", "failed", "correct")
    assert rewards("verifier", 1, 3, 3, 3, None, verdicts=verdicts) == [
        (1.0, 0.0, 0.0),  # scored 1, and correct: as if it were 3
        (0.0, 1.0, 0.0),
        (0.0, 1.0, 0.0),
        (None, None, None),  # nothing is known of it
        (1.0, 0.0, -1.0),  # the format still counts
    ]


@given(st.lists(st.sampled_from([1, 2, 3, None]), min_size=1), st.integers(0, 5))
def test_shuffled_rewards_are_those_of_the_paper_dealt_anew(scores, seed):
    plain, shuffled = rewards("interaction", *scores), rewards("shuffled", *scores, seed=seed)
    for place in range(2):  # solutions, evaluations
        assert Counter(r[place] for r in shuffled) == Counter(r[place] for r in plain)
    assert [r[2] for r in shuffled] == [r[2] for r in plain]


def test_a_shuffle_follows_the_seed_and_breaks_the_tie_between_score_and_reward():
    scores = [1, 3] * 50
    first, again, other = (rewards("shuffled", *scores, seed=seed) for seed in (0, 0, 1))
    assert first == again != other
    same = sum(r[0] == (score - 1) / 2 for r, score in zip(first, scores, strict=True))
    # Hypergeometric: mean 50, standard deviation 5.
    assert 25 < same < 75
    pairs = Counter(solution + evaluation for solution, evaluation, _ in first)
    assert set(pairs) > {1.0}  # solutions and evaluations are dealt apart


def test_what_has_no_reward_is_dealt_none():
    discussions = [discussion(turn("r0.s0")), scored(1, 3)]
    rewarded = REWARD_SCHEMES["shuffled"](discussions, evidence={"rng": lambda: Random(0)})
    assert [item.rewards for item in rewarded.discussions] == [(None,), (1.0, 0.0, 0.0)]


def test_only_the_upper_bound_sees_verdicts():
    controls = ("flipped", "shuffled", "constant", "approving")
    assert not any(REWARD_SCHEMES[name].sees_verdicts for name in controls)
    assert REWARD_SCHEMES["verifier"].sees_verdicts
