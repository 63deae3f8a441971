"""Ideas beyond the paper, as users name them: rewards and losses, computed by hand."""

from dataclasses import replace

import builders
import pytest
import torch
from builders import discussion, turn
from small_runs import REPOSITORY
from tables import case_file

from comas.policy_optimization.batching import StepTotals
from comas.policy_optimization.losses import Targets, policy_loss
from comas.preflight.configuration import load_config
from comas.types import Discussion, Question, Turn


def paid(idea: str, *discussions: Discussion) -> list[tuple[float | None, ...]]:
    module = idea.replace("plain", "scored")
    name = idea if idea == "interaction" else f"comas.ideas.{module}:{idea}"
    return builders.paid(name, *discussions)


def judged(question_id: str, *solutions: tuple[str, int | None]) -> Discussion:
    """Solutions with these boxed answers, each with an evaluation and a scoring of it."""
    said: list[Turn] = []
    for i, (answer, score) in enumerate(solutions):
        scoring = "none" if score is None else f"<score>{score}</score>"
        said += turn(f"r0.s{i}", rf"\boxed{{{answer}}}"), turn(f"r0.s{i}.e0")
        said.append(turn(f"r0.s{i}.e0.t0", scoring))
    question = Question(question_id, "math", "?")
    return discussion(*said, question=question, name=f"{question_id}/{len(said)}")


def consistently(*discussions: Discussion) -> list[list[tuple[float | None, ...]]]:
    """(r(s), r(e), r(t)) of every solution, by discussion."""
    found = paid("consistency", *discussions)
    return [[own[i : i + 3] for i in range(0, len(own), 3)] for own in found]


def test_judges_are_paid_for_what_tells_answers_apart():
    # 7s agree with each other fully and with the 8 not at all; the 8 has no equal.
    assert consistently(judged("a", ("7", 3), ("7", 3), ("8", 1))) == [
        [(1.0, 1.0, 1.0), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0)]
    ]
    # The other way round pays as well: nobody sees what is right.
    assert consistently(judged("a", ("7", 1), ("7", 1), ("8", 3)))[0][0] == (0.0, 1.0, 1.0)
    # A judge of 7 who differs: agreement 0.5 with the 7s' other, 0.5 with the 8.
    assert consistently(judged("a", ("7", 3), ("7", 2), ("8", 1)))[0] == [
        (1.0, 0.5, 0.5),
        (0.5, 0.0, 0.0),
        (0.0, 0.0, 0.0),
    ]


@pytest.mark.parametrize("score", [1, 2, 3])
def test_a_judge_who_always_says_the_same_is_paid_nothing(score):
    (rewards,) = consistently(judged("a", ("7", score), ("7", score), ("8", score)))
    assert {own[1:] for own in rewards} == {(0.0, 0.0)}


def test_answers_with_scores_are_compared_within_a_question():
    first = judged("a", ("7", 3), ("8", 1))
    assert consistently(first, judged("a", (" 7 ", 2)), judged("b", ("7", 1), ("7", 1))) == [
        [(1.0, 0.5, 0.5), (0.0, 0.0, 0.0)],
        [(0.5, 0.0, 0.0)],
        [(0.0, 0.0, 0.0), (0.0, 0.0, 0.0)],
    ]
    # Of the 7s one holds a score, so that neither it nor the 8 has an equal.
    (rewards,) = consistently(judged("a", ("7", None), ("7", 1), ("8", 3)))
    assert rewards == [(0.0, 0.0, -1.0), (0.0, 0.0, 0.0), (1.0, 0.0, 0.0)]
    # The fourth does not count: the 7s agree fully with each other, and not at all with the 8.
    (rewards,) = consistently(judged("a", ("7", 3), ("7", 3), ("8", 1), ("8", None)))
    assert rewards == [(1.0, 1.0, 1.0), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0), (0.0, 0.0, -1.0)]


