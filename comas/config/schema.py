"""Every key of a run's configuration: its type, default and constraint, and what it is for.

A section is a dataclass, a key is a field made by ``key``. Constraints on a single key stand
here; constraints among keys stand in ``comas.preflight.conflicts``. A key or value that was renamed
names its former one, so that an old file gets an error that says the new one.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from comas.config.keys import key
from comas.config.released import hint
from comas.types import ALL_DOMAINS

Entry = TypeVar("Entry", str, int, float, dict[str, Any])
"""What a list of the society holds for each policy."""


@dataclass
class Society:
    """Who discusses. An agent is a participant of the discussion, a policy a set of weights."""

    num_agents: int = key(4, at_least=1)
    """l in the paper: participants of each discussion."""
    models: list[str] = key(["Qwen/Qwen2.5-3B-Instruct"])
    """Base model of each policy (folder or hub name); a single entry serves every policy.
    "quickstart/models/..." names an embedded tiny model."""
    policy_of_agent: list[int] | None = key(None, example=[0, 0, 1, 1])
    """Index of each agent's policy, from 0 without gaps; null gives every agent its own."""
    learning_rates: list[float] | None = key(None, example=[1e-6, 5e-7])
    """Learning rate of each policy, a single entry for every policy; null gives all of them
    ``optimization.learning_rate``."""
    chat_template_kwargs: list[dict[str, Any]] | None = key(
        None, example=[{"enable_thinking": False}, {}]
    )
    """Variables of each policy's chat template, a single entry for every policy; null gives all of
    them ``rollout.chat_template_kwargs``."""
    update_every: list[int] = key([1])
    """Steps from one update of each policy to the next, a single entry for every policy; the last
    step has one as well. An update is on all that was said since the one before. 0: the policy is
    frozen, has no trainer and stays its base model."""
    scorer_weights: str = key("live", one_of=("live", "frozen", "lagged", "averaged"))
    """By which weights an agent scores: its present ones (the paper's), those of its base model,
    earlier ones, or an exponential average of all since the base model's. Unless they are live,
    scorings wait until all else is said, and are not trained."""
    scorer_lag: int = key(10, at_least=1)
    """Steps after which lagged scorers get the present weights again. Averaged ones move by 1 /
    ``scorer_lag`` of the way to the present weights in each step."""


@dataclass
class Columns:
    """The columns that hold the parts of a record; one that is null is not read."""

    prompt: str = key("prompt")
    """The bare question."""
    answer: str = key("answer")
    """Its reference answer, in the form of its domain."""
    task: str | None = key("task", example="task")
    """Its domain; where there is none: ``data.domain``."""
    id: str | None = key("id", example="id")
    """Unlike all others; where there is none: the number of the row."""
    source: str | None = key("source", example="source")
    """Where it is from; where there is none: the name of the file or dataset."""
    choices: list[str] = key(["choices"])
    """Of questions of choice: the column that holds the list of options, or the columns that hold
    one each; a record without them lists its options in its prompt."""


@dataclass
class ReasoningGym:
    """Generated questions, where ``data.train`` or ``data.validation`` is reasoning_gym."""

    tasks: dict[str, Any] = key({}, example={"chain_sum": {"max_terms": 3}, "countdown": {}})
    """The tasks, each with options of its generator, among which may be a size and a seed of its
    own; {} for those that it has anyway."""
    size: int | None = key(500, at_least=1)
    """Training questions of each task; null: as many as ``training.num_steps`` ask, none of them
    twice."""
    seed: int = key(0, at_least=0, at_most=2**31 - 1)
    """Of the training questions. Held-out ones have seeds of their own."""
    validation_size: int = key(50, at_least=1)
    """Held-out questions of each task."""
    version: str = key("0.1.25")
    """Of the package that has to be installed: others may make other questions."""


@dataclass
class Data:
    """Questions with their answer keys; only verification sees the answers."""

    train: str = key("data/train.jsonl")
    """Training questions: a JSONL, JSON, CSV or Parquet file, a dataset on the hub such as
    hub:openai/gsm8k/main/train, or reasoning_gym (data/README.md)."""
    validation: str = key("data/validation.jsonl")
    """Held-out questions, likewise, read by the same keys."""
    probe: str | None = key(None, example="quickstart/probe.jsonl")
    """Planted solutions with known mistakes, about which every agent is asked as a judge at each
    validation (``comas/data/probe.py`` says what a line holds); null: none."""
    columns: Columns = field(default_factory=Columns)
    domain: str | None = key(None, one_of=ALL_DOMAINS, example="math")
    """Domain of questions that name none; null: each of them names one."""
    answer_after: str | None = key(None, example="####")
    """The answer is only what follows the last of these marks in its column; null: all of it."""
    shuffle: bool = key(True)
    """Whether each epoch has an order of its own, drawn from the seed, or that of the file."""
    reasoning_gym: ReasoningGym = field(default_factory=ReasoningGym)


