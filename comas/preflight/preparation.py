"""The last step before any engine starts: everything that a configuration names, checked."""

from pathlib import Path

from comas import quickstart
from comas.config.schema import Config
from comas.preflight.needs import PreflightError, faults_of
from comas.preflight.survey import Survey
from comas.run.prepared import Prepared


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
