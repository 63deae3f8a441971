"""The engines that sample and train, and where they run."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field

from comas.config.keys import key

Value = TypeVar("Value", int, float)
Temperature = Annotated[float, Field(ge=0.01)]
Length = Annotated[int, Field(ge=1)]


def for_agent(value: Value | list[Value], agent_index: int) -> Value:
    """Return what a key that takes one value, or one for each agent, says of an agent.

    Example: ``for_agent([1.0, 0.7], 1) == 0.7``, and ``for_agent(1.0, 1) == 1.0``.
    """
    if not isinstance(value, list):
        return value
    return value[agent_index if len(value) > 1 else 0]


@dataclass
class Rollout:
    """Sampling: one or more vLLM engines for each policy."""

    batch_size: int = key(64, ge=1)
    """Questions per step; each is discussed ``interaction.prompt_reuse`` times."""
    temperature: Temperature | list[Temperature] = key(1.0)
    """Sampling temperature in training, for all agents or a list with one for each, at which the
    update computes log-probs as well; validation has its own. Below 0.01, vLLM would sample at
    0.01."""
    system_prompt: str | None = key(None, example="You are careful.")
    """What every agent is told before every prompt, as the chat's system message, in training and
    validation alike; null: nothing, where a chat template may say something of its own."""
    chat_template_kwargs: dict[str, Any] = key({}, example={"enable_thinking": False})
    """Further variables of the models' chat templates, such as Qwen3's enable_thinking; see
    ``society.chat_template_kwargs``."""
    max_prompt_tokens: int = key(28672, ge=16)
    """Longest prompt, in tokens: a longer one loses its oldest history until it fits."""
    max_response_tokens: Length | list[Length] = key(4096)
    """Longest response, in tokens, for all agents or a list with one for each; a longer one is cut
    off (``algorithm.mask_truncated``)."""
    min_response_tokens: int = key(0, ge=0)
    """Shortest response: before it no stop token is drawn. What is drawn instead is not quite from
    the distribution that is trained, which ``rollout_mismatch`` shows."""
    engines_per_policy: int = key(2, ge=1)
    """vLLM engines, of ``tensor_parallel`` GPUs each."""
    tensor_parallel: int = key(1, ge=1)
    """GPUs over which each engine shards its model and KV cache (Megatron-LM, arXiv 1909.08053), on
    a CPU worker processes: for models that one GPU cannot hold, or decodes too slowly."""
    dtype: Literal["float32", "bfloat16", "float16"] = key("bfloat16")
    """Number format of weights and activations."""
    gpu_memory_utilization: float = key(0.6, gt=0, le=1)
    """Share of a GPU's memory that an engine may fill (ignored on CPU)."""
    cpu_kv_cache_mib: int = key(128, ge=16)
    """KV cache of an engine on CPU, in MiB, all of its workers together (ignored on GPU)."""
    max_num_seqs: int = key(256, ge=1)
    """Sequences that an engine decodes at once."""
    vllm_options: dict[str, Any] = key({}, example={"enforce_eager": True})
    """Further arguments of vLLM's ``EngineArgs``, over those that the other keys make; what the run
    relies on is refused (comas/preflight/engine_options.py)."""

    @property
    def longest_response(self) -> int:
        """The most that ``max_response_tokens`` allows any agent."""
        limits = self.max_response_tokens
        return max(limits) if isinstance(limits, list) else limits

    @property
    def max_model_len(self) -> int:
        """Tokens that an engine reads at most, prompt and response together."""
        return self.max_prompt_tokens + self.longest_response


@dataclass
class Lora:
    """Policies as LoRA adapters (arXiv 2106.09685) over their base models, which stay as they are.

    Those of the same base model are a family: they share its rollout engines and its DeepSpeed
    group, and whatever is said of the engines, ranks and GPUs of a policy is of the family.
    """

    rank: int | None = key(None, ge=1, le=512, example=16)
    """r: the rank of each update B A; null: policies are whole models, and nothing else here is
    read."""
    alpha: int = key(32, ge=1)
    """The update is weighed by alpha / rank."""
    target_modules: list[str] | None = key(None, example=["q_proj", "v_proj"])
    """Names of the linear layers that are adapted; null: all but the output layer."""


@dataclass
class Policy:
    """Training: one DeepSpeed group for each policy."""

    ranks_per_policy: int = key(2, ge=1)
    """Processes that train a policy together, one GPU each."""
    dtype: Literal["float32", "bfloat16"] = key("bfloat16")
    """Number format of weights and activations in the update."""
    zero_stage: int | None = key(None, ge=0, le=3, example=2)
    """What DeepSpeed's ZeRO divides among the ranks: 0 nothing, 1 optimiser states, 2 also
    gradients, 3 also weights; null: the cheapest that fits (comas/preflight/sharding.py)."""
    adam_offload: bool | None = key(None, example=False)
    """Keep the optimiser states in host memory (no effect on CPU); null: where nothing else
    fits."""
    gradient_checkpointing: bool | None = key(None, example=True)
    """Recompute activations in the backward pass: less memory, more time; null: only those of a
    sample that is longer than ``micro_batch_tokens`` alone."""
    attn_implementation: Literal["sdpa", "flash_attention_2"] = key("sdpa")
    """Kernels of attention: sdpa are PyTorch's own, flash_attention_2 has to be installed."""
    micro_batch_tokens: int = key(6144, ge=1)
    """Tokens that a rank puts through the model at once; a longer sample (dpo: a pair) goes
    alone."""
    deepspeed_options: dict[str, Any] = key({}, example={"wall_clock_breakdown": True})
    """Further entries of DeepSpeed's configuration, over those that the other keys make; what the
    run relies on is refused (comas/preflight/engine_options.py)."""
    lora: Lora = field(default_factory=Lora)


@dataclass
class Cluster:
    """Where the engines run."""

    device: Literal["auto", "cpu", "cuda"] = key("auto")
    """auto: cuda where there is a GPU, else cpu."""
    placement: Literal["colocated", "disaggregated"] = key("colocated")
    """GPU: rollout and training of a policy share its GPUs, as many ranks as engines x
    ``rollout.tensor_parallel``; or each has its own (disaggregated)."""
    policies_per_gpu: int = key(1, ge=1)
    """Policies that share each of their GPUs; above 1 for tiny models only."""
    cpu_threads: int | None = key(None, ge=1, example=4)
    """Threads of each rollout engine and each rank on a CPU; null: the cores that may be used,
    divided among those that work at once, or 1 for small models (comas/preflight/sharding.py).
    Log-probs of ranks depend on it in their last digits, so a run keeps the number it began with.
    On GPUs: host threads of each rank; null: its part of its node's cores."""
    object_store_mib: int = key(512, ge=80)
    """Memory of Ray's object store, in MiB: it holds the samples of an update."""
    call_timeout_s: float = key(3600.0, gt=0)
    """Limit on any single update, weight sync or checkpoint, in seconds; on the start of all
    engines half an hour, where that is less."""

    @property
    def start_timeout_s(self) -> float:
        """Limit on the start of all engines, in seconds; it includes the download of the model."""
        return min(1800.0, self.call_timeout_s)
