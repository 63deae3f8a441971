"""The checks of the preflight; memory in hand-computed numbers, and the sharding chosen by it."""

import dataclasses
from pathlib import Path

import pytest
import torch
from model_types import tiny_model
from small_runs import QUICKSTART, REPOSITORY
from tables import cases
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen3Config

from comas.config.schema import Config, Optimization
from comas.engines.cluster.placement import gpus_in_all, plan_policy
from comas.preflight.checks import Check, errors_of
from comas.preflight.configuration import load_config
from comas.preflight.machine import Machine, choose_device, imagined_machine, why_on_cpu
from comas.preflight.memory import (
    GIB,
    ModelShape,
    RankMemory,
    Sharding,
    engine_memory,
    layer_activations,
    model_shape,
    rank_memory,
    tokens_at_once,
)
from comas.preflight.preparation import check_device, check_disk, check_object_store
from comas.preflight.sharding import check_memory, possible_shardings, settle_sharding

PARAMETERS = 3_085_938_688
QWEN_3B = ModelShape(PARAMETERS, 36, 2048, 11008, 2048, 256, 151936)
QWEN_7B = ModelShape(7_615_616_512, 28, 3584, 18944, 3584, 512, 152064)
QWEN_14B = ModelShape(14_770_033_664, 48, 5120, 13824, 5120, 1024, 152064)
EIGHT_A100 = Machine("cuda", 8, 79 * GIB, 1000 * GIB, has_cuda_compiler=True)
CPU = Machine("cpu", 0, 0, 24 * GIB, has_cuda_compiler=False)


def paper(**policy: object) -> Config:
    config = Config()
    return dataclasses.replace(config, policy=dataclasses.replace(config.policy, **policy))


def sharded(**policy: object) -> Config:
    """The paper's run with its sharding chosen: by default ZeRO-2, with Adam's states on GPUs."""
    return paper(**{"zero_stage": 2, "adam_offload": False} | policy)


def test_a_run_that_asks_for_cuda_never_takes_the_cpu():
    assert choose_device("cuda", num_gpus=0) == "cuda"
    assert load_config(REPOSITORY / "configs/comas.yaml", []).cluster.device == "cuda"
    [error] = errors_of(check_device(sharded(), "cuda", num_gpus=0))
    assert "torch sees no GPU: Torch not compiled with CUDA" in error
    assert "cluster.device=cpu" in error
    assert errors_of(check_device(sharded(), "cuda", num_gpus=8)) == []
    [error] = errors_of(check_device(sharded(), "cuda", num_gpus=3))
    assert "4 policies need 2 GPUs each" in error


def test_auto_takes_the_cpu_and_says_why_if_there_is_a_driver(monkeypatch):
    assert choose_device("auto", num_gpus=0) == choose_device("cpu", num_gpus=8) == "cpu"
    assert choose_device("auto", num_gpus=8) == "cuda"
    for has_driver in (True, False):
        monkeypatch.setattr(Path, "exists", lambda path, found=has_driver: found)
        assert why_on_cpu("cpu", num_gpus=0) is None
        assert bool(why_on_cpu("auto", num_gpus=0)) == has_driver
        [check] = check_device(load_config(QUICKSTART, []), "cpu", num_gpus=0)
        assert check.error is None and ("no GPU" in str(check.warning)) == has_driver


def gpu_memory(machine: Machine, config: Config | None = None, *, host_gib: int = 1000):
    """The checks of GPU memory in updates and sampling, and host memory, for the paper's run."""
    machine = dataclasses.replace(machine, host_bytes=host_gib * GIB)
    return check_memory(config or sharded(), [QWEN_3B] * 4, machine)


def test_an_update_is_shown_part_by_part():
    update, sampling, _ = gpu_memory(EIGHT_A100)
    # 2 x 3.086e9 bytes of weights; 12 and 4 on each of 2 ranks.
    assert "weights 5.7, optimiser 17.2, gradients 5.7," in update.needed
    assert update.error is update.warning is None
    # 36 layers x 2 x 256 x 2 bytes x 32768 tokens = 1.125 GiB beside the weights' 5.7; 8,192 tokens
    # x (2 x 2048 + 3 x 11008) x 2 bytes, 256 sequences x 151,936 x 3 x 4 bytes.
    expected = (2 * 3_085_938_688, 608_174_080 + 466_747_392, 36 * 2 * 256 * 2 * 32768)
    assert engine_memory(QWEN_3B, sharded()) == expected
    assert sampling.needed == "7.9 GiB (weights 5.7, a batch 1.0, KV cache 1.1)"
    # (0.6 x 79 - 5.75 - 1.0) / 1.125
    assert sampling.present == "47.4 GiB (36 longest sequences)"
    no_cache = dataclasses.replace(QWEN_3B, kv_size=0)
    assert check_memory(sharded(), [no_cache] * 4, EIGHT_A100)[1].present == "47.4 GiB"


