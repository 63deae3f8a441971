"""Runs the tests of the rollout engine in a process that imports vLLM, which no other one should:
that takes seconds, and vLLM changes process-wide state of torch."""

import os
import sys
from pathlib import Path

import pytest
from programs import run_to_end

from comas.engines.rollout.vllm_options import engine_environment

pytestmark = pytest.mark.stack


@pytest.mark.parametrize("tier", ["not slow", pytest.param("slow", marks=pytest.mark.slow)])
def test_the_rollout_engine_in_a_process_of_its_own(tier):
    names = ("rollout_engine_fakes.py", "rollout_engine_cases.py")
    files = [Path(__file__).with_name(name) for name in names]
    environment = os.environ | engine_environment("cpu")
    command = [sys.executable, "-m", "pytest", "--color=no", "-n0", "-m", tier, *files]
    result = run_to_end(*command, env=environment, cwd=files[0].parents[1], timeout=1800)
    assert result.returncode == 0, result.stdout + result.stderr
