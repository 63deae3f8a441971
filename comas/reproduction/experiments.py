"""What is run: every experiment is a configuration. A new one is one YAML and one line here."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Kind = Literal["method", "ablation", "control", "baseline", "bound"]

MAIN = "comas"
"""The name of what all others are compared with."""


@dataclass(frozen=True)
class Experiment:
    """A configuration that is trained with every seed."""

    name: str
    config: Path
    kind: Kind
    about: str
    """What is different, for the tables."""


@dataclass(frozen=True)
class Plan:
    """The experiments on one kind of society."""

    experiments: tuple[Experiment, ...]
    """In the order in which they run."""
    by_number: tuple[str, ...]
    """Experiments that differ in the number of agents, fewest first."""
    by_diversity: tuple[str, str]
    """A pair of like agents, and the same with unlike ones."""


def _experiments(
    main: str, folder: str, others: Mapping[str, tuple[Kind, str]]
) -> tuple[Experiment, ...]:
    return (
        Experiment(MAIN, Path(main), "method", "CoMAS as it is"),
        *(
            Experiment(name, Path(folder) / f"{name}.yaml", kind, about)
            for name, (kind, about) in others.items()
        ),
    )


ABLATIONS: dict[str, tuple[Kind, str]] = {
    "no_evaluation": ("ablation", "the scorer judges the solution alone"),
    "no_scoring": ("ablation", "evaluations judge, nobody scores"),
    "agents_1": ("ablation", "one agent in every role"),
    "agents_2": ("ablation", "two agents of one model"),
}

CONTROLS: dict[str, tuple[Kind, str]] = {
    "muted": ("control", "every evaluation is an approval"),
    "exchanged": ("control", "evaluations come from other discussions"),
    "flipped": ("control", "rewards with the opposite sign"),
    "shuffled": ("control", "rewards dealt at random"),
    "constant": ("control", "the same reward for all"),
    "approving": ("control", "a judge who approves of all"),
    "verifier": ("bound", "the verifier's verdict as the reward"),
}

BASELINES: dict[str, tuple[Kind, str]] = {
    "maporl": ("baseline", "debates rewarded by the verifier"),
    "ttrl": ("baseline", "one agent, its majority answer as the label; math alone"),
    "srlm": ("baseline", "agents rate their own solutions; DPO on the best and the worst"),
}

PLANS = {
    "quickstart": Plan(
        _experiments(
            "configs/quickstart.yaml",
            "configs/quickstart",
            {
                **ABLATIONS,
                "agents_4": ("ablation", "four agents of one model"),
                **CONTROLS,
                **BASELINES,
            },
        ),
        by_number=("agents_1", "agents_2", "agents_4"),
        by_diversity=("agents_2", MAIN),
    ),
    "paper": Plan(
        _experiments(
            "configs/comas.yaml",
            "configs/paper",
            {
                **ABLATIONS,
                "agents_2_heterogeneous": ("ablation", "two agents of different models"),
                **CONTROLS,
                **BASELINES,
            },
        ),
        by_number=("agents_1", "agents_2", MAIN),
        by_diversity=("agents_2", "agents_2_heterogeneous"),
    ),
}
"""By ``society``."""