@dataclass
class Interaction:
    """The discussion: who speaks when, about what."""

    schedule: str = key("sequential")
    """Name in ``comas.interaction.SCHEDULES``, or a plug-in."""
    criticism: str = key("scored")
    """Name in ``comas.interaction.CRITICISMS``, or a plug-in: what happens to a solution once it is
    given."""
    num_rounds: int = key(8, at_least=1)
    """m in the paper. A round has one solution (sequential) or one of each agent (others)."""
    num_evaluations: int = key(1, at_least=1)
    """n in the paper: evaluations of each solution."""
    num_scorings: int = key(1, at_least=1)
    """Scorings of each evaluation, or of a solution that nobody evaluates; 1 in the paper. Of
    several the reward takes the mean; ``reward.scheme=median`` takes the median."""
    scorers: str = key("any", one_of=("any", "others"))
    """Who may score a solution: any agent (the paper), or any but its solver; in a society of two
    models that is the other model."""
    horizon: int = key(2, at_least=0)
    """kappa in the paper: past rounds (sequential), drawn solutions with their evaluations
    (parallel), or drawn answers of
    others beside one's own (debate) in a prompt."""
    prompt_reuse: int = key(4, at_least=1)
    """Independent discussions of each question in a batch."""
    prompts: str | None = key(None, example="prompts.yaml")
    """File of prompts that words some of them differently (``comas/interaction/prompts.yaml`` says
    what it may hold); null: the shipped wording. A path that is not whole starts at the root of the
    repository."""
    quote_reasoning: bool = key(False)
    """Whether what stands between a model's thinking marks is read by other agents, by what reads
    scores and by verifiers, like all else that it says. It is trained either way."""
    overlong_prompts: str = key("drop_history", one_of=("drop_history", "skip"))
    """A prompt over the limit: leave out its oldest history until it fits, or do not ask."""


@dataclass
class Reward:
    """How a discussion becomes rewards."""

    scheme: str = key("interaction")
    """Name in ``comas.reward_formulation.REWARD_SCHEMES``, or a plug-in: ``path/to/file.py:object``
    or ``module:object``."""


@dataclass
class Rollout:
    """Sampling: one or more vLLM engines for each policy."""

    batch_size: int = key(64, at_least=1)
    """Questions per step; each is discussed ``interaction.prompt_reuse`` times."""
    temperature: float = key(1.0, at_least=0.01)
    """Sampling temperature in training; validation has its own. Below 0.01, vLLM would sample at
    0.01, and the update compute log-probs at another."""
    system_prompt: str | None = key(None, example="You are careful.")
    """What every agent is told before every prompt, as the chat's system message, in training and
    validation alike; null: nothing, where a chat template may say something of its own."""
    chat_template_kwargs: dict[str, Any] = key({}, example={"enable_thinking": False})
    """Further variables of the models' chat templates, such as Qwen3's enable_thinking; see
    ``society.chat_template_kwargs``."""
    thinking_marks: list[str] | None = key(None, example=["<think>", "</think>"])
    """Where a model's thinking begins and ends in its responses; null: by the marks that its
    tokenizer or chat template has, if any (``comas/utils/thinking.py`` knows which)."""
    max_prompt_tokens: int = key(28672, at_least=16)
    """Longest prompt, in tokens; see ``interaction.overlong_prompts``. (Only the
    quick-start's are as short as 16.)"""
    max_response_tokens: int = key(4096, at_least=1)
    """Longest response, in tokens; a longer one is cut off (``optimization.mask_truncated``)."""
    min_response_tokens: int = key(0, at_least=0)
    """Shortest response: before it no stop token is drawn. What is drawn instead is not quite from
    the distribution that is trained, which ``rollout_mismatch`` shows."""
    engines_per_policy: int = key(2, at_least=1)
    """vLLM engines, one GPU each."""
    dtype: str = key("bfloat16", one_of=("float32", "bfloat16", "float16"))
    """Number format of weights and activations."""
    gpu_memory_utilization: float = key(
        0.6, above=0, at_most=1, formerly="rollout.gpu_memory_share"
    )
    """Share of a GPU's memory that an engine may fill (ignored on CPU)."""
    cpu_kv_cache_mib: int = key(128, at_least=16)
    """KV cache of an engine on CPU, in MiB (ignored on GPU)."""
    max_num_seqs: int = key(256, at_least=1, formerly="rollout.max_concurrent_requests")
    """Sequences that an engine decodes at once."""
    vllm_options: dict[str, Any] = key({}, example={"enforce_eager": True})
    """Further arguments of vLLM's ``EngineArgs``, over those that the other keys make; what the run
    relies on is refused (comas/preflight/engine_options.py)."""


