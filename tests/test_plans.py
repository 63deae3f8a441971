"""Plans past the paper's scale: three cells by hand, the search, and the larger configurations."""

from __future__ import annotations

from functools import cache

import pytest
from small_runs import REPOSITORY

from comas.config.schema import Config
from comas.engines.cluster.placement import gpus_in_all, plan_policy
from comas.preflight import plans
from comas.preflight.checks import gpu_memory_needs
from comas.preflight.configuration import PAPER_CONFIG, load_config
from comas.preflight.conflicts import find_conflicts
from comas.preflight.hours import Assumptions, cached_sequences, one_step
from comas.preflight.machine import Machine, imagined_machine
from comas.preflight.memory import (
    GIB,
    ModelShape,
    adapter_parameters,
    kv_cache_bytes,
    kv_room_bytes,
    model_shape,
)
from comas.preflight.plans import (
    LORA_CONFIG,
    Candidate,
    Cell,
    allowed_settings,
    candidates,
    cheapest,
    fits_in,
    kind_of,
    node_of,
    paper_run,
    plan_cell,
)
from comas.preflight.sharding import settle_sharding
from comas.preflight.sizes import derive_sizes
from comas.run.prepared import Sizes
from scripts.plan import Plans, main, page_of

MODELS = REPOSITORY / "configs/models"
SIZES = ("3B", "7B", "14B", "32B")
P7, P32 = 7_615_616_512, 32_763_876_352


def folder(size: str) -> str:
    return str(MODELS / f"Qwen2.5-{size}-Instruct")


@cache
def shape(size: str) -> ModelShape:
    return model_shape(folder(size))


def node(num_gpus: int, *, host_gib: float = 2000) -> Machine:
    return node_of(num_gpus, gpu_gib=79, host_gib=host_gib)


@cache
def runs(num_agents: int) -> list[tuple[Config, Sizes]]:
    return [
        paper_run(path, num_agents, schedule="sequential") for path in (PAPER_CONFIG, LORA_CONFIG)
    ]


@cache
def cell(size: str, num_agents: int, num_gpus: int) -> Cell:
    return plan_cell(runs(num_agents), shape(size), num_gpus, node(num_gpus))


def fit_of(size: str, num_agents: int, num_gpus: int) -> Candidate:
    fit = cell(size, num_agents, num_gpus).fit
    assert fit is not None
    return fit


@pytest.mark.parametrize(
    ("size", "billions"), [("3B", 3.09), ("7B", 7.62), ("14B", 14.77), ("32B", 32.76)]
)
def test_models_have_the_published_numbers_of_parameters(size, billions):
    assert round(shape(size).num_parameters / 1e9, 2) == billions


# ---------------------------------------------------------------- three cells by hand


def test_four_agents_of_3b_on_eight_gpus_are_the_papers_run():
    fit = fit_of("3B", 4, 8)
    sizes = runs(4)[0][1]
    # 24 turns of 256 discussions in 31 steps, of which 31 x 64 of 2000 questions.
    assert (sizes.turns_per_discussion["solution"], sizes.num_turns) == (8, 256 * 24)
    assert kind_of(fit.config) == "whole models"
    assert (fit.config.cluster.gpus_per_policy, fit.config.policy.zero_stage) == (2, 2)
    assert find_conflicts(fit.config) == []
    # bfloat16 weights 6.17 GB; float32 weights, moments and gradients 16 x 3.086 / 2 = 24.69;
    # activations 29.56 of 6,144 tokens (37 x 65,024 elements); the head's logits and gradient
    # 151936 x (4096 + 8192) = 1.87; half the gradients and a bucket, 3.09 + 1. In all 66.4 GB.
    by_hand = 6.172 + 24.688 + 29.564 + 1.867 + 3.086 + 1
    assert fit.update.gpu_peak / 1e9 == pytest.approx(by_hand, rel=1e-3)
    # 8 ranks: 4 buffers of 8 GiB pinned while waiting, 14 x 3.086 / 2 GB for a checkpoint.
    by_hand = 8 * (32 + 14 * 3.0859 / 2 / 1.073742) + 16
    assert fit.host / GIB == pytest.approx(by_hand, rel=1e-3)
    # With an engine over both GPUs of a policy; the dry run says 4.1 to 5.8 of configs/comas.yaml.
    assert fit.config.rollout.tensor_parallel == 2
    assert tuple(round(each, 1) for each in fit.hours) == (3.9, 5.6)


