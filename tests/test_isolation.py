"""What runs programs where a machine cannot isolate them, and what is said of it before."""

import json
import logging
from pathlib import Path

import pytest

from comas.preflight import survey
from comas.preflight.configuration import load_config
from comas.preflight.machine import settle_isolation
from comas.preflight.survey import survey_run
from comas.verification.sandbox import Sandbox, SandboxError
from comas.verification.sandbox.sandbox import _warn_of_what_is_missing

CONFIGS = Path(__file__).parents[1] / "configs"
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


@pytest.mark.parametrize("domain", ["math", "coding"])
def test_a_run_without_coding_questions_asks_for_no_isolation(tmp_path, monkeypatch, domain):
    monkeypatch.setattr(survey, "settle_isolation", lambda wanted, key: (wanted, key))
    answer = "assert f() == 1" if domain == "coding" else "1"
    record = {"id": "a", "source": "s", "task": domain, "prompt": "?", "answer": answer}
    questions = tmp_path / "questions.jsonl"
    questions.write_text(json.dumps(record) + "\n")
    config = load_config(
        CONFIGS / "quickstart.yaml",
        [
            f"saves={tmp_path}",
            f"data.train={questions}",
            f"data.validation={questions}",
            "verification.sandbox=allow_degraded",
        ],
    )
    expected = ("allow_degraded", KEY) if domain == "coding" else None
    assert survey_run(config).isolation == expected


def test_what_landlock_does_not_cover_is_said_and_nothing_where_nothing_is_missing(caplog):
    with caplog.at_level(logging.WARNING):
        _warn_of_what_is_missing({}, landlock=None, isolated=True)
        assert caplog.text == ""
        _warn_of_what_is_missing({}, landlock=3, isolated=False)
    assert "Landlock has version 3: it does not cover modes, owners and times" in caplog.text
