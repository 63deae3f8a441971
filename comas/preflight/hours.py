"""The hours of a run on GPUs: arithmetic on assumptions, not a measurement.

Two of them weigh most and are known least: the share of its peak that a GPU reaches in an update,
and how much longer than the mean the slowest discussion takes. So hours are an interval, from where
both are at their best to where both are at their worst.

A step has three parts, taken one after another (with a training.max_staleness above 0, rollout and
update at the same time):

  rollout  a discussion is a chain: every solution and evaluation waits for the one before. The
           chain's tokens times the time of a decoding step, which reads all weights and the KV
           cache of all sequences that are decoded at once (more than rollout.max_num_seqs, or than
           the KV cache has room for, take turns), times how much longer the slowest discussion
           takes; then the prompts' tokens that no prefix cache holds, at 2 operations per weight
  update   prompts and responses at 8 operations per weight and token: 2 for the log-probs before
           the update, where it needs them, and 6 for the update; 2 more with a reference model;
           2 more where gradient checkpointing repeats them, which is in samples over
           policy.micro_batch_tokens; attention on top. The base of LoRA policies has no gradients:
           2 less
  phases   states of the policy to the host and back, weights to the engines, sleep and wake

Policies that share GPUs (cluster.policies_per_gpu) take turns in all of it.
"""

import math
from dataclasses import dataclass, replace

from comas.config.schema import Config
from comas.policy_optimization.losses import needs_pass_beforehand
from comas.preflight.memory import GIB, ModelShape, adapter_parameters, kv_room_bytes
from comas.preflight.needs import Need
from comas.reward_formulation import REWARD_SCHEMES
from comas.run.prepared import Sizes

WEIGHT_BYTES = 2
GRADIENT_BYTES = 4
CHAINS = ("sequential", "parallel")
"""The schedules that this arithmetic knows."""
VALIDATED_PARAMETERS = 3_085_938_688
"""Of the model that ``Assumptions.validation_s`` is of: Qwen2.5-3B."""


@dataclass
class Assumptions:
    """What the arithmetic takes as given, about texts and machine."""

    question_tokens: int = 200
    template_tokens: int = 300
    solution_tokens: int = 600
    evaluation_tokens: int = 400
    scoring_tokens: int = 250
    slowest: float = 1.3
    """The slowest discussion of a step, in means, at best."""
    slowest_at_worst: float = 1.8
    prefix_hits: float = 0.2
    tflops: float = 312.0
    """Peak of a GPU in bfloat16 (A100)."""
    bandwidth_tb_s: float = 2.0
    """Bandwidth of a GPU's memory (A100-80GB)."""
    gpu_gib: float = 79.0
    """A GPU's memory (A100-80GB), of which an engine's KV cache has a part."""
    long_share: float = 0.1
    """Share of the tokens that are in samples of more than ``policy.micro_batch_tokens``."""
    update_utilisation: float = 0.55
    """Share of a GPU's peak, in the operations that are done, repeated ones included, at best."""
    update_utilisation_at_worst: float = 0.35
    prefill_utilisation: float = 0.5
    bandwidth_utilisation: float = 0.7
    decode_overhead_ms: float = 3.0
    """Added to every decoding step: kernel launches, sampling, the scheduler."""
    all_reduce_us: float = 10.0
    """Of one small sum over the GPUs of an engine, of which each layer has two a decoding step."""
    pcie_gb_s: float = 25.0
    nvlink_gb_s: float = 250.0
    network_gb_s: float = 25.0
    """From one node to another, each way (200 Gb/s)."""
    host_adam_g_s: float = 0.8
    """Parameters that a rank's host threads update per second, in billions (one thread, here)."""
    phases_s: float = 6.0
    """Sleep, wake and weight transfer of a step, beside the states that move."""
    disk_gb_s: float = 2.0
    validation_s: float = 45.0
    """Seconds of one validation with a model of 3 billion parameters, others by their decoding
    step: 500 questions by each agent, the longest answer to its end; greedy answers take as long
    again."""

    @property
    def worst(self) -> "Assumptions":
        """These, with what is known least at its worst."""
        return replace(
            self,
            slowest=self.slowest_at_worst,
            update_utilisation=self.update_utilisation_at_worst,
        )


