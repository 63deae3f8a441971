"""What differences over seeds settle: an interval of their mean, and an outcome by that interval.

Runs with the same seed begin with the same agents and questions, so they are compared seed by
seed. An outcome is decided by the interval alone: a mean that is above zero is not a finding.
"""

from collections.abc import Sequence
from math import sqrt
from typing import Literal, NamedTuple

import numpy as np
from scipy import stats

CONFIDENCE = 0.95
POWER = 0.8

Outcome = Literal[
    "reproduced",
    "contradicted",
    "undecided",
    "by construction",
    "not testable here",
    "not run",
]
"""By construction: what was planted, or what a reward does to itself, decides it."""


class Interval(NamedTuple):
    """The mean of differences, and the interval of it: Student's t, over seeds."""

    mean: float
    least: float
    most: float

    def __str__(self) -> str:
        return f"{self.mean:+.1f} [{self.least:+.1f}, {self.most:+.1f}]"


def interval(differences: Sequence[float]) -> Interval:
    """The two-sided 95 % interval of the mean; endless of fewer than two differences.

    Example: 1, 2, 3 have the mean 2, the standard deviation 1 and t(0.975, 2) = 4.303, so the
    interval is 2 ± 4.303 / sqrt(3): -0.484 to 4.484.
    """
    mean = float(np.mean(differences))
    if len(differences) < 2:
        return Interval(mean, -np.inf, np.inf)
    half = _t(len(differences)) * float(np.std(differences, ddof=1)) / sqrt(len(differences))
    return Interval(mean, mean - half, mean + half)


def above(found: Interval, bound: float = 0.0) -> Outcome:
    """Whether the mean is above ``bound``: the whole interval is, or it is not, or holds it."""
    if found.least > bound:
        return "reproduced"
    return "contradicted" if found.most < bound else "undecided"


def equivalent(found: Interval, *, margin: float) -> Outcome:
    """Whether the mean is no further than ``margin`` from zero, on either side."""
    if -margin < found.least and found.most < margin:
        return "reproduced"
    return "contradicted" if found.least > margin or found.most < -margin else "undecided"


def all_of(outcomes: Sequence[Outcome]) -> Outcome:
    """The outcome of a claim with several parts: one that is contradicted contradicts it."""
    if "contradicted" in outcomes:
        return "contradicted"
    return "reproduced" if all(one == "reproduced" for one in outcomes) else "undecided"


def detectable(deviation: float, num_seeds: int) -> float:
    """The true difference that as many seeds find with a probability of about 80 %.

    ``deviation`` is the standard deviation of the differences between seeds. The usual
    approximation: (t(0.975) + t(0.8)) deviation / sqrt(n), both with n - 1 degrees of freedom.

    Example: of 5 points, 5 seeds detect (2.776 + 0.941) * 5 / sqrt(5) = 8.3 points.
    """
    quantile = _t(num_seeds) + float(stats.t.ppf(POWER, num_seeds - 1))
    return quantile * deviation / sqrt(num_seeds)


def _t(num_seeds: int) -> float:
    return float(stats.t.ppf(0.5 + CONFIDENCE / 2, num_seeds - 1))
