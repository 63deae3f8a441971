"""Equations 7 and 8, computed by hand."""

from __future__ import annotations

import re
import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comas.reward_formulation import REWARD_SCHEMES, RewardScheme
from comas.reward_formulation.interaction_reward import interaction_reward, parse_score
from comas.reward_formulation.judgment_reward import parse_judgment
from comas.reward_formulation.self_rewarding import parse_rating
from comas.run.metrics.step import rollout_metrics
from comas.types import Discussion, Generation, Question, RewardedDiscussion, Rewards, Turn

NUM_REPEATED = 50_000


def turn(turn_id: str, text: str = "") -> Turn:
    parent, _, _ = turn_id.rpartition(".")
    role = {"s": "solution", "e": "evaluation", "t": "scoring"}[turn_id.split(".")[-1][0]]
    generation = Generation((1,), (2,), text, (-1.0,), "stop", 0)
    parent_id = parent if role != "solution" else None
    return Turn(turn_id, parent_id, 0, role, 0, "prompt", generation)  # type: ignore[arg-type]


def rewards(*turns: Turn) -> tuple[float | None, ...]:
    discussion = Discussion("d", Question("q", "math", "?"), turns)
    return interaction_reward([discussion]).discussions[0].rewards


@pytest.mark.parametrize(
    ("score", "expected"),
    [
        (3, (1.0, 0.0, 0.0)),  # (3 - 1) / 2 = 1, 1 - 1 = 0
        (2, (0.5, 0.5, 0.0)),  # (2 - 1) / 2 = 0.5
        (1, (0.0, 1.0, 0.0)),  # (1 - 1) / 2 = 0
    ],
)
def test_a_score_is_shared_between_solver_and_evaluator(score, expected):
    scoring = turn("r0.s0.e0.t0", f"Fine. <score>{score}</score>")
    assert rewards(turn("r0.s0"), turn("r0.s0.e0"), scoring) == expected


def test_an_invalid_score_costs_the_scorer_one_and_gives_the_others_nothing():
    scoring = turn("r0.s0.e0.t0", "I like it.")
    assert rewards(turn("r0.s0"), turn("r0.s0.e0"), scoring) == (0.0, 0.0, -1.0)


def test_a_solution_with_several_scores_gets_their_mean():
    assert rewards(
        turn("r0.s0"),
        turn("r0.s0.e0"),
        turn("r0.s0.e0.t0", "<score>3</score>"),
        turn("r0.s0.e1"),
        turn("r0.s0.e1.t0", "<score>2</score>"),
    ) == (0.75, 0.0, 0.0, 0.5, 0.0)  # (1 + 0.5) / 2


def test_a_turn_of_another_role_under_an_evaluation_is_no_scoring():
    remark = replace(turn("r0.s0.e0.t1", "I would add a unit."), role="evaluation")
    scoring = turn("r0.s0.e0.t0", "<score>3</score>")
    assert rewards(turn("r0.s0"), turn("r0.s0.e0"), scoring, remark) == (1.0, 0.0, 0.0, None)


def test_a_turn_that_was_never_scored_is_not_trained():
    assert rewards(turn("r0.s0"), turn("r0.s0.e0")) == (None, None)
    assert rewards(turn("r0.s0")) == (None,)


def test_each_round_is_rewarded_by_its_own_scoring():
    assert rewards(
        turn("r0.s0"),
        turn("r0.s0.e0"),
        turn("r0.s0.e0.t0", "<score>3</score>"),
        turn("r1.s0"),
        turn("r1.s0.e0"),
        turn("r1.s0.e0.t0", "<score>1</score>"),
    ) == (1.0, 0.0, 0.0, 0.0, 1.0, 0.0)


@given(st.lists(st.sampled_from(["1", "2", "3"]), min_size=1, max_size=4))
def test_solution_and_evaluation_sum_to_one_in_every_valid_pair(scores):
    for score in scores:
        of_solution, of_evaluation, _ = rewards(
            turn("r0.s0"), turn("r0.s0.e0"), turn("r0.s0.e0.t0", f"<score>{score}</score>")
        )
        assert of_solution is not None and of_evaluation is not None
        assert of_solution + of_evaluation == 1.0


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("<score>1</score>", 1),
        ("Because.\n<score> 2 </score> done", 2),
        ("<score>\n3\n</score>", 3),
        ("<score>3</score> as I said <score>3</score>", 3),
        ("<score>3</score> or <score>1</score>", None),
        ("<score>4</score>", None),
        ("<score>0</score>", None),
        ("<score>2.5</score>", None),
        ("<score>2, 3</score>", None),
        ("<score>three</score>", None),
        ("<score>3", None),
        ("3</score>", None),
        ("<score>3</score> <score>", None),
        ("<score><score>3</score></score>", None),
        ("score: 3", None),
        ("<SCORE>3</SCORE>", None),
        ("<score></score>", None),
        ("<score>\uff11</score>", None),
        ("", None),
    ],
)
def test_only_an_unambiguous_score_is_read(text, score):
    assert parse_score(text) == score


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("<Score>3</Score> <score>1</score>", 1),  # another case is no tag, but plain text
        ("<score>\u200b3</score>", None),  # a zero-width space is no white space, but content
        ("<sc\u200bore>3</score>", None),  # and it makes a tag another word
        ("<score>\u00a03\u3000</score>", 3),  # white space of any script is stripped
        ('It says "<score>3</score>", but no. <score>1</score>', None),  # a quoted tag is a tag
        ('It says "<score>1</score>", rightly. <score>1</score>', 1),
        ("```\n<score>3</score>\n```", 3),
        ("<score>1</score></score><score>", None),
        ("</score>1<score> <score>1</score>", None),
    ],
)
def test_a_score_is_read_by_its_letters_wherever_it_stands(text, score):
    assert parse_score(text) == score


