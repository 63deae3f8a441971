"""A run whose updates change nothing ends; each sign of trouble is reported once."""

import logging
import math
import re
from dataclasses import replace
from pathlib import Path

import builders
import pytest
from builders import generation
from tables import case_file, cases

from comas import types
from comas.policy_optimization.update_stats import UpdateStats
from comas.run import guards


def said(agent: int, text: str = "?", *, role: str = "s0", cut: bool = False) -> types.Turn:
    told = builders.turn(f"r0.{role}", text, agent=agent)
    return replace(told, generation=generation(text, finish_reason="length" if cut else "stop"))


SAMPLE = builders.sample()


def updated(*, applied: int = 0, skipped: int = 0) -> UpdateStats:
    steps = {"num_optimizer_steps": applied, "num_skipped_steps": skipped}
    return UpdateStats(learning_rate=1e-6, **steps)


LEARNED = replace(updated(applied=1), num_samples=1)
EMPTY = ({0: [SAMPLE], 1: [SAMPLE]}, {0: updated(), 1: LEARNED})  # 0: as without a pair
SKIPPED = ({}, {0: updated(skipped=2), 1: updated(applied=1)})


@cases(
    "update, most, said",
    (EMPTY, guards.MAX_EMPTY_UPDATES, "0 had nothing to train on in 5 updates in a row"),
    (
        SKIPPED,
        guards.MAX_SKIPPED_UPDATES,
        "0: no gradient was finite in 3 updates in a row, so it learns nothing; look for NaN",
    ),
)
def test_updates_that_change_nothing_end_the_run_after_several(update, most, said, caplog):
    guard = guards.UpdateGuard()
    for _ in range(most - 1):
        guard.check(*update)
    skipped = ["policy 0: 2 optimiser steps skipped, whose gradients were not finite"]
    assert caplog.messages == skipped * (most - 1) * (update is SKIPPED)
    with pytest.raises(RuntimeError, match=f"policy {said}"):
        guard.check(*update)


@cases(
    "update, most, between",
    (EMPTY, guards.MAX_EMPTY_UPDATES, ({0: [SAMPLE]}, {0: LEARNED})),
    (SKIPPED, guards.MAX_SKIPPED_UPDATES, ({}, {0: updated(applied=3, skipped=1)})),
    (SKIPPED, guards.MAX_SKIPPED_UPDATES, ({}, {0: updated()})),
)
def test_a_policy_that_learns_in_between_goes_on(update, most, between):
    guard = guards.UpdateGuard()
    for number in range(4 * most):
        guard.check(*(update if number % most else between))


def told(rows: list[dict[str, float | None]], caplog, *, seen_before: int = 0) -> list[str]:
    """Return the warnings about these metrics, each after its step (from 0)."""
    watch = guards.Watch(rows[:seen_before], mismatch_limit=0.01)
    caplog.clear()
    found = []
    for step, row in enumerate(rows[seen_before:], start=seen_before):
        watch.see(row, [])
        found += [f"{step} {record.getMessage()}" for record in caplog.records]
        caplog.clear()
    return found


def series(name: str, *values: float | None) -> list[dict[str, float | None]]:
    return [{name: value, "time/step_s": 1.0} for value in values]


def test_a_run_that_learns_is_not_warned_of(caplog):
    ends = case_file("guards")["HEALTHY"]  # first and last values of healthy runs
    steps = [{name: a + (b - a) * i / 59 for name, (a, b) in ends.items()} for i in range(60)]
    assert told(steps, caplog) == []
    # Nor are rewards on another scale than 0 to 1.
    for first in (1.2, -20.0, -0.05):
        rising = [first + i / 100 for i in range(20)]
        assert told(series("reward/evaluation", *rising), caplog) == []


@cases("name, values, step, said")
def test_each_sign_is_told_once_with_what_to_look_at(name, values, step, said, caplog):
    [warning] = told(series(name, *values), caplog)
    assert re.match(rf"{step} {name} {said}", warning)
    assert re.search(r"look at|lower|raise", warning)


def test_the_first_steps_are_those_of_the_run_also_after_a_resume(caplog):
    [warning] = told(series("response_length", *[10.0] * 10, *[40.0] * 20), caplog, seen_before=15)
    assert warning.startswith("16 ")


