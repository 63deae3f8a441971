"""The inputs of a run, checked by preflight."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from comas.config.plugins import digest_of
from comas.config.schema import Config
from comas.data import QuestionSet
from comas.data.probe import ProbeItem
from comas.types import Device
from comas.verification.sandbox import Isolation


@dataclass(frozen=True)
class Sizes:
    """The sizes of a run, which follow from several keys; unless said otherwise, per step."""

    num_questions: int
    num_steps: int
    num_discussions: int
    turns_per_discussion: dict[str, int]
    """Role -> turns that agents take."""
    num_turns: int
    """Number of turns if every prompt fits."""
    samples_per_policy: tuple[int, ...]
    """Expected number, rounded, if every prompt fits, no response is truncated and every turn has a
    reward. Those of a frozen policy are not trained on."""
    optimizer_steps_per_policy: tuple[int, ...]
    """Optimiser steps of an update, over the samples of ``society.update_every`` steps."""
    num_optimizer_steps: tuple[int, ...]
    """Expected optimiser steps of a policy over the whole run."""
    num_validations: int


@dataclass(frozen=True)
class Prepared:
    config: Config
    """The configuration, with the values that were left to the machine."""
    settings: Sequence[str]
    """Log lines about the chosen sharding, threads and options."""
    models: list[str]
    """Each policy's base model: a folder or hub name."""
    train: QuestionSet
    validation: QuestionSet
    probe: Sequence[ProbeItem]
    device: Device
    isolation: Isolation | None
    """Isolation of model-written programs; None if no question needs it."""
    sizes: Sizes
    locations: Mapping[str, str]
    """Name in the configuration -> where it was found (see ``locate``)."""
    contents: Mapping[str, str]
    """Digests of the questions and base models (``Inputs.contents``)."""
    sources: Mapping[str, str]
    """Absolute path -> text of the user's own files."""
    disk: str
    """A line about the disk space that the run takes."""
    warnings: Sequence[str]

    @property
    def made_with(self) -> str:
        """A digest of what discussions and rewards depend on besides the weights."""
        config = self.config
        who = config.policy_of_agent, config.models, config.chat_template_kwargs
        how = config.seed, who, config.interaction, config.reward, config.rollout, config.verifiers
        return digest_of(repr((how, sorted(self.contents.items()), sorted(self.sources.values()))))
