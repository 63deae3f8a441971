"""A run whose updates change nothing says so, and ends."""

from __future__ import annotations

import logging

import pytest

from comas.guards import MAX_EMPTY_UPDATES, EmptyUpdates
from comas.types import Discussion, Generation, Question, RewardedDiscussion, TrainingSample, Turn


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