@dataclass
class Lora:
    """Policies as LoRA adapters (arXiv 2106.09685) over their base models, which stay as they are.

    Those of the same base model are a family: they share its rollout engines and its DeepSpeed
    group, and whatever is said of the engines, ranks and GPUs of a policy is of the family.
    """

    rank: int | None = key(None, at_least=1, at_most=512, example=16)
    """r: the rank of each update B A; null: policies are whole models, and nothing else here is
    read."""
    alpha: int = key(32, at_least=1)
    """The update is weighed by alpha / rank."""
    target_modules: list[str] | None = key(None, example=["q_proj", "v_proj"])
    """Names of the linear layers that are adapted; null: all but the output layer."""


@dataclass
class Policy:
    """Training: one DeepSpeed group for each policy."""

    ranks_per_policy: int = key(2, at_least=1)
    """Processes that train a policy together, one GPU each."""
    dtype: str = key("bfloat16", one_of=("float32", "bfloat16"))
    """Number format of weights and activations in the update."""
    zero_stage: int | None = key(None, at_least=0, at_most=3, example=2)
    """What DeepSpeed's ZeRO divides among the ranks: 0 nothing, 1 optimiser states, 2 also
    gradients, 3 also weights; null: the cheapest that fits (comas/preflight/sharding.py)."""
    adam_offload: bool | None = key(None, example=False)
    """Keep the optimiser states in host memory (no effect on CPU); null: where nothing else
    fits."""
    gradient_checkpointing: bool | None = key(None, example=True)
    """Recompute activations in the backward pass: less memory, more time; null: only those of a
    sample that is longer than ``micro_batch_tokens`` alone."""
    attn_implementation: str = key(
        "sdpa", one_of=("sdpa", "flash_attention_2"), formerly="policy.attention"
    )
    """Kernels of attention: sdpa are PyTorch's own, flash_attention_2 has to be installed."""
    micro_batch_size: int | None = key(None, at_least=1, example=2)
    """Samples (dpo: pairs) that a rank puts through the model at once; null: by
    ``micro_batch_tokens``."""
    micro_batch_tokens: int | None = key(6144, at_least=1)
    """Tokens that a rank puts through the model at once, a longer sample alone; null: by
    ``micro_batch_size``."""
    deepspeed_options: dict[str, Any] = key({}, example={"wall_clock_breakdown": True})
    """Further entries of DeepSpeed's configuration, over those that the other keys make; what the
    run relies on is refused (comas/preflight/engine_options.py)."""
    lora: Lora = field(default_factory=Lora)


