"""The last step before any engine starts: everything that a configuration names, checked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from comas import quickstart
from comas.config.schema import Config
from comas.data import QuestionSet
from comas.preflight.needs import PreflightError, faults_of
from comas.preflight.sizes import Sizes
from comas.preflight.survey import Survey
from comas.types import Device
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
    doubts: Sequence[str]
    """What may be too little, by estimate."""


def prepare(config: Config) -> Prepared:
    """Check machine, models and questions, all of them before anything is built; then build the
    quick-start society if it is named and not there.

    Raises:
        PreflightError: everything that is missing, broken or too little, at once.
    """
    found = _checked(config)
    if not found.is_built:
        quickstart.build_society(Path(config.saves), seed=config.seed)
        found = _checked(config)
    assert found.train is not None and found.validation is not None
    assert found.sizes is not None and found.sharding is not None
    return Prepared(
        config=found.config,
        sharding=found.sharding,
        models=found.models,
        train=found.train,
        validation=found.validation,
        device=found.device,
        isolation=found.isolation,
        sizes=found.sizes,
        locations=found.locations,
        doubts=[need.doubt for need in found.needs if need.doubt is not None],
    )


def _checked(config: Config) -> Survey:
    found = Survey(config)
    if faults_of(found.needs):
        raise PreflightError(found.needs)
    return found
