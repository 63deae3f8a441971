"""Rewards of equations 7 and 8, of the controls and of a majority, computed by hand."""

import time
from collections import Counter

import pytest
from builders import discussion, paid, turn
from hypothesis import given
from hypothesis import strategies as st
from tables import case_file, cases

from comas.reward_formulation import REWARD_SCHEMES, RewardScheme
from comas.reward_formulation.interaction_reward import interaction_reward, parse_score
from comas.reward_formulation.judgment_reward import parse_judgment
from comas.reward_formulation.self_rewarding import parse_rating
from comas.run.metrics.step import rollout_metrics
from comas.types import Discussion, Domain, Question, RewardedDiscussion, Rewards, Turn


def said(turns: str) -> list[Turn]:
    """Turns by their ids, with the scores of scorings: "r0.s0 r0.s0.e0 r0.s0.e0.t0=3"."""
    told = [word.partition("=")[::2] for word in turns.split()]
    return [turn(name, f"Fine. <score>{score}</score>" if score else "") for name, score in told]


@cases("turns, rewards")
def test_solver_and_evaluator_share_a_point_and_an_invalid_score_costs_its_scorer(turns, rewards):
    assert paid("interaction", discussion(*said(turns))) == [tuple(rewards)]


def test_rates_count_all_scorings_and_means_the_turns_that_were_rewarded():
    turns = said("r0.s0 r0.s0.e0 r0.s0.e0.t0=3 r0.s0.e1 r0.s0.e1.t0=good")
    assert interaction_reward([discussion(*turns)]).metrics == {"scoring/invalid_rate": 0.5}
    assert interaction_reward([]).metrics == {"scoring/invalid_rate": None}
    turns = [turn("r0.s0"), turn("r0.s1", agent=1), turn("r0.s2", agent=1)]
    item = RewardedDiscussion(discussion(*turns), (1.0, 0.5, None))
    metrics = rollout_metrics([item], num_agents=2)
    assert metrics["reward/solution"] == 0.75  # (1 + 0.5) / 2
    assert metrics["agent_0/reward/solution"] == 1 and metrics["agent_1/reward/solution"] == 0.5


@cases("text, score")
def test_only_an_unambiguous_score_is_read(text, score):
    assert parse_score(text) == score


@cases("said, rating", (0, 0), (" 5 ", 5), ("6", None), ("4</rating> or <rating>3", None))
def test_a_rating_is_read_as_a_score_is(said, rating):
    assert parse_rating(f"So. <rating>{said}</rating>") == rating


@pytest.mark.parametrize("collapsed", ["<score>", "</score>", "<score>3", "<", "<score"])
@pytest.mark.parametrize("parse", [parse_score, parse_judgment, parse_rating])
def test_a_collapsed_response_is_read_in_linear_time(parse, collapsed):
    text = collapsed.replace("score", parse.__name__.removeprefix("parse_")) * 50_000
    started = time.process_time()
    assert parse(text) is None
    assert time.process_time() - started < 5


def test_a_scheme_is_handed_what_it_asks_for_and_nothing_else():
    def pay(discussions, *, verdicts):
        right = verdicts["d", "r0.s0"] == "correct"
        return Rewards([RewardedDiscussion(d, (right / 2,)) for d in discussions])

    def never():
        raise AssertionError("nobody needs it")

    scheme = RewardScheme(pay, needs=("verdicts",))
    held = [discussion(turn("r0.s0"))]
    [item] = scheme(held, lambda: {("d", "r0.s0"): "correct"}, seed=0, step=1).discussions
    assert item.rewards == (0.5,)
    ours = REWARD_SCHEMES["interaction"](held, never, seed=0, step=1)
    assert ours.discussions[0].rewards == (None,)
    for wrong in ([(held[0], [1.0])], [RewardedDiscussion(held[0], None)]):  # type: ignore
        with pytest.raises(ValueError, match="let it"):
            RewardScheme(lambda _, wrong=wrong: Rewards(wrong, None))(held, dict, seed=0, step=0)  # type: ignore


@cases("judgments, rewards")
def test_without_scoring_the_judgments_are_votes(judgments, rewards):
    said = [turn(f"r0.s0.e{i}", f"<judgment>{t}</judgment>") for i, t in enumerate(judgments)]
    assert paid("judgment", discussion(turn("r0.s0"), *said)) == [tuple(rewards)]
    if len(judgments) == 3:
        held = [discussion(turn("r0.s0"), *said, said[0])]
        found = REWARD_SCHEMES["judgment"](held, dict, seed=0, step=0).metrics
        invalid = 0.25 * judgments.count("perhaps")
        assert found == {"judgment/approval_rate": 0.75 - invalid, "judgment/invalid_rate": invalid}


