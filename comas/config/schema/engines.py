"""The engines that sample and train, and where they run."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field

from comas.config.keys import key

Value = TypeVar("Value", int, float)
Temperature = Annotated[float, Field(ge=0.01)]
Length = Annotated[int, Field(ge=1)]


def for_agent(value: Value | list[Value], agent_index: int) -> Value:
    """Return an agent's value of a key that holds one value, or a list with one per agent.

    Example: ``for_agent([1.0, 0.7], 1) == 0.7``, and ``for_agent(1.0, 1) == 1.0``.
    """
    if not isinstance(value, list):
        return value
    return value[agent_index if len(value) > 1 else 0]


@dataclass
class Rollout:
    """Sampling: one or more vLLM engines per policy."""

    batch_size: int = key(64, ge=1)
    """Questions per step; each is discussed ``interaction.prompt_reuse`` times."""
    temperature: Temperature | list[Temperature] = key(1.0)
    """Sampling temperature in training, for all agents or a list with one per agent. The update
    computes log-probs at it, too; validation has its own. vLLM would raise lower ones to 0.01."""
    system_prompt: str | None = key(None, example="You are careful.")
    """System message before every prompt, in training and validation; null: none (a chat template
    may add its own)."""
    chat_template_kwargs: dict[str, Any] = key({}, example={"enable_thinking": False})
    """Variables of the models' chat templates, such as Qwen3's enable_thinking; see
    ``society.chat_template_kwargs``."""
    max_prompt_tokens: int = key(28672, ge=16)
    """Longest prompt, in tokens; a longer one drops its oldest history until it fits."""
    max_response_tokens: Length | list[Length] = key(4096)
    """Longest response, in tokens, for all agents or a list with one per agent; a longer one is cut
    off (``algorithm.mask_truncated``)."""
    min_response_tokens: int = key(0, ge=0)
    """Shortest response, in tokens, before which no stop token is drawn. This changes the sampled
    distribution slightly, which ``rollout_mismatch`` shows."""
    engines_per_policy: int = key(2, ge=1)
    """vLLM engines with ``tensor_parallel`` GPUs each."""
    tensor_parallel: int = key(1, ge=1)
    """GPUs (on a CPU, worker processes) over which an engine shards model and KV cache
    (Megatron-LM, arXiv 1909.08053), for models that are too large or slow for one."""
    dtype: Literal["float32", "bfloat16", "float16"] = key("bfloat16")
    """Number format of weights and activations."""
    gpu_memory_utilization: float = key(0.6, gt=0, le=1)
    """Share of a GPU's memory that an engine may fill (ignored on CPU)."""
    cpu_kv_cache_mib: int = key(128, ge=16)
    """KV cache of an engine with all its workers on a CPU, in MiB (ignored on GPU)."""
    max_num_seqs: int = key(256, ge=1)
    """Sequences that an engine decodes at once."""
    vllm_options: dict[str, Any] = key({}, example={"enforce_eager": True})
    """Arguments of vLLM's ``EngineArgs`` that override those from other keys; some are refused
    (comas/preflight/conflicts.py)."""

    @property
    def longest_response(self) -> int:
        """The highest ``max_response_tokens`` of any agent."""
        limits = self.max_response_tokens
        return max(limits, default=0) if isinstance(limits, list) else limits

    @property
    def max_model_len(self) -> int:
        """The most tokens of prompt and response together."""
        return self.max_prompt_tokens + self.longest_response


@dataclass
class Lora:
    """Policies as LoRA adapters (arXiv 2106.09685) of frozen base models.

    Adapters of the same base model are a family, which shares rollout engines and a DeepSpeed
    group; the engines, ranks and GPUs "per policy" are then per family.
    """

    rank: int | None = key(None, ge=1, le=512, example=16)
    """r: the rank of each update B A; null: whole models are trained, and the other keys here are
    ignored."""
    alpha: int = key(32, ge=1)
    """The update is scaled by alpha / rank."""
    target_modules: list[str] | None = key(None, example=["q_proj", "v_proj"])
    """Names of the adapted linear layers; null: all but the output layer."""


@dataclass
class Policy:
    """Training: one DeepSpeed group per policy."""

    ranks_per_policy: int = key(2, ge=1)
    """Processes that train a policy together, one GPU each."""
    dtype: Literal["float32", "bfloat16"] = key("bfloat16")
    """Number format of weights and activations in the update."""
    zero_stage: int | None = key(None, ge=0, le=3, example=2)
    """DeepSpeed's ZeRO shards 1 optimiser states, 2 also gradients, 3 also weights, 0 nothing;
    null: the cheapest that fits (comas/preflight/sharding.py)."""
    adam_offload: bool | None = key(None, example=False)
    """Keep optimiser states in host memory (no effect on CPU); null: if nothing else fits."""
    gradient_checkpointing: bool | None = key(None, example=True)
    """Recompute activations in the backward pass: less memory, more time; null: only for samples
    longer than ``micro_batch_tokens``."""
    attn_implementation: Literal["sdpa", "flash_attention_2"] = key("sdpa")
    """Attention kernels: PyTorch's own (sdpa), or flash_attention_2: build its package flash-attn
    yourself, as it has no wheel for the pinned torch."""
    micro_batch_tokens: int = key(6144, ge=1)
    """Tokens in a rank's micro batch; a longer sample (dpo: pair) is one of its own."""
    deepspeed_options: dict[str, Any] = key({}, example={"wall_clock_breakdown": True})
    """Entries of DeepSpeed's configuration that override those from other keys; some are refused
    (comas/preflight/conflicts.py)."""
    lora: Lora = field(default_factory=Lora)


@dataclass
class Cluster:
    """Where the engines run."""

    device: Literal["auto", "cpu", "cuda"] = key("auto")
    """auto: cuda if there is a GPU, else cpu."""
    placement: Literal["colocated", "disaggregated"] = key("colocated")
    """Rollout and training of a policy share its GPUs, with as many ranks as engines x
    ``rollout.tensor_parallel`` (colocated), or have their own (disaggregated)."""
    policies_per_gpu: int = key(1, ge=1)
    """Policies on each GPU; above 1 for tiny models only."""
    cpu_threads: int | None = key(None, ge=1, example=4)
    """Threads of each rollout engine and rank on a CPU; null: the usable cores divided among those
    that work at once, or 1 for small models (comas/preflight/sharding.py). The last digits of
    log-probs depend on it, so a run keeps its number. On GPUs: host threads of each rank; null:
    its share of the node's cores."""
    object_store_mib: int = key(512, ge=80)
    """Memory of Ray's object store, in MiB, which holds the samples of an update."""
    call_timeout_s: float = key(3600.0, gt=0)
    """Time limit of an update, weight sync or checkpoint, in seconds, and how long a rollout engine
    may give no answer; the start of all engines has at most half an hour."""

    @property
    def start_timeout_s(self) -> float:
        """Time limit of the start of all engines with the model's download, in seconds."""
        return min(1800.0, self.call_timeout_s)
