"""The keys of scripts/reproduce.sh."""

from collections.abc import Iterator
from dataclasses import dataclass

from comas.config.faults import Conflict
from comas.config.keys import key
from comas.reproduction.experiments import NUM_SEEDS, PLANS


@dataclass
class Settings:
    """Which experiments, and where everything goes."""

    study: str = key("quickstart", one_of=tuple(PLANS))
    """quickstart: the paper's experiments with the embedded tiny agents; paper: with its models, on
    GPUs; lasting: rewards and judges over many steps; combined: the best three of those; voted:
    these with a vote."""
    seeds: list[int] = key([*range(NUM_SEEDS)])
    """Each experiment is run once with each."""
    only: list[str] | None = key(None, example=["comas", "muted"])
    """Names of experiments; null: all."""
    learning_rates: list[float] | None = key(None, example=[5e-5, 1e-4])
    """Each experiment is run with each, and what comes out is a table of them (``--tune``); null:
    the one of its configuration."""
    num_steps: int | None = key(None, at_least=1, example=5)
    """Steps of every run; null: as its configuration says. For trying the command out."""
    together: bool = key(False)
    """Whether runs whose numbers are in ``results`` count as finished, so that machines can share a
    study. Only for studies whose report needs nothing else of a run."""
    saves: str = key("saves/reproduction")
    """Folder of the runs."""
    results: str = key("results/reproduction")
    """Folder of the numbers, the report and its figures."""


def find_conflicts(settings: Settings) -> Iterator[Conflict]:
    """What is wrong with the settings beside single values."""
    plan = PLANS.get(settings.study)
    known = [] if plan is None else [experiment.name for experiment in plan.experiments]
    unknown = sorted(set(settings.only or []) - set(known))
    if plan is not None and unknown:
        yield Conflict(
            ("only",),
            f"names {', '.join(unknown)}, which study={settings.study} does not have",
            f"choose from {', '.join(known)}",
        )
    if settings.together and plan is not None and not plan.can_be_shared:
        shared = " or ".join(f"study={name}" for name, plan in PLANS.items() if plan.can_be_shared)
        yield Conflict(
            ("together",),
            f"needs {shared}: others draw figures from all runs",
            f"leave it out, or set {shared}",
        )
    if not settings.seeds or len(set(settings.seeds)) < len(settings.seeds):
        yield Conflict(("seeds",), "must hold seeds, each once", "write them like seeds=[0,1,2]")
    if settings.learning_rates is not None and not all(r > 0 for r in settings.learning_rates):
        said = "write them like learning_rates=[5e-5,1e-4]"
        yield Conflict(("learning_rates",), "must be above 0", said)
    if any(seed < 0 for seed in settings.seeds):
        yield Conflict(("seeds",), "must be at least 0", "write them like seeds=[0,1,2]")
