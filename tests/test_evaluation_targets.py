"""The tasks an evaluation draws, and the models of a run that it asks."""

import json

import pytest
from small_runs import make_run, record, write_records
from tables import cases
from tiny_models import save_tiny_model

from evaluation.models import CONTEXT_SHARE_OF_REPLY, find_target, read_model
from evaluation.tasks import benchmark_tasks, draw, held_out_tasks


def test_a_smaller_draw_is_part_of_a_larger_one_and_keeps_the_order():
    numbers = list(range(100))
    ten, fifty = (draw(numbers, limit, name="gsm8k") for limit in (10, 50))
    assert len(ten) == 10
    assert ten == sorted(ten)
    assert set(ten) < set(fifty)
    assert draw(numbers, 10, name="gsm8k") == ten
    assert draw(numbers, 10, name="mmlu") != ten
    assert draw(numbers, 1000, name="gsm8k") == numbers


def test_tasks_are_asked_with_a_sentence_or_as_in_training(tmp_path):
    write_records(tmp_path / "benchmarks/gsm8k.jsonl", [record(0), record(1)])
    (task,) = benchmark_tasks("gsm8k", data=tmp_path, limit=1)
    assert task.query.startswith(f"{task.question}\n\n")
    assert task.query.endswith("\\boxed{}.")
    path = write_records(tmp_path / "held.jsonl", [record(0)])
    (task,) = held_out_tasks(path, limit=None)
    assert task.gold == "1"
    assert task.query.endswith("# Problem\nWhat is 0 + 1?\n\n# Discussion so far\n(empty)")


SHARED = ("society.num_agents=3", "society.policy_of_agent=[0,0,1]")
FROZEN = ("society.update_every=[1,0]",)
EACH = {"agent_0": (0,), "agent_1": (1,), "society": (0, 1)}
OF_SHARED = {"agent_0": (0,), "agent_1": (0,), "agent_2": (1,), "society": (0, 0, 1)}


@cases(
    "overrides, num_trained, weights, folders, subjects",
    ((), 2, "trained", ["agent_0", "agent_1"], EACH),
    ((), 2, "untrained", ["tied", "untied"], EACH),
    (SHARED, 3, "trained", ["agent_0", "agent_2"], OF_SHARED),  # a server for each policy
    (FROZEN, 1, "trained", ["agent_0", "untied"], EACH),  # it ended as it began
    (FROZEN, 1, "untrained", ["tied", "untied"], EACH),
)
def test_a_run_has_its_subjects(tmp_path, overrides, num_trained, weights, folders, subjects):
    run = make_run(tmp_path, *overrides, num_trained=num_trained)
    target = find_target(str(run), weights=weights)
    assert [model.folder.name for model in target.models] == folders
    assert target.subjects == subjects
    assert target.max_tokens(2048) == 1024 // CONTEXT_SHARE_OF_REPLY
    assert not target.is_quickstart


def test_a_run_that_has_not_ended_says_how_to_end_it(tmp_path):
    folder = make_run(tmp_path, num_trained=1)
    with pytest.raises(ValueError, match=rf"agent_1 does not exist.*resume={folder}"):
        find_target(str(folder), weights="trained")


def test_a_model_is_known_by_its_weights_and_its_context_has_a_limit(tmp_path):
    for seed in (0, 1):
        save_tiny_model(tmp_path / str(seed), "tied", seed=seed)
    first, second = (read_model(tmp_path / str(seed)) for seed in (0, 1))
    assert first == read_model(tmp_path / "0") and first.context_length == 1024
    assert first.fingerprint != second.fingerprint
    config = json.loads((tmp_path / "0/config.json").read_text())
    large = json.dumps(config | {"max_position_embeddings": 131072})
    (tmp_path / "0/config.json").write_text(large)
    assert read_model(tmp_path / "0").context_length == 32768
