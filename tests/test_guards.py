"""A run whose updates change nothing ends; each sign of trouble is reported once."""

import logging
from dataclasses import replace
from pathlib import Path

import builders
import pytest
from tables import case_file, cases

from comas.config.schema import Config, Custom
from comas.policy_optimization.update_stats import UpdateStats
from comas.run import guards

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
        "0: no gradient was finite in 3 updates in a row, so it learns nothing; look for NaN in "
        "the plug-in algorithm.loss=my.py:f, or resume",
    ),
)
def test_updates_that_change_nothing_end_the_run_after_several(update, most, said, caplog):
    config = Config(algorithm=Custom(loss="my.py:f"))
    guard = guards.UpdateGuard(guards.gradient_plugins(config))
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


def told(caplog, *rows: dict[str, float | None]) -> list[str]:
    """Return the warnings about these steps' metrics, each after its step (from 1)."""
    watch, found = guards.Watch(mismatch_limit=0.01), list[str]()
    for step, row in enumerate(rows, start=1):
        caplog.clear()
        watch.see(row)
        found += [f"{step} {message}" for message in caplog.messages]
    return found


HEALTHY = case_file("guards")["HEALTHY"]
"""First and last values of healthy runs."""


def test_a_run_that_learns_is_not_warned_of(caplog):
    assert told(caplog, *({name: ends[i] for name, ends in HEALTHY.items()} for i in (0, 1))) == []
    assert told(caplog, {"validation/accuracy": 0.5, "scoring/invalid_rate": None}) == []


TOKENS, MODELS = "rollout.max_response_tokens", "society.models"
UNREADABLE = ("have no readable ", (TOKENS, MODELS, "interaction.prompts"))
CUT = ("at least half of the responses are cut", (TOKENS, MODELS, "algorithm.mask_truncated"))
ALIKE = ("all responses of the same role", (MODELS, "data.train", "reward.scheme"))
EQUAL = ("no response has an advantage over others", ("prompt_reuse", "algorithm.group_by"))
NOTHING = ("no response is trained on", (TOKENS, "reward.scheme", "name=dpo"))


@cases(
    "row, says, remedies",
    ({"scoring/invalid_rate": 0.5}, *UNREADABLE),
    ({"judgment/invalid_rate": 1.0}, *UNREADABLE),
    ({"truncated_rate": 0.91, "agent_0/truncated_rate": 0.49}, *CUT),
    ({"reward/spread": 1e-9}, *ALIKE),
    ({f"agent_{i}/policy/no_advantage_share": 1.0 for i in (0, 1)}, *EQUAL),
    ({"agent_0/policy/num_samples": 0}, *NOTHING),
    ({"interaction/overlong_prompts": 3}, "prompts were longer than", ("max_prompt_tokens",)),
    ({"agent_0/rollout_mismatch/mean": 0.2}, "more than 0.01 a token", ("policy.dtype",)),
)
def test_each_sign_is_told_once_with_a_remedy(row, says, remedies, caplog):
    [warning] = told(caplog, {}, row, row)
    shown = [f"{name} {value:.2f}" for name, value in row.items() if value != 0.49]
    assert warning.startswith(f"2 {', '.join(shown)}: ") and says in warning
    assert all(remedy in warning for remedy in remedies)


@pytest.mark.parametrize(("num_bad", "is_said"), [(4, False), (5, True)])
def test_the_last_line_speaks_of_the_latest_steps(num_bad, is_said):
    rows = [{"step": step, "reward/spread": 0.0} for step in range(1, 41)]
    rows += [{"step": step, "reward/spread": float(step <= 50 - num_bad)} for step in range(41, 51)]
    level, line = guards.closing_line(rows, Path("saves/x/models"))
    assert level == (logging.WARNING if is_said else logging.INFO)
    assert ("of the last 10 steps" in line) == is_said and "saves/x/models" in line
    done = guards.closing_line([{"step": 0, "validation/accuracy": 0.1}], Path("m"))
    assert done == (logging.INFO, "done: the trained agents are in m")
