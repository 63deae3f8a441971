"""Checks during a run: conditions that end it, and signs of trouble that it warns of."""

import logging
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml

from comas.config.schema import Config
from comas.policy_optimization.update_stats import UpdateStats
from comas.reward_formulation import REWARD_SCHEMES
from comas.reward_formulation.interaction_reward import parse_score
from comas.reward_formulation.judgment_reward import parse_judgment
from comas.reward_formulation.self_rewarding import parse_rating
from comas.types import ROLES, Metrics, RewardedDiscussion, TrainingSample, Turn
from comas.utils.terminal import excerpt

log = logging.getLogger(__name__)

MAX_EMPTY_UPDATES = 5
"""Updates in a row without samples that end a run."""
MAX_SKIPPED_UPDATES = 3
"""Updates in a row without a finite gradient that end a run."""
WINDOW = 10
"""Steps at each end of a trend whose means are compared."""
LARGE_SHARE = 0.5
"""Share of unreadable scorings, truncated responses or corrected tokens that is warned of."""
NO_DIFFERENCE = 1e-6
"""Rewards that differ by less count as equal."""
EXTREME_REWARD = 0.02
"""A mean reward this close to 0 or 1 no longer tells good from bad."""
LENGTH_FACTOR = 3.0
"""Growth, or shrinkage, of the mean response length that is warned of."""
ENTROPY_SHARE = 0.2
"""Share of its first entropy that a policy, or the scores of a step, should keep. (Quick-starts
that learn keep 0.4-0.9 of the policy's, and all of the scores'.)"""
FALSE_CONSENSUS = 0.15
"""Growth of the share of solutions that agree on a wrong answer which is warned of."""


class UpdateGuard:
    """Ends a run whose updates change nothing."""

    def __init__(self) -> None:
        self._empty, self._skipped = Counter[int](), Counter[int]()

    def check(
        self, buffers: Mapping[int, Sequence[TrainingSample]], stats: Mapping[int, UpdateStats]
    ) -> None:
        """Check each policy's update on its samples (``buffers``), and warn of skipped steps.
        Raises RuntimeError after ``MAX_EMPTY_UPDATES`` without samples in a row, or
        ``MAX_SKIPPED_UPDATES`` without a finite gradient."""
        for policy in buffers:
            is_empty = policy not in stats or stats[policy].num_samples == 0
            self._empty[policy] = self._empty[policy] + 1 if is_empty else 0
            if self._empty[policy] >= MAX_EMPTY_UPDATES:
                raise RuntimeError(
                    f"policy {policy} had nothing to train on in {MAX_EMPTY_UPDATES} updates in a "
                    f"row: {TEXTS['no samples']['remedy']}. If most are cut off, its model may "
                    "have no end-of-sequence token"
                )
        for policy, update in stats.items():
            is_lost = update.num_skipped_steps > 0 and update.num_optimizer_steps == 0
            self._skipped[policy] = self._skipped[policy] + 1 if is_lost else 0
            if self._skipped[policy] >= MAX_SKIPPED_UPDATES:
                raise RuntimeError(
                    f"policy {policy}: no gradient was finite in {MAX_SKIPPED_UPDATES} updates in "
                    "a row, so it learns nothing; look for NaN in a plug-in of algorithm.loss or "
                    "algorithm.estimator, if any, or resume from the last checkpoint with a lower "
                    "optimization.learning_rate, or its own in society.learning_rates"
                )
            if num := update.num_skipped_steps:
                said = "policy %d: %d optimiser steps skipped, whose gradients were not finite"
                log.warning(said, policy, num)