@dataclass(frozen=True)
class Step:
    """Seconds of a training step, part by part."""

    rollout: float
    update: float
    transfers: float
    """Gathering divided weights, moving gradients, and the host's Adam: 0 below ZeRO-3 where
    nothing is offloaded."""
    phases: float
    overlaps: bool = False
    """Whether the rollout of the next step runs beside the update."""

    @property
    def seconds(self) -> float:
        training = self.update + self.transfers
        both = max(self.rollout, training) if self.overlaps else self.rollout + training
        return both + self.phases


def one_step(config: Config, sizes: Sizes, shape: ModelShape, given: Assumptions) -> Step:
    """The parts of a step of ``config``, which all policies take at once, those on the same GPUs
    one after another."""
    sharers = num_sharers(config)
    return Step(
        rollout=sharers * rollout_seconds(config, sizes, shape, given),
        update=sharers * update_seconds(config, sizes, shape, given),
        transfers=sharers * transfer_seconds(config, sizes, shape, given),
        phases=given.phases_s + sharers * state_bytes(config, shape) * 2 / given.pcie_gb_s / 1e9,
        overlaps=config.training.max_staleness > 0,
    )


def num_sharers(config: Config) -> int:
    """The most policies (LoRA: families) on a GPU."""
    return min(config.cluster.policies_per_gpu, len(config.families))


def is_known(config: Config) -> bool:
    """Whether its discussions are chains as this arithmetic has them, and nothing else is asked."""
    is_chain = config.interaction.criticism == "scored" and config.interaction.schedule in CHAINS
    return is_chain and not REWARD_SCHEMES[config.reward.scheme].asks


def hours_interval(
    config: Config, sizes: Sizes, shape: ModelShape, given: Assumptions
) -> tuple[float, float]:
    """The fewest and the most hours of the whole run, from the best to the worst of ``given``."""
    best, worst = (one_step(config, sizes, shape, case) for case in (given, given.worst))
    return (
        hours(best, config, sizes, shape, given),
        hours(worst, config, sizes, shape, given.worst),
    )


def hours(step: Step, config: Config, sizes: Sizes, shape: ModelShape, given: Assumptions) -> float:
    """Hours of the whole run, with validations and checkpoints."""
    passes = 1 + (config.validation.greedy and config.validation.temperature > 0)
    of_a_token = decode_step_seconds(0, 0, shape, given)
    known = decode_step_seconds(0, 0, replace(shape, num_parameters=VALIDATED_PARAMETERS), given)
    validation = given.validation_s * num_sharers(config) * of_a_token / known
    checkpoint = config.num_policies * trained_parameters(shape, config) * (12 + WEIGHT_BYTES)
    return (
        sizes.num_steps * step.seconds
        + sizes.num_validations * passes * validation
        + sizes.num_checkpoints * checkpoint / given.disk_gb_s / 1e9
    ) / 3600


# ---------------------------------------------------------------- tokens


def response_tokens(given: Assumptions) -> float:
    """Mean over the roles, which have equally many turns."""
    return (given.solution_tokens + given.evaluation_tokens + given.scoring_tokens) / 3


def prompt_tokens(config: Config, given: Assumptions) -> float:
    """Mean over the roles: solver and evaluator read the history of the horizon, the evaluator
    and the scorer the solution, the scorer also the evaluation. (Under the parallel schedule the
    evaluator reads none.)"""
    rounds = config.interaction.num_rounds
    past = sum(min(i, config.interaction.horizon) for i in range(rounds)) / rounds
    history = past * (given.solution_tokens + given.evaluation_tokens)
    fixed = given.question_tokens + given.template_tokens
    solver = fixed + history
    reads_history = config.interaction.schedule == "sequential"
    evaluator = (solver if reads_history else fixed) + given.solution_tokens
    scorer = fixed + given.solution_tokens + given.evaluation_tokens
    return (solver + evaluator + scorer) / 3


def policy_tokens(config: Config, sizes: Sizes, given: Assumptions) -> float:
    """Tokens that the ranks of a policy are trained on in a step; those of LoRA policies over one
    base model take the policies one after another."""
    num_policies = max(map(len, config.trained_families))
    length = prompt_tokens(config, given) + response_tokens(given)
    return num_policies * sizes.samples_per_policy[0] * length


