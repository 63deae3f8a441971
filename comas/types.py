"""The data types that several packages share: the parts of a discussion, and what is trained on.

The data flows one way:
Question -> Discussion -> RewardedDiscussion -> TrainingSample -> UpdateStats.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any, Literal, NamedTuple, get_args

Domain = Literal["math", "coding", "science", "choice", "reasoning"]
FinishReason = Literal["stop", "length", "given"]
Device = Literal["cpu", "cuda"]

DOMAINS: tuple[Domain, ...] = ("math", "coding", "science")
"""Those of the paper, which the quick-start's society is made of."""
ALL_DOMAINS: tuple[Domain, ...] = get_args(Domain)
"""The paper's, and those that a user's questions may be of besides."""
ROLES = ("solution", "evaluation", "scoring")
"""The paper's; a plug-in may add its own."""
ROLE_LETTERS = {"solution": "s", "evaluation": "e", "scoring": "t"}
"""How turn ids write these: "r0.s1.e0.t0" is the scoring of the first evaluation of solution 1 of
round 0. Another role stands there by its name."""

Message = Mapping[str, str]
"""``{"role": "user", "content": "What is 48 + 23?"}``, as in OpenAI's chat API."""

Metrics = dict[str, float | None]
"""Values by names with slashes, such as ``reward/solution``; None: a mean over no items."""


@dataclass(frozen=True)
class Question:
    """What a discussion is about. It carries no answer, except for rewards that read labels."""

    question_id: str
    domain: Domain
    text: str
    columns: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Of its record, with ``gold``, its answer; empty unless the reward ``reads_columns``."""


AnswerKey = Mapping[str, str]
"""question_id -> reference answer (for coding: checker code), with the question's columns for a
verifier that reads them (``comas.verification.forms.parted``); passed to verification only."""


class ToolCall(NamedTuple):
    """A call of a tool within a response, and what came of it."""

    start: int
    """Where the call begins in ``Generation.response_text``, in characters."""
    end: int
    """Where the answer to it ends there."""
    failed: bool
    """True if the answer says what went wrong."""


ToolDescription = Mapping[str, Any]
"""``{"type": "function", "function": {"name": "python", ...}}``, as in OpenAI's chat API."""


@dataclass(frozen=True)
class Generation:
    """One response exactly as the rollout engine sampled it; training uses these token ids.

    Example: the prompt ``[5, 8, 2]`` answered by ``[7, 9, 1]`` (1 ends the turn) is
    ``Generation((5, 8, 2), (7, 9, 1), "71", (-0.1, -0.7, -0.2), "stop", policy_version=3)``.
    """

    prompt_token_ids: Sequence[int]
    response_token_ids: Sequence[int]
    """Includes the end-of-turn token when ``finish_reason`` is "stop"."""
    response_text: str
    """The decoded response without special tokens and thinking: what others read."""
    rollout_logprobs: Sequence[float]
    """Natural log-probability of each response token, at the sampling temperature."""
    finish_reason: FinishReason
    """"length": cut off by the limit; "given": nobody sampled it (``Turn.is_given``)."""
    policy_version: int
    """Number of weight updates the engine had received when it sampled this."""
    spells_mark: bool = False
    """True if the text spells a mark of its model's chat template, which is read as plain text."""
    thinking_text: str = ""
    """What was left out of ``response_text``: thinking and its marks."""
    num_thinking_tokens: int | None = None
    """Response tokens up to the end of the thinking; None: the model has no thinking marks."""
    sampled: Sequence[bool] | None = None
    """False for each response token that the policy did not sample, such as a tool's output, which
    is neither trained nor counted, and whose log-prob is 0; None: all were."""
    author: str = ""
    """The model that said it where that is no policy, such as ``society.judge``."""
    calls: Sequence[ToolCall] | None = None
    """Tools that it called and was answered by, in order; None: it was offered none."""

    def __post_init__(self) -> None:
        """Replace lone surrogates, as tools may print: no tokenizer, judge or file takes one."""
        text = self.response_text.encode(errors="replace").decode()
        object.__setattr__(self, "response_text", text)

    @property
    def num_sampled_tokens(self) -> int:
        """Response tokens that the policy sampled."""
        return len(self.response_token_ids) if self.sampled is None else sum(self.sampled)

    @property
    def sampled_logprobs(self) -> Sequence[float]:
        """Log-probabilities of the sampled response tokens alone."""
        if self.sampled is None:
            return self.rollout_logprobs
        return list(compress(self.rollout_logprobs, self.sampled))


TurnKey = tuple[str, str]
"""(discussion_id, turn_id), which identifies a turn within a batch."""


class Continuation(NamedTuple):
    """A response that its agent goes on with, once it has read an answer to it, such as a tool's
    output. Both become parts of the new response; the answer's tokens are not ``sampled``."""

    response: Generation
    answer: str
    call_start: int | None = None
    """Where in the response's text the tool call begins that is answered; None: it is a user's
    message that answers, not a tool."""
    failed: bool = False
    """As of the ``ToolCall``."""


