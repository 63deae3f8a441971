"""Counts restarts, and ends a run that makes no progress between them."""

from collections import Counter
from typing import Literal

from comas.engines.cluster.supervision import EngineError, LostEngineError
from comas.types import Metrics

MAX_RECOVERIES = 3
"""Restarts in a row, without a new step in between, after which a run is given up."""
Restarted = Literal["engine", "society"]
"""A rollout engine alone, or everything, from the newest checkpoint."""


class GivenUpError(EngineError):
    """Engines were lost too often."""


class Recoveries:
    """Counts what was started again.

    Example: with a limit of 1, an engine may be lost; the next one, too, if a new step was made in
    between. Steps that are repeated from a checkpoint are not new: what is lost at the same step
    each time is given up.
    """

    def __init__(self, limit: int = MAX_RECOVERIES) -> None:
        """``limit``: how often in a row, without a new step."""
        self._limit = limit
        self._in_a_row = 0
        self._furthest_step = 0
        self._counts: Counter[Restarted] = Counter()

    def count(self, restarted: Restarted, error: LostEngineError) -> None:
        """Note that ``restarted`` is about to be started again because of ``error``.

        Raises GivenUpError where the limit has been reached.
        """
        self._in_a_row += 1
        if self._in_a_row > self._limit:
            raise GivenUpError(
                f"{error}\nThe run has recovered {self._limit} times without a new step in "
                "between, so it ends here"
            ) from error
        self._counts[restarted] += 1

    def take_metrics(self, step: int) -> Metrics:
        """The restarts since the last call, as metrics of ``step``."""
        if step > self._furthest_step:
            self._furthest_step, self._in_a_row = step, 0
        counts, self._counts = self._counts, Counter()
        return {
            "recovery/engine_restarts": counts["engine"],
            "recovery/society_restarts": counts["society"],
        }
