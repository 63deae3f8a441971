"""Data types shared by several packages, from Question to TrainingSample."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

Domain = Literal["math", "coding", "science", "choice", "reasoning"]
FinishReason = Literal["stop", "length", "given"]
Device = Literal["cpu", "cuda"]

DOMAINS: tuple[Domain, ...] = ("math", "coding", "science")
"""The paper's domains, which the quick-start also uses."""
ALL_DOMAINS: tuple[Domain, ...] = get_args(Domain)
"""The paper's domains and those beyond it. Each asks for another form of answer: a boxed
expression, a program, a boxed decimal number, a letter, or that of a reasoning_gym task."""
Purpose = Literal["solves", "judges", "scores", "helps"]
ROLE_LETTERS = {"solution": "s", "evaluation": "e", "scoring": "t"}
"""Abbreviations in turn ids: "r0.s1.e0.t0" scores the first evaluation of solution 1 of round 0.
Other roles are spelt out: "r0.plan0"."""
NO_ROLES = ("question", "discussion", "history", "domain", "wording", "template", "spread")
"""Names that mean something else in a prompt, or among metrics."""


@dataclass(frozen=True)
class Role:
    """What turns are for. Schedules and criticisms declare the roles that they add.

    Example: ``Role("refinement", "solves")``, a solution rewritten after its evaluation.
    """

    name: str
    purpose: Purpose
    """"solves": answers the question, so it is verified; rewarded r(s). "helps": leads to answers,
    as plans do; rewarded r(s). "judges": rewarded r(e). "scores": holds a score; rewarded r(t)."""
    is_trained: bool = True

    def __post_init__(self) -> None:
        """Raise ValueError for a name that turn ids cannot hold, or an unknown purpose."""
        form = f"(?!({'|'.join(NO_ROLES)})$)[a-z_]{{2,}}"
        if not re.fullmatch(form, self.name) or self.purpose not in get_args(Purpose):
            known = f"{', '.join(get_args(Purpose))}; not {', '.join(NO_ROLES)}"
            raise ValueError(f"{self}: name it by a-z and _, two or more, for one of {known}")


Roles = Mapping[str, Role]
ROLES: Roles = {  # the paper's
    "solution": Role("solution", "solves"),
    "evaluation": Role("evaluation", "judges"),
    "scoring": Role("scoring", "scores"),
}

Message = Mapping[str, str]
"""``{"role": "user", "content": "What is 48 + 23?"}``, as in OpenAI's chat API."""

Metrics = dict[str, float | None]
"""Name, such as ``reward/solution`` -> value; None is a mean over no items."""


@dataclass(frozen=True)
class Question:
    """The question of a discussion, without its answer unless the reward reads labels."""

    question_id: str
    domain: Domain
    text: str
    columns: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """The columns of its record, and its answer as ``gold``, if the reward ``reads_columns``."""


AnswerKey = Mapping[str, str]
"""question_id -> reference answer (coding: checker code), with the columns that its verifier reads
(``comas.verification.forms.parted``). Only verification receives it."""


ToolDescription = Mapping[str, Any]
"""``{"type": "function", "function": {"name": "python", ...}}``, as in OpenAI's chat API."""


@dataclass(frozen=True)
class Generation:
    """A response as the rollout engine sampled it; training uses these token ids.

    Example: the prompt ``[5, 8, 2]`` answered by ``[7, 9, 1]`` (1 ends the turn) is
    ``Generation((5, 8, 2), (7, 9, 1), "71", (-0.1, -0.7, -0.2), "stop", policy_version=3)``.
    """

    prompt_token_ids: Sequence[int]
    response_token_ids: Sequence[int]
    """With the end-of-turn token if it stopped, unless a program's own stop ended it."""
    response_text: str
    """The decoded response without special tokens and thinking, as other agents read it."""
    rollout_logprobs: Sequence[float]
    """Natural log-probability of each response token, at the sampling temperature."""
    finish_reason: FinishReason
    """"length": truncated by the token limit; "given": not sampled (``Turn.is_given``)."""
    policy_version: int
    """Number of weight updates that the engine had received."""
    spells_mark: bool = False
    """True if the text spells a token of the chat template, which is treated as plain text."""
    thinking_text: str = ""
    """The thinking, with its marks, that ``response_text`` leaves out."""
    num_thinking_tokens: int | None = None
    """Response tokens up to the end of the thinking; None if the model has no thinking marks."""


TurnKey = tuple[str, str]
"""(discussion_id, turn_id), unique within a batch."""


