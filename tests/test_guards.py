"""A run whose updates change nothing says so, and ends; signs of harm are told once."""

from __future__ import annotations

import logging
import re

import pytest

from comas.run.guards import (
    MAX_EMPTY_UPDATES,
    MAX_SKIPPED_UPDATES,
    EmptyUpdates,
    SkippedUpdates,
    Watch,
)
from comas.types import (
    Discussion,
    Generation,
    Question,
    RewardedDiscussion,
    TrainingSample,
    Turn,
    UpdateStats,
)


def said(agent: int, *, cut: bool = False) -> Turn:
    generation = Generation((1,), (2,), "?", (-0.1,), "length" if cut else "stop", 1)
    return Turn(f"r0.s{agent}", None, 0, "solution", agent, "Solve it", generation)


def discussed(*turns: Turn, reward: float | None) -> RewardedDiscussion:
    question = Question("math/17", "math", "What is 48 + 23?")
    whole = Discussion("step1/math/17/copy0", question, turns)
    return RewardedDiscussion(whole, (reward,) * len(turns))


SAMPLE = TrainingSample(0, "q", "d", "r0.s0", 0, "solution", (1,), (2,), (-0.1,), 1.0)
SILENT = [
    discussed(said(0, cut=True), said(1, cut=True), reward=1.0),
    discussed(said(0, cut=True), said(2), reward=None),
    discussed(said(0), said(2), reward=None),
]


def test_a_policy_without_samples_is_named_with_the_reason(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.WARNING)
    EmptyUpdates().check({0: [], 1: [SAMPLE]}, SILENT, policy_of_agent=[0, 1, 0])
    assert [record.message for record in caplog.records] == [
        "policy 0 has nothing to learn from in this step: of its 5 responses 2 are cut off and 3 "
        "have no reward"
    ]


def test_several_in_a_row_end_the_run():
    guard = EmptyUpdates()
    for _ in range(MAX_EMPTY_UPDATES - 1):
        guard.check({0: []}, SILENT, policy_of_agent=[0, 0, 0])
    with pytest.raises(RuntimeError, match=r"policy 0 had nothing .* 5 updates in a row \(of its"):
        guard.check({0: []}, SILENT, policy_of_agent=[0, 0, 0])


def test_a_policy_that_learns_in_between_goes_on():
    guard = EmptyUpdates()
    for step in range(4 * MAX_EMPTY_UPDATES):
        samples = [SAMPLE] if step % MAX_EMPTY_UPDATES == 0 else []
        guard.check({0: samples, 1: [SAMPLE]}, SILENT, policy_of_agent=[0, 1, 0])


# ---------------------------------------------------------------- gradients


def updated(*, applied: int = 0, skipped: int = 0) -> UpdateStats:
    steps = {"num_optimizer_steps": applied, "num_skipped_steps": skipped}
    return UpdateStats(learning_rate=1e-6, **steps)


def test_a_policy_without_a_finite_gradient_ends_the_run_after_several_updates(caplog):
    guard = SkippedUpdates()
    for _ in range(MAX_SKIPPED_UPDATES - 1):
        guard.check({0: updated(skipped=2), 1: updated(applied=1)})
    assert [record.getMessage() for record in caplog.records] == [
        "policy 0: 2 optimiser steps skipped, whose gradients were not finite"
    ] * (MAX_SKIPPED_UPDATES - 1)
    with pytest.raises(RuntimeError, match=r"policy 0: no gradient was finite in 3 updates in a"):
        guard.check({0: updated(skipped=1)})


@pytest.mark.parametrize("between", [updated(applied=1), updated(applied=3, skipped=1), updated()])
def test_a_policy_that_takes_a_step_in_between_goes_on(between):
    guard = SkippedUpdates()
    for update in range(4 * MAX_SKIPPED_UPDATES):
        guard.check({0: between if update % MAX_SKIPPED_UPDATES == 0 else updated(skipped=1)})


# ---------------------------------------------------------------- trends