def test_four_agents_of_7b_on_eight_gpus_have_adam_on_the_host():
    fit = fit_of("7B", 4, 8)
    policy = fit.config.policy
    assert (policy.ranks_per_policy, policy.zero_stage, policy.adam_offload) == (2, 3, True)
    assert (policy.gradient_checkpointing, policy.micro_batch_tokens) == (True, 32768)
    # Half the weights and 1e9 gathered, 2 bytes each; of 32,768 tokens each layer's input, and
    # twice 10 x 3584 + 2 x 512 + 4 x 18944 = 112,640 of one layer; the head; a bucket of 5e8.
    activations = 2 * 32768 * (28 * 3584 + 2 * 112_640)
    by_hand = 2 * (P7 / 2 + 1e9) + activations + 152064 * (4096 + 4 * 3584) + 2 * 5e8
    assert fit.update.gpu_peak == by_hand  # 34.8 GB
    # Each of 8 ranks: 12 x 3.81 GB of states, and as much for a checkpoint; gradients of 15.2 GB in
    # 16 GiB, by groups of 4 GB and 3.2 in 4 GiB each; weights of 7.6 GB wait in 8 GiB.
    by_hand = 8 * (2 * 12 * P7 / 2 + (16 + 4 * 4 + 8) * GIB) + 16 * GIB
    assert fit.host == pytest.approx(by_hand)
    # Hours at best, with an engine of two GPUs. Half of 77.6 sequences of 2,325 tokens at 57,344
    # bytes, and of all weights, at 1.4 TB/s, 28 x 2 sums of 10 us, and 3 ms; 8,250 tokens one after
    # another; half of the engine's 1,536 prompts, a fifth of them cached.
    body = P7 - 152064 * 3584
    of_a_token = (2 * P7 + 77.58 * 2325 * 57_344) / 2 / 1.4e12 + 56e-5 + 0.003
    rollout = 8250 * of_a_token * 1.3 + 2 * body * 768 * 2116.7 * 0.8 / 156e12
    # 1536 samples of 2,533 tokens; 10 operations per weight: 6, before the update 2, repeated 2.
    weights = body + 152064 * 3584 * 416.7 / 2533.3 + 28 * 3584 * 2533.3
    update = 10 * weights * 1536 * 2533.3 / (2 * 312e12 * 0.55)
    # 59.4 micro batches of a rank, each gathering half of 15.2 GB twice over NVLink and moving
    # 4 bytes of each of its weights over PCIe twice; 24 times Adam on the host.
    transfers = 59.37 * (P7 * 2 / 250e9 + P7 * 4 / 25e9) + 24 * P7 / 2 / 0.8e9
    phases = 6 + 2 * P7 / 25e9
    step = one_step(fit.config, runs(4)[0][1], shape("7B"), Assumptions())
    assert step.rollout == pytest.approx(rollout, rel=1e-3)
    assert step.update == pytest.approx(update, rel=1e-3)
    assert step.transfers == pytest.approx(transfers, rel=1e-3)
    assert step.phases == pytest.approx(phases, rel=1e-3)
    # 16 validations, longer by the time of a lone decoding step: 13.88 ms against 7.41; and 4
    # checkpoints of 4 policies, 14 bytes per weight at 2 GB/s.
    between = 16 * 45 * 13.88 / 7.41 + 4 * 4 * 14 * P7 / 2e9
    seconds = 31 * (rollout + update + transfers + phases) + between
    assert fit.hours[0] == pytest.approx(seconds / 3600, rel=1e-3)


