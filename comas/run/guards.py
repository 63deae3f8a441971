"""What a run watches itself for: what ends it, and what it warns of."""

import logging
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from comas.run.signals import LOST_SIGNALS, mismatch_signs, shown_by
from comas.types import Metrics, RewardedDiscussion, TrainingSample, UpdateStats

log = logging.getLogger(__name__)

MAX_EMPTY_UPDATES = 5
"""Updates in a row in which a policy may have nothing to learn from."""
MAX_SKIPPED_UPDATES = 3
"""Updates in a row in which a policy may have no gradient that is finite."""

WINDOW = 10
"""Steps over which a trend is judged: the run's first ones and its latest."""
EXTREME_REWARD = 0.02
"""Distance from 0 or 1 of a mean reward that tells good from bad no more."""
LENGTH_FACTOR = 3.0
"""Times its first length at which a mean response is warned of."""
INVALID_RATE = 0.2
"""Share of scorings without a score that is warned of once it has doubled."""
ENTROPY_SHARE = 0.2
"""Share of its first entropy below which a policy is warned of. (Quick-start runs that learn keep
0.4 to 0.9 of it.)"""


class EmptyUpdates:
    """Ends a run whose updates change nothing, which would otherwise look like training."""

    def __init__(self) -> None:
        self._in_a_row: Counter[int] = Counter()

    def check(
        self,
        buffers: Mapping[int, Sequence[TrainingSample]],
        rewarded: Sequence[RewardedDiscussion],
        *,
        policy_of_agent: Sequence[int],
    ) -> None:
        """Count the empty buffers in a row; of the first ``Watch`` warns.

        Args:
            buffers: policy -> what it is about to be updated with.
            rewarded: the discussions of the step, which tell the reason.

        Raises:
            RuntimeError: a policy had nothing for the ``MAX_EMPTY_UPDATES``-th time in a row.
        """
        for policy, samples in buffers.items():
            if samples:
                self._in_a_row[policy] = 0
                continue
            self._in_a_row[policy] += 1
            if self._in_a_row[policy] >= MAX_EMPTY_UPDATES:
                reason = _why_empty(rewarded, policy, policy_of_agent)
                raise RuntimeError(
                    f"policy {policy} had nothing to learn from in {MAX_EMPTY_UPDATES} updates in "
                    f"a row ({reason}). If most are cut off, its model may have no end-of-sequence "
                    "token, or rollout.max_response_tokens is too small"
                )


def _why_empty(
    rewarded: Sequence[RewardedDiscussion], policy: int, policy_of_agent: Sequence[int]
) -> str:
    """``of its 12 responses 9 are cut off and 3 have no reward``"""
    said = [
        (turn.generation.finish_reason == "length", reward is None)
        for item in rewarded
        for turn, reward in zip(item.discussion.turns, item.rewards, strict=True)
        if not turn.is_given and policy_of_agent[turn.agent_index] == policy
    ]
    num_cut = sum(is_cut for is_cut, _ in said)
    num_without = sum(not is_cut and without for is_cut, without in said)
    return f"of its {len(said)} responses {num_cut} are cut off and {num_without} have no reward"


class SkippedUpdates:
    """Ends a run of which a policy makes no progress, because its gradients are not finite."""

    def __init__(self) -> None:
        self._in_a_row: Counter[int] = Counter()

    def check(self, stats: Mapping[int, UpdateStats]) -> None:
        """Warn of every policy with optimiser steps that were skipped.

        Raises:
            RuntimeError: all steps of a policy were, for the ``MAX_SKIPPED_UPDATES``-th update in
                a row.
        """
        for policy, own in stats.items():
            if own.num_optimizer_steps > 0 or own.num_skipped_steps == 0:
                self._in_a_row[policy] = 0
            else:
                self._in_a_row[policy] += 1
            if self._in_a_row[policy] >= MAX_SKIPPED_UPDATES:
                raise RuntimeError(
                    f"policy {policy}: no gradient was finite in {MAX_SKIPPED_UPDATES} updates in "
                    "a row, so it learns nothing; resume from the last checkpoint with a lower "
                    "optimization.learning_rate, or its own in society.learning_rates"
                )
            if own.num_skipped_steps > 0:
                log.warning(
                    "policy %d: %d optimiser steps skipped, whose gradients were not finite",
                    policy,
                    own.num_skipped_steps,
                )