def test_states_that_cannot_fit_are_an_error_and_a_high_peak_is_a_warning():
    update, sampling, _ = gpu_memory(dataclasses.replace(EIGHT_A100, gpu_bytes=24 * GIB))
    assert "fill 28.7 GiB of a GPU that has 18.8" in str(update.error)
    assert sampling.error is None
    update, _, _ = gpu_memory(dataclasses.replace(EIGHT_A100, gpu_bytes=40 * GIB))
    assert update.error is None and update.warning is not None
    _, sampling, _ = gpu_memory(dataclasses.replace(EIGHT_A100, gpu_bytes=11 * GIB))
    assert "gives an engine 6.6 GiB" in str(sampling.error)


def test_the_papers_society_with_offload_needs_hundreds_of_gib_of_host_memory():
    config = load_config(REPOSITORY / "configs/comas_paper_memory.yaml", [])
    # 8 ranks: 12 bytes of 3.086e9 / 2 parameters, gradients pinned in 8 and in 4 + 4 GiB, weights
    # in 4; 16 GiB of object store.
    # 8 x (17.24 + 16 + 4 + 0.75 + 1.1) + 0.7 + 16, with the processes of ranks and engines
    hosts = (gpu_memory(EIGHT_A100, config, host_gib=gib)[2] for gib in (256, 336, 384))
    little, enough, plenty = hosts
    said = "329.5 of 256.0 GiB are needed by estimate (16.0 GiB by Ray's object store)"
    assert said in str(little.error)
    assert enough.error is None and enough.warning is not None
    assert plenty == Check("host memory", "329.5 GiB", "384.0 GiB")


@cases("policy, needed")
def test_disk_is_needed_for_the_kept_checkpoints_and_the_one_being_written(policy, needed):
    config, sizes = sharded(**policy), dict.fromkeys(range(4), 10**9)
    check = check_disk(config, sizes=sizes, free=250 * GIB)
    assert (check.needed, check.error) == (needed, None)
    error = check_disk(config, sizes=sizes, free=50 * GIB).error
    assert f"kept checkpoints and the one being written need {needed[:9]}" in str(error)


def test_a_large_object_store_needs_as_much_shared_memory():
    assert check_object_store(16 * GIB, free=17 * GIB).error is None
    assert check_object_store(8 * GIB, free=0).error is None  # Ray takes a folder on disk
    assert "object_store_mib=16384: /dev/shm has" in str(
        check_object_store(16 * GIB, free=16 * GIB).error
    )


def test_frozen_shared_and_kept_policies_are_counted_as_they_are_saved():
    config, sizes = sharded(zero_stage=3), dict.fromkeys(range(4), 10**9)
    kept = [check_disk(config, sizes=sizes, free=0, num_kept=n).needed[:8] for n in (2, 9)]
    assert kept == ["52.7 GiB"] * 2  # one of 48 GB is being written
    config.society.update_every = [0, 1, 1, 1]
    # Three trained policies of 12 GB in each of 3 checkpoints, and 3 models of 2 GB.
    trained = dict.fromkeys((1, 2, 3), 10**9)
    assert check_disk(config, sizes=trained, free=0).needed.startswith("106.7 GiB")
    config.society.update_every = [1]
    config.society.policy_of_agent = [0, 0, 0, 0]
    assert check_disk(config, sizes={0: 10**9}, free=0).needed.startswith("41.5 GiB")  # 4 models


def need_of(config: Config, stage: int, offload: bool) -> RankMemory:
    return rank_memory(QWEN_3B, config, Sharding(stage, offload), shares_gpu=True)


def settled(config: Config, shape: ModelShape, machine: Machine) -> tuple[int, bool, str]:
    """Stage, offload and the printed line for a model of this shape."""
    result, line = settle_sharding(config, shapes=[shape] * config.num_policies, machine=machine)
    return result.policy.zero_stage, result.policy.adam_offload, line  # type: ignore[return-value]