class Chat(NamedTuple):
    """A chat for an agent to answer."""

    messages: Sequence[Message]
    follows: Sequence[int] = ()
    """Token ids of an earlier chat with its answer: the first ``num_followed`` messages."""
    num_followed: int = 0
    max_tokens: int | None = None
    stop: Sequence[str] = ()
    tools: Sequence[ToolDescription] = ()
    """Tools that the agent may call, described by its chat template or else in the prompt."""


class Request(NamedTuple):
    """Asks an agent for one response to a prompt, which it sees as a user's message."""

    agent_index: int
    prompt: str
    turn: TurnKey
    """The turn that the response will become."""
    role: str
    seed: int
    """Sampling seed, below 2^63."""
    temperature: float | None = None
    """Sampling temperature; None for ``rollout.temperature``. 0 is greedy, with log-probs at
    temperature 1."""
    chat: Chat | None = None
    """Chat to answer in place of ``prompt``, which then only describes it."""
    adapter: int | None = None
    """Policy whose LoRA adapter answers; None for the engine's weights. The sampler sets it."""


Generate = Callable[[Request], Awaitable[Generation | None]]
"""Asks an agent for a response, on any engine; returns None if the prompt is over its limit."""


@dataclass(frozen=True)
class Turn:
    """One agent speaking once, in response to the parent turn (None: to the question).

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
        """The response, as other agents read it."""
        return self.generation.response_text

    @property
    def is_given(self) -> bool:
        """True if no agent said the text. Such a turn is not trained and does not count in means
        over agents."""
        return self.generation.finish_reason == "given"


@dataclass(frozen=True)
class Discussion:
    """Everything said about one question in one copy of the discussion, depth first:
    ``r0.s0, r0.s0.e0, r0.s0.e0.t0, r1.s0, r1.s0.e0, r1.s0.e0.t0``."""

    discussion_id: str
    question: Question
    turns: tuple[Turn, ...]
    num_overlong_prompts: int = 0
    """Number of prompts over the limit, which were shortened or skipped."""
    roles: Roles = field(default_factory=lambda: ROLES, hash=False)

    def turns_that(self, purpose: Purpose) -> list[Turn]:
        """Return the turns whose role has that purpose, in order."""
        return [turn for turn in self.turns if self.roles[turn.role].purpose == purpose]

    def solutions(self) -> list[Turn]:
        """Return the answers to the question, in order."""
        return self.turns_that("solves")

    def children(self, parent: Turn, purpose: Purpose) -> list[Turn]:
        """Return the turns with that purpose that respond to ``parent``, in order."""
        return [t for t in self.turns_that(purpose) if t.parent_turn_id == parent.turn_id]

    def path_to(self, turn: Turn) -> list[Turn]:
        """Return the turn, its parent, and so on up to the first turn."""
        own = f"{turn.turn_id}."
        return [t for t in reversed(self.turns) if own.startswith(f"{t.turn_id}.")]

    def solution_of(self, turn: Turn) -> Turn | None:
        """Return the solution that a turn is, or else the nearest above it."""
        return next((t for t in self.path_to(turn) if self.roles[t.role].purpose == "solves"), None)

    def scorings(self, turn: Turn) -> list[Turn]:
        """Return the nearest scorings below ``turn``, in order; they decide its reward."""
        under = f"{turn.turn_id}."
        below = [t for t in self.turns_that("scores") if t.turn_id.startswith(under)]
        nearest = min((t.turn_id.count(".") for t in below), default=0)
        return [t for t in below if t.turn_id.count(".") == nearest]


@dataclass(frozen=True)
class RewardedDiscussion:
    """A discussion with the reward of each turn; None for turns that are not trained."""

    discussion: Discussion
    rewards: tuple[float | None, ...]

    @classmethod
    def by_turn(
        cls, discussion: Discussion, rewards: Mapping[str, float | None]
    ) -> "RewardedDiscussion":
        """Assign rewards by turn id; other turns, and those that are given, get None."""
        of_turns = (None if t.is_given else rewards.get(t.turn_id) for t in discussion.turns)
        return cls(discussion, tuple(of_turns))


@dataclass(frozen=True)
class Rewards:
    """A batch of rewarded discussions, in order, and the metrics of the reward scheme."""

    discussions: list[RewardedDiscussion]
    metrics: Metrics = field(default_factory=dict)


@dataclass(frozen=True)
class TrainingSample:
    """One trained response, with the fields by which an estimator may group it."""

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