@dataclass
class Trend:
    """The values of a metric in the first steps of a run that have it, and in the latest."""

    first: list[float] = field(default_factory=list)
    latest: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))

    def add(self, value: float) -> None:
        """Take in the value of the next step."""
        if len(self.first) < WINDOW:
            self.first.append(value)
        self.latest.append(value)


class Watch:
    """Warns of each sign that a run goes wrong, with what to look at: of what came over time once
    in a run, of what a single step shows once after every start and resume.

    Args:
        rows: the metrics of the steps before a resume.
        mismatch_limit: ``optimization.mismatch_warning``.
    """

    def __init__(self, rows: Iterable[Metrics], *, mismatch_limit: float) -> None:
        self._signs = (*LOST_SIGNALS, *mismatch_signs(mismatch_limit))
        self._shown: set[str] = set()
        self._trends: defaultdict[str, Trend] = defaultdict(Trend)
        self._told: set[str] = set()
        for row in rows:
            for _ in self._news(row):
                pass

    def see(self, metrics: Metrics, rewarded: Sequence[RewardedDiscussion]) -> None:
        """Take in the metrics of the next step, and the discussions that examples are from."""
        unseen = {name: value for name, value in metrics.items() if name not in self._shown}
        for shown in shown_by(unseen, self._signs):
            self._shown |= shown.values.keys()
            log.warning("%s", shown.warning(rewarded))
        for warning in self._news(metrics):
            log.warning("%s", warning)

    def _news(self, metrics: Metrics) -> Iterator[str]:
        """What ``metrics`` tell beside those before, and has not been said."""
        for name, value in metrics.items():
            if value is None or name in self._told:
                continue
            self._trends[name].add(value)
            if (warning := _over_time(name, self._trends[name])) is not None:
                self._told.add(name)
                yield f"{name}: {warning}"


def _over_time(name: str, trend: Trend) -> str | None:
    """What the latest ``WINDOW`` values tell beside the first."""
    if len(trend.latest) < WINDOW:
        return None
    first, latest = fmean(trend.first), fmean(trend.latest)
    if name in ("reward/solution", "reward/evaluation"):
        spread = max(trend.latest) - min(trend.latest)
        if spread == 0 or min(latest, 1 - latest) < EXTREME_REWARD:
            return (
                f"stuck at {latest:.2f} for {WINDOW} steps, so hardly any response is better than "
                "another; look at the scores in discussions/, and whether the scorer judges at all"
            )
    if name == "response_length" and latest > LENGTH_FACTOR * first:
        return (
            f"grew from {first:.0f} to {latest:.0f} tokens; look at discussions/ for repetition, "
            "and at interaction/truncated_rate: what is cut off is not learnt from under "
            "optimization.mask_truncated, and optimization.overlong_buffer_tokens penalises length "
            "before that"
        )
    if name == "scoring/invalid_rate" and latest > INVALID_RATE and latest > 2 * first:
        return (
            f"rose from {first:.0%} to {latest:.0%} of all scorings; look at their texts in "
            "discussions/, and at rollout.max_response_tokens"
        )
    if name.endswith("/policy/entropy") and latest < ENTROPY_SHARE * first:
        return (
            f"fell from {first:.3f} to {latest:.3f} nats: the policy says nearly the same each "
            "time; lower optimization.learning_rate, or raise optimization.kl_coef or "
            "optimization.clip_epsilon_high"
        )
    return None
