"""Results of a study, made by hand."""

from __future__ import annotations

from comas.reproduction.results import (
    ALONG_TRAINING,
    GREEDY,
    SAMPLED,
    RunResult,
    as_table,
)


def run(
    experiment: str = "comas",
    seed: int = 0,
    *,
    untrained: float = 40.0,
    trained: float = 70.0,
    reward: tuple[float | None, float | None] = (0.5, 0.6),
) -> RunResult:
    """Accuracies in percent; of solutions' rewards and the like their first and last means."""
    first, last = (dict.fromkeys(ALONG_TRAINING, value) for value in reward)
    before, after = (
        {
            **dict.fromkeys(ACCURACIES, value / 100),
            SAMPLED: value / 200,
            "probe/names": 0.6,
        }
        for value in (untrained, trained)
    )
    course = {0: untrained / 100, 60: 0.6, 300: trained / 100}
    return RunResult(experiment, seed, 60, 100.0, before, after, first, last, course)


def results(**gains: list[float]):
    return as_table(
        run(name, seed, trained=40.0 + gain)
        for name, of_seeds in gains.items()
        for seed, gain in enumerate(of_seeds)
    )


FIRST = f"agent_0/{GREEDY}"
ACCURACIES = (GREEDY, f"{GREEDY}/math", FIRST, f"{FIRST}/math")