def test_states_of_qwen_3b_under_zero_2_are_31_gb_on_each_of_two_gpus():
    need = need_of(paper(), 2, False)
    assert need.weights == 2 * PARAMETERS  # bfloat16, whole: 6.17 GB
    assert need.optimizer == 12 * PARAMETERS / 2  # float32 weights and 2 moments, half: 18.52 GB
    assert need.gradients == 4 * PARAMETERS / 2  # float32, half: 6.17 GB
    assert need.states == pytest.approx(30.86e9, rel=1e-3)
    # bfloat16: half the gradients, a bucket of 5e8, and 6,144 tokens of 37 x 65,024 elements; the
    # head's logits of 512 tokens and its gradient, in float32.
    reduction = PARAMETERS + 2 * 500_000_000
    passing = reduction + 2 * 6144 * 37 * 65024 + 151936 * (4096 + 4 * 2048)
    assert need.peak == need.states + passing
    # Weights, and 3 float32 halves, wait: 5.75 GiB each, 8 where it is pinned.
    assert need.host == 4 * 8 * GIB
    policy_gradient = dataclasses.replace(Config().algorithm, kl_coef=0.01)
    with_reference = dataclasses.replace(paper(), algorithm=policy_gradient)
    assert need_of(with_reference, 2, False).host == 4 * 8 * GIB + 2 * PARAMETERS
    # Every rank reads the whole model, which needs more than the waiting states of 8 ranks.
    apart = rank_memory(QWEN_14B, paper(ranks_per_policy=8), Sharding(2, False), shares_gpu=False)
    assert apart.host == 2 * QWEN_14B.num_parameters > 4 * QWEN_14B.num_parameters / 8
    assert need_of(paper(dtype="float32", ranks_per_policy=1), 0, False).states == 16 * PARAMETERS


def test_offloaded_states_leave_a_gpu_its_weights():
    need = need_of(paper(), 3, True)
    assert need.states == PARAMETERS + 2 * 1_000_000_000  # bfloat16: a half, and what is gathered
    # Of the half, float32 weights and 2 moments, and gradients twice, pinned: 6.2 GB in 8 GiB, and
    # by groups of 1e9, 4 GB in 4 GiB and 2.17 in 4.
    offloaded = 12 * PARAMETERS / 2 + (8 + 4 + 4) * GIB
    assert need.host == offloaded + 4 * GIB  # The half waits, 2.9 GiB.


def passing_of(**policy: object) -> float:
    """Activations: the peak, less states and buffers of fixed size."""
    fixed = PARAMETERS + 2 * 500_000_000 + 151936 * (4096 + 4 * 2048)
    need = need_of(paper(**policy), 2, False)
    return need.peak - need.states - fixed


def test_activations_are_those_of_the_longest_sample():
    assert tokens_at_once(paper(micro_batch_tokens=2 * 32768)) == 2 * 32768
    assert tokens_at_once(paper(micro_batch_tokens=8192)) == 28672 + 4096
    assert tokens_at_once(paper(micro_batch_tokens=40000)) == 40000
    # bfloat16: 36 layer inputs, and twice 10 x 2048 + 2 x 256 + 4 x 11008 of one layer.
    recomputed = 2 * 32768 * (36 * 2048 + 2 * 65024)
    assert passing_of(gradient_checkpointing=True) == recomputed
    # Only samples over the budget: 29.6 GB of 6144 tokens against 13.4 GB of 32,768.
    assert passing_of(micro_batch_tokens=6144) == 2 * 6144 * 37 * 65024
    assert passing_of(micro_batch_tokens=1024) == recomputed