def test_two_agents_of_32b_on_sixteen_gpus_have_engines_of_eight():
    fit = fit_of("32B", 2, 16)
    config = fit.config
    assert config.cluster.placement == "colocated"
    assert (config.policy.ranks_per_policy, config.rollout.tensor_parallel) == (8, 8)
    # The whole model in bfloat16, before it is divided: more than an update.
    assert fit.update.gpu_peak == 2 * P32
    # An engine's 0.6 x 79 GiB less an eighth of 65.5 GB of weights, 8,192 tokens of 2 x 5120 and
    # 3 x 27648 / 8 in bfloat16, and 256 logits three times in float32.
    batch = 8192 * (2 * 5120 + 3 * 27648 / 8) * 2 + 3 * 4 * 256 * 152064
    room = 0.6 * 79 * GIB - 2 * P32 / 8 - batch
    assert kv_room_bytes(shape("32B"), config, gpu_bytes=79 * GIB) == pytest.approx(room)
    assert kv_cache_bytes(shape("32B"), config) == 32768 * 262_144 / 8 < room
    # So 617 sequences of 2,075 tokens could be there at once; 128 discussions x 5000 / 4250 are.
    assert cached_sequences(2075, config, shape("32B"), Assumptions()) == pytest.approx(
        room / (2075 * 262_144 / 8)
    )
    # Each GPU reads its eighth, and 64 layers are summed up twice in 10 us. The chain is
    # 4 x 1000 + 250 tokens; the engine has 1,536 prompts of 1,867.
    read = (2 * P32 + 150.6 * 2075 * 262_144) / 8
    of_a_token = read / 1.4e12 + 2 * 64 * 1e-5 + 0.003
    prompts = 2 * (P32 - 152064 * 5120) * 1536 * 1866.7 * 0.8 / 156e12 / 8
    step = one_step(config, runs(2)[0][1], shape("32B"), Assumptions())
    assert step.rollout == pytest.approx(4250 * of_a_token * 1.3 + prompts, rel=1e-3)
    assert step.phases == pytest.approx(6 + 2 * 2 * P32 / 8 / 25e9)
    # One policy on a node: 8 ranks with 12 x 4.1 GB of states and as much for a checkpoint,
    # gradients of 16.4 GB in 16 GiB, and by groups of 4 GB in 4 GiB each and 0.4 GB in 0.5, weights
    # of 8.2 GB that wait in 8 GiB.
    by_hand = 8 * (24 * P32 / 8 + (16 + 4 * 4 + 0.5 + 8) * GIB) + 16 * GIB
    assert fit.host == pytest.approx(by_hand, rel=1e-3)


# ---------------------------------------------------------------- the search


def test_every_plan_is_a_configuration_that_the_dry_run_accepts():
    for size, num_agents, num_gpus in (("3B", 2, 1), ("14B", 4, 8), ("7B", 8, 8)):
        fit, machine = fit_of(size, num_agents, num_gpus), node(num_gpus)
        assert find_conflicts(fit.config) == []
        needs = gpu_memory_needs(
            fit.config,
            [shape(size)] * fit.config.num_policies,
            machine,
            host_bytes=machine.host_bytes,
        )
        assert [need for need in needs if need.fault or need.doubt] == []


def test_no_other_plan_that_fits_is_expected_to_take_less_time():
    config, sizes = runs(4)[0]
    fitting = [
        fit for fit in candidates(config, sizes, shape("3B"), 8, node(8)) if fits_in(fit, node(8))
    ]
    assert len(fitting) > 10
    best = fit_of("3B", 4, 8)
    assert min(fit.expected_hours for fit in fitting) == pytest.approx(best.expected_hours)
    # The paper's share of a GPU where others are no faster.
    assert best.config.rollout.gpu_memory_utilization == 0.6


def test_adapters_are_taken_where_whole_models_do_not_fit_alone():
    assert kind_of(fit_of("7B", 2, 8).config) == "whole models"
    assert kind_of(fit_of("7B", 2, 1).config) == "LoRA of rank 32"
    config, sizes = runs(2)[0]
    assert cheapest(config, sizes, shape("7B"), 1, node(1)) is None


