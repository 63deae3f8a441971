"""The tiers of the tests: what a quick test cannot do (tests/conftest.py)."""

from __future__ import annotations

import subprocess

import pytest
import torch


@pytest.mark.parametrize("program", ["/x/gcs_server", "python -m evaluation.server_process"])
def test_a_quick_test_that_starts_the_process_of_an_engine_fails(program):
    with pytest.raises(pytest.fail.Exception, match=r"mark it with pytest\.mark\.stack"):
        subprocess.run(program.split(), check=True)


def test_a_quick_test_that_starts_an_engine_in_its_own_process_fails():
    with pytest.raises(pytest.fail.Exception, match=r"mark it with pytest\.mark\.stack"):
        torch.distributed.init_process_group("gloo", rank=0, world_size=1)
