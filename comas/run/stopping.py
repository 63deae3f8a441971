"""When a run ends before its last step, and which of its validations was the best.

Both follow from ``metrics.jsonl`` and the configuration alone, so a run that was killed and resumed
decides as one that nobody disturbed, and nothing else has to be kept of it.
"""

import difflib
import math
import operator
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import fmean

from comas.config.schema import Config
from comas.run.records import Row

RELATIONS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
CONDITION = re.compile(r"\s*([\w/.-]+)\s*(>=|<=|>|<)\s*(\S+)\s+(for|over)\s+(\d+)\s*")
EXAMPLE = "scoring/invalid_rate > 0.5 for 10"


@dataclass(frozen=True)
class Condition:
    """An entry of ``training.stop_when``: what the latest ``num_values`` values are compared
    with, each of them (for) or their mean (over)."""

    metric: str
    relation: str
    bound: float
    num_values: int
    takes_mean: bool = False

    def __str__(self) -> str:
        span = "over" if self.takes_mean else "for"
        return f"{self.metric} {self.relation} {self.bound:g} {span} {self.num_values}"

    def holds(self, rows: Sequence[Row]) -> bool:
        """True if the latest values are so; of a metric that has fewer, they are not."""
        found = (value for _, value in _values(reversed(rows), self.metric))
        latest = list(islice(found, self.num_values))
        if len(latest) < self.num_values:
            return False
        compared = [fmean(latest)] if self.takes_mean else latest
        return all(RELATIONS[self.relation](value, self.bound) for value in compared)


def parse_condition(text: str) -> Condition:
    """``"reward/solution < 0.05 for 20"`` -> ``Condition("reward/solution", "<", 0.05, 20)``; of
    ``over 20`` in its place the mean is compared.

    Raises ValueError, in words, when ``text`` is none.
    """
    match = CONDITION.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{text!r} is not a metric, a relation (> >= < <=), a number and for N or over N"
        )
    metric, relation, bound, span, num_values = match.groups()
    try:
        number = float(bound)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{text!r} compares with {bound}, which is not a number")
    if int(num_values) < 1:
        raise ValueError(f"{text!r} must look at 1 value at least")
    return Condition(metric, relation, number, int(num_values), takes_mean=span == "over")


def best_step(rows: Iterable[Row], metric: str) -> int | None:
    """The step of the highest value of ``metric``, the first of equal ones; None: it has none.

    Example: 0.25 at step 0, 0.5 at step 5, 0.5 at step 10 gives 5.
    """
    values = list(_values(rows, metric))
    return max(values, key=lambda of: of[1])[0] if values else None


def stop_reason(config: Config, rows: Sequence[Row]) -> str | None:
    """Return why a run ends after the last of ``rows``; None: it does not.

    A run ends only where it can have a checkpoint, which is right after an update of all policies.
    """
    if not rows or not _ends_well(config, rows[-1]["step"]):
        return None
    for condition in map(parse_condition, config.training.stop_when):
        if condition.holds([row for row in rows if row["step"] > 0]):
            return f"{condition} (training.stop_when)"
    return None


def _ends_well(config: Config, step: int) -> bool:
    return step > 0 and step % math.lcm(*filter(None, config.update_every)) == 0


def _values(rows: Iterable[Row], metric: str) -> Iterator[tuple[int, float]]:
    """(step, value) wherever there is a number; one that is not finite is none, as in the file."""
    for row in rows:
        value = row.get(metric)
        if value is not None and math.isfinite(value):
            yield row["step"], value


class Stopping:
    """The values by which a run ends early, step by step.

    Args:
        rows: those of the steps before a resume.
    """

    def __init__(self, config: Config, rows: Iterable[Row]) -> None:
        self._config = config
        conditions = map(parse_condition, config.training.stop_when)
        self._watched = {condition.metric: "training.stop_when" for condition in conditions}
        if config.training.keep_best is not None:
            self._watched[config.training.keep_best] = "training.keep_best"
        self._rows: list[Row] = []
        self._known: set[str] = set()
        for row in rows:
            self.see(row)

    def see(self, row: Row) -> None:
        """Take in the row of a step.

        Raises:
            ValueError: a metric that is named has no value by now, and so never will.
        """
        self._known |= row.keys()
        self._rows.append(row)
        all_by_now = _ends_well(self._config, row["step"])
        for metric, key in self._watched.items():
            is_due = all_by_now or (key == "training.keep_best" and row["step"] == 0)
            if is_due and metric not in self._known:
                close = difflib.get_close_matches(metric, self._known, n=3, cutoff=0.3)
                raise ValueError(
                    f"{key} names {metric}, which this run does not measure; close to it are "
                    f"{', '.join(close) or 'none'} (metrics.jsonl has all names)"
                )

    def reason(self, row: Row | None = None) -> str | None:
        """Return why the run ends after what was seen, or would after ``row`` as well; None: it
        goes on."""
        return stop_reason(self._config, self._rows if row is None else [*self._rows, row])

    def is_best(self) -> bool:
        """True if the step that was seen last has the best validation."""
        metric = self._config.training.keep_best
        return metric is not None and best_step(self._rows, metric) == self._rows[-1]["step"]
