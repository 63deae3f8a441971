"""The configuration of a run: all sections, its length, and what it writes."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from comas.config.former import former
from comas.config.keys import key
from comas.config.schema.algorithm import Algorithm, Optimization, ReinforcePP
from comas.config.schema.engines import Cluster, Policy, Rollout
from comas.config.schema.interaction import Interaction, Reward, Society
from comas.config.schema.questions import Data, Validation, Verification
from comas.types import ALL_DOMAINS

Entry = TypeVar("Entry", str, int, float, dict[str, Any])
"""Type of the entries of a list with one entry per policy."""


@dataclass
class Training:
    """Length of the run, and its checkpoints."""

    num_epochs: int = key(1, ge=1)
    """Passes over the training questions."""
    num_steps: int | None = key(None, ge=1, example=10)
    """Rollout steps; null: all whole batches of ``num_epochs``."""
    max_staleness: int = key(0, ge=0)
    """Steps by which sampling runs ahead of training, and so updates that the sampling weights
    lack; 0: sampling and training take turns. Above 0, GPUs must be disaggregated, and
    ``algorithm.rollout_correction`` corrects old samples (comas/run/batches.py)."""
    save_every: int = key(10, ge=1)
    """Steps between checkpoints; the last step has one, too."""
    keep_checkpoints: int = key(2, ge=1)
    """Newest checkpoints to keep; older ones are removed."""
    validate_every: int = key(5, ge=1)
    """Steps between validations; the start and the end have one, too."""
    keep_best: str | None = key(None, example="validation/greedy/accuracy")
    """A metric of validations: the checkpoint of its highest value is kept besides the newest (and
    written even if none is due); null: none. --export-best writes its models."""


@dataclass
class Logging:
    """Trackers of metrics besides metrics.jsonl."""

    trackers: list[str] = key([], leads_to="plug-in", example=["tensorboard", "wandb"])
    """tensorboard (folder tensorboard/ of the run), wandb (with WANDB_MODE=offline it writes into
    the run, for `wandb sync`), or plug-ins: functions from the configuration and the run's folder
    to a ``comas.run.trackers.Tracker``."""


@dataclass
class Config:
    """A whole run. ``configs/comas.yaml`` holds the paper's values, with their sources."""

    former: ClassVar = staticmethod(former)
    """Finds the remedy for a former key, or one of the paper's released code."""

    name: str = key("comas")
    """End of the run directory's name: letters, digits and . _ - , at most 64."""
    seed: int = key(0, ge=0, le=2**32 - 1)
    """Seed of all random draws; vLLM takes 32 bits."""
    saves: str = key("saves", leads_to="new folder")
    """Folder of all run directories."""
    resume: str | None = key(None, leads_to="file", example="saves/latest")
    """Run directory to continue."""
    resume_changed: bool = key(False)
    """Whether a run may be resumed with changed settings, questions or base models."""
    resume_foreign: bool = key(False)
    """Whether to trust a run or checkpoint that this user did not write: a resume acts on its
    config.yaml and runs code in the checkpoint."""
    society: Society = field(default_factory=Society)
    data: Data = field(default_factory=Data)
    interaction: Interaction = field(default_factory=Interaction)
    reward: Reward = field(default_factory=Reward)
    rollout: Rollout = field(default_factory=Rollout)
    policy: Policy = field(default_factory=Policy)
    algorithm: Algorithm = field(default_factory=ReinforcePP)
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
        """Number of sets of weights, including frozen ones."""
        return max(self.policy_of_agent) + 1

    @property
    def models(self) -> list[str]:
        return self._for_every_policy(self.society.models)

    @property
    def learning_rates(self) -> list[float]:
        rates = self.society.learning_rates
        return self._for_every_policy([self.optimization.learning_rate] if rates is None else rates)

    @property
    def chat_template_kwargs(self) -> list[dict[str, Any]]:
        """Variables of the chat template of each policy."""
        kwargs = self.society.chat_template_kwargs
        default = [self.rollout.chat_template_kwargs]
        return self._for_every_policy(default if kwargs is None else kwargs)

    @property
    def gpus_per_policy(self) -> int:
        """GPUs of a policy, if there are any."""
        ranks = self.policy.ranks_per_policy
        engines = self.rollout.engines_per_policy * self.rollout.tensor_parallel
        return ranks if self.cluster.placement == "colocated" else ranks + engines

    @property
    def update_every(self) -> list[int]:
        """Steps between updates of each policy; 0: it is frozen."""
        return self._for_every_policy(self.society.update_every)

    @property
    def trained_policies(self) -> list[int]:
        """The policies that are not frozen."""
        return [policy for policy, every in enumerate(self.update_every) if every > 0]

    @property
    def verifiers(self) -> dict[str, str]:
        """Domain -> the name of its verifier."""
        return {domain: self.verification.verifiers.get(domain, domain) for domain in ALL_DOMAINS}

    @property
    def families(self) -> list[tuple[int, ...]]:
        """The policies that share engines: adapters of one base model, or else each alone.

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
        """The families with a policy that is not frozen."""
        trained = set(self.trained_policies)
        return [family for family in self.families if not trained.isdisjoint(family)]

    @property
    def adapter_policies(self) -> list[int]:
        """The policies that are LoRA adapters; frozen ones are the base model."""
        return [] if self.policy.lora.rank is None else self.trained_policies

    def _for_every_policy(self, entries: list[Entry]) -> list[Entry]:
        return entries * self.num_policies if len(entries) == 1 else entries
