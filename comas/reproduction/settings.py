"""The keys of scripts/reproduce.sh."""

from collections.abc import Iterator
from dataclasses import dataclass

from comas.config.faults import Conflict
from comas.config.keys import key
from comas.reproduction.experiments import PLANS


@dataclass
class Settings:
    """Which experiments, and where everything goes."""

    society: str = key("quickstart", one_of=tuple(PLANS))
    """quickstart: the embedded tiny agents; paper: the paper's models, on GPUs."""
    seeds: list[int] = key([0, 1, 2])
    """Each experiment is run once with each."""
    only: list[str] | None = key(None, example=["comas", "muted"])
    """Names of experiments; null: all."""
    num_steps: int | None = key(None, at_least=1, example=5)
    """Steps of every run; null: as its configuration says. For trying the command out."""
    saves: str = key("saves/reproduction")
    """Folder of the runs."""
    results: str = key("results/reproduction")
    """Folder of the numbers, the report and its figures."""


def find_conflicts(settings: Settings) -> Iterator[Conflict]:
    """What is wrong with the settings beside single values."""
    plan = PLANS.get(settings.society)
    known = [] if plan is None else [experiment.name for experiment in plan.experiments]
    unknown = sorted(set(settings.only or []) - set(known))
    if plan is not None and unknown:
        yield Conflict(
            ("only",),
            f"names {', '.join(unknown)}, which society={settings.society} does not have",
            f"choose from {', '.join(known)}",
        )
    if not settings.seeds or len(set(settings.seeds)) < len(settings.seeds):
        yield Conflict(("seeds",), "must hold seeds, each once", "write them like seeds=[0,1,2]")
    if any(seed < 0 for seed in settings.seeds):
        yield Conflict(("seeds",), "must be at least 0", "write them like seeds=[0,1,2]")
