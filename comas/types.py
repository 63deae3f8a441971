"""The nouns that cross packages: what a discussion is made of, and what training takes from it.

The data flows one way:
Question -> Discussion -> RewardedDiscussion -> TrainingSample -> UpdateStats.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, get_args

Domain = Literal["math", "coding", "science"]
Role = Literal["solution", "evaluation", "scoring"]
FinishReason = Literal["stop", "length", "given"]
Device = Literal["cpu", "cuda"]

DOMAINS: tuple[Domain, ...] = get_args(Domain)
NO_CHOICE = "choice questions can be evaluated on, but not trained on"
"""Of the form that has no domain: no agent is told how to discuss it."""
ROLES: tuple[Role, ...] = get_args(Role)
ROLE_LETTERS: dict[Role, str] = {"solution": "s", "evaluation": "e", "scoring": "t"}
"""How a role appears in turn ids: "r0.s1.e0.t0" is the scoring of the first evaluation of
solution 1 of round 0."""

Message = Mapping[str, str]
"""``{"role": "user", "content": "What is 48 + 23?"}``, as in OpenAI's chat API."""

Metrics = dict[str, float | None]
"""Values under names with slashes, such as ``reward/solution``; None: a mean over nothing."""


@dataclass(frozen=True)
class Question:
    """What a discussion is about. It carries no answer, so no reward can see one.

    Example: ``Question("math/17", "math", "What is 48 + 23?")``
    """

    question_id: str
    domain: Domain
    text: str


AnswerKey = Mapping[str, str]
"""question_id -> gold answer (for coding: checker code). Only verification may hold one.

Example: ``{"math/17": "71"}``
"""


@dataclass(frozen=True)
class Generation:
    """One response exactly as the rollout engine sampled it; training never encodes text again.

    Example: the prompt ``[5, 8, 2]`` answered by ``[7, 9, 1]`` (1 ends the turn) is
    ``Generation((5, 8, 2), (7, 9, 1), "71", (-0.1, -0.7, -0.2), "stop", policy_version=3)``.
    """

    prompt_token_ids: tuple[int, ...]
    response_token_ids: tuple[int, ...]
    """Includes the end-of-turn token when ``finish_reason`` is "stop"."""
    response_text: str
    """The decoded response without special tokens: what other agents read."""
    rollout_logprobs: tuple[float, ...]
    """Natural log-probability of each response token at the sampling temperature."""
    finish_reason: FinishReason
    """"length": cut off by the response limit; "given": nobody sampled it
    (``Turn.is_given``)."""
    policy_version: int
    """Number of weight updates the engine had received when it sampled this."""
    spells_mark: bool = False
    """Whether the text spells what tells turns apart in the chats of its model, such as
    ``<|im_end|>``: a text for whoever reads it, but worth counting."""


TurnKey = tuple[str, str]
"""(discussion_id, turn_id), which names one turn of a batch."""


class Generate(Protocol):
    """How an agent is asked to speak; who asks never learns which engine answers."""

    async def __call__(
        self, agent_index: int, prompt: str, *, turn: TurnKey, seed: int
    ) -> Generation | None:
        """Sample one response for ``turn``, or return None when the prompt is over the limit."""
        ...


@dataclass(frozen=True)
class Turn:
    """One agent speaking once.

    Its parent is the turn that it answers: a scoring's is the evaluation that it weighs, or the
    solution where there is no evaluation, an evaluation's the solution that it criticises, and a
    solution has none.

    Example: in round 0 agent 2 evaluates the solution turn "r0.s1":
    ``Turn("r0.s1.e0", "r0.s1", 0, "evaluation", 2, "List every mistake ...", generation)``
    """

    turn_id: str
    parent_turn_id: str | None
    round_index: int
    role: Role
    agent_index: int
    prompt: str
    generation: Generation

    @property
    def text(self) -> str:
        """What the agent said."""
        return self.generation.response_text

    @property
    def is_given(self) -> bool:
        """Whether the text was put in the place of the agent's, who did not say it: such a turn is
        not trained, and no mean over agents counts it."""
        return self.generation.finish_reason == "given"


@dataclass(frozen=True)
class Discussion:
    """Everything said about one question in one independent copy of the discussion.

    Example: two rounds of the sequential schedule give the turns
    ``r0.s0, r0.s0.e0, r0.s0.e0.t0, r1.s0, r1.s0.e0, r1.s0.e0.t0``, always in this order,
    whichever generation finished first.
    """

    discussion_id: str
    question: Question
    turns: tuple[Turn, ...]
    num_overlong_prompts: int = 0
    """Prompts over the prompt limit: shortened or not asked, as configured."""

    def children(self, parent: Turn | None, role: Role) -> list[Turn]:
        """The turns of ``role`` that answer ``parent`` (None: the question), in order.

        Example: ``children(None, "solution")`` are all solutions of the discussion.
        """
        parent_id = None if parent is None else parent.turn_id
        return [t for t in self.turns if t.role == role and t.parent_turn_id == parent_id]

    def scorings(self, solution: Turn) -> list[Turn]:
        """The scorings of ``solution``, with an evaluation or without one, in order."""
        weighed = (solution, *self.children(solution, "evaluation"))
        return [scoring for turn in weighed for scoring in self.children(turn, "scoring")]


@dataclass(frozen=True)
class RewardedDiscussion:
    """A discussion with one reward for each turn, in the order of its turns.

    Example: a solution scored 3 of 3, its evaluation and its scoring:
    ``rewards == (1.0, 0.0, 0.0)``; None marks a turn that is not trained.
    """

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
    """One trained response of one agent: which turn it is, with the keys by which an estimator may
    group it."""

    agent_index: int
    question_id: str
    discussion_id: str
    turn_id: str
    round_index: int
    role: Role
    prompt_token_ids: tuple[int, ...]
    response_token_ids: tuple[int, ...]
    rollout_logprobs: tuple[float, ...]
    reward: float


@dataclass(frozen=True, kw_only=True)
class UpdateStats:
    """What one policy update did, over all response tokens of the policy's buffer; by default
    nothing, as on an empty buffer.

    What is said of "before the update" (``kl``, mismatch and ratio) is over the samples of the
    first optimiser step alone, where no pass beforehand knew the others' log-probs.
    """

    policy_loss: float = 0.0
    kl: float = 0.0
    """Mean k1 estimate of KL(policy || reference); 0 when no reference model is loaded."""
    entropy: float = 0.0
    """Mean over response tokens, in nats, of the distribution that the update found each of them
    drawn from (at the sampling temperature)."""
    clip_fraction: float = 0.0
    """Share of tokens whose probability ratio was clipped."""
    gradient_norm: float = 0.0
    """Mean over optimiser steps of the global norm before clipping."""
    num_tokens: int = 0
    num_samples: int = 0
    num_optimizer_steps: int = 0
    num_skipped_steps: int = 0
    """Optimiser steps left out, because their gradient was not finite."""
    learning_rate: float
    mismatch_mean: float = 0.0
    """Mean over response tokens of |policy log-prob - rollout log-prob| before the update."""
    mismatch_max: float = 0.0
    """Largest of them."""
    rollout_ratio_mean: float = 1.0
    """Mean over response tokens of pi_policy / pi_rollout before the update; 1 when they agree."""
    rollout_ratio_max: float = 1.0
    """Largest of them."""
    corrected_share: float = 0.0
    """Share of tokens (``seq_mask_tis``: of responses) beyond the bounds of
    ``optimization.rollout_correction``: clipped or left out."""
    advantages: tuple[tuple[float, ...], ...] = ()
    """Of every response token, for each sample in the buffer's order; none where pairs are
    compared."""
