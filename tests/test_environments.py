"""Environments of the verifiers library: their questions, their tools, and what their rubrics say.

They run on a stand-in for the library, unless COMAS_VERIFIERS_PYTHON names a Python that has it, of
a version before 0.4 or from there on.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders import discussion, turn
from config_errors import only_error
from small_runs import QUICKSTART

from comas.data import load_questions
from comas.data.rows import DataError
from comas.ideas.tools import ScheduleWithTools
from comas.interaction.schedules import SCHEDULES, tools_of
from comas.interaction.tool_calls import first_call
from comas.preflight.checks import Checks
from comas.preflight.configuration import load_config
from comas.preflight.inputs import find_inputs
from comas.run.records import discussion_record
from comas.types import RewardedDiscussion
from comas.verification import environments
from comas.verification.verifiers import verify
from evaluation.tasks import held_out_tasks

FOLDER = Path(__file__).parent / "environments"
PYTHON = os.environ.get(environments.PYTHON)


def has(package: str) -> bool:
    look = f"import importlib.util, sys; sys.exit(importlib.util.find_spec('{package}') is None)"
    return PYTHON is not None and subprocess.run([PYTHON, "-c", look], check=False).returncode == 0


IS_NEW = PYTHON is not None and not has("verifiers.envs")
SUMS = "sums_taskset" if IS_NEW else "sums_rubric"


@pytest.fixture(autouse=True)
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    folders = [FOLDER] if PYTHON else [FOLDER, FOLDER / "stand_in"]
    monkeypatch.setenv("PYTHONPATH", ":".join(map(str, folders)))
    monkeypatch.setenv(environments.PYTHON, PYTHON or sys.executable)
    yield
    environments.environment(SUMS).close()
    environments.environment.cache_clear()
    environments.questions_of.cache_clear()


def test_a_run_asks_an_environments_questions_and_its_rubric_judges_them():
    held_out = f"verifiers:{SUMS}" if IS_NEW else f"verifiers:{SUMS}/eval"
    config = load_config(
        QUICKSTART,
        [f"data.train=verifiers:{SUMS}", f"data.validation={held_out}", "rollout.batch_size=3"],
    )
    inputs = find_inputs(config, checks := Checks())
    assert [check.error for check in checks if check.error] == []
    assert inputs.train and inputs.validation
    train, validation = inputs.train.questions, inputs.validation.questions
    assert train and validation
    assert [question.text for question in train.questions] == [
        f"Add.\n\n{i} + {i}?" for i in range(3)
    ]
    assert len(validation.questions) == (3 if IS_NEW else 1)
    one = train.questions[1]
    assert (one.question_id, one.domain, one.columns) == (f"verifiers:{SUMS}/2", "reasoning", {})
    name, gold = config.verifiers[one.domain], train.answers[one.question_id]
    assert [verify(name, said, gold) for said in ("So 2", "So 3")] == ["correct", "wrong"]
    rewarded = RewardedDiscussion(discussion(turn("r0.s0"), question=one), (None,))
    kept = discussion_record(rewarded, verdicts={}, answers=train.answers)
    assert kept["gold"] == "2" and kept["columns"]["row"]["answer"] == "2"


def test_its_tools_are_those_of_solvers_where_the_schedule_says_so():
    config = load_config(QUICKSTART, [f"interaction.schedule=comas.ideas.environments:{SUMS}"])
    [tool] = tools_of(config.interaction)
    assert tool["function"]["name"] == "add" and "Add two" in tool["function"]["description"]
    schedule = SCHEDULES[config.interaction.schedule]
    assert isinstance(schedule, ScheduleWithTools)

    def answer(call: str) -> tuple[str, bool]:
        found = first_call(f"<tool_call>{call}</tool_call>", schedule.by_name)
        assert found is not None
        return asyncio.run(schedule.answer(found))

    assert answer('{"name": "add", "arguments": {"a": 48, "b": 23}}') == ("71", False)
    said, failed = answer('{"name": "add", "arguments": {"a": 48}}')
    assert failed and said.startswith("error: ")
    said, _ = answer(r'{"name": "add", "arguments": {"a": "\ud800", "b": ""}}')
    assert said.encode()  # half a surrogate pair has become "?"


def test_one_that_cannot_be_used_is_refused_with_the_reason():
    def refused(name: str) -> str:
        with pytest.raises(DataError) as caught:
            load_questions(f"verifiers:{name}")
        return str(caught.value)

    assert "No module named 'nope'; install the library and the package" in refused("nope")
    assert "/test is no part of it; write verifiers:x/eval" in refused("x/test")
    if IS_NEW:
        assert "its taskset has no part to evaluate on" in refused(f"{SUMS}/eval")
    else:
        assert "its Game answers turns by itself" in refused("sums_game")
    with pytest.raises(ValueError, match="which evaluations cannot ask"):
        held_out_tasks(f"verifiers:{SUMS}", limit=None)


def test_a_process_that_dies_is_an_error_and_another_one_starts():
    [(_, row), *_] = environments.questions_of(f"verifiers:{SUMS}")
    gold = load_questions(f"verifiers:{SUMS}", verified_with=("reasoning",)).answers[row["id"]]
    assert verify("rubric", "0", gold) == "correct"
    process = environments.environment(SUMS)._process
    assert process is not None
    process.kill()
    process.wait()
    with pytest.raises(environments.EnvironmentUseError, match="its process ended"):
        verify("rubric", "0", gold)
    assert verify("rubric", "1", gold) == "wrong"


def test_a_run_has_one_verifier_of_reasoning():
    both = ("data.train=verifiers:x", "data.validation=reasoning_gym")
    assert "an environment judges only answers to its own" in only_error(*both, file=QUICKSTART)
    config = load_config(QUICKSTART, ["data.validation=verifiers:x"])
    assert config.verifiers["reasoning"] == "rubric"
