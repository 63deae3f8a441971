"""The society, its discussions and their rewards."""

from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import BaseModel, Field, model_validator

from comas.config.keys import key
from comas.types import ROLES, Purpose, Role


@dataclass
class Society:
    """The agents. An agent takes part in discussions, a policy is a set of weights."""

    num_agents: int = key(4, ge=1, le=1024)
    """l in the paper: participants of each discussion."""
    models: list[str] = key(["Qwen/Qwen2.5-3B-Instruct"], leads_to="file")
    """Base model of each policy (folder, GGUF file or hub name); one entry serves every policy.
    "quickstart/models/..." names an embedded tiny model."""
    cold_start: str | None = key(None, leads_to="file", example="demonstrations.jsonl")
    """JSONL file of demonstrations (comas/cold_start/demonstrations.py), on which the base models
    of trained policies are fine-tuned before the run, also for frozen policies of the same models;
    null: none."""
    policy_of_agent: list[int] | None = key(None, example=[0, 0, 1, 1])
    """Index of each agent's policy, from 0 without gaps; null: each agent has its own."""
    learning_rates: list[Annotated[float, Field(gt=0, le=1)]] | None = key(
        None, example=[1e-6, 5e-7]
    )
    """Learning rate of each policy, or one entry for all; null: ``optimization.learning_rate``."""
    chat_template_kwargs: list[dict[str, Any]] | None = key(
        None, example=[{"enable_thinking": False}, {}]
    )
    """Variables of each policy's chat template, or one entry for all; null:
    ``rollout.chat_template_kwargs``."""
    update_every: list[Annotated[int, Field(ge=0)]] = key([1])
    """Steps between updates of each policy, or one entry for all; the last step has an update, too.
    An update uses all samples since the one before. 0: the policy is frozen, without a trainer."""


class Program(BaseModel, extra="forbid", frozen=True, strict=True):
    """What ``interaction.program`` may hold: a function or a command, and its limits."""

    function: str | None = None
    """``path/to/file.py:solve``: a function of a ``Question`` and the address at which it asks the
    agents (``comas.interaction.program_runs.Solve``), with the rights of any plug-in."""
    command: list[str] | None = Field(None, min_length=1)
    """A program and its arguments. It reads the question from its standard input and asks at
    OPENAI_BASE_URL with OPENAI_API_KEY; it prints the answer or, as the last line, rewards."""
    roles: dict[str, Purpose] | None = {}
    """Further roles that its requests may name, such as ``{plan: helps}``; null: any role, which
    then helps."""
    timeout_s: float = Field(600.0, gt=0)
    """Seconds after which the program is ended."""
    max_tokens: int = Field(65536, ge=1)
    """Tokens that the agents may say in a discussion; answers begun together may exceed them."""
    concurrency: int = Field(64, ge=1)
    """Discussions that are held at a time."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.function is None) == (self.command is None):
            raise ValueError("give either a function or a command")
        for name, purpose in (self.roles or {}).items():
            Role(name, purpose)
            if name in ROLES or purpose == "solves":
                raise ValueError(f"roles: {name} is one of the paper's, or a second solution")
        return self


@dataclass
class Interaction:
    """The form of a discussion."""

    program: str | dict[str, Any] | None = key(None, leads_to="plug-in", example="my_team.py:solve")
    """A program of your own that asks the agents in place of ``schedule``: a function, or what
    ``Program`` above names, such as ``{command: [python, team.py], timeout_s: 60}``; null: none."""

    schedule: str = key("sequential", leads_to="plug-in")
    """Name in ``comas.interaction.schedules.SCHEDULES``, or a plug-in."""
    criticism: str = key("scored", leads_to="plug-in")
    """Name in ``comas.interaction.criticism.CRITICISMS``, or a plug-in: how solutions are
    criticised."""
    num_rounds: int = key(8, ge=1, le=1024)
    """m in the paper. A round has one solution (sequential) or one per agent (others)."""
    num_evaluations: int = key(1, ge=1)
    """n in the paper: evaluations of each solution."""
    horizon: int = key(2, ge=0)
    """kappa in the paper: past rounds (sequential), drawn solutions with their evaluations
    (parallel), or drawn answers of others besides one's own (debate) in a prompt."""
    prompt_reuse: int = key(4, ge=1)
    """Independent discussions of each question in a batch."""
    prompts: str | None = key(None, leads_to="file", example="prompts.yaml")
    """File that replaces some prompts of comas/interaction/prompts.yaml, such as
    configs/prompts/small.yaml for small models; null: none."""

    @property
    def chosen_program(self) -> Program | None:
        """The program. Raises pydantic's ValidationError if it is invalid."""
        if self.program is None:
            return None
        is_name = isinstance(self.program, str)
        return Program.model_validate({"function": self.program} if is_name else self.program)


@dataclass
class Reward:
    """The reward of a discussion."""

    scheme: str = key("interaction", leads_to="plug-in")
    """Name in ``comas.reward_formulation.REWARD_SCHEMES``, or a plug-in: ``path/to/file.py:object``
    or ``module:object``, with the prefix ``trl:`` or ``verl:`` for functions of these libraries."""
