"""TTRL: pseudo-labels by majority, computed by hand, and no way by which an answer reaches them."""

import pytest
from builders import discussion, turn
from tables import cases

from comas.policy_optimization.samples import collect_samples
from comas.reward_formulation import REWARD_SCHEMES
from comas.run.metrics.step import rollout_metrics
from comas.types import Discussion, Domain, Question

SCHEME = REWARD_SCHEMES["majority"]


def held(question_id: str, *texts: str, domain: Domain = "math") -> Discussion:
    """A discussion of a question in which these solutions were said."""
    question = Question(question_id, domain, "?")
    return discussion(*(turn(f"r0.s{i}", text) for i, text in enumerate(texts)), question=question)


def boxed(answer: str) -> str:
    return f"So it is \\boxed{{{answer}}}."


def rewards(*discussions: Discussion) -> list[tuple[float | None, ...]]:
    return [item.rewards for item in SCHEME(discussions, evidence={}).discussions]


NESTED = "{" * 50_000 + "7" + "}" * 50_000


@cases(
    "answers, expected",
    ([["7"], ["8"], ["7"], ["9"], ["7"]], [(1,), (0,), (1,), (0,), (1,)]),  # 3 of 5 votes
    # Rounds and agents vote as copies do: 8 has 2 of 3.
    ([["7", "8"], ["8"]], [(0, 1), (1,)]),
    # The first given wins a tie.
    ([["8"], ["7"], ["7"], ["8"]], [(1,), (0,), (0,), (1,)]),
    # Spelled alike; and what is too long to be an answer, in which to look would take hours.
    ([[r"\dfrac{1}{2}", r" \frac 12 ", "3"]], [(1, 1, 0)]),
    ([[NESTED, NESTED, "7"]], [(1, 1, 0)]),
    ids=["copies", "rounds", "tie", "spellings", "too long"],
)
def test_the_majority_of_all_copies_is_the_label(answers, expected):
    copies = [held("q", *map(boxed, own)) for own in answers]
    assert rewards(*copies) == expected
    # A question has a majority of its own.
    assert rewards(*copies, *[held("b", boxed("2"))] * 9) == expected + [(1,)] * 9


def test_what_has_no_box_has_no_vote():
    assert rewards(held("q", "7", "7", boxed("8"))) == [(0.0, 0.0, 1.0)]
    assert rewards(held("q", "no idea"), held("q", "\\boxed{}")) == [(None,)] * 2


def test_the_share_of_the_majority_is_a_mean_over_questions_that_voted():
    discussions = [
        held("a", boxed("7"), boxed("7"), "x", "y"),
        held("b", boxed("1")),
        held("c", "no idea"),
        held("d", boxed("1"), domain="science"),
    ]
    assert SCHEME(discussions, evidence={}).metrics == {"majority/share": (2 / 4 + 1 / 1) / 2}


@pytest.mark.parametrize("domain", ["coding", "science"])
def test_coding_and_science_contribute_no_gradient(domain):
    """No sample, so no advantage: a constant reward beside those of math would become one."""
    discussions = [held("other", boxed("7"), domain=domain), held("math", boxed("7"), boxed("8"))]
    rewarded = SCHEME(discussions, evidence={}).discussions
    assert rewarded[0].rewards == (None,)
    [buffer] = collect_samples(rewarded, policy_of_agent=[0], mask_truncated=True)
    assert {sample.question_id for sample in buffer} == {"math"}
    assert collect_samples(rewarded[:1], policy_of_agent=[0], mask_truncated=True) == [[]]
    metrics = rollout_metrics(rewarded[:1], num_agents=1)
    assert metrics["reward/solution"] is None and metrics["response_length"] == 1