def check_paid(config: Config, rewarded: Iterable[RewardedDiscussion], *, is_dry_run: bool) -> None:
    """Raise ValueError for turns to be trained that have no reward, unless the reward scheme
    ``pays_some``: in a dry run any turn, in a run all turns of a role that a plug-in declares."""
    paid: defaultdict[str, list[bool]] = defaultdict(list)
    for item in rewarded:
        for turn, reward in zip(item.discussion.turns, item.rewards, strict=True):
            is_updated = config.update_every[config.policy_of_agent[turn.agent_index]]
            if is_updated and item.discussion.roles[turn.role].is_trained and not turn.is_given:
                paid[turn.role].append(reward is not None)
    unpaid = [
        role
        for role, each in paid.items()
        if not (all(each) if is_dry_run else any(each) or role in ROLES)
    ]
    if unpaid and not REWARD_SCHEMES[config.reward.scheme].pays_some:
        raise ValueError(
            f"reward.scheme={config.reward.scheme} gave no reward to turns of the role "
            f"{', '.join(unpaid)}, so nothing is learnt from them. Let it reward them, or let a "
            "scoring respond to them (Submission.score); if they are left out on purpose, write "
            "Role(..., is_trained=False) or RewardScheme(..., pays_some=True)"
        )


@dataclass(frozen=True)
class Sign:
    """A sign of trouble in a metric."""

    metric: str
    """Regular expression for the metric's name."""
    is_shown_by: Callable[[Sequence[float]], bool]
    """True if these values, all so far, show the sign."""
    says: str
    remedy: str
    is_example: Callable[[Turn], bool] = lambda turn: False
    """True for turns that show it; the warning quotes the first."""


TEXTS = yaml.safe_load(Path(__file__).with_name("signs.yaml").read_text(encoding="utf-8"))
"""Name of a sign -> its metric, and what its warning says and advises."""


def _sign(
    name: str,
    is_shown_by: Callable[[Sequence[float]], bool],
    is_example: Callable[[Turn], bool] = lambda turn: False,
) -> Sign:
    """Return the sign that ``signs.yaml`` describes under ``name``."""
    metric, says, remedy = (TEXTS[name][part] for part in ("metric", "says", "remedy"))
    return Sign(metric, is_shown_by, says.format_map(globals()), remedy, is_example)


def over_time(compare: Callable[[float, float], bool]) -> Callable[[Sequence[float]], bool]:
    """Return a test that compares the means of the first and the latest ``WINDOW`` steps."""
    return lambda values: (
        len(values) >= WINDOW and compare(fmean(values[:WINDOW]), fmean(values[-WINDOW:]))
    )


def is_large(values: Sequence[float]) -> bool:
    return values[-1] >= LARGE_SHARE


def is_stuck(values: Sequence[float]) -> bool:
    """True if a mean reward is constant or, on a scale from 0 to 1, close to an end of it."""
    latest = values[-WINDOW:]
    mean = fmean(latest)
    extreme = min(mean, 1 - mean) < EXTREME_REWARD and all(0 <= value <= 1 for value in values)
    return len(latest) == WINDOW and (len(set(latest)) == 1 or extreme)


def _unread(role: str, parse: Callable[[str], object | None]) -> Callable[[Turn], bool]:
    """Return a test for turns of a ``role`` that ``parse`` cannot read."""
    return lambda turn: turn.role == role and parse(turn.text) is None


LOST_SIGNALS = (
    _sign("cut off", is_large, lambda turn: turn.generation.finish_reason == "length"),
    _sign("unread scores", is_large, _unread("scoring", parse_score)),
    _sign("unread judgments", is_large, _unread("evaluation", parse_judgment)),
    _sign("unread ratings", is_large, _unread("evaluation", parse_rating)),
    _sign("alike", lambda values: values[-1] < NO_DIFFERENCE, lambda turn: True),
    _sign("no samples", lambda values: values[-1] == 0),
    _sign("no advantage", lambda values: values[-1] > 1 - NO_DIFFERENCE),
    _sign("clipped", is_large),
    _sign("corrected", is_large),
)
"""Signs of a missing learning signal, causes before consequences."""
UNTRUE = _sign("untrue", over_time(lambda first, latest: latest < max(0.55, first - 0.15)))
STUCK = _sign("stuck", is_stuck)
FELL = over_time(lambda first, latest: latest < ENTROPY_SHARE * first)
TRENDS = (
    _sign("overlong", lambda values: values[-1] > 0),
    _sign(
        "lengths",
        over_time(lambda first, now: not first / LENGTH_FACTOR <= now <= LENGTH_FACTOR * first),
    ),
    _sign("certain policy", FELL),
    _sign("certain scorers", FELL),
    _sign("false consensus", over_time(lambda first, now: now > first + FALSE_CONSENSUS)),
)
"""Signs of trouble that mostly develop over time."""


