"""False accusations, counted by hand."""

from __future__ import annotations

from comas.interaction.prompts import APPROVALS
from comas.run.metrics.accusations import false_accusations
from comas.types import Discussion, Generation, Question, Turn

LOST = "Mistake: a carry is lost."
RATE, ACCEPTED = "evaluation/false_accusation_rate", "scoring/false_accusations_accepted"


def turn(turn_id: str, role: str, parent: str | None, text: str = "") -> Turn:
    generation = Generation((1,), (2,), text, (-1.0,), "stop", 0)
    return Turn(turn_id, parent, 0, role, 0, "prompt", generation)  # type: ignore[arg-type]


def discussion(name: str, *criticism: tuple[str, str | None]) -> Discussion:
    """One solution with these evaluations, each scored or not."""
    turns = [turn("s", "solution", None)]
    for i, (evaluation, score) in enumerate(criticism):
        turns.append(turn(f"e{i}", "evaluation", "s", evaluation))
        if score is not None:
            turns.append(turn(f"t{i}", "scoring", f"e{i}", f"<score>{score}</score>"))
    return Discussion(name, Question("q", "math", "?"), tuple(turns))


def test_only_accusations_of_correct_solutions_count() -> None:
    approval = (APPROVALS["math"], "1")
    discussions = [
        discussion("a", (LOST, "1"), approval),
        discussion("b", (LOST, "3"), (LOST, "2"), approval),
        discussion("c", (LOST, "4"), ("Never scored.", None)),
        discussion("wrong", (LOST, "1")),
        discussion("failed", (LOST, "1")),
    ]
    verdicts = {(name, "s"): "correct" for name in "abc"}
    verdicts |= {("wrong", "s"): "wrong", ("failed", "s"): "failed"}
    metrics = false_accusations(discussions, verdicts=verdicts)
    # Of six scored evaluations two approve. Of four accusations one is accepted; the score of
    # one cannot be read.
    assert metrics == {RATE: 4 / 6, ACCEPTED: 1 / 4}


def test_where_nobody_accuses_nothing_is_accepted() -> None:
    approved = discussion("a", (APPROVALS["math"], "3"))
    metrics = false_accusations([approved], verdicts={("a", "s"): "correct"})
    assert metrics == {RATE: 0.0, ACCEPTED: None}
    assert false_accusations([], verdicts={}) == {RATE: None, ACCEPTED: None}


def test_another_domains_approval_is_an_accusation() -> None:
    told = discussion("a", (APPROVALS["coding"], "3"))
    metrics = false_accusations([told], verdicts={("a", "s"): "correct"})
    assert metrics == {RATE: 1.0, ACCEPTED: 0.0}