def test_what_cannot_fit_says_what_is_missing_and_what_would_help():
    found = cell("3B", 64, 1)
    assert found.fit is None
    # 64 adapters of 60 million: 18 bytes each are 69 GB, beside 6 of the base and what passes.
    assert "fewer GPUs than 64 policies have room on" in found.reason
    assert "LoRA of rank 32: a GPU in an update" in found.reason
    assert "fits with policy.lora.rank=8" in found.reason
    # Two policies of 32B on a node: 2 x 992 GiB of Adam's states and checkpoints, and 16.
    assert "a node's memory: 2000.7 of 1900.0 GiB" in cell("32B", 2, 8).reason
    assert "fits with 16 GPUs" in cell("32B", 2, 8).reason
    huge = ModelShape(4_000_000_000_000, 126, 16384, 53248, 1024, 128256)
    assert "would need policies over more than 4 nodes" in (
        plan_cell(runs(2), huge, 64, node(64)).reason
    )


def test_sampling_beside_training_pays_where_the_two_take_about_as_long():
    # By colocated GPUs the paper's run needs the sum of both, each on all of them.
    assert cell("3B", 4, 8).stale is None
    found = cell("14B", 4, 8)
    assert found.fit is not None and found.stale is not None
    assert found.stale.config.cluster.placement == "disaggregated"
    assert found.stale.config.training.max_staleness == 1
    apart, beside = (
        one_step(plan.config, runs(4)[0][1], shape("14B"), Assumptions())
        for plan in (found.fit, found.stale)
    )
    assert apart.seconds == apart.rollout + apart.update + apart.transfers + apart.phases
    assert beside.seconds == max(beside.rollout, beside.update + beside.transfers) + beside.phases


def test_a_smaller_host_or_more_gpus_change_the_plan_as_they_should():
    config, sizes = runs(4)[0]
    assert cheapest(config, sizes, shape("7B"), 8, node(8, host_gib=1000)) is None
    assert fit_of("7B", 4, 16).expected_hours < fit_of("7B", 4, 8).expected_hours


def test_a_policy_is_divided_over_nodes_where_that_takes_less_time():
    fit, sizes = fit_of("7B", 4, 64), runs(4)[0][1]
    assert (fit.gpus_used, fit.config.cluster.nodes_per_policy) == (64, 2)
    assert find_conflicts(fit.config) == []
    # A policy's 16 ranks, 8 on a node with 2 engines of 4 GPUs.
    assert (fit.config.policy.ranks_per_policy, fit.config.rollout.engines_per_policy) == (16, 4)
    assert fit.config.policy.zero_stage == 2
    step = one_step(fit.config, sizes, shape("7B"), Assumptions())
    # 1,536 samples of 2,533 tokens are 39.6 micro batches of 6,144 a rank, in each of which half of
    # 15.2 GB of gradients cross at 25 GB/s.
    assert step.transfers == pytest.approx(1536 * 7600 / 3 / 16 / 6144 * P7 / 25e9, rel=1e-3)


def test_adapters_send_their_own_gradients_alone_from_node_to_node():
    config, sizes = runs(4)[1]
    settings = {"cluster.nodes_per_policy": 2, "policy.ranks_per_policy": 16}
    sharded = {"policy.zero_stage": 2, "policy.adam_offload": False}
    step = one_step(
        plans.with_settings(config, {**settings, **sharded}), sizes, shape("7B"), Assumptions()
    )
    adapter = adapter_parameters(shape("7B"), config)
    assert adapter == 80_740_352
    micro_batches = 4 * 1536 * 7600 / 3 / 16 / 6144
    assert step.transfers == pytest.approx(micro_batches * adapter / 25e9, rel=1e-3)


def test_a_further_dimension_is_one_line(monkeypatch):
    before = len(allowed_settings())
    more = [{"rollout.max_num_seqs": value} for value in (256, 512)]
    monkeypatch.setattr(plans, "DIMENSIONS", (*plans.DIMENSIONS, more))
    allowed_settings.cache_clear()
    assert len(allowed_settings()) == 2 * before
    monkeypatch.undo()
    allowed_settings.cache_clear()