def mismatch_limit(config: Config) -> float:
    """Return the largest normal mean of |policy - rollout| log-probs."""
    return 0.01 if config.policy.dtype == config.rollout.dtype == "float32" else 0.1


class Watch:
    """Warns of each sign once per start of the engines, with a remedy. ``rows`` are the metrics
    before a resume; rewards that ``pays_alike`` may be stuck."""

    def __init__(
        self, rows: Iterable[Metrics], *, mismatch_limit: float, pays_alike: bool = False
    ) -> None:
        mismatch = Sign(
            r"agent_\d+/rollout_mismatch/mean",
            lambda values: values[-1] > mismatch_limit,
            "the policy's log-probs differ from its rollout engine's by more than "
            f"{mismatch_limit:g} a token, so importance ratios are wrong",
            "look at rollout.dtype and policy.dtype, and at algorithm.rollout_correction",
        )
        self._signs = [*LOST_SIGNALS, *TRENDS, mismatch, *([] if pays_alike else [UNTRUE, STUCK])]
        self._values: defaultdict[str, list[float]] = defaultdict(list)
        for row in rows:
            self._take_in(row)

    def see(self, metrics: Metrics, rewarded: Sequence[RewardedDiscussion]) -> None:
        """Look for signs in the next step's metrics, and for examples in its discussions."""
        now = self._take_in(metrics)
        for sign in list(self._signs):
            if shown := shown_by(now, sign):
                self._signs.remove(sign)
                log.warning(
                    "%s: %s%s; %s", shown, sign.says, example_of(sign, rewarded), sign.remedy
                )

    def _take_in(self, metrics: Metrics) -> dict[str, list[float]]:
        now = {}
        for name, value in metrics.items():
            if value is not None and math.isfinite(value):
                self._values[name].append(value)
                now[name] = self._values[name]
        return now


def shown_by(values: Mapping[str, Sequence[float]], sign: Sign) -> str:
    """Return the metrics that show ``sign``, with their latest values; "" if none does."""
    return ", ".join(
        f"{name} {series[-1]:.2f}"
        for name, series in values.items()
        if re.fullmatch(sign.metric, name) and sign.is_shown_by(series)
    )


def example_of(sign: Sign, rewarded: Iterable[RewardedDiscussion]) -> str:
    """Describe the first turn that shows ``sign``; "" if none does."""
    for item in rewarded:
        for turn, reward in zip(item.discussion.turns, item.rewards, strict=True):
            if not turn.is_given and sign.is_example(turn):
                text = excerpt(turn.text or turn.generation.thinking_text)
                paid = "no reward" if reward is None else f"reward {reward:.2f}"
                return f', such as the {turn.role} "{text}" of agent {turn.agent_index} ({paid})'
    return ""


def lost_signals(metrics: Mapping[str, Any]) -> list[Sign]:
    """Return the ``LOST_SIGNALS`` that a step's metrics show, in order."""
    values = {name: [value] for name, value in metrics.items() if value is not None}
    return [sign for sign in LOST_SIGNALS if shown_by(values, sign)]


def lacking(rows: Sequence[Mapping[str, Any]]) -> str:
    """Describe the ``LOST_SIGNALS`` in at least half of the latest steps; "" if there are none."""
    steps = [row for row in rows if row["step"] > 0][-WINDOW:]
    found = Counter(sign.says for row in steps for sign in lost_signals(row))
    missing = [
        f"{says}, in {count} of the last {len(steps)} steps"
        for says, count in found.items()
        if 2 * count >= len(steps)
    ]
    return f"there was little or nothing to learn from: {'; '.join(missing)}" if missing else ""


def closing_line(rows: Sequence[Mapping[str, Any]], models: Path) -> tuple[int, str]:
    """Return (logging level, text) of a run's last line, which repeats ``lacking``."""
    if said := lacking(rows):
        return logging.WARNING, (
            f"done, but {said}. train.log says what to change, at the first of these steps. The "
            f"agents are in {models}"
        )
    return logging.INFO, f"done: the trained agents are in {models}"
