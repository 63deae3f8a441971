"""Every hostile program in three modes of the sandbox, with things outside that it reaches for."""

from __future__ import annotations

import json
import os
import subprocess

import hostile_suite
import pytest

from comas.verification.sandbox import Sandbox

pytestmark = pytest.mark.stack


@pytest.mark.parametrize("mode", hostile_suite.MODES)
def test_no_hostile_program_touches_what_is_outside_passes_or_stays(mode):
    if os.geteuid() != 0 and mode == "root":
        pytest.skip("only root can give up the rights that root of a container lacks")
    if mode == "namespaces":
        with Sandbox() as sandbox:
            if not sandbox.start():
                pytest.skip("this kernel or container allows no namespaces")
    with hostile_suite.readable_folder() as place:
        run = subprocess.run(hostile_suite.command(mode, place), capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    report = json.loads(run.stdout)
    assert report["faults"] == {}
    assert set(report["not promised here"]) == hostile_suite.unpromised(mode)
    assert report["programs"] >= 195
