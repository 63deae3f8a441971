"""Who discusses, how, and what a discussion pays."""

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, Field

from comas.config.keys import key


class Judge(BaseModel, extra="forbid", frozen=True, strict=True):
    """What may be said of ``society.judge``."""

    base_url: str
    """Address of an OpenAI-compatible server, such as http://127.0.0.1:8000/v1."""
    model: str
    """Its name on that server."""
    api_key_env: str | None = Field(None, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    """Environment variable that holds the server's key, which is written nowhere; null: none."""
    roles: list[str] = Field(["evaluation", "scoring"], min_length=1)
    """The roles that it takes over from agents; each has to judge or score."""
    max_tokens: int | None = Field(None, ge=1)
    """Tokens of an answer, its thinking included; null: as many as the agents have."""
    extra_body: dict[str, Any] = {}
    """What its requests hold besides, or otherwise; null leaves a name out of them. Of OpenAI's
    reasoning models: ``{max_completion_tokens: 4096, max_tokens: null, temperature: null}``."""


@dataclass
class Society:
    """Who discusses. An agent is a participant of the discussion, a policy a set of weights."""

    num_agents: int = key(4, ge=1)
    """l in the paper: participants of each discussion."""
    models: list[str] = key(["Qwen/Qwen2.5-3B-Instruct"], leads_to="file")
    """Base model of each policy (folder, GGUF file or hub name); one entry serves every policy.
    "quickstart/models/..." names an embedded tiny model."""
    cold_start: str | None = key(None, leads_to="file", example="demonstrations.jsonl")
    """JSONL file of demonstrations (comas/cold_start/demonstrations.py), from which the base models
    of trained policies learn how their roles speak before the run begins; frozen policies of the
    same models begin with what those have learnt; null: none."""
    policy_of_agent: list[int] | None = key(None, example=[0, 0, 1, 1])
    """Index of each agent's policy, from 0 without gaps; null gives every agent its own."""
    learning_rates: list[Annotated[float, Field(gt=0, le=1)]] | None = key(
        None, example=[1e-6, 5e-7]
    )
    """Learning rate of each policy, a single entry for every policy; null gives all of them
    ``optimization.learning_rate``."""
    chat_template_kwargs: list[dict[str, Any]] | None = key(
        None, example=[{"enable_thinking": False}, {}]
    )
    """Variables of each policy's chat template, a single entry for every policy; null gives all of
    them ``rollout.chat_template_kwargs``."""
    update_every: list[Annotated[int, Field(ge=0)]] = key([1])
    """Steps from one update of each policy to the next, a single entry for every policy; the last
    step has one as well. An update is on all that was said since the one before. 0: the policy is
    frozen, has no trainer and stays its base model."""
    judge: dict[str, Any] | None = key(
        None, example={"base_url": "http://127.0.0.1:8000/v1", "model": "Qwen/Qwen2.5-72B-Instruct"}
    )
    """A model behind an address that judges in the place of agents, and is not trained: a trusted
    judge, as a control. ``Judge`` above has the names; null: agents judge."""


@dataclass
class Interaction:
    """The discussion: who speaks when, about what."""

    schedule: str = key("sequential", leads_to="plug-in")
    """Name in ``comas.interaction.schedules.SCHEDULES``, or a plug-in."""
    criticism: str = key("scored", leads_to="plug-in")
    """Name in ``comas.interaction.criticism.CRITICISMS``, or a plug-in: what happens to a solution
    once it is given."""
    num_rounds: int = key(8, ge=1)
    """m in the paper. A round has one solution (sequential) or one of each agent (others)."""
    num_evaluations: int = key(1, ge=1)
    """n in the paper: evaluations of each solution."""
    horizon: int = key(2, ge=0)
    """kappa in the paper: past rounds (sequential), drawn solutions with their evaluations
    (parallel), or drawn answers of others beside one's own (debate) in a prompt."""
    prompt_reuse: int = key(4, ge=1)
    """Independent discussions of each question in a batch."""
    prompts: str | None = key(None, leads_to="file", example="prompts.yaml")
    """File of prompts that words some of them differently (``comas/interaction/prompts.yaml`` says
    what it may hold), such as configs/prompts/small.yaml for small models; null: the shipped
    wording."""


@dataclass
class Reward:
    """How a discussion becomes rewards."""

    scheme: str = key("interaction", leads_to="plug-in")
    """Name in ``comas.reward_formulation.REWARD_SCHEMES``, or a plug-in: ``path/to/file.py:object``
    or ``module:object``; with ``trl:`` or ``verl:`` before it, a function of these libraries."""