@dataclass
class Optimization:
    """Advantages, loss and optimiser of one policy's update."""

    loss: str = key("clipped_surrogate", one_of=("clipped_surrogate", "dpo"))
    """The loss over advantages (clipped_surrogate) or over pairs (dpo): the response of the highest
    reward against that of the lowest, among an agent's responses to the same prompt."""
    estimator: str = key("reinforce_pp")
    """Name in ``comas.policy_optimization.ADVANTAGE_ESTIMATORS``, or a plug-in."""
    group_by: list[str] | None = key(None, example=["question_id", "role"])
    """Fields of a sample that make its group, such as question_id, role, agent_index; null: those
    of the estimator."""
    role_weights: dict[str, Any] = key({}, example={"scoring": 0.1})
    """Role -> what its advantages are multiplied with; 1 where it is not named. Below 1 an agent
    learns more slowly in that role, at 0 not at all."""
    discount: float = key(1.0, above=0, at_most=1)
    """gamma of the token returns."""
    kl_coef: float = key(0.0, at_least=0, formerly="optimization.kl_weight")
    """beta of the KL penalty, or of dpo; a reference model is loaded only when it is above 0."""
    clip_epsilon: float = key(0.2, above=0, at_most=1)
    """epsilon: importance ratios are clipped to [1 - epsilon, 1 + epsilon]."""
    clip_epsilon_high: float | None = key(None, above=0, example=0.28)
    """The epsilon above 1 alone (clip-higher); null: ``clip_epsilon`` on both sides."""
    dual_clip: float | None = key(None, above=1, example=3.0)
    """The loss of a token of negative advantage A is at most -A times this (dual clip); null: it
    has no bound."""
    loss_aggregation: str | None = key(
        None, one_of=("token_mean", "sequence_mean", "constant_length"), example="token_mean"
    )
    """Mean of the loss over all tokens; over the means of the responses; or its sum by the number
    of responses times ``rollout.max_response_tokens``. null: the estimator's, if it has one, else
    token_mean."""
    mask_truncated: bool = key(True)
    """Leave responses cut off by the token limit out of the loss and of the advantages."""
    overlong_buffer_tokens: int | None = key(None, at_least=1, example=1024)
    """Length penalty: over the last so many tokens below ``rollout.max_response_tokens``, a
    response's reward falls evenly by 1 (DAPO's soft overlong punishment); null: none."""
    old_logprobs: str = key("recomputed", one_of=("recomputed", "rollout"))
    """Denominator of the importance ratio: the policy's own log-probs before the update, which take
    a forward pass where there are several optimiser steps; or those of the rollout engine."""
    rollout_correction: str = key("none", one_of=("none", "tis", "icepop", "seq_mask_tis"))
    """Weigh each token's loss by pi_policy / pi_rollout before the update: clipped (tis), without
    tokens (icepop) or responses (seq_mask_tis: by the geometric mean) beyond the bounds."""
    rollout_ratio_bounds: list[float] | None = key(None, example=[0.5, 5.0])
    """The lowest and the highest ratio; null: [0, 2] for tis, [0.5, 5] for icepop and
    seq_mask_tis."""
    mismatch_warning: float = key(0.1, above=0)
    """Warn when the mean |policy - rollout| log-prob difference of a step is above this."""
    train_batch_size: int | None = key(64, at_least=1)
    """Samples per optimiser step, of which dpo makes half as many pairs; null: the whole buffer in
    one."""
    epochs_per_buffer: int = key(1, at_least=1)
    """Passes over the samples of an update."""
    learning_rate: float = key(1e-6, above=0, at_most=1)
    """Learning rate of AdamW after the warm-up; see ``society.learning_rates``."""
    lr_schedule: str = key(
        "constant_with_warmup", one_of=("constant_with_warmup", "cosine", "linear")
    )
    """Schedule of the learning rate, as in transformers: after the warm-up it stays, or falls over
    the optimiser steps that the run is expected to make (its first lines say how many)."""
    warmup_steps: int = key(5, at_least=0)
    """Optimiser steps of linear warm-up; the first is not at 0."""
    final_lr_ratio: float = key(0.0, at_least=0, at_most=1)
    """Share of the learning rate to which cosine and linear fall, and at which they stay."""
    weight_decay: float = key(0.0, at_least=0)
    """Weight decay of AdamW."""
    betas: list[float] = key([0.9, 0.95])
    """AdamW's two betas, each at least 0 and below 1."""
    max_grad_norm: float = key(1.0, above=0, formerly="optimization.gradient_clip")
    """Gradients with a greater norm are scaled down to it."""


@dataclass
class Training:
    """Length of the run, and what is kept of it."""

    num_epochs: int = key(1, at_least=1)
    """Passes over the training questions."""
    num_steps: int | None = key(None, at_least=1, example=10)
    """Rollout steps; null: as many whole batches as ``num_epochs`` hold."""
    save_every: int = key(10, at_least=1)
    """Steps from one checkpoint to the next; the last step has one as well. It is written beside
    the next step, which waits for a copy in memory only."""
    keep_checkpoints: int = key(2, at_least=1)
    """Newest checkpoints that remain; older ones are removed."""
    validate_every: int = key(5, at_least=1, formerly="training.eval_every")
    """Steps from one validation to the next; the first follows the start, the last the end."""
    keep_best: str | None = key(None, example="validation/greedy/accuracy")
    """A metric of the validations: the checkpoint of its highest value is kept besides the newest,
    and written where none is due; null: none is. --export-best writes its models."""
    patience: int | None = key(None, at_least=1, example=5)
    """Validations without a higher value of ``keep_best`` after which the run ends; null: it makes
    all of its steps."""
    stop_when: list[str] = key([], example=["scoring/invalid_rate > 0.5 for 10"])
    """Conditions of which each ends the run: a metric, a relation (> >= < <=), a number, and for
    how many of its latest values it has held (one a step, or one a validation)."""


