"""The last step before any engine starts: everything that a configuration names, checked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from comas.config.schema import Config
from comas.data import QuestionSet, fixed_subset, load_questions
from comas.preflight.cluster import engines_machine
from comas.preflight.locations import QUICKSTART_PREFIX, check_model, locate
from comas.preflight.machine import check_disk, settle_isolation
from comas.preflight.sharding import settle_sharding
from comas.preflight.sizes import Sizes, derive_sizes
from comas.run_directory.inputs import read_inputs
from comas.types import Device, Question
from comas.verification.sandbox import Isolation


@dataclass(frozen=True)
class Prepared:
    """What a run needs, checked."""

    config: Config
    """The run's configuration, with everything decided that it leaves to the machine."""
    sharding: str
    """How the update fits into memory, in words."""
    models: list[str]
    """Folder or hub name of the base model of each policy."""
    train: QuestionSet
    validation: QuestionSet
    device: Device
    isolation: Isolation | None
    """Of model-written programs; None where no question asks for one."""
    sizes: Sizes
    locations: Mapping[str, str]
    """Where each name of the configuration leads (see ``locate``)."""


def prepare(config: Config) -> Prepared:
    """Check the machine against the configuration; build the quick-start society if it is named.

    A resumed run continues with the models and questions that it began with.

    Raises:
        ValueError: a model, dataset, device or Ray cluster that the configuration names is missing
            or broken, the update does not fit into memory, there are fewer questions than a step
            asks, or programs cannot be isolated as the configuration requires.
        OSError: the saves folder cannot be written, or too little disk is left.
    """
    saves = Path(config.saves)
    check_disk(saves)
    machine = engines_machine(config)
    locations = locate(
        [*config.models, config.data.train, config.data.validation],
        saves=saves,
        seed=config.seed,
        found_before=read_inputs(Path(config.resume)) if config.resume else {},
    )
    models = [locations[name] for name in config.models]
    for name, model in zip(config.models, models, strict=True):
        check_model(model, is_embedded=name.startswith(QUICKSTART_PREFIX))
    trained = [models[policy] for policy in config.trained_policies]
    settled, sharding = settle_sharding(config, models=trained, machine=machine)
    train = load_questions(Path(locations[config.data.train]))
    held_out = load_questions(Path(locations[config.data.validation]))
    asked = fixed_subset(held_out.questions, config.validation.num_questions)
    return Prepared(
        config=settled,
        sharding=sharding,
        models=models,
        train=train,
        validation=QuestionSet(tuple(asked), held_out.answers),
        device=machine.device,
        isolation=_isolation(config, [*train.questions, *asked]),
        sizes=derive_sizes(config, num_questions=len(train.questions)),
        locations=locations,
    )


def _isolation(config: Config, questions: Sequence[Question]) -> Isolation | None:
    if all(question.domain != "coding" for question in questions):
        return None
    return settle_isolation(config.verification.sandbox, key="verification.sandbox")
