"""The study of what lasts: which reward keeps up with a verifier's over many steps.

The rules were written before the runs, as those of ``claims``.
"""

from typing import NamedTuple

import pandas as pd

from comas.reproduction.claims import by_seed
from comas.reproduction.experiments import LONG_BOUND, LONG_STEPS
from comas.reproduction.results import Results
from comas.reproduction.stop_rule import DROP, STOP_RULE

SHARE = 0.95
"""Of the verifier's gain, which a reward has to reach."""
ONE_AGENT = ("long_srlm",)
"""Experiments of the first agent alone, which is compared with the first agent elsewhere."""

RULES = f"""\
Every run has {LONG_STEPS} steps, and a policy samples 144 responses in each (126 to 144 where a
discussion has more turns). What is compared is greedy accuracy on held-out questions, runs of one
seed in pairs; intervals are over seeds (Student's t, 95 % each, not adjusted for their number).

* **A reward keeps up** with one seed when its gain after {LONG_STEPS} steps is at least {SHARE:.0%}
  of what the verifier's reward gains with that seed, and its accuracy at most {DROP:g} points below
  the run's own peak. It keeps up when it does with every seed.
* **A run collapses** at the first validation from which on its accuracy stays more than {DROP:g}
  points below its peak.
* **Combined** are afterwards, with fresh seeds, the three changes of the paper's run whose mean
  share of the verifier's gain is highest, of those that one configuration can hold together.
* **The stop rule** is `training.stop_when=["{STOP_RULE}"]`, which reads no answers. It raises a
  **false alarm** when accuracy later is more than {DROP:g} points above what it was at the last
  validation before the stop.

The agents are tiny, and were taught habits of making mistakes before the runs
(`comas/quickstart/world.py`); evaluators and scorers know most of them. What lasts here need not
last with models that were trained on the world's text."""


class Standing(NamedTuple):
    """How one reward stands against the verifier's, with the seeds that both have."""

    shares: pd.Series
    """Of the verifier's gain, by seed."""
    below_peak: pd.Series
    """Points below the run's own peak at the end, by seed."""

    @property
    def num_kept_up(self) -> int:
        """Seeds with which it keeps up."""
        return int(((self.shares >= SHARE) & (self.below_peak <= DROP)).sum())


def standing(results: Results, name: str) -> Standing:
    """Compare an experiment with the verifier's reward.

    Example: with one seed gains of 76 and 80 points, and 2 points below its peak: a share of 0.95,
    so it keeps up.
    """
    column = "first_gain" if name in ONE_AGENT else "gain"
    ours, bound = by_seed(results, column, name, LONG_BOUND)
    runs = results.loc[name].loc[ours.index]
    peaks = 100 * runs.filter(like="course.").max(axis="columns")
    return Standing(ours / bound, peaks - runs["trained"])