def chain_tokens(config: Config, given: Assumptions) -> float:
    """Tokens of a discussion that are said one after another."""
    of_a_round = given.solution_tokens + given.evaluation_tokens
    return config.interaction.num_rounds * of_a_round + given.scoring_tokens


def sequences_in_flight(config: Config, sizes: Sizes, given: Assumptions) -> float:
    """Responses that an engine is asked for at the same time, on average.

    Example: 24 turns of 417 tokens along a chain of 8,250 are 1.21 of each discussion; of 256
    discussions on one engine 310, on eight 39.
    """
    tokens = sum(sizes.turns_per_discussion.values()) * response_tokens(given)
    of_a_discussion = tokens / chain_tokens(config, given)
    return sizes.num_discussions / num_engines(config) * of_a_discussion


def num_engines(config: Config) -> int:
    """Rollout engines of all policies."""
    return len(config.families) * config.rollout.engines_per_policy


def sequences_need(config: Config, sizes: Sizes) -> Need:
    """Responses that an engine decodes at once, of those that it is asked for."""
    wanted, room = (
        round(sequences_in_flight(config, sizes, Assumptions())),
        config.rollout.max_num_seqs,
    )
    doubt = None
    if wanted > room:
        doubt = (
            f"rollout.max_num_seqs={room}: an engine is asked for about {wanted} responses at "
            f"once, and those over {room} wait for others to end; set it to "
            f"{math.ceil(wanted / 64) * 64}"
        )
    return Need("responses at once", f"about {wanted}", str(room), doubt=doubt)


# ---------------------------------------------------------------- seconds


def decode_step_seconds(
    num_sequences: float,
    context: float,
    shape: ModelShape,
    given: Assumptions,
    *,
    shards: int = 1,
) -> float:
    """One token of each sequence: weights and KV cache are read once, by each GPU of the engine
    its shard of them, and each layer is summed up over them twice.

    Example: 39 sequences of 2,000 tokens: 6.2 GB and 39 x 2,000 x 36,864 bytes = 2.9 GB at
    1.4 TB/s are 6.5 ms, and 3 ms of overhead.
    """
    read = shape.num_parameters * WEIGHT_BYTES + num_sequences * context * kv_bytes(shape)
    bandwidth = given.bandwidth_tb_s * 1e12 * given.bandwidth_utilisation
    sums = 2 * shape.num_layers * given.all_reduce_us / 1e6 if shards > 1 else 0.0
    return read / shards / bandwidth + sums + given.decode_overhead_ms / 1e3


def kv_bytes(shape: ModelShape) -> int:
    """Keys and values of a token in all layers."""
    return 2 * shape.num_layers * shape.kv_size * WEIGHT_BYTES


def cached_sequences(
    context: float, config: Config, shape: ModelShape, given: Assumptions
) -> float:
    """Sequences of so many tokens that the KV cache of an engine has room for, at least one.

    Example: 0.6 of 79 GiB leave 43.6 GB beside Qwen2.5-3B: 509 sequences of 2,325 tokens at 36,864
    bytes; beside Qwen2.5-14B, 20 GB are 44 at 196,608 bytes.
    """
    room = kv_room_bytes(shape, config, gpu_bytes=given.gpu_gib * GIB)
    of_a_gpu = kv_bytes(shape) / config.rollout.tensor_parallel
    return max(1.0, room / (context * of_a_gpu))


def rollout_seconds(config: Config, sizes: Sizes, shape: ModelShape, given: Assumptions) -> float:
    """The slowest chain of a discussion, and the prompts of an engine."""
    in_flight = sequences_in_flight(config, sizes, given)
    context = prompt_tokens(config, given) + response_tokens(given) / 2
    cached = cached_sequences(context, config, shape, given)
    at_once = min(in_flight, config.rollout.max_num_seqs, cached)
    shards = config.rollout.tensor_parallel
    of_a_step = decode_step_seconds(at_once, context, shape, given, shards=shards)
    of_a_token = of_a_step * in_flight / at_once
    decoding = chain_tokens(config, given) * of_a_token * given.slowest
    prompts = sum(sizes.samples_per_policy) / num_engines(config) * prompt_tokens(config, given)
    operations = 2 * body_weights(shape) * prompts * (1 - given.prefix_hits) / shards
    return decoding + operations / (given.tflops * 1e12 * given.prefill_utilisation)


