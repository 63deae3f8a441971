"""The inputs of a run, as preflight has checked them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from comas.config.schema import Config
from comas.data import QuestionSet
from comas.data.probe import ProbeItem
from comas.types import Device
from comas.verification.sandbox import Isolation


@dataclass(frozen=True)
class Sizes:
    """The sizes of a run that no single key says."""

    num_questions: int
    """To train on."""
    num_steps: int
    num_leftover_questions: int
    """Questions that an epoch leaves out, because they do not fill a batch."""
    num_discussions: int
    """Per step."""
    turns_per_discussion: dict[str, int]
    """Turns of each role in which an agent speaks."""
    num_judge_requests: int
    """Turns that are the judge's (``society.judge``), per step."""
    num_turns: int
    """Per step, the judge's included, when every prompt fits."""
    samples_per_policy: tuple[int, ...]
    """Expected per step when every prompt fits, no response is cut off and every turn has a reward;
    rounded. Nobody is trained on those of a frozen policy."""
    optimizer_steps_per_policy: tuple[int, ...]
    """Per update, which is on the samples of ``society.update_every`` steps."""
    num_optimizer_steps: tuple[int, ...]
    """Expected of each policy over the whole run."""
    num_validations: int
    num_checkpoints: int


@dataclass(frozen=True)
class Prepared:
    """The checked inputs of a run."""

    config: Config
    """The run's configuration, with everything decided that it leaves to the machine."""
    plan: Sequence[str]
    """How the update fits into memory, and the threads, in words."""
    models: list[str]
    """Folder or hub name of the base model of each policy."""
    train: QuestionSet
    validation: QuestionSet
    probe: Sequence[ProbeItem]
    """Planted solutions about which judges are asked; empty without a probe."""
    device: Device
    isolation: Isolation | None
    """Isolation of model-written programs; None where no question or tool asks for one."""
    sizes: Sizes
    locations: Mapping[str, str]
    """Where each name of the configuration leads (see ``locate``)."""
    contents: Mapping[str, str]
    """What its questions and base models are, as digests (``Inputs.contents``)."""
    sources: Mapping[str, str]
    """Whole path -> text of the user's own files that the run depends on."""
    disk: str
    """Room that the run takes on the disk, in words."""
    doubts: Sequence[str]
    """Warnings about what is too little by estimate."""