@cases(
    "family, hidden, inner, kv_heads, head_dim",
    (Qwen2Config, 128, 512, 1, 32),
    (Qwen2Config, 128, 688, 4, 32),
    (Qwen3Config, 128, 512, 2, 64),
)
def test_a_layer_keeps_what_the_arithmetic_says(family, hidden, inner, kv_heads, head_dim):
    def kept(num_layers: int, *, num_tokens: int = 128) -> int:
        config = family(
            vocab_size=16,
            hidden_size=hidden,
            intermediate_size=inner,
            num_hidden_layers=num_layers,
            num_attention_heads=4,
            num_key_value_heads=kv_heads,
            head_dim=head_dim,
        )
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
        sizes: dict[int, int] = {}

        def note(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in weights:
                sizes[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            output = model.model(torch.zeros(1, num_tokens, dtype=torch.long), use_cache=False)
        assert output.last_hidden_state.requires_grad
        return sum(sizes.values()) // num_tokens

    heads = 4 * head_dim, kv_heads * head_dim
    shape = ModelShape(0, 0, hidden, inner, *heads, 16, family is Qwen3Config)
    assert kept(3) - kept(2) == pytest.approx(2 * layer_activations(shape), rel=0.05)


@cases(
    "shape, gpu_gib, stage, offload",
    (QWEN_3B, 79, 2, False),
    (QWEN_3B, 141, 2, False),
    (QWEN_3B, 48, 3, True),  # ZeRO-2 and ZeRO-3 need more than its 41.6 GiB
    (QWEN_7B, 79, 3, True),
    (QWEN_7B, 141, 2, False),
)
def test_the_cheapest_that_fits_is_chosen(shape, gpu_gib, stage, offload):
    machine = dataclasses.replace(EIGHT_A100, gpu_bytes=gpu_gib * GIB, host_bytes=1100 * GIB)
    *choice, line = settled(paper(), shape, machine)
    assert choice == [stage, offload]
    assert f"ZeRO-{stage}" in line
    assert "the cheapest that fits" in line


@pytest.mark.parametrize("name", ["comas_7b", "comas_14b"])
def test_a_larger_configuration_fits_on_eight_gpus(name):
    config = load_config(REPOSITORY / f"configs/{name}.yaml", [])
    assert gpus_in_all(plan_policy(config, device="cuda"), config.num_policies) == 8
    shape = model_shape(str(REPOSITORY / "configs/models" / Path(config.models[0]).name))
    machine = imagined_machine(8)
    stage, offload, line = settled(config, shape, machine)
    assert (stage, offload) == (3, True) and "the cheapest that fits" in line
    policy = dataclasses.replace(config.policy, zero_stage=3, adam_offload=True)
    config = dataclasses.replace(config, policy=policy)
    checks = check_memory(config, [shape] * config.num_policies, machine)
    assert [check for check in checks if check.error or check.warning] == []


@cases("size, billions")
def test_shipped_shapes_have_the_published_numbers_of_parameters(size, billions):
    shape = model_shape(str(REPOSITORY / f"configs/models/Qwen2.5-{size}-Instruct"))
    assert round(shape.num_parameters / 1e9, 2) == billions


@cases(
    "model_type, changes, size",
    ("qwen2", {}, 128),
    ("qwen3_moe", {"num_experts_per_tok": 3}, 3 * 64),
    ("qwen2_moe", {}, 2 * 64 + 64),  # a shared expert
    ("mixtral", {}, 2 * 128),
)
def test_experts_count_whole_as_weights_and_by_tokens_as_activations(
    tmp_path, model_type, changes, size
):
    model = tiny_model(model_type, **changes)
    model.config.save_pretrained(tmp_path)
    shape = model_shape(str(tmp_path))
    assert shape.intermediate_size == size
    assert shape.num_parameters == model.num_parameters()
    assert shape.num_parameters > (3 * 4 * 64 * 64 * 4) * (model_type != "qwen2")  # four experts


def test_what_the_configuration_sets_is_taken_as_it_is():
    # 0.95 x 79 - 2 x 2 GiB may be filled; 8 ranks x 32 GiB wait in host memory.
    line = settled(paper(), QWEN_3B, EIGHT_A100)[2]
    assert "28.7 GiB for states, up to 61.8 of 71.0 in all; the host 271.5 of 1000.0 GiB" in line
    stage, offload, line = settled(paper(zero_stage=2, adam_offload=False), QWEN_7B, EIGHT_A100)
    assert (stage, offload) == (2, False)
    assert "as configured" in line
    assert line.endswith("perhaps too much")
    assert settled(paper(adam_offload=True), QWEN_3B, EIGHT_A100)[:2] == (3, True)
    assert settled(paper(zero_stage=3), QWEN_3B, EIGHT_A100)[:2] == (3, False)


@cases(
    "changes, said",
    ({"gpu_bytes": 24 * GIB}, "ZeRO-2: a GPU needs 28.7 GiB for states, .* of 18.8 in all"),
    ({"gpu_bytes": 24 * GIB}, "ZeRO-3, Adam's states in host memory"),
    ({"host_bytes": 200 * GIB}, r"the host 271\.5 of 200\.0 GiB"),
)
def test_nothing_that_fits_is_an_error_with_the_numbers_of_every_choice(changes, said):
    with pytest.raises(ValueError, match=f"(?s)does not fit into memory by estimate.*{said}"):
        settled(paper(), QWEN_3B, dataclasses.replace(EIGHT_A100, **changes))


@cases("policies_per_gpu, numbers")
def test_policies_of_one_gpu_meet_each_others_states_or_awake_engines(policies_per_gpu, numbers):
    machine = dataclasses.replace(EIGHT_A100, gpu_bytes=141 * GIB)
    config = paper(zero_stage=2, adam_offload=False, gradient_checkpointing=True)
    config.society.num_agents = 2
    config.rollout.gpu_memory_utilization = 0.45
    config.cluster.policies_per_gpu = policies_per_gpu
    config.society.update_every = [1, 0]
    assert numbers in settled(config, QWEN_3B, machine)[2]


def test_gradients_are_never_added_up_in_bfloat16_unless_asked_for():
    assert possible_shardings(paper(), EIGHT_A100) == [(2, False), (3, False), (3, True)]
    assert possible_shardings(paper(zero_stage=1), EIGHT_A100) == [(1, False), (1, True)]
    # Where ZeRO-3's optimiser for GPUs cannot be compiled, it is left out.
    machine = dataclasses.replace(EIGHT_A100, has_cuda_compiler=False)
    assert possible_shardings(paper(), machine) == [(2, False), (3, True)]
    assert possible_shardings(paper(zero_stage=3, adam_offload=False), machine) == [(3, False)]
    # DeepSpeed moves no states of another optimiser under ZeRO-3.
    other = dataclasses.replace(paper(), optimization=Optimization(optimizer="mine.py:lion"))
    assert possible_shardings(other, EIGHT_A100) == [(2, False), (3, True)]
    # With shared GPUs, ZeRO is needed.
    assert possible_shardings(paper(dtype="float32"), EIGHT_A100)[0] == (1, False)


def test_on_gpus_zero_is_needed_to_share_them_or_to_offload():
    assert possible_shardings(paper(dtype="float32"), CPU) == [(stage, False) for stage in range(4)]
    assert settled(paper(adam_offload=True), QWEN_3B, CPU)[:2] == (2, False)
    with pytest.raises(ValueError, match=r"policy\.zero_stage=0: only with ZeRO .* colocated"):
        possible_shardings(paper(zero_stage=0), EIGHT_A100)
    apart = paper(zero_stage=0, adam_offload=True)
    apart.cluster.placement = "disaggregated"
    with pytest.raises(ValueError, match=r"policy\.zero_stage=0: only with ZeRO"):
        possible_shardings(apart, EIGHT_A100)
    apart.policy.adam_offload = None
    assert possible_shardings(apart, EIGHT_A100) == [(0, False)]


def test_a_family_holds_its_base_once_and_of_each_adapter_all_states():
    adapter = 32 * 36 * 51_968  # 59.9 million
    config = load_config(REPOSITORY / "configs/comas_lora.yaml", ["society.num_agents=4"])
    need = need_of(config, 2, False)
    assert need.weights == 2 * (PARAMETERS + 4 * adapter)  # bfloat16
    assert need.optimizer == 12 * 4 * adapter
    assert need.gradients == 4 * 4 * adapter
    # The engine's weights wait, 6.65 GB where 8 GiB are pinned.
    assert need.host == 8 * GIB
    config.policy.ranks_per_policy = 2
    assert {choice.zero_stage for choice in possible_shardings(config, EIGHT_A100)} <= {0, 1, 2}


def test_zero_3_begins_with_whole_gradients_of_what_it_updates_at_once():
    config = paper(ranks_per_policy=8)
    whole = QWEN_14B.num_parameters
    need = rank_memory(QWEN_14B, config, Sharding(3, False), shares_gpu=True)
    # An eighth in bfloat16, in float32 and of two moments; 1e9 of its own are 8e9 whole.
    starting = 14 * whole / 8 + 4 * 8e9  # 57.8 GB
    assert need.peak >= starting
    config.rollout.max_prompt_tokens = config.rollout.max_response_tokens = 256
    config.policy.micro_batch_tokens = 512
    short = rank_memory(QWEN_14B, config, Sharding(3, False), shares_gpu=False)
    assert short.peak == pytest.approx(starting) and short.peak > short.states
    # With Adam on the host the model is more, which is loaded whole.
    offloaded = rank_memory(QWEN_14B, paper(), Sharding(3, True), shares_gpu=True)
    assert offloaded.peak >= 2 * whole > 2 * whole / 2 + 4 * 2e9
