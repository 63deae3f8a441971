"""Keys of the paper's released code: each has a hint, and the documentation the same table."""

from __future__ import annotations

import subprocess
import sys

import pytest
from config_faults import only_fault
from small_runs import REPOSITORY

from comas.config import ConfigError
from comas.config.keys import keys_of, owner_of
from comas.config.released import RELEASED
from comas.config.schema import Config
from comas.preflight.configuration import load_config


@pytest.mark.parametrize(
    ("key", "remedy"),
    [
        ("prompt_data", "write data.train (one file or hub:..., not json@folder)"),
        ("agents.0.agent-0.pretrain", "write society.models (a list: one model for all, or"),
        ("default_agent.actor_learning_rate", "write optimization.learning_rate"),
        ("reward_alloc.name", "write reward.scheme (maporl_quality, maporl_margin and others)"),
        ("temperature", "write rollout.temperature (in validations: validation.temperature)"),
        ("lambd", "leave it out (without a critic it has no effect)"),
    ],
)
def test_a_key_of_the_released_code_is_refused_with_ours(key: str, remedy: str):
    assert f"-> a key of the paper's released code: here {remedy}" in only_fault(f"{key}=1")


def test_a_key_of_a_section_of_ours_is_none_of_the_released_code():
    with pytest.raises(ConfigError, match=r"did you mean optimization\.learning_rate\?"):
        load_config(None, ["optimization.actor_learning_rate=1"])


def test_every_key_that_is_named_instead_exists():
    ours = {here.key for here in RELEASED.values()} - {None}
    keys = keys_of(Config)
    assert [key for key in ours if owner_of(key, keys) is None] == []


def test_the_command_of_the_documentation_prints_all_of_them():
    command = [sys.executable, "-m", "comas.config.released"]
    lines = subprocess.check_output(command, text=True, cwd=REPOSITORY).splitlines()
    assert len(lines) == len(RELEASED)
    assert "gamma: a key of the paper's released code: here leave it out (it is 1)" in lines
