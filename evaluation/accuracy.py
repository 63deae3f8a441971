"""Accuracies, their spread, and paired differences between subjects."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from statistics import fmean, stdev

import numpy as np

from comas.verification import Grader
from evaluation.results import GRADERS, Column, Evaluation, Subject

NUM_RESAMPLES = 10_000
BOOTSTRAP_SEED = 0
CONFIDENCE = 0.95
MEAN_PART = "agents"
MAX_DENOMINATOR = 10_000
"""Limit of the number of seeds times that of agents, by which correct answers are divided."""
DIGITS = 12
"""Decimals of differences, so that thirds cancel to exactly 0."""

SIGNIFICANCE_LEVEL = 0.05

TaskKey = tuple[str, str]
"""(task_id, fingerprint of its question)"""

CellKey = tuple[Grader, Column]
"""A cell of a row."""


@dataclass(frozen=True)
class Accuracy:
    """The accuracy (0 to 1) of a subject, or the mean of several, in a column by a grader."""

    shares: Mapping[TaskKey, float]
    """Task -> share of correct answers, over seeds and agents."""
    repeats: tuple[float, ...]
    """The accuracy of each seed, or of each agent."""
    passes: Mapping[int, Mapping[TaskKey, float]]
    """k -> task -> pass@k (``pass_at_k``), averaged over agents; k = 1, 2, 4, ... up to the number
    of seeds n, and n."""
    num_judged: int
    """Answers with a verdict; the others count as not correct."""
    num_asked: int

    @property
    def value(self) -> float:
        """Correct answers divided by requested answers."""
        return fmean(self.repeats)

    @property
    def spread(self) -> float | None:
        """Sample standard deviation of the repeats; None for a single one."""
        return stdev(self.repeats) if len(self.repeats) > 1 else None

    def pass_at(self, k: int) -> tuple[float, float, float]:
        """Return the mean pass@k over tasks, and its 95 % interval by a bootstrap over tasks."""
        each = list(self.passes[k].values())
        return (fmean(each), *bootstrap_interval(each))


@dataclass(frozen=True)
class Difference:
    """The difference of two accuracies on their common tasks."""

    value: float
    low: float
    high: float
    p_value: float
    """Decides significance (``sign_flip_p_value``): intervals are narrow where few tasks differ."""
    num_common: int

    @property
    def is_significant(self) -> bool:
        return self.p_value < SIGNIFICANCE_LEVEL


@dataclass(frozen=True)
class Row:
    """A line of a table: a subject, or the mean over the agents of a run."""

    part: str
    """``agent_0``, ``society``, ``agents`` (their mean), or "" for a single model."""
    label: str
    """Run and part: ``quickstart/agent_0``."""
    accuracies: Mapping[CellKey, Accuracy]
    reference: "Row | None" = None
    """The row it is compared with, if any."""
    differences: Mapping[CellKey, Difference] = field(default_factory=dict)
    """For cells with common tasks."""


def accuracy_of(evaluation: Evaluation, grader: Grader) -> Accuracy:
    """Return a subject's accuracy.

    Example: two seeds, "a" correct in both, "b" in one: shares 1 and 1/2, accuracy 3/4.
    """
    counts = Counter(a.task_id for a in evaluation.answers if a.verdict(grader) == "correct")
    correct = {(name, question): counts[name] for name, question in evaluation.questions.items()}
    num_seeds = len(evaluation.seeds)
    tally = evaluation.graders[grader]
    powers = [2**i for i in range(num_seeds.bit_length()) if 2**i < num_seeds]
    return Accuracy(
        shares={task: num_correct / num_seeds for task, num_correct in correct.items()},
        repeats=tally.accuracy_by_seed,
        passes={
            k: {
                task: pass_at_k(k, num_samples=num_seeds, num_correct=num_correct)
                for task, num_correct in correct.items()
            }
            for k in (*powers, num_seeds)
        },
        num_judged=tally.num_judged,
        num_asked=evaluation.num_asked,
    )


def pass_at_k(k: int, *, num_samples: int, num_correct: int) -> float:
    """Estimate, without bias, the probability that one of k samples is correct, from n samples of
    which c are (Chen et al. 2021, arXiv 2107.03374, eq. 1)::

        pass@k = 1 - C(n - c, k) / C(n, k)

    Example: n = 4, c = 1: pass@1 = 1/4, pass@2 = 1 - 3/6, pass@4 = 1.
    """
    return 1 - math.comb(num_samples - num_correct, k) / math.comb(num_samples, k)


def rows_of(name: str, subjects: Sequence[Subject]) -> list[Row]:
    """Return a row for each subject of the folder ``name``, and one for the mean of its agents."""
    rows = [
        Row(
            part=subject.part,
            label=subject.label(name),
            accuracies={
                (grader, column): accuracy_of(evaluation, grader)
                for grader in GRADERS
                for column, evaluation in subject.evaluations.items()
                if grader in evaluation.graders
            },
        )
        for subject in subjects
    ]
    agents = [row for row in rows if row.part.startswith("agent_")]
    if len(agents) > 1:
        rows.insert(len(agents), _mean_row(name, agents))
    return rows


def compare_rows(rows: Sequence[Row], references: Sequence[Row]) -> list[Row]:
    """Add to each row the differences from its counterpart: the only reference, the same part of
    the other run, or the agent that stands for all there. Raises ValueError when no row has a
    counterpart with common tasks."""
    compared, agents = [], [other for other in references if other.part.startswith("agent_")]
    for row in rows:
        is_equal = len(agents) == 1 and row.part.startswith("agent")
        like = agents if is_equal else [other for other in references if other.part == row.part]
        reference = references[0] if len(references) == 1 else next(iter(like), None)
        if reference is not None:
            found = {
                key: paired_difference(accuracy, reference=reference.accuracies[key])
                for key, accuracy in row.accuracies.items()
                if key in reference.accuracies
            }
            differences = {key: each for key, each in found.items() if each is not None}
            row = replace(row, reference=reference, differences=differences)
        compared.append(row)
    ours, theirs = (", ".join(row.label for row in group) for group in (rows, references))
    if all(row.reference is None for row in compared):
        raise ValueError(f"cannot compare {ours} with {theirs}: name one subject of the latter")
    if not any(row.differences for row in compared):
        ours_on, theirs_on = (
            ", ".join(f"{c.setup} on {c.benchmark}" for c in sorted(columns_of(group))) or "nothing"
            for group in (rows, references)
        )
        raise ValueError(
            f"{ours} and {theirs} have no task in common: {ours_on} against {theirs_on}. Evaluate "
            "both on the same questions"
        )
    return compared


def paired_difference(accuracy: Accuracy, *, reference: Accuracy) -> Difference | None:
    """Return ``accuracy`` minus ``reference`` with its interval; None without common tasks. Tasks
    are resampled, not answers: a task's answers under several seeds are not independent."""
    common = accuracy.shares.keys() & reference.shares.keys()
    if not common:
        return None
    differences = [accuracy.shares[key] - reference.shares[key] for key in common]
    low, high = bootstrap_interval(differences)
    p_value = sign_flip_p_value(differences)
    return Difference(round(fmean(differences), DIGITS), low, high, p_value, len(common))