def update_seconds(config: Config, sizes: Sizes, shape: ModelShape, given: Assumptions) -> float:
    """Forward passes beforehand, forward, repeated forward and backward of a policy's samples.

    Each weight costs 2 operations in each pass, and 2 more in the backward pass for its gradient,
    which the base of a LoRA policy does not have.
    """
    checkpointing = config.policy.gradient_checkpointing
    passes = 6 + 2 * (given.long_share if checkpointing is None else float(checkpointing))
    passes += 2 * needs_pass_beforehand(
        config.optimization, num_optimizer_steps=sizes.optimizer_steps_per_policy[0]
    )
    passes += 2 * (config.optimization.kl_coef > 0)
    length = prompt_tokens(config, given) + response_tokens(given)
    attention = shape.num_layers * shape.hidden_size * length
    head = shape.vocab_size * shape.hidden_size * response_tokens(given) / length
    per_token = passes * (body_weights(shape) + head + attention)
    if config.policy.lora.rank is not None:
        per_token += passes * adapter_parameters(shape, config) - 2 * (body_weights(shape) + head)
    operations = per_token * policy_tokens(config, sizes, given)
    power = config.policy.ranks_per_policy * given.tflops * 1e12 * given.update_utilisation
    return operations / power


def transfer_seconds(config: Config, sizes: Sizes, shape: ModelShape, given: Assumptions) -> float:
    """Under ZeRO-3, weights gathered twice in a micro batch. With Adam on the host, a micro batch's
    gradients added up on the GPU and kept on the host, and Adam once in an optimiser step. Between
    nodes, the weights that a node gathers of others, and the gradients that it sends them in each
    micro batch (below ZeRO-2 and back, in each optimiser step)."""
    ranks, stage = config.policy.ranks_per_policy, config.policy.zero_stage
    size, budget = config.policy.micro_batch_size, config.policy.micro_batch_tokens
    if size is not None:
        micro_batches = sizes.samples_per_policy[0] / ranks / size
    else:
        assert budget is not None, "the configuration's checks refuse this"
        micro_batches = policy_tokens(config, sizes, given) / ranks / budget
    weights = trained_parameters(shape, config)
    gathered = 2 * weights * WEIGHT_BYTES * (ranks - 1) / ranks / given.nvlink_gb_s / 1e9
    seconds = micro_batches * gathered if stage == 3 else 0.0
    nodes = config.cluster.nodes_per_policy
    crossing = weights * WEIGHT_BYTES * (nodes - 1) / nodes / given.network_gb_s / 1e9
    if stage in (2, 3):
        seconds += micro_batches * crossing * (3 if stage == 3 else 1)
    else:
        seconds += sizes.optimizer_steps_per_policy[0] * 2 * crossing
    if config.policy.adam_offload:
        gradients = 2 * weights * GRADIENT_BYTES / ranks / given.pcie_gb_s / 1e9
        adam = weights / ranks / given.host_adam_g_s / 1e9
        seconds += micro_batches * gradients + sizes.optimizer_steps_per_policy[0] * adam
    return seconds


def trained_parameters(shape: ModelShape, config: Config) -> int:
    """Of a policy: those of its adapter, where it is one."""
    if config.policy.lora.rank is not None:
        return adapter_parameters(shape, config)
    return shape.num_parameters


def body_weights(shape: ModelShape) -> int:
    """All weights but the embeddings, which are those of the head."""
    return shape.num_parameters - shape.vocab_size * shape.hidden_size


def state_bytes(config: Config, shape: ModelShape) -> float:
    """What leaves a shared GPU and comes back in each step: the states of a rank, or, where it
    trains adapters, the base model of the rollout engine."""
    weights, ranks = shape.num_parameters, config.policy.ranks_per_policy
    if config.cluster.placement == "disaggregated":
        return 0.0
    if config.policy.lora.rank is not None:
        return weights * WEIGHT_BYTES
    held = weights * WEIGHT_BYTES / (ranks if config.policy.zero_stage == 3 else 1)
    return held if config.policy.adam_offload else held + 12 * weights / ranks