@dataclass
class Validation:
    """Held-out questions: each agent answers alone, the verifier judges; nobody is trained."""

    num_questions: int | None = key(None, at_least=1, example=100)
    """Questions asked at each validation, the same every time; null: all."""
    temperature: float = key(0.7, at_least=0)
    """0 is greedy."""
    greedy: bool = key(True)
    """Whether the agents answer greedily as well, which shows how much of a gain is that they
    sample what was the likeliest before."""
    discussions: bool = key(False)
    """Whether the agents also discuss every question, as in training: accuracy of the last round,
    and how well the rewards tell correct solutions from others."""


@dataclass
class Verification:
    """How answers are judged: the verifier of each domain is a name in
    ``comas.verification.verifiers.VERIFIERS``, or a plug-in."""

    math: str = key("math")
    """Verifier of math."""
    science: str = key("science")
    """Verifier of science."""
    coding: str = key("coding")
    """Verifier of coding."""
    choice: str = key("choice")
    """Verifier of choice."""
    reasoning: str = key("reasoning")
    """Verifier of reasoning."""
    sandbox: str | None = key(
        None, one_of=("require_namespaces", "allow_degraded"), example="require_namespaces"
    )
    """Whether model-written programs run where the machine isolates them by no namespaces:
    require_namespaces runs none (such a run does not start), allow_degraded warns of what is
    missing; null: require_namespaces where the machine has them, else allow_degraded."""


@dataclass
class Cluster:
    """Where the engines run."""

    device: str = key("auto", one_of=("auto", "cpu", "cuda"))
    """auto: cuda where there is a GPU, else cpu."""
    placement: str = key(
        "colocated",
        one_of=("colocated", "disaggregated"),
        former_values={"split": "disaggregated"},
    )
    """GPU: rollout and training of a policy share its GPUs, or have their own."""
    gpus_per_policy: int = key(2, at_least=1)
    """Colocated: ranks = engines = GPUs; disaggregated: ranks + engines = GPUs."""
    policies_per_gpu: int = key(1, at_least=1)
    """Policies that share each of their GPUs; above 1 for tiny models only."""
    ray_address: str | None = key(None, example="auto")
    """An existing Ray cluster, whose nodes share ``saves``; null joins the one that RAY_ADDRESS in
    the environment names, or else starts one on this machine for the run."""
    object_store_mib: int = key(512, at_least=80)
    """Memory of Ray's object store, in MiB: it holds the samples of an update."""
    start_timeout_s: float = key(600.0, above=0)
    """Limit on the start of all engines, in seconds."""
    call_timeout_s: float = key(3600.0, above=0)
    """Limit on any single update, weight sync or checkpoint, in seconds."""
    heartbeat_timeout_s: float = key(120.0, at_least=10)
    """How long an engine that is waited for may give no sign of life, in seconds. (It gives one
    every 2 s, or after what it is at.)"""
    max_recoveries: int = key(3, at_least=0)
    """How often in a row, without a new step in between, engines that were lost are started again;
    0 ends the run at the first."""


@dataclass
class Logging:
    """What is written besides metrics.jsonl and the discussions' texts."""

    wandb: str = key("disabled", one_of=("disabled", "offline", "online"))
    """offline writes into the run directory, for `wandb sync`."""
    wandb_project: str = key("comas")
    """The project that the run belongs to at wandb."""
    tensorboard: bool = key(False)
    """Whether the run directory gets a folder tensorboard/."""
    trackers: list[str] = key([])
    """Further trackers: plug-ins that are called with the configuration and the run's folder, and
    return a ``comas.run.trackers.Tracker``."""
    trackio: bool = key(False)
    """Whether Trackio, which has to be installed, gets the metrics, and discussions as traces."""
    trackio_project: str = key("comas")
    """The project that the run belongs to in Trackio."""
    tokens: bool = key(True)
    """Whether the run directory gets a folder tokens/: every prompt and response as token ids, with
    log-probs and advantages. About 7 bytes per response token."""