def test_steps_without_a_value_are_passed_over(caplog):
    values = [v for n in range(10) for v in (10.0 if n < 5 else 100.0, None, math.nan)]
    assert told(series("response_length", *values), caplog) == []
    assert told([{"validation/accuracy": 0.5}] * 30, caplog) == []


TRICKS = "I agree.\n\x1b[2J\u202e" + 300 * "So it goes. " + "\r\nThe end\x07"
BEGINS, ENDS = r'"I agree. \x1b[2J\u202eSo it goes. ', r'So it goes. The end\x07"'
READABLE = "<score>3</score> <judgment>correct</judgment> <rating>4</rating>"
MOST_TOKENS, MODELS = "rollout.max_response_tokens", "society.models"
UNREADABLE = ("have no readable ", (MOST_TOKENS, MODELS, "interaction.prompts"))
CUT = ("at least half of the responses are cut", (MOST_TOKENS, MODELS, "algorithm.mask_truncated"))
ALIKE = ("all responses of the same role", (MODELS, "data.train", "reward.scheme"))
EQUAL = ("no response has an advantage over others", ("prompt_reuse", "algorithm.group_by"))
NOTHING = ("no response is trained on", (MOST_TOKENS, "reward.scheme", "name=dpo"))


@cases(
    "row, turn, says, remedies",
    ({"scoring/invalid_rate": 0.5}, said(0, TRICKS, role="t0"), *UNREADABLE),
    ({"judgment/invalid_rate": 1.0}, said(0, TRICKS, role="e0"), *UNREADABLE),
    ({"truncated_rate": 0.91, "agent_0/truncated_rate": 0.49}, said(1, TRICKS, cut=True), *CUT),
    ({"reward/spread": 1e-9}, said(0, TRICKS), *ALIKE),
    ({f"agent_{i}/policy/no_advantage_share": 1.0 for i in (0, 1)}, None, *EQUAL),
    ({"agent_0/policy/num_samples": 0}, None, *NOTHING),
)
def test_a_lost_signal_is_told_with_an_example_and_a_remedy(row, turn, says, remedies, caplog):
    readable = said(0, READABLE, role="s0" if turn is None else turn.turn_id[3:])
    is_picked = any(name in str(row) for name in ("invalid_rate", "truncated_rate"))
    turns = [readable] * is_picked + [turn or readable]
    rows = [{"step": step, **row} for step in (1, 2)]
    discussed = types.RewardedDiscussion(builders.discussion(*turns), (-1.0,) * len(turns))

    def warnings(before: list[dict[str, float]]) -> list[str]:
        caplog.clear()
        watch = guards.Watch(before, mismatch_limit=0.01)
        for step in rows:
            watch.see(step, [discussed])
        return [record.getMessage() for record in caplog.records]

    [warning] = warnings([])  # once
    shown = [f"{name} {value:.2f}" for name, value in row.items() if value != 0.49]
    assert warning.startswith(f"{', '.join(shown)}: ") and re.search(says, warning)
    assert all(remedy in warning for remedy in remedies)
    assert warning.isprintable() and len(warning) < 800
    if turn is not None:
        assert f"the {turn.role} {BEGINS}" in warning and ENDS in warning
        assert f"of agent {turn.agent_index} (reward -1.00)" in warning
    assert warnings(rows) == [warning]  # a resume tells what still is so


@pytest.mark.parametrize(("num_bad", "is_said"), [(4, False), (5, True)])
def test_the_last_line_speaks_of_the_latest_steps(num_bad, is_said):
    rows = [{"step": step, "reward/spread": 0.0} for step in range(1, 41)]
    rows += [{"step": step, "reward/spread": float(step <= 50 - num_bad)} for step in range(41, 51)]
    level, line = guards.closing_line(rows, Path("saves/x/models"))
    assert level == (logging.WARNING if is_said else logging.INFO)
    assert ("of the last 10 steps" in line) == is_said and "saves/x/models" in line
    done = guards.closing_line([{"step": 0, "validation/accuracy": 0.1}], Path("m"))
    assert done == (logging.INFO, "done: the trained agents are in m")