def sign_flip_p_value(differences: Sequence[float]) -> float:
    """Return the exact two-sided p-value of paired ``differences``, one per task: the share of all
    2^n sign choices whose sum is at least as far from 0 as the observed sum.

    With one answer per task (differences 1, 0 and -1) this is McNemar's exact test.

    Example: three tasks better and none worse: 2 of 8 sign assignments, 0.25.
    """
    fractions = [Fraction(each).limit_denominator(MAX_DENOMINATOR) for each in differences]
    unit = math.lcm(*(each.denominator for each in fractions))
    sizes = [int(each * unit) for each in fractions if each]
    total = sum(map(abs, sizes))
    chances = np.zeros(2 * total + 1)  # of each sum, -total to total
    chances[total] = 1.0
    for size in sizes:
        chances = (np.roll(chances, size) + np.roll(chances, -size)) / 2
    is_as_far = np.abs(np.arange(-total, total + 1)) >= abs(sum(sizes))
    return min(1.0, float(chances[is_as_far].sum()))


def bootstrap_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % percentile interval of the mean over 10,000 bootstrap resamples.

    Resamples are drawn as multinomial counts of the distinct values, which is equivalent and much
    faster. The seed is fixed.
    """
    distinct, counts = np.unique(np.round(values, DIGITS), return_counts=True)
    size = len(values)
    generator = np.random.default_rng(BOOTSTRAP_SEED)
    draws = generator.multinomial(size, counts / size, size=NUM_RESAMPLES)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(np.round(draws @ distinct / size, DIGITS), [tail, 1 - tail])
    return float(low), float(high)


def columns_of(rows: Iterable[Row]) -> set[Column]:
    """Return the columns of all rows."""
    return {column for row in rows for _, column in row.accuracies}


def _mean_row(name: str, agents: Sequence[Row]) -> Row:
    """Return the mean over agents, for cells in which all have the same tasks."""
    means = {}
    for key, first in agents[0].accuracies.items():
        all_ = [a.accuracies[key] for a in agents if key in a.accuracies]
        tasks = first.shares.keys()
        if len(all_) < len(agents) or any(a.shares.keys() != tasks for a in all_):
            continue
        means[key] = Accuracy(
            shares={task: fmean(a.shares[task] for a in all_) for task in tasks},
            repeats=tuple(accuracy.value for accuracy in all_),
            passes={
                k: {task: fmean(a.passes[k][task] for a in all_) for task in tasks}
                for k in first.passes
                if all(k in a.passes for a in all_)
            },
            num_judged=sum(accuracy.num_judged for accuracy in all_),
            num_asked=sum(accuracy.num_asked for accuracy in all_),
        )
    return Row(MEAN_PART, f"{name}, mean of {len(agents)} agents", means)
