"""What the models read and said, token by token, on the disk."""

from dataclasses import replace

import torch
from builders import sample
from page_runs import discussion

from comas.policy_optimization.batching import response_rows
from comas.policy_optimization.samples import collect_samples
from comas.preflight.configuration import load_config
from comas.run import RunDirectory
from comas.run.bookkeeping import advantages_by_turn
from comas.run.metrics.step import rollout_metrics
from comas.run.records import compressed, read_tokens, token_records
from comas.types import RewardedDiscussion


def test_a_record_holds_the_tokens_that_were_sampled_and_four_digits_of_their_numbers():
    said = discussion(1).discussion
    solution, evaluation, scoring = said.turns
    given = replace(scoring, generation=replace(scoring.generation, finish_reason="given"))
    said = replace(said, turns=(solution, evaluation, given))  # which nobody said
    key = (said.discussion_id, "r0.s0")
    first, second = token_records([said], {key: (1.23456,)})
    assert first == {
        "discussion_id": "step1/math/17/copy0",
        "turn_id": "r0.s0",
        "prompt_token_ids": [0, 1, 2, 3, 4],
        "response_token_ids": [6],
        "logprobs": [-0.25],
        "advantages": [1.235],
    }
    assert "advantages" not in second and "sampled" not in first


def test_a_record_says_which_tokens_are_a_tools_and_the_metrics_do_not_count_them():
    said = discussion(1).discussion
    solution, *others = said.turns
    tool = replace(solution.generation, response_token_ids=(6, 7), rollout_logprobs=(-0.25, 0.0))
    tool = replace(tool, sampled=(True, False))
    said = replace(said, turns=(replace(solution, generation=tool), *others))
    first, *_ = token_records([said], {})
    assert (first["response_token_ids"], first["sampled"]) == ([6, 7], [True, False])
    rewarded = RewardedDiscussion(said, (0.5,) * len(said.turns))
    whole = rollout_metrics([discussion(1)], num_agents=4)
    found = rollout_metrics([rewarded], num_agents=4)
    assert found["tokens/response"] == whole["tokens/response"] == len(said.turns)
    assert found["response_length"] == 1


def test_advantages_of_an_earlier_step_join_the_tokens_of_that_step(tmp_path):
    """A policy that is updated every second step learns in step 2 what step 1 was worth."""
    early, late = discussion(1).discussion, discussion(2).discussion
    gains = {(early.discussion_id, "r0.s0"): (0.5,), (late.discussion_id, "r0.s0"): (-0.5,)}
    (tmp_path / "step_0001.jsonl.gz").write_bytes(compressed(token_records([early], {})))
    (tmp_path / "step_0002.jsonl.gz").write_bytes(compressed(token_records([late], gains)))
    records = read_tokens(tmp_path)
    assert {key: records[key]["advantages"] for key in gains} == {
        (early.discussion_id, "r0.s0"): [0.5],
        (late.discussion_id, "r0.s0"): [-0.5],
    }
    assert records[early.discussion_id, "r0.s0"]["response_token_ids"] == [6]


def test_each_sample_gets_the_advantages_of_its_own_tokens_only():
    samples = [sample(response_token_ids=ids) for ids in ((7, 9), (3,))]
    rows = response_rows(torch.tensor([[1.5, 1.0], [-2.0, 0.0]]), samples)
    assert [*map(list, rows)] == [[1.5, 1.0], [-2.0]]


def test_advantages_are_named_by_the_turns_of_the_buffer():
    class Stats:
        advantages = ((0.25,), (-0.75,))

    item = discussion(1)
    own, other = collect_samples([item], policy_of_agent=[0, 1], mask_truncated=True)
    assert [sample.turn_id for sample in own] == ["r0.s0", "r0.s0.e0.t0"]
    named = advantages_by_turn({0: own, 1: other}, {0: Stats()})  # type: ignore[dict-item]
    name = item.discussion.discussion_id
    assert named == {(name, "r0.s0"): (0.25,), (name, "r0.s0.e0.t0"): (-0.75,)}


def test_a_run_writes_tokens_and_forgets_those_of_steps_that_it_repeats(tmp_path):
    with RunDirectory.create(load_config(None, [f"saves={tmp_path}"])) as run:
        for step in (1, 2):
            run.save_tokens(step, [discussion(step).discussion], advantages={})
        run.go_back_to(1)
    assert [path.name for path in (run.path / "tokens").iterdir()] == ["step_0001.jsonl.gz"]