def test_policies_that_share_gpus_take_turns():
    config, sizes = paper_run(PAPER_CONFIG, 2, schedule="sequential")
    alone = one_step(config, sizes, shape("3B"), Assumptions())
    config.cluster.policies_per_gpu = 2
    shared = one_step(config, sizes, shape("3B"), Assumptions())
    assert (shared.rollout, shared.update) == (2 * alone.rollout, 2 * alone.update)


def test_zero_3_gathers_weights_also_where_adam_is_on_the_gpu():
    config, sizes = runs(4)[0]
    settings = {"policy.zero_stage": 3, "policy.adam_offload": False}
    step = one_step(plans.with_settings(config, settings), sizes, shape("7B"), Assumptions())
    # 316.7 micro batches of 6,144 tokens, in each half of 15.2 GB twice at 250 GB/s.
    assert step.transfers == pytest.approx(1536 * 7600 / 3 / 2 / 6144 * 2 * P7 / 250e9, rel=1e-3)


def test_a_run_planned_without_gpus_has_nodes_of_eight():
    assert imagined_machine(128).num_gpus == 8
    assert imagined_machine(2).num_gpus == 2


# ---------------------------------------------------------------- what is shipped


@pytest.mark.parametrize(
    ("name", "size", "num_gpus", "hours"),
    [("comas_7b", "7B", 8, (12.2, 16.9)), ("comas_14b", "14B", 8, (11.2, 15.6))],
)
def test_a_larger_configuration_fits_as_it_says(name, size, num_gpus, hours):
    config = load_config(REPOSITORY / f"configs/{name}.yaml", [])
    placement = plan_policy(config, device="cuda")
    assert gpus_in_all(placement, config.num_policies) == num_gpus
    machine = imagined_machine(num_gpus)
    settled, line = settle_sharding(config, models=[folder(size)], machine=machine)
    assert (settled.policy.zero_stage, settled.policy.adam_offload) == (3, True)
    assert "the cheapest that fits" in line
    needs = gpu_memory_needs(
        settled,
        [shape(size)] * config.num_policies,
        machine,
        host_bytes=machine.host_bytes,
    )
    assert [need for need in needs if need.fault or need.doubt] == []
    sizes = derive_sizes(settled, num_questions=2000)
    found = plans.hours_interval(settled, sizes, shape(size), Assumptions())
    assert tuple(round(each, 1) for each in found) == hours
    # The best plan has engines of several GPUs, which saves little where a model fits one.
    best = fit_of(size, config.society.num_agents, num_gpus)
    assert best.hours[0] < found[0] < 1.07 * best.hours[0]


def test_the_script_prints_a_page_and_writes_it_where_asked(tmp_path, capsys):
    page = tmp_path / "page.md"
    asked = Plans(models="Qwen/Qwen2.5-3B-Instruct", agents="4,64", gpus="1,8", out=str(page))
    main(asked)
    printed = capsys.readouterr().out
    assert printed == page.read_text()
    assert "none of this was ever run on a GPU" in printed
    assert "| 4 | 8 | whole models, 2 GPUs each, colocated, ZeRO-2," in printed
    assert "| 3.9 to 5.6 |" in printed
    assert "| 64 | 1 | **does not fit.** whole models: fewer GPUs" in printed


def test_the_shipped_page_is_what_the_script_prints():
    rows = [line for line in (REPOSITORY / "results/plans.md").read_text().splitlines()]
    printed = list(page_of(Plans(models="Qwen2.5-7B-Instruct", agents="2,4", gpus="1,8")))
    assert len([line for line in printed if line.startswith("| ")]) == 1 + 4
    assert [line for line in printed if line.startswith("| ") and line not in rows] == []


@pytest.mark.parametrize("text", ["2,", "0", "two", "-1"])
def test_what_is_no_number_of_agents_is_an_error_that_names_the_key(text):
    with pytest.raises(ValueError, match=f"agents={text}: must be numbers of at least 1"):
        list(page_of(Plans(agents=text)))


def test_only_schedules_that_the_hours_are_known_of_are_planned():
    with pytest.raises(ValueError, match="schedule=debate: must be one of sequential, parallel"):
        list(page_of(Plans(schedule="debate")))