@pytest.mark.parametrize("scheme", ["interaction", "consistency", "scored_majority"])
def test_a_scoring_without_a_score_pays_its_evaluation_nothing(scheme):
    """As in the paper: 0 for the evaluation, -1 for the scoring."""
    said = judged("a", ("7", None), ("7", 1), ("8", 3), ("8", 3))
    assert paid(scheme, said)[0][1:3] == (0.0, -1.0)
    # Of two evaluations of one solution, only that with a score is paid.
    other = (turn("r0.s2.e1"), turn("r0.s2.e1.t0", "none"))
    said = replace(said, turns=(*said.turns[:9], *other, *said.turns[9:]))
    assert paid(scheme, said)[0][9:11] == (0.0, -1.0)
    # Of two scorings of one evaluation, that without a score makes half of its reward 0.
    alone = paid(scheme, judged("a", ("7", 1), ("7", 1), ("8", 3)))[0][1]
    said = judged("a", ("7", 1), ("7", 1), ("8", 3))
    said = replace(said, turns=(*said.turns[:3], turn("r0.s0.e0.t1", "none"), *said.turns[3:]))
    assert paid(scheme, said)[0][1] == pytest.approx(alone / 2)
    assert alone > 0


def elected(*discussions: Discussion) -> list[tuple[float | None, ...]]:
    """r(s) of every solution by discussion."""
    return [rewards[::3] for rewards in paid("scored_majority", *discussions)]


def test_scores_of_all_copies_elect_an_answer_and_whoever_gives_it_is_paid():
    assert elected(judged("a", ("7", 3), ("7", 2), ("8", 3))) == [(1.0, 1.0, 0.0)]
    # Two votes for what judges see to be wrong are outvoted by one; whom they accuse is paid.
    assert elected(judged("a", ("8", 1), ("8", 2), ("7", 3))) == [(0.0, 0.0, 1.0)]
    assert elected(judged("a", ("7", 1), ("7", 3), ("8", 2))) == [(1.0, 1.0, 0.0)]
    first, second = judged("a", ("8", 3)), judged("a", ("7", 3), ("7", 3))
    assert elected(first, second, judged("b", ("8", 2))) == [(0.0,), (1.0, 1.0), (1.0,)]
    assert elected(judged("a", ("7", 1), ("8", 1))) == [(0.0, 0.0)]
    coding = replace(judged("a", ("7", 2), ("8", 3)), question=Question("a", "coding", "?"))
    assert elected(coding) == [(0.5, 1.0)]


def test_a_plain_vote_counts_heads_and_not_scores():
    said = judged("a", ("8", 1), ("8", 2), ("7", 3))
    assert elected(said) == [(0.0, 0.0, 1.0)]
    assert paid("plain_majority", said)[0][::3] == (1.0, 1.0, 0.0)


@pytest.mark.parametrize("asked", ["assert abs(add(1, 2)) == 3", "def add(a, b):\n    pass"])
def test_a_program_is_paid_for_its_form_alone(asked):
    question = Question("a", "coding", f"Add two numbers.\n```python\n{asked}\n```")
    programs = case_file("ideas")["PROGRAMS"]
    said = [turn(f"r0.s{i}", f"So:\n```python\n{code}\n```") for i, code in enumerate(programs)]
    said.append(turn("r0.s4", programs[0]))  # no fence
    rewards = paid("program_form", discussion(*said, question=question))[0]
    assert rewards == (1.0, 0.0, 0.0, 0.0, 0.0)


def test_dapos_clipping_is_a_setting_of_the_core():
    """-min(rho A, clip(rho, 1 - 0.2, 1 + 0.28) A) of DAPO's equation 8, over all tokens."""
    algorithm = load_config(REPOSITORY / "configs/ideas/dapo.yaml", []).algorithm
    algorithm.kl_coef = 0.0
    ratios, advantages = torch.tensor([[1.25, 1.5, 0.5]]), torch.tensor([[1.0, 1.0, -1.0]])
    targets = Targets(advantages != 0, advantages, 0 * ratios, None, None, 0 * ratios)
    totals = StepTotals(3, 1, 3, 1)
    found = policy_loss(ratios.log(), targets=targets, totals=totals, algorithm=algorithm)
    assert found.loss.item() == pytest.approx((-1.25 - 1.28 + 0.8) / 3)
    assert found.num_clipped == 2