class Request(NamedTuple):
    """What an agent is asked for: one response to a prompt, which it sees as a user's message."""

    agent_index: int
    prompt: str
    turn: TurnKey
    """Names the request in errors, and tells plug-ins that wrap ``Generate`` what it is for."""
    role: str
    seed: int
    """Below 2^63."""
    temperature: float | None = None
    """None: ``rollout.temperature``. At 0 the likeliest token is taken, and log-probs are those
    at temperature 1."""
    after: "Continuation | None" = None
    """What the response goes on with; None: it is a new one."""
    tools: Sequence[ToolDescription] = ()
    """What the agent may call. It is told so by its chat template, or else in the prompt."""
    adapter: int | None = None
    """The policy whose LoRA adapter answers, as the sampler fills it in; None: the engine's own
    weights."""


Generate = Callable[[Request], Awaitable[Generation | None]]
"""Asks an agent for a response; the caller does not know which engine answers. None: the prompt is
over its limit, or a response that is to be gone on with is. Whatever wraps one is one as well."""


@dataclass(frozen=True)
class Turn:
    """One agent speaking once. Its parent is the turn that it responds to; a solution has none.

    Example: ``Turn("r0.s1.e0", "r0.s1", 0, "evaluation", 2, "List every mistake ...", generation)``
    """

    turn_id: str
    parent_turn_id: str | None
    round_index: int
    role: str
    agent_index: int
    prompt: str
    generation: Generation

    @property
    def text(self) -> str:
        """What the agent said, for others to read."""
        return self.generation.response_text

    @property
    def is_given(self) -> bool:
        """True if no agent generated the text, which was supplied, or is a judge's: such a turn is
        not trained and does not count in means over agents."""
        return self.generation.finish_reason == "given" or self.generation.author != ""


@dataclass(frozen=True)
class Discussion:
    """Everything said about one question in one copy of the discussion, depth first:
    ``r0.s0, r0.s0.e0, r0.s0.e0.t0, r1.s0, r1.s0.e0, r1.s0.e0.t0``."""

    discussion_id: str
    question: Question
    turns: tuple[Turn, ...]
    num_overlong_prompts: int = 0
    """Number of prompts over the limit, which were shortened or skipped, as configured."""

    def solutions(self) -> list[Turn]:
        """Return the answers to the question, in order."""
        return [turn for turn in self.turns if turn.role == "solution"]

    def children(self, parent: Turn, role: str) -> list[Turn]:
        """Return the turns of ``role`` that respond to ``parent``, in order."""
        return [t for t in self.turns if t.role == role and t.parent_turn_id == parent.turn_id]

    def scorings(self, solution: Turn) -> list[Turn]:
        """Return the scorings nearest below ``solution``, in order."""
        under = f"{solution.turn_id}."
        below = [t for t in self.turns if t.role == "scoring" and t.turn_id.startswith(under)]
        nearest = min((t.turn_id.count(".") for t in below), default=0)
        return [t for t in below if t.turn_id.count(".") == nearest]


@dataclass(frozen=True)
class RewardedDiscussion:
    """A discussion with a reward for each of its turns, in their order; None: it is not trained."""

    discussion: Discussion
    rewards: tuple[float | None, ...]


@dataclass(frozen=True)
class Rewards:
    """A batch of discussions with its rewards, and what the reward scheme saw on the way."""

    discussions: list[RewardedDiscussion]
    """In the order of the discussions given."""
    metrics: Metrics = field(default_factory=dict)


@dataclass(frozen=True)
class TrainingSample:
    """One trained response of an agent: its turn, token ids and reward, and the fields by which an
    estimator may group it."""

    agent_index: int
    question_id: str
    discussion_id: str
    turn_id: str
    round_index: int
    role: str
    prompt_token_ids: Sequence[int]
    response_token_ids: Sequence[int]
    rollout_logprobs: Sequence[float]
    reward: float
    sampled: Sequence[bool] | None = None
    """As of its ``Generation``; at least one token is."""


@dataclass(frozen=True, kw_only=True)
class UpdateStats:
    """What one policy update did; by default nothing, as on an empty buffer.

    Numbers are the agent's metrics that ``comas/run/metrics/metrics.md`` explains (by role if asked
    for). ``kl``, mismatch and ratio are from before the update, of the samples of the first
    optimiser step alone unless a forward pass before the update computed all log-probs.
    """

    policy_loss: float = 0.0
    kl: float = 0.0
    entropy: float = 0.0
    clip_fraction: float = 0.0
    gradient_norm: float = 0.0
    gradient_norm_by_role: Mapping[str, float] = field(default_factory=dict)
    num_tokens: int = 0
    num_samples: int = 0
    num_optimizer_steps: int = 0
    num_skipped_steps: int = 0
    learning_rate: float
    mismatch_mean: float = 0.0
    mismatch_max: float = 0.0
    rollout_ratio_mean: float = 1.0
    rollout_ratio_max: float = 1.0
    corrected_share: float = 0.0
    advantages: tuple[Sequence[float], ...] = ()
    """Those of the response tokens of each sample, in the buffer's order, 0 of what was not
    sampled; empty where pairs are compared."""
