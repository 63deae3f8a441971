"""The sandbox with and without namespaces; hostile programs are in test_hostile_suite.py."""

import logging
import sys

import pytest
from hostile_programs import CHECKER, CHECKERS, FORGERIES, HONEST, passes
from tables import cases

from comas.verification.sandbox import Limits, ProgramError, Sandbox, SandboxError
from comas.verification.sandbox.sandbox import _GRACE_S
from comas.verification.sandbox.system_call_filter import compile_filter

pytestmark = pytest.mark.stack

LIMITS = Limits(cpu_s=2, wall_s=6.0)
PATIENT = Limits(cpu_s=10, wall_s=30)
"""For programs that start processes, which is slow on a busy machine."""


@pytest.fixture(scope="module")
def isolated():
    with Sandbox(LIMITS) as sandbox:
        if not sandbox.start():
            pytest.skip("this kernel or container allows no namespaces")
        yield sandbox


@pytest.fixture(scope="module")
def bare():
    with Sandbox(LIMITS, isolated=False) as sandbox:
        sandbox.start()
        yield sandbox


@pytest.mark.parametrize("forgery", FORGERIES, ids=lambda h: h.name)
def test_a_forgery_works_in_one_process_and_not_in_two(isolated, forgery):
    checkers = CHECKERS.values()
    assert any(isolated.run(f"{forgery.program}\n{c}", checker="") for c in checkers)
    assert not any(passes(isolated, forgery.program, c) for c in checkers)


@cases("program, said, fails")
def test_what_a_program_prints_is_read_and_what_ends_it_an_error(isolated, program, said, fails):
    said = said.replace("ENDS_IN_B", "a" * 3998 + "b\n")
    try:
        assert isolated.output_of(program) == said and not fails
    except ProgramError as error:
        assert str(error) == said and fails


def test_the_checker_ends_with_its_program_and_is_limited_itself(isolated):
    for checker in ("while True: pass", "import time\ntime.sleep(60)", "[0] * 10**9"):
        assert not isolated.run(HONEST, checker=checker)


def test_a_checker_cannot_be_told_that_a_dead_program_has_answered(isolated):
    checker = "try:\n    f(2)\nexcept BaseException:\n    pass"
    assert isolated.run("def f(x): raise KeyError", checker=checker)
    assert not isolated.run("import os\ndef f(x): os._exit(0)", checker=checker)
    assert not isolated.run("import os\ndef f(x): os.closerange(3, 64)", checker=checker)


def test_a_program_starts_from_nothing_and_may_start_another(isolated):
    program = "import os\nhome = os.getcwd(), os.listdir(), dict(os.environ)\nopen('x', 'w')"
    checker = "assert home == ('/tmp', [], {})"
    assert isolated.run(program, checker=checker)
    assert isolated.run(program, checker=checker), "the file of the first is gone"
    starting = (
        "import subprocess, sys\n"
        "def call(): return subprocess.check_output([sys.executable, '-S', '-c', 'print(3)'])\n"
    )
    with Sandbox(PATIENT) as patient:
        assert patient.run(starting, checker="assert call() == b'3\\n'")


def test_an_end_of_the_server_is_an_error_and_the_next_run_starts_another():
    with Sandbox(LIMITS) as sandbox:
        sandbox.start()
        server = sandbox._server.process
        server.kill()
        server.wait()
        with pytest.raises(SandboxError, match="the sandbox server"):
            sandbox.run(HONEST, checker=CHECKER)
        assert sandbox.run(HONEST, checker=CHECKER)


@pytest.mark.parametrize("is_isolated", [True, False])
def test_programs_have_what_the_server_has_imported_and_no_more(bare, tmp_path, is_isolated):
    helper = tmp_path / "helper.py"
    helper.write_text("import packaging.version\nNEWEST = packaging.version.parse('3')\n")
    program = "from helper import NEWEST\nimport packaging.tags\nNEWEST = str(NEWEST)"
    with Sandbox(LIMITS, isolated=is_isolated, preload=helper) as sandbox:
        assert sandbox.run(program, checker="assert NEWEST == '3'")
    assert not bare.run("import packaging.tags", checker="")
    helper.write_text("import no_such_package\n")
    with pytest.raises(SandboxError, match="no_such_package"), Sandbox(preload=helper) as sandbox:
        sandbox.start()


def test_texts_longer_than_a_pipe_arrive_whole(isolated):
    filling = "#" + "x" * 1_000_000 + "\n"
    assert isolated.run(filling + HONEST, checker=filling + CHECKER)
    assert not isolated.run("import os\nos._exit(1)\n" + filling, checker=filling + CHECKER)
    assert isolated.run(HONEST, checker=CHECKER)


def test_neither_a_text_that_is_no_program_nor_a_limit_too_low_for_any_passes(isolated):
    for program in ("\ud800", "\0", "def f(x:", "\ufeff" * 2):
        assert not isolated.run(program, checker="")
    # No time at all: the server has the limit and a grace period.
    with pytest.raises(SandboxError), Sandbox(Limits(wall_s=-_GRACE_S)) as sandbox:
        sandbox.start()


def test_what_is_missing_is_said_with_what_it_opens_and_programs_run(caplog, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyseccomp", None)
    compile_filter.cache_clear()
    launch = Sandbox._launch

    def refuse(self, mode, missing):
        if mode == "isolated":
            raise SandboxError("[Errno 1] unshare: Operation not permitted")
        return launch(self, mode, missing)

    monkeypatch.setattr(Sandbox, "_launch", refuse)
    with caplog.at_level(logging.WARNING), Sandbox(LIMITS) as sandbox:
        assert not sandbox.start()
        assert sandbox.run(HONEST, checker=CHECKER)
    assert "no namespaces ([Errno 1] unshare: Operation not permitted): they see" in caplog.text
    assert "no seccomp (pyseccomp is missing: pip install pyseccomp)" in caplog.text
    assert "they can reach the network" in caplog.text
