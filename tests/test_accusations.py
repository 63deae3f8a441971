"""False accusations, counted by hand."""

from __future__ import annotations

from builders import discussion, turn

from comas.interaction.prompts import APPROVALS
from comas.run.metrics.reward_effectiveness import false_accusations
from comas.types import Discussion

LOST = "Mistake: a carry is lost."
RATE, ACCEPTED = "evaluation/false_accusation_rate", "scoring/false_accusations_accepted"


def criticised(name: str, *criticism: tuple[str, str | None]) -> Discussion:
    """One solution with these evaluations, each scored or not."""
    turns = [turn("r0.s0")]
    for i, (evaluation, score) in enumerate(criticism):
        turns.append(turn(f"r0.s0.e{i}", evaluation))
        if score is not None:
            turns.append(turn(f"r0.s0.e{i}.t0", f"<score>{score}</score>"))
    return discussion(*turns, name=name)


def test_only_accusations_of_correct_solutions_count():
    approval = (APPROVALS["math"], "1")
    discussions = [
        criticised("a", (LOST, "1"), approval),
        criticised("b", (LOST, "3"), (LOST, "2"), approval),
        criticised("c", (LOST, "4"), ("Never scored.", None)),
        criticised("wrong", (LOST, "1")),
        criticised("failed", (LOST, "1")),
    ]
    verdicts = {(name, "r0.s0"): "correct" for name in "abc"}
    verdicts |= {("wrong", "r0.s0"): "wrong", ("failed", "r0.s0"): "failed"}
    metrics = false_accusations(discussions, verdicts=verdicts)
    # Of six scored evaluations two approve. Of four accusations one is accepted; the score of
    # one cannot be read.
    assert metrics == {RATE: 4 / 6, ACCEPTED: 1 / 4}


def test_where_nobody_accuses_nothing_is_accepted():
    approved = criticised("a", (APPROVALS["math"], "3"))
    metrics = false_accusations([approved], verdicts={("a", "r0.s0"): "correct"})
    assert metrics == {RATE: 0.0, ACCEPTED: None}
    assert false_accusations([], verdicts={}) == {RATE: None, ACCEPTED: None}


def test_another_domains_approval_is_an_accusation():
    told = criticised("a", (APPROVALS["coding"], "3"))
    metrics = false_accusations([told], verdicts={("a", "r0.s0"): "correct"})
    assert metrics == {RATE: 1.0, ACCEPTED: 0.0}