@dataclass
class Config:
    """A whole run. ``configs/comas.yaml`` holds the paper's values, with their sources."""

    hint_for: ClassVar = staticmethod(hint)
    """What to write for a key of the paper's released code."""

    name: str = key("comas")
    """Ends the name of the run directory: letters, digits and . _ - , at most 64."""
    seed: int = key(0, at_least=0, at_most=2**32 - 1)
    """The seed of everything that is drawn; vLLM takes 32 bits."""
    saves: str = key("saves")
    """Folder of all run directories."""
    resume: str | None = key(None, example="saves/latest")
    """Run directory to continue."""
    resume_changed: bool = key(False)
    """Whether a resumed run may go on with other settings than it had, on the command line or as
    its config.yaml or inputs.json was edited."""
    resume_foreign: bool = key(False)
    """Whether a run that this user did not begin, or a checkpoint that this user did not write for
    it, is trusted: going on acts on its config.yaml and runs code in the checkpoint."""
    society: Society = field(default_factory=Society)
    data: Data = field(default_factory=Data)
    interaction: Interaction = field(default_factory=Interaction)
    reward: Reward = field(default_factory=Reward)
    rollout: Rollout = field(default_factory=Rollout)
    policy: Policy = field(default_factory=Policy)
    optimization: Optimization = field(default_factory=Optimization)
    training: Training = field(default_factory=Training)
    validation: Validation = field(default_factory=Validation)
    verification: Verification = field(default_factory=Verification)
    cluster: Cluster = field(default_factory=Cluster)
    logging: Logging = field(default_factory=Logging)

    @property
    def policy_of_agent(self) -> list[int]:
        """Policy index of each agent: the configured map, or one policy per agent."""
        return self.society.policy_of_agent or list(range(self.society.num_agents))

    @property
    def num_policies(self) -> int:
        """How many sets of weights there are, frozen ones included."""
        return max(self.policy_of_agent) + 1

    @property
    def models(self) -> list[str]:
        """Base model of each policy."""
        return self._for_every_policy(self.society.models)

    @property
    def learning_rates(self) -> list[float]:
        """Learning rate of each policy."""
        rates = self.society.learning_rates
        return self._for_every_policy([self.optimization.learning_rate] if rates is None else rates)

    @property
    def chat_template_kwargs(self) -> list[dict[str, Any]]:
        """Variables of the chat template of each policy."""
        own = self.society.chat_template_kwargs
        return self._for_every_policy([self.rollout.chat_template_kwargs] if own is None else own)

    @property
    def update_every(self) -> list[int]:
        """Steps from one update of each policy to the next; 0: it is frozen."""
        return self._for_every_policy(self.society.update_every)

    @property
    def trained_policies(self) -> list[int]:
        """The policies that are not frozen."""
        return [policy for policy, every in enumerate(self.update_every) if every > 0]

    @property
    def verifiers(self) -> dict[str, str]:
        """Domain -> the name of its verifier."""
        return {
            "math": self.verification.math,
            "science": self.verification.science,
            "coding": self.verification.coding,
            "choice": self.verification.choice,
            "reasoning": self.verification.reasoning,
        }

    @property
    def families(self) -> list[tuple[int, ...]]:
        """The policies that share engines: adapters over one base model; else each alone.

        Example: LoRA policies of the models a, b, a are the families ``[(0, 2), (1,)]``.
        """
        if self.policy.lora.rank is None:
            return [(policy,) for policy in range(self.num_policies)]
        of_model: dict[str, tuple[int, ...]] = {}
        for policy, model in enumerate(self.models):
            of_model[model] = (*of_model.get(model, ()), policy)
        return list(of_model.values())

    @property
    def trained_families(self) -> list[tuple[int, ...]]:
        """The families that have a policy that is not frozen."""
        trained = set(self.trained_policies)
        return [family for family in self.families if not trained.isdisjoint(family)]

    @property
    def adapter_policies(self) -> list[int]:
        """The policies that are LoRA adapters; one that is frozen is its base model."""
        return [] if self.policy.lora.rank is None else self.trained_policies

    def _for_every_policy(self, entries: list[Entry]) -> list[Entry]:
        return entries * self.num_policies if len(entries) == 1 else entries
