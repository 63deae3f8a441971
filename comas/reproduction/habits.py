"""Which of the habits that tiny agents were taught are left, and how they were paid: by their
solutions in discussions."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from comas.config import load
from comas.config.schema import Config
from comas.quickstart.questions import problem_of
from comas.quickstart.worked import habit, work
from comas.quickstart.world import HABITS
from comas.reproduction.results import WINDOW
from comas.types import Metrics
from comas.utils.files import read_lines


class Shown(NamedTuple):
    """A solution to a question that its model has a habit with."""

    habit: str
    """``llama/math/ones left out``"""
    is_made: bool
    """It makes that mistake, word for word."""
    is_right: bool
    reward: float | None


def read_habits(run: Path) -> dict[str, Metrics]:
    """The habits of a run's society in its ``first`` and its ``last`` ``WINDOW`` steps, and how
    they were ``paid`` in the first.

    Nothing where its models were not taught any, or where it has left no discussions.
    """
    models = [Path(model).name for model in load(Config, run / "config.yaml", []).society.models]
    files = sorted((run / "discussions").glob("step_*.jsonl"))
    if not files or not set(models) <= set(HABITS):
        return {}
    first, last = (
        list(solutions_showing(ends, models)) for ends in (files[:WINDOW], files[-WINDOW:])
    )
    return {"first": habits_left(first), "last": habits_left(last), "paid": paid_more(first)}


def solutions_showing(files: Iterable[Path], models: Sequence[str]) -> Iterator[Shown]:
    """The solutions in ``files`` of discussions by agents with ``models`` that could show a habit.

    A question whose answer the mistake does not change cannot.
    """
    for file in files:
        for record in read_lines(file, json.loads, remedy="Leave the run out"):
            problem = problem_of(record["question"])
            likely = {model: work(problem, habit(problem, model)) for model in models}
            for turn in record["turns"]:
                if turn["role"] != "solution" or turn["agent"] is None:
                    continue
                model = models[turn["agent"]]
                text, mistake = likely[model]
                if mistake:
                    yield Shown(
                        f"{model}/{problem.domain}/{mistake}",
                        is_made=turn["response"].strip() == text,
                        is_right=turn["verdict"] == "correct",
                        reward=turn["reward"],
                    )


def habits_left(solutions: Iterable[Shown]) -> Metrics:
    """By habit, the share of solutions that make its mistake, from 0 to 1."""
    made: defaultdict[str, list[bool]] = defaultdict(list)
    for solution in solutions:
        made[solution.habit].append(solution.is_made)
    return {name: fmean(of_habit) for name, of_habit in sorted(made.items())}


def paid_more(solutions: Iterable[Shown]) -> Metrics:
    """By habit, how much more reward solutions with its mistake get than right ones, on average;
    None where either was never rewarded.

    Example: 1.0 and 0.5 with the mistake, 0.5 for the only right one: 0.25
    """
    rewards: defaultdict[str, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for solution in solutions:
        made, right = rewards[solution.habit]
        if solution.reward is not None and (solution.is_made or solution.is_right):
            (made if solution.is_made else right).append(solution.reward)
    return {
        name: fmean(made) - fmean(right) if made and right else None
        for name, (made, right) in sorted(rewards.items())
    }