def told(rows: list[dict[str, float | None]], caplog, *, seen_before: int = 0) -> list[str]:
    """What is warned of in a run of these metrics, and of which steps (from 0)."""
    watch = Watch(rows[:seen_before], mismatch_limit=0.01)
    caplog.clear()
    found = []
    for step, row in enumerate(rows[seen_before:], start=seen_before):
        watch.see(row)
        found += [f"{step} {record.getMessage()}" for record in caplog.records]
        caplog.clear()
    return found


def series(name: str, *values: float | None) -> list[dict[str, float | None]]:
    return [{name: value, "time/step_s": 1.0} for value in values]


HEALTHY = {
    "reward/solution": (0.55, 0.84),
    "reward/evaluation": (0.45, 0.16),
    "reward/scoring": (0.0, 0.0),  # 0 for every valid score
    "response_length": (7.1, 16.7),
    "scoring/invalid_rate": (0.0, 0.08),
    "agent_0/policy/entropy": (0.114, 0.044),
    "agent_0/rollout_mismatch/mean": (2e-7, 9e-3),
    "agent_0/rollout_mismatch/corrected_share": (0.0, 0.1),
}
"""First and last values of runs that learnt, or nearly."""


def test_a_run_that_learns_is_not_warned_of(caplog):
    steps = [
        {name: a + (b - a) * step / 59 for name, (a, b) in HEALTHY.items()} for step in range(60)
    ]
    assert told(steps, caplog) == []


@pytest.mark.parametrize(
    ("name", "values", "step", "said"),
    [
        # The mean of the last 10 is over 0.98 from 9 of them on: (0.79 + 9 x 1) / 10 = 0.979, so
        # from the tenth, which is step 14.
        ("reward/solution", (*[0.79] * 5, *[1.0] * 20), 14, "stuck at 1.00 for 10 steps"),
        ("reward/evaluation", [0.01] * 12, 9, "stuck at 0.01 for 10 steps"),
        ("reward/solution", [0.5] * 12, 9, "stuck at 0.50"),  # no better, no worse
        # 10, then 40: the mean passes 30 with the seventh, (3 x 10 + 7 x 40) / 10 = 31.
        ("response_length", (*[10.0] * 10, *[40.0] * 10), 16, "grew from 10 to 31 tokens"),
        # 0.05, then 0.5: (7 x 0.05 + 3 x 0.5) / 10 = 0.185, with a fourth 0.23.
        ("scoring/invalid_rate", (*[0.05] * 10, *[0.5] * 10), 13, "rose from 5% to 23%"),
        # 1, then 0: (2 x 1 + 8 x 0) / 10 is no less than a fifth; the ninth makes it 0.1.
        ("agent_1/policy/entropy", (*[1.0] * 10, *[0.0] * 10), 18, "fell from 1.000 to 0.100"),
        ("agent_0/rollout_mismatch/mean", (0.01, 0.2, 0.3), 1, "differ .* by 0.200 a token"),
        ("agent_0/rollout_mismatch/corrected_share", (0.1, 0.6, 0.7), 1, "60% of what"),
    ],
)
def test_each_sign_is_told_once_with_what_to_look_at(name, values, step, said, caplog):
    [warning] = told(series(name, *values), caplog)
    assert re.match(rf"{step} {name}: .*{said}", warning)
    assert re.search(r"look at|lower|raise", warning)


def test_what_was_told_before_a_resume_is_not_told_again(caplog):
    rows = series("response_length", *[10.0] * 10, *[40.0] * 20)
    assert told(rows, caplog, seen_before=20) == []
    assert (
        len(told(rows, caplog, seen_before=15)) == 1
    )  # the first steps are still those of the run


def test_steps_without_a_value_are_passed_over(caplog):
    values = [value for n in range(10) for value in (10.0 if n < 5 else 100.0, None)]
    assert told(series("response_length", *values), caplog) == []
    assert told([{"validation/accuracy": 0.5}] * 30, caplog) == []
