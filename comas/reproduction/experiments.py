"""What is run: every experiment is a configuration. A new one is one YAML and one line here."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Literal

Kind = Literal["method", "ablation", "control", "baseline", "bound", "long"]

MAIN = "comas"
"""The name of what all others are compared with."""
NUM_SEEDS = 5
FRESH_SEEDS = {"combined": (5, 6, 7, 8, 9), "voted": (10, 11, 12, 13, 14)}
"""By study, seeds with which nothing had been chosen when they were run."""
TUNING_SEEDS = (100, 101)
"""Seeds that no claim is decided with."""
LEARNING_RATES = (5e-5, 1e-4, 2e-4, 4e-4)
"""What is tried for each of ``TUNED`` alike; it keeps the one that ends with the highest mean
greedy accuracy over the tuning seeds."""
TUNED = (MAIN, "verifier", "maporl", "ttrl", "srlm")
"""Methods with a learning rate of their own. Ablations and controls differ from CoMAS in one thing,
so they keep its rate."""
LONG_STEPS = 300


@dataclass(frozen=True)
class Experiment:
    """A configuration that is trained with every seed."""

    name: str
    config: Path
    kind: Kind
    about: str
    """What is different, for the tables."""
    overrides: tuple[str, ...] = ()
    """Settings beside the configuration's, ``key=value``."""


@dataclass(frozen=True)
class Plan:
    """The experiments of a study."""

    experiments: tuple[Experiment, ...]
    """In the order in which they run."""
    main: str = MAIN
    """What all others are compared with."""
    by_number: tuple[str, ...] = ()
    """Experiments that differ in the number of agents, fewest first."""
    by_diversity: tuple[str, str] = ("", "")
    """A pair of like agents, and the same with unlike ones; agent 0 is the same in both."""
    plants_mistakes: bool = False
    """Whether agents have been taught to be mostly wrong."""
    asked: tuple[str, ...] = ()
    """Experiments whose agents are asked again when they are trained, see ``answers``."""
    can_be_shared: bool = False
    """Whether its report needs the numbers of runs alone, so that several machines can make it."""


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

SCORERS = {
    "live": "scorers learn along",
    "frozen": "scorers stay as they began",
    "lagged": "scorers are 10 steps behind",
}
"""``society.scorer_weights``."""
WHITENING: dict[str, tuple[str, tuple[str, ...]]] = {
    "joint": ("one baseline for all roles", ()),
    "by_role": (
        "a baseline for each role",
        ("optimization.estimator=reinforce_pp_baseline", "optimization.group_by=[role]"),
    ),
}


LONG = (f"training.num_steps={LONG_STEPS}", "training.validate_every=20")
LONG_MAIN = "long_live_joint"
LONG_BOUND = "long_verifier"


def _long(name: str, about: str, *overrides: str, config: str = "quickstart.yaml") -> Experiment:
    about = f"{LONG_STEPS} steps, {about}"
    return Experiment(f"long_{name}", Path("configs", config), "long", about, LONG + overrides)


def _scorers_and_whitening() -> Iterator[Experiment]:
    """Every kind of scorer with every whitening, far beyond the steps of the others."""
    for (scorer, who), (whitening, (how, overrides)) in product(SCORERS.items(), WHITENING.items()):
        weights = f"society.scorer_weights={scorer}"
        yield _long(f"{scorer}_{whitening}", f"{who}, {how}", weights, *overrides)


def _lasting_and_bound() -> Iterator[Experiment]:
    """CoMAS over many steps, and the verifier's reward."""
    yield from (
        experiment for experiment in _scorers_and_whitening() if experiment.name == LONG_MAIN
    )
    yield _long(
        "verifier", "the verifier's verdict as the reward", config="quickstart/verifier.yaml"
    )


def _lasting() -> Iterator[Experiment]:
    """CoMAS over many steps, its bound, and each idea of what might last by itself. With averaged
    scorers no scoring is trained either, and the confident majority has no discussions.

    A discussion with more turns has fewer others beside it, so that all sample as many responses.
    """
    yield from _lasting_and_bound()
    yield _long("srlm", "agents rate their own solutions; DPO", config="quickstart/srlm.yaml")
    yield _long("averaged", "scorers have averaged weights", "society.scorer_weights=averaged")
    yield _long("others", "nobody scores an own solution", "interaction.scorers=others")
    yield _long("kl", "a KL penalty of 0.1", "optimization.kl_coef=0.1")
    yield _long(
        "slow_scoring",
        "scorers learn at a tenth of the rate",
        "optimization.role_weights={scoring: 0.1}",
    )
    yield _long(
        "solutions_alone",
        "evaluations and scorings are not trained",
        "optimization.role_weights={evaluation: 0, scoring: 0}",
    )
    yield _long(
        "median",
        "the median of three scorings",
        "reward.scheme=median",
        "interaction.num_scorings=3",
        "rollout.batch_size=14",
    )
    yield _long(
        "peer_prediction",
        "scorers are paid for agreeing beyond chance",
        "reward.scheme=peer_prediction",
        "interaction.num_scorings=2",
        "rollout.batch_size=18",
    )
    yield _long("pairwise", "solutions are compared", "reward.scheme=pairwise")
    yield _long("consistency", "judges are paid for telling apart", "reward.scheme=consistency")
    yield _long(
        "improvement",
        "criticism is paid by what a revision gains",
        "rollout.batch_size=14",
        config="quickstart/improvement.yaml",
    )
    yield _long(
        "confident_majority",
        "the confident majority is right (math alone)",
        "reward.scheme=confident_majority",
        "interaction.criticism=none",
        "interaction.num_rounds=1",
        "interaction.prompt_reuse=6",
    )


def _combined() -> Iterator[Experiment]:
    """The three changes of ``_lasting`` that the rules choose, in one run."""
    yield from _lasting_and_bound()
    yield _long(
        "combined",
        "judges are paid for telling apart, a KL penalty of 0.1, scorers learn slowly",
        "reward.scheme=consistency",
        "optimization.kl_coef=0.1",
        "optimization.role_weights={scoring: 0.1}",
    )


def _voted() -> Iterator[Experiment]:
    """What ``_combined`` has, with a vote for what its judges do not see.

    Copies of a question vote together, so there are fewer questions for as many responses.
    """
    yield from _lasting_and_bound()
    yield _long(
        "scored_majority",
        "judges' scores weigh a vote; else as combined",
        "name=quickstart",  # as it was frozen
        config="quickstart/voted.yaml",
    )


PLANS = {
    "quickstart": Plan(
        (
            *_experiments(
                "configs/quickstart.yaml",
                "configs/quickstart",
                {
                    **ABLATIONS,
                    "agents_4": ("ablation", "four agents of one model"),
                    **CONTROLS,
                    **BASELINES,
                    "ttrl_on_test": ("baseline", "TTRL on the held-out questions themselves"),
                },
            ),
            *_scorers_and_whitening(),
        ),
        by_number=("agents_1", "agents_2", "agents_4"),
        by_diversity=("agents_2", MAIN),
        plants_mistakes=True,
        asked=(MAIN,),
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
    "lasting": Plan(tuple(_lasting()), main=LONG_MAIN, plants_mistakes=True, can_be_shared=True),
    "combined": Plan(tuple(_combined()), main=LONG_MAIN, plants_mistakes=True, can_be_shared=True),
    "voted": Plan(tuple(_voted()), main=LONG_MAIN, plants_mistakes=True, can_be_shared=True),
}
"""By ``study``."""
