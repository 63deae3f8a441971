"""Reward functions of TRL and verl: what they are given, and what becomes of what they return."""

import datetime
import json
from pathlib import Path
from typing import Any

import pytest
from builders import discussion, paid, turn
from small_runs import QUICKSTART, record, write_records, written
from tables import case_file, cases

from comas.config.schema import Data
from comas.data import load_questions
from comas.preflight.checks import Checks
from comas.preflight.configuration import load_config
from comas.preflight.inputs import find_inputs
from comas.preflight.plugins import check_plugins, user_sources
from comas.reward_formulation import REWARD_SCHEMES
from comas.run.records import discussion_record
from comas.types import Discussion, Question, RewardedDiscussion
from comas.verification.verifiers import verify

FUNCTIONS = case_file("foreign_rewards")["FUNCTIONS"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return written(tmp_path / "theirs.py", FUNCTIONS)


def seen(file: Path) -> list[Any]:
    REWARD_SCHEMES._look_up(f"{file}:SEEN").clear()
    return REWARD_SCHEMES._look_up(f"{file}:SEEN")


def asked(number: int, **columns: object) -> Discussion:
    """A question with two solutions, the first of which is evaluated."""
    columns = {"source": "mine", "gold": str(number)} | columns
    question = Question(f"q{number}", "math", f"What is {number}?", columns)
    turns = turn("r0.s0", str(number)), turn("r0.s0.e0", "fine"), turn("r0.s1", "no")
    return discussion(*turns, name=f"d{number}", question=question)


def test_trl_is_given_columns_as_lists_and_rewards_solutions_alone(file):
    calls = seen(file)
    rewards = paid(f"trl:{file}:exact", asked(1, target="1"), asked(2, target="no", level=3))
    assert rewards == [(1.0, None, 0.0), (0.0, None, 1.0)]
    [columns] = calls  # once for the batch
    assert columns == {
        "prompts": ["What is 1?"] * 2 + ["What is 2?"] * 2,
        "completion_ids": [[2]] * 4,
        "source": ["mine"] * 4,
        "gold": ["1", "1", "2", "2"],
        "level": [None, None, 3, 3],
    }


def test_trl_may_name_fewer_arguments_leave_solutions_out_and_return_tensors(file):
    assert paid(f"trl:{file}:few", asked(1), asked(2, level=3)) == [(None,) * 3, (4.0, None, 4.0)]
    assert paid(f"trl:{file}:few") == []
    assert paid(f"trl:{file}:tensor", asked(1)) == [(1.0, None, 1.0)]


def test_trl_is_given_messages_where_the_data_has_them(file):
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "1?"}]
    assert paid(f"trl:{file}:chat", asked(1, prompt=messages)) == [(1.2, None, 2.2)]


def test_verl_is_given_one_solution_at_a_time(file):
    calls, name = seen(file), f"verl:{file}:compute_score"
    both = asked(1), asked(2, data_source="gsm8k", extra_info={"index": 7})
    assert paid(name, *both) == [(1.0, None, 0.0)] * 2
    assert calls[::2] == [("mine", "1", "1", {}), ("gsm8k", "2", "2", {"index": 7})]
    assert paid(f"verl:{file}:mapping", asked(1, extra_info={"index": 7})) == [(3.5, None, 3.5)]


@cases("name, said")
def test_what_a_function_wants_or_returns_amiss_is_told(file, name, said):
    library, function = name.split(":")
    with pytest.raises(ValueError, match=f"reward.scheme.*{said}"):
        paid(f"{library}:{file}:{function}", asked(1, level=3))


def test_they_see_labels_and_no_scheme_of_ours_is_given_columns(file):
    scheme = REWARD_SCHEMES[f"trl:{file}:exact"]
    assert scheme.reads_columns and scheme.sees_verdicts
    assert not any(ours.reads_columns for ours in REWARD_SCHEMES.values())


def test_columns_are_kept_when_asked_for_with_the_answer(tmp_path):
    row = {"prompt": "1 + 1?", "reward_model": {"ground_truth": "is #### 2"}, "level": 5}
    path = write_records(tmp_path / "mine.jsonl", [row])
    columns = {"answer": "reward_model.ground_truth"}
    rules = Data(columns=columns, domain="math", answer_after="####")
    [question] = load_questions(path, rules, with_columns=True).questions
    assert question.columns == {"source": "mine", "gold": "2"} | row
    [question] = load_questions(path, rules).questions
    assert question.columns == {}


def test_a_verifier_that_asks_for_columns_is_given_them_and_no_reward_is(tmp_path):
    with_unit = "def with_unit(response, gold, *, columns):\n"
    with_unit += "    return 'correct' if response == gold + columns['unit'] else 'wrong'\n"
    (tmp_path / "mine.py").write_text(with_unit)
    rows = [record(1) | {"unit": "m"}, record(2) | {"unit": "s", "picture": b"\xff".hex()}]
    path, verifier = write_records(tmp_path / "q.jsonl", rows), f"{tmp_path / 'mine.py'}:with_unit"
    named = [f"data.train={path}", f"data.validation={path}", "rollout.batch_size=1"]
    config = load_config(QUICKSTART, [*named, f"verification.verifiers.math={verifier}"])
    inputs = find_inputs(config, Checks())
    assert inputs.train and inputs.validation
    train = inputs.train
    assert train.answers == inputs.validation.answers
    assert [check.error for check in check_plugins(config, train)] == [None, None]
    assert [question.columns for question in train.questions] == [{}, {}]
    one, other = (train.answers[question.question_id] for question in train.questions)
    gold = rows[0]["answer"]
    assert verify(verifier, f"{gold}m", one) == "correct"
    assert verify(verifier, f"{rows[1]['answer']}m", other) == "wrong"
    assert verify("math", f"\\boxed{{{gold}}}", one) == "correct"  # it reads none
    held = discussion(turn("r0.s0"), question=train.questions[0])
    kept = discussion_record(RewardedDiscussion(held, (None,)), verdicts={}, answers=train.answers)
    assert (kept["gold"], kept["columns"]["unit"]) == (gold, "m")


def test_records_hold_columns_as_far_as_json_does():
    item = asked(1, day=datetime.date(2026, 1, 2), score=float("nan"), picture=b"\xff")
    rewarded = RewardedDiscussion(item, (None,) * 3)
    found = json.loads(json.dumps(discussion_record(rewarded, verdicts={})))["columns"]
    kept = {"source": "mine", "gold": "1", "day": "2026-01-02", "score": None, "picture": "_w=="}
    assert found == kept
    plain = RewardedDiscussion(discussion(turn("r0.s0")), (None,))
    assert "columns" not in discussion_record(plain, verdicts={})


def test_a_path_after_a_prefix_starts_where_others_do_and_is_tried_on_the_data(file, tmp_path):
    text = f"base: {QUICKSTART}\nreward: {{scheme: 'trl:theirs.py:exact'}}\n"
    settings = load_config(written(tmp_path / "mine.yaml", text), [])
    assert settings.reward.scheme == f"trl:{file}:exact"
    assert user_sources(settings) == {str(file): FUNCTIONS}
    path = write_records(tmp_path / "train.jsonl", [record(1), record(2)])
    [_, check] = check_plugins(settings, load_questions(path, with_columns=True))
    assert "gold, id, prompts, source, task: missing" in str(check.error)
    path = write_records(tmp_path / "train.jsonl", [record(n, target="1") for n in (1, 2)])
    found, check = check_plugins(settings, load_questions(path, with_columns=True))
    assert check.error is None and f"{file}, line 7, sha256 " in found.present
