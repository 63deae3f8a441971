"""Intervals of the mean difference between runs.

Runs with the same seed begin with the same agents and questions, so they are compared seed by
seed. Only an interval that excludes zero is a finding.
"""

from collections.abc import Sequence
from math import inf, sqrt
from statistics import fmean, stdev
from typing import NamedTuple

from scipy.special import stdtrit

CONFIDENCE = 0.95
DIGITS = 9
"""Differences are rounded to these, so that floating-point errors do not tell equal ones apart."""


class Interval(NamedTuple):
    mean: float
    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        """True if the interval excludes zero. One without width does not count: differences are
        multiples of one question in a few hundred, and may be equal by chance."""
        return self.low < self.high and (self.low > 0 or self.high < 0)

    def __str__(self) -> str:
        return f"{self.mean:+.1f} [{self.low:+.1f}, {self.high:+.1f}]"


def interval(differences: Sequence[float], *, num_comparisons: int = 1) -> Interval:
    """Return the two-sided 95 % interval of the mean (Student's t), infinite for one difference.
    ``num_comparisons`` widens it so that all of them hold at once (Bonferroni).

    Example: 1, 2, 3 have the mean 2, the standard deviation 1 and t(0.975, 2) = 4.303, so the
    interval is 2 ± 4.303 / sqrt(3): -0.484 to 4.484.
    """
    differences = [round(each, DIGITS) + 0.0 for each in differences]  # + 0.0: -0.0 becomes 0.0
    mean, num = fmean(differences), len(differences)
    if num < 2:
        return Interval(mean, -inf, inf)
    quantile = float(stdtrit(num - 1, 1 - (1 - CONFIDENCE) / 2 / num_comparisons))
    half = quantile * stdev(differences) / sqrt(num)
    return Interval(mean, mean - half, mean + half)
