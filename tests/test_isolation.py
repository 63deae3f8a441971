"""What runs programs where a machine cannot isolate them, and what is said of it before."""

from __future__ import annotations

import logging

import pytest

from comas.config.schema import Config, Verification
from comas.preflight import preparation
from comas.preflight.machine import settle_isolation
from comas.types import Question
from comas.verification.sandbox import Sandbox, SandboxError
from comas.verification.sandbox.sandbox import _warn_of_what_is_missing

KEY = "verification.sandbox"


@pytest.fixture(params=[True, False], ids=["namespaces", "no namespaces"])
def has_namespaces(request, monkeypatch):
    def launch(self, mode, missing):
        if mode == "isolated" and not request.param:
            raise SandboxError("[Errno 1] unshare: Operation not permitted")

    monkeypatch.setattr(Sandbox, "_launch", launch)
    return request.param


def test_isolation_is_required_wherever_the_machine_can(has_namespaces):
    expected = "require_namespaces" if has_namespaces else "allow_degraded"
    assert settle_isolation(None, key=KEY) == expected
    assert settle_isolation("allow_degraded", key=KEY) == "allow_degraded"


def test_where_namespaces_are_required_nothing_runs_without(has_namespaces):
    if has_namespaces:
        assert settle_isolation("require_namespaces", key=KEY) == "require_namespaces"
        return
    with pytest.raises(SandboxError, match="unshare"):
        Sandbox(isolation="require_namespaces").run("", checker="")
    with pytest.raises(ValueError, match=f"{KEY}=require_namespaces, but .* cannot run here") as e:
        settle_isolation("require_namespaces", key=KEY)
    assert f"{KEY}=allow_degraded" in str(e.value)


def test_a_run_without_coding_questions_asks_for_no_isolation(monkeypatch):
    monkeypatch.setattr(preparation, "settle_isolation", lambda wanted, key: (wanted, key))
    config = Config(verification=Verification("allow_degraded"))
    math, coding = Question("a", "math", "?"), Question("b", "coding", "?")
    assert preparation._isolation(config, [math]) is None
    assert preparation._isolation(config, [math, coding]) == ("allow_degraded", KEY)


@pytest.mark.parametrize(
    ("version", "said", "unsaid"),
    [
        (1, ["version 1", "moves from folder", "emptying files", "TCP", "signals"], []),
        (3, ["version 3", "TCP", "devices", "signals", "modes, owners"], ["emptying"]),
        (7, ["version 7", "modes, owners"], ["TCP", "signals", "devices"]),
    ],
)
def test_what_this_landlock_does_not_cover_is_said(caplog, version, said, unsaid):
    with caplog.at_level(logging.WARNING):
        _warn_of_what_is_missing({}, landlock=version, isolated=False)
    assert all(part in caplog.text for part in said)
    assert not any(part in caplog.text for part in unsaid)


def test_nothing_is_said_where_nothing_is_missing(caplog):
    _warn_of_what_is_missing({}, landlock=None, isolated=True)
    assert caplog.text == ""
