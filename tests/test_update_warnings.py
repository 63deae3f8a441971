"""A step whose update cannot be trusted is warned of."""

from __future__ import annotations

import dataclasses

import pytest

from comas.engines.policy.progress import no_update
from comas.train import _warn_of_mismatch


def warnings_of(caplog: pytest.LogCaptureFixture, **fields: float) -> list[str]:
    caplog.clear()
    stats = dataclasses.replace(no_update(1e-6), **fields)
    _warn_of_mismatch({3: stats}, limit=0.1)
    return [record.getMessage() for record in caplog.records]


def test_a_policy_that_differs_from_its_rollout_engine_is_named(caplog):
    assert warnings_of(caplog, mismatch_mean=0.1) == []
    [warning] = warnings_of(caplog, mismatch_mean=0.2)
    assert warning == (
        "policy 3: its log-probs differ from its rollout engine's by 0.200 a token "
        "(optimization.mismatch_warning=0.1)"
    )


def test_a_correction_that_leaves_much_out_is_not_silent(caplog):
    assert warnings_of(caplog, corrected_share=0.1) == []
    [warning] = warnings_of(caplog, corrected_share=0.6)
    assert warning.startswith(
        "policy 3: 60 % of what it said was beyond optimization.rollout_ratio_bounds"
    )