@pytest.mark.parametrize("collapsed", ["<score>", "</score>", "<score>3", "<", "<score"])
@pytest.mark.parametrize("parse", [parse_score, parse_judgment, parse_rating])
def test_a_collapsed_response_is_read_in_linear_time(parse, collapsed):
    tag = parse.__name__.removeprefix("parse_")
    text = collapsed.replace("score", tag) * NUM_REPEATED
    started = time.process_time()
    assert parse(text) is None
    assert time.process_time() - started < 5


@given(st.lists(st.sampled_from(["<score>", "</score>", "1", "2", " "]), max_size=9).map("".join))
def test_pairs_are_found_as_by_the_regular_expression_of_a_pair(text):
    contents = re.findall(r"<score>(.*?)</score>", text, re.DOTALL)
    is_paired = 2 * len(contents) == len(re.findall(r"</?score>", text))
    distinct = {content.strip() for content in contents}
    expected = distinct.pop() if is_paired and len(distinct) == 1 else None
    assert parse_score(text) == (int(expected) if expected in ("1", "2", "3") else None)


@given(st.text(alphabet="<>/scoe123 \n"))
def test_any_text_gives_a_score_or_none(text):
    assert parse_score(text) in (None, 1, 2, 3)


def test_responses_that_spelt_a_mark_are_counted_by_agent():
    said = [(0, True), (1, False), (0, False), (0, True)]
    turns = []
    for number, (agent, spells) in enumerate(said):
        plain = turn(f"r{number}.s0")
        generation = replace(plain.generation, spells_mark=spells)
        turns.append(replace(plain, agent_index=agent, generation=generation))
    discussion = Discussion("d", Question("q", "math", "?"), tuple(turns))
    [rewarded] = interaction_reward([discussion]).discussions
    metrics = rollout_metrics([rewarded], num_agents=2)
    assert metrics["interaction/spelt_marks"] == 2
    assert metrics["agent_0/spelt_marks"] == 2 and metrics["agent_1/spelt_marks"] == 0


def test_the_interaction_reward_is_shown_no_verdict():
    def verdicts():
        raise AssertionError("the verifier was asked")

    discussion = Discussion("d", Question("q", "math", "?"), (turn("r0.s0"),))
    rewarded = REWARD_SCHEMES["interaction"]([discussion], evidence={"verdicts": verdicts})
    assert [item.rewards for item in rewarded.discussions] == [(None,)]


def test_a_scheme_is_handed_what_it_asks_for_and_nothing_else():
    def pay_for_correct_solutions(discussions, *, verdicts):
        rewards = (float(verdicts[d.discussion_id, "r0.s0"] == "correct") for d in discussions)
        return Rewards(
            [RewardedDiscussion(d, (r,)) for d, r in zip(discussions, rewards, strict=True)]
        )

    scheme = RewardScheme(pay_for_correct_solutions, needs=("verdicts",))
    discussions = [
        Discussion(name, Question("q", "math", "?"), (turn("r0.s0"),)) for name in ("a", "b")
    ]
    verdicts = {("a", "r0.s0"): "correct", ("b", "r0.s0"): "wrong"}
    rewarded = scheme(discussions, evidence={"verdicts": lambda: verdicts})
    assert [item.rewards for item in rewarded.discussions] == [(1.0,), (0.0,)]


def test_the_invalid_rate_counts_scorings_without_a_score_whatever_they_are_paid():
    turns = (
        turn("r0.s0"),
        turn("r0.s0.e0"),
        turn("r0.s0.e0.t0", "<score>3</score>"),
        turn("r0.s0.e1"),
        turn("r0.s0.e1.t0", "no idea"),
    )
    discussion = Discussion("d", Question("q", "math", "?"), turns)
    assert interaction_reward([discussion]).metrics == {"scoring/invalid_rate": 0.5}
    assert interaction_reward([]).metrics == {"scoring/invalid_rate": None}


def judged(*judgments: str) -> tuple[float | None, ...]:
    evaluations = [
        turn(f"r0.s0.e{i}", f"So: <judgment>{judgment}</judgment>")
        for i, judgment in enumerate(judgments)
    ]
    discussion = Discussion("d", Question("q", "math", "?"), (turn("r0.s0"), *evaluations))
    return REWARD_SCHEMES["judgment"]([discussion], evidence={}).discussions[0].rewards


@pytest.mark.parametrize(
    ("judgments", "expected"),
    [
        (("correct", "correct"), (1.0, 1.0, 1.0)),
        (("correct", "incorrect"), (0.5, 0.0, 0.0)),
        (("correct", "correct", "incorrect"), (2 / 3, 0.5, 0.5, 0.0)),
        # What holds no judgment supports nothing (1 of 3) and agrees with nobody.
        (("correct", "perhaps", "incorrect"), (1 / 3, 0.0, -1.0, 0.0)),
        (("incorrect",), (0.0, None)),  # nobody to agree with
        ((), (None,)),
    ],
)
def test_without_scoring_the_judgments_are_votes(judgments, expected):
    assert judged(*judgments) == expected


def test_judgments_are_counted():
    said = ["<judgment>correct</judgment>", "no idea", "<judgment>incorrect</judgment>", ""]
    evaluations = [turn(f"r0.s0.e{i}", text) for i, text in enumerate(said)]
    discussion = Discussion("d", Question("q", "math", "?"), (turn("r0.s0"), *evaluations))
    metrics = REWARD_SCHEMES["judgment"]([discussion], evidence={}).metrics
    assert metrics == {"judgment/approval_rate": 0.25, "judgment/invalid_rate": 0.5}