def scored(number: int, score: int | None) -> Discussion:
    said = "no idea" if score is None else f"<score>{score}</score>"
    turns = turn("r0.s0"), turn("r0.s0.e0"), turn("r0.s0.e0.t0", said)
    return discussion(*turns, name=f"d{number}")


def rewards(name: str, *scores: int | None, verdicts=(), seed: int = 0, step: int = 1):
    discussions = [scored(number, score) for number, score in enumerate(scores)]
    of_turns = {(f"d{number}", "r0.s0"): verdict for number, verdict in enumerate(verdicts)}
    rewarded = REWARD_SCHEMES[name](discussions, lambda: of_turns, seed=seed, step=step)
    assert [item.discussion for item in rewarded.discussions] == discussions
    assert rewarded.metrics == {"scoring/invalid_rate": scores.count(None) / len(scores)}
    return [item.rewards for item in rewarded.discussions]


@cases("name, of_3, of_2, of_1, of_none")
def test_what_a_control_makes_of_each_score(name, of_3, of_2, of_1, of_none):
    assert rewards(name, 3, 2, 1, None) == [*map(tuple, (of_3, of_2, of_1, of_none))]


VERDICTS = ("correct", "wrong", "unanswered", "failed", "correct", "correct")
UNKNOWN = (None, None, None)


@cases(
    "name, expected",
    # 1 for the correct ones, 0 for others, whatever is said
    ("verifier", [(1, None, 0), *[(0, None, 0)] * 2, UNKNOWN, (1, None, -1), (1, None, 0)]),
    # as if the score were 3 for the correct ones, 1 for others
    ("verifier_climbing", [(1, 0, 0), *[(0, 1, 0)] * 2, UNKNOWN, (1, 0, -1), (1, 0, 0)]),
)
def test_a_verifier_pays_no_evaluation_or_as_a_right_scorer_would(name, expected):
    assert rewards(name, 1, 3, 2, 3, None, 3, verdicts=VERDICTS) == expected
    assert REWARD_SCHEMES[name].sees_verdicts


@given(st.lists(st.sampled_from([1, 2, 3, None]), min_size=1), st.integers(0, 5))
def test_shuffled_rewards_are_those_of_the_paper_dealt_anew(scores, seed):
    plain, shuffled = rewards("interaction", *scores), rewards("shuffled", *scores, seed=seed)
    for place in range(2):  # solutions, evaluations
        assert Counter(r[place] for r in shuffled) == Counter(r[place] for r in plain)
    assert [r[2] for r in shuffled] == [r[2] for r in plain]


def test_a_shuffle_follows_the_seed_and_deals_none_where_nothing_is():
    scores = [1, 3] * 50
    first, again, other = (rewards("shuffled", *scores, seed=seed) for seed in (0, 0, 1))
    assert first == again != other
    assert rewards("shuffled", *scores, step=2) != first
    # Hypergeometric: mean 50, standard deviation 5.
    same = sum(r[0] == (score - 1) / 2 for r, score in zip(first, scores, strict=True))
    assert 25 < same < 75
    assert {sum(each[:2]) for each in first} > {1.0}  # solutions and evaluations are dealt apart
    assert paid("shuffled", discussion(turn("r0.s0")), scored(1, 3)) == [(None,), (1.0, 0.0, 0.0)]


def held(question_id: str, *texts: str, domain: Domain = "math") -> Discussion:
    """A discussion of a question in which these solutions were said."""
    question = Question(question_id, domain, "?")
    return discussion(*(turn(f"r0.s{i}", text) for i, text in enumerate(texts)), question=question)


def boxed(answer: str) -> str:
    return f"So it is \\boxed{{{answer}}}."


NESTED = "{" * 10_000 + "7" + "}" * 10_000


@cases(
    "answers, expected",
    *case_file("reward_formulation")["MAJORITIES"],
    ([[NESTED, NESTED, "7"]], [[1, 1, 0]]),  # too long for an answer: to look in it takes hours
)
def test_the_majority_of_all_copies_is_the_label(answers, expected):
    copies = [held("q", *map(boxed, own)) for own in answers]
    expected = [*map(tuple, expected)]
    assert paid("majority", *copies) == expected
    # A question has a majority of its own.
    others = [held("b", boxed("2"))] * 9
    assert paid("majority", *copies, *others) == expected + [(1,)] * 9


def test_what_has_no_box_has_no_vote():
    assert paid("majority", held("q", "7", "7", boxed("8"))) == [(0.0, 0.0, 1.0)]
    assert paid("majority", held("q", "no idea"), held("q", "\\boxed{}")) == [(None,)] * 2
    assert paid("majority", held("q", boxed("7"), domain="coding")) == [
        (None,)
    ]  # a constant would count
