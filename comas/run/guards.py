"""Checks of a run on itself: conditions that end it, and signs of harm that it warns of."""

import logging
import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from comas.config.schema import Config
from comas.reward_formulation.interaction_reward import parse_score
from comas.reward_formulation.judgment_reward import parse_judgment
from comas.reward_formulation.self_rewarding import parse_rating
from comas.types import ROLES, Metrics, RewardedDiscussion, TrainingSample, Turn, UpdateStats
from comas.utils.terminal import excerpt

log = logging.getLogger(__name__)

MAX_EMPTY_UPDATES = 5
"""Updates in a row in which a policy may have nothing to learn from."""
MAX_SKIPPED_UPDATES = 3
"""Updates in a row in which a policy may have no gradient that is finite."""
WINDOW = 10
"""Steps over which a trend is judged: the run's first ones and its latest."""
LARGE_SHARE = 0.5
"""Share of unreadable scorings, or of responses that are cut off, from which it is said."""
CORRECTED_SHARE = 0.1
"""Share beyond the bounds of ``algorithm.rollout_correction`` that is warned of."""
NO_DIFFERENCE = 1e-6
"""Rewards that differ by less are equal."""
EXTREME_REWARD = 0.02
"""Distance from 0 or 1 of a mean reward that tells good from bad no more."""
LENGTH_FACTOR = 3.0
"""Times its first length at which a mean response is warned of."""
INVALID_RATE = 0.2
"""Share of scorings without a score that is warned of once it has doubled."""
ENTROPY_SHARE = 0.2
"""Share of its first entropy below which a policy is warned of. (Quick-start runs that learn keep
0.4 to 0.9 of it.)"""


# ---------------------------------------------------------------- what ends a run


class UpdateGuard:
    """Ends a run whose updates change nothing, which would otherwise look like training."""

    def __init__(self) -> None:
        self._empty: Counter[int] = Counter()
        self._skipped: Counter[int] = Counter()

    def check(
        self,
        buffers: Mapping[int, Sequence[TrainingSample]],
        stats: Mapping[int, UpdateStats],
        rewarded: Sequence[RewardedDiscussion],
        *,
        policy_of_agent: Sequence[int],
    ) -> None:
        """Count the updates in a row that changed nothing, and warn of optimiser steps that were
        skipped.

        Args:
            buffers: policy -> what it was updated with.
            stats: policy -> what the update did.
            rewarded: the discussions of the step, which tell why a buffer is empty.

        Raises:
            RuntimeError: a policy had nothing to learn from for the ``MAX_EMPTY_UPDATES``-th time
                in a row, or no finite gradient for the ``MAX_SKIPPED_UPDATES``-th time.
        """
        for policy, samples in buffers.items():
            self._empty[policy] = 0 if samples else self._empty[policy] + 1
            if self._empty[policy] >= MAX_EMPTY_UPDATES:
                reason = _why_empty(rewarded, policy, policy_of_agent)
                raise RuntimeError(
                    f"policy {policy} had nothing to learn from in {MAX_EMPTY_UPDATES} updates in "
                    f"a row ({reason}). If most are cut off, its model may have no end-of-sequence "
                    "token, or rollout.max_response_tokens is too small"
                )
        for policy, update in stats.items():
            skips = update.num_skipped_steps > 0
            is_over = update.num_optimizer_steps > 0 or not skips
            self._skipped[policy] = 0 if is_over else self._skipped[policy] + 1
            if self._skipped[policy] >= MAX_SKIPPED_UPDATES:
                raise RuntimeError(
                    f"policy {policy}: no gradient was finite in {MAX_SKIPPED_UPDATES} updates in "
                    "a row, so it learns nothing; resume from the last checkpoint with a lower "
                    "optimization.learning_rate, or its own in society.learning_rates"
                )
            if skips:
                log.warning(
                    "policy %d: %d optimiser steps skipped, whose gradients were not finite",
                    policy,
                    update.num_skipped_steps,
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


# ---------------------------------------------------------------- what is warned of


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

    @property
    def last(self) -> float:
        """The value of the latest step."""
        return self.latest[-1]


@dataclass(frozen=True)
class Sign:
    """Something in a metric that a run is warned of."""

    metric: str
    """The names that it may have, as a regular expression; ``of_all`` gives groups."""
    is_shown_by: Callable[[Trend], bool]
    says: str
    """With ``{value}``, the greatest, ``{first}`` and ``{latest}``, means of its trend, ``{who}``,
    the agents, or ``{each}``: agents and roles with their values."""
    remedy: str
    is_example: Callable[[Turn], bool] | None = None
    """True for turns that are an example of it; None: none is quoted."""


@dataclass(frozen=True)
class Shown:
    """A sign, and who shows it in a step."""

    sign: Sign
    trends: Mapping[str, Trend]
    """By the name of the metric, such as ``agent_0/truncated_rate``."""

    def __str__(self) -> str:
        subjects = {name: self._subject(name) for name in self.trends}
        worst = max(self.trends.values(), key=lambda trend: trend.last)
        each = (f"{who} {self.trends[name].last:.0%}" for name, who in subjects.items())
        return self.sign.says.format(
            value=worst.last,
            first=fmean(worst.first),
            latest=fmean(worst.latest),
            who=" and ".join(subjects.values()),
            each=", ".join(each),
        )

    def warning(self, rewarded: Iterable[RewardedDiscussion]) -> str:
        """Return what is shown, an example among ``rewarded``, and the remedy."""
        said = self._example(rewarded)
        names = dict.fromkeys(re.sub(r"^agent_\d+/", "", name) for name in self.trends)
        shown = next(iter(self.trends)) if len(self.trends) == 1 else ", ".join(names)
        return f"{shown}: {self}{f', such as {said}' if said else ''}; {self.sign.remedy}"

    def _example(self, rewarded: Iterable[RewardedDiscussion]) -> str | None:
        is_one, subjects = self.sign.is_example, set(map(self._subject, self.trends))
        if is_one is None:
            return None
        turns = (
            (turn, reward)
            for item in rewarded
            for turn, reward in zip(item.discussion.turns, item.rewards, strict=True)
            if not turn.is_given and {"", f"agent {turn.agent_index}", f"{turn.role}s"} & subjects
        )
        return next((_quoted(turn, reward) for turn, reward in turns if is_one(turn)), None)

    def _subject(self, name: str) -> str:
        """Return whose a metric is, such as "agent 0" or "solutions"; "": everybody's."""
        match = re.fullmatch(self.sign.metric, name)
        known = {} if match is None else match.groupdict()
        if known.get("agent"):
            return f"agent {known['agent']}"
        return f"{known['role']}s" if known.get("role") else ""


def of_all(metric: str) -> str:
    """Return the names of a metric of everybody, of an agent and of a role."""
    return rf"(?:agent_(?P<agent>\d+)/)?{metric}(?:/(?P<role>{'|'.join(ROLES)}))?"


def _quoted(turn: Turn, reward: float | None) -> str:
    text = turn.text or turn.generation.thinking_text
    was_cut = ", cut off" * (turn.generation.finish_reason == "length")
    paid = "no reward" if reward is None else f"reward {reward:.2f}"
    return f'the {turn.role} "{excerpt(text)}" of agent {turn.agent_index} ({paid}{was_cut})'


def is_large(trend: Trend) -> bool:
    """True if the latest value is a share of a half or more."""
    return trend.last >= LARGE_SHARE


def over_time(compare: Callable[[float, float], bool]) -> Callable[[Trend], bool]:
    """Return the test of a whole window that compares the means of the first and latest steps."""
    return lambda trend: (
        len(trend.latest) == WINDOW and compare(fmean(trend.first), fmean(trend.latest))
    )


def is_stuck(trend: Trend) -> bool:
    """True if a mean reward does not move, or is nearly the highest or lowest there is."""
    if len(trend.latest) < WINDOW:
        return False
    mean, spread = fmean(trend.latest), max(trend.latest) - min(trend.latest)
    return spread == 0 or min(mean, 1 - mean) < EXTREME_REWARD


def _is_unread(role: str, parse: Callable[[str], object | None]) -> Callable[[Turn], bool]:
    return lambda turn: turn.role == role and parse(turn.text) is None


def _unread(name: str, role: str, parse: Callable[[str], object | None], wanted: str) -> Sign:
    return Sign(
        f"{name}/invalid_rate",
        is_large,
        f"no {name.replace('scoring', 'score')} can be read in {{value:.0%}} of all {role}s",
        f"each has to hold {wanted}: where they are cut off, raise rollout.max_response_tokens, "
        "else choose society.models that follow the prompts, or write others (interaction.prompts)",
        _is_unread(role, parse),
    )


LOST_SIGNALS = (
    Sign(
        of_all("truncated_rate"),
        is_large,
        "half of the responses or more are cut off: {each}",
        "raise rollout.max_response_tokens, choose society.models that come to an end, or stop a "
        "model from thinking (rollout.chat_template_kwargs); algorithm.mask_truncated leaves "
        "them out of the update",
        lambda turn: turn.generation.finish_reason == "length",
    ),
    _unread("scoring", "scoring", parse_score, "<score>1</score>, 2 or 3"),
    _unread("judgment", "evaluation", parse_judgment, "<judgment>correct</judgment> or incorrect"),
    _unread("rating", "evaluation", parse_rating, "<rating>0</rating> to 5"),
    Sign(
        "reward/spread",
        lambda trend: trend.last < NO_DIFFERENCE,
        "no response has another reward than the others of its role and round",
        "see in discussions/ what the judges say, and change society.models, interaction.prompts, "
        "the difficulty of data.train, or reward.scheme",
        lambda turn: True,
    ),
    Sign(
        of_all("policy/num_samples"),
        lambda trend: trend.last == 0,
        "nothing that {who} said is learnt from",
        "left out is what is cut off (algorithm.mask_truncated; raise "
        "rollout.max_response_tokens), what reward.scheme does not pay, and under "
        "algorithm.name=dpo what has no pair with another reward",
        lambda turn: True,
    ),
    Sign(
        of_all("policy/no_advantage_share"),
        lambda trend: trend.last > 1 - NO_DIFFERENCE,
        "no response of {who} has an advantage over another",
        "where their rewards differ, raise interaction.prompt_reuse, so that there are others to "
        "compare with, or change algorithm.group_by or algorithm.name",
        lambda turn: True,
    ),
)
"""Signs that a run has no learning signal; a cause comes before its consequences."""

TRENDS = (
    Sign(
        "reward/(solution|evaluation)",
        is_stuck,
        f"stuck at {{latest:.2f}} for {WINDOW} steps, so hardly any response is better than "
        "another",
        "look at the scores in discussions/, and whether the scorer judges at all",
    ),
    Sign(
        "response_length",
        over_time(lambda first, latest: latest > LENGTH_FACTOR * first),
        "grew from {first:.0f} to {latest:.0f} tokens",
        "look at discussions/ for repetition, and at interaction/truncated_rate: what is cut off "
        "is not learnt from under algorithm.mask_truncated",
    ),
    Sign(
        "scoring/invalid_rate",
        over_time(lambda first, latest: latest > max(INVALID_RATE, 2 * first)),
        "rose from {first:.0%} to {latest:.0%} of all scorings",
        "look at their texts in discussions/, and at rollout.max_response_tokens",
    ),
    Sign(
        of_all("policy/entropy"),
        over_time(lambda first, latest: latest < ENTROPY_SHARE * first),
        "fell from {first:.3f} to {latest:.3f} nats: the policy says nearly the same each time",
        "lower optimization.learning_rate, or raise algorithm.kl_coef or "
        "algorithm.clip_epsilon_high",
    ),
)
"""Signs that develop over time; each is reported once in a run."""


def mismatch_limit(config: Config) -> float:
    """Return the mean |policy - rollout| log-prob difference above which something is wrong."""
    is_exact = config.policy.dtype == config.rollout.dtype == "float32"
    return 0.01 if is_exact else 0.1


def mismatch_signs(limit: float) -> tuple[Sign, ...]:
    """Signs that an update is on other probabilities than were sampled from, by a difference in
    log-prob above ``limit``."""
    return (
        Sign(
            of_all("rollout_mismatch/mean"),
            lambda trend: trend.last > limit,
            "the policy's log-probs differ from its rollout engine's by {value:.3f} a token "
            f"(more than {limit:g}), so importance ratios are wrong",
            "look at rollout.dtype and policy.dtype, and at algorithm.rollout_correction",
        ),
        Sign(
            of_all("rollout_mismatch/corrected_share"),
            lambda trend: trend.last > CORRECTED_SHARE,
            "{value:.0%} of what {who} said was beyond the bounds of algorithm.rollout_correction, "
            "and so "
            "clipped or left out of the update",
            "look at the mismatch of the same agent",
        ),
    )


class Watch:
    """Warns of each sign that a run goes wrong, with what to look at: of ``TRENDS`` once in a run,
    of what a single step shows once after every start and resume.

    Args:
        rows: the metrics of the steps before a resume.
        mismatch_limit: the mean |policy - rollout| log-prob difference above which it warns.
    """

    def __init__(self, rows: Iterable[Metrics], *, mismatch_limit: float) -> None:
        self._signs = (*LOST_SIGNALS, *TRENDS, *mismatch_signs(mismatch_limit))
        self._trends: defaultdict[str, Trend] = defaultdict(Trend)
        self._told: set[tuple[Sign, str]] = set()
        for row in rows:
            self._news(row, TRENDS)

    def see(self, metrics: Metrics, rewarded: Sequence[RewardedDiscussion]) -> None:
        """Take in the metrics of the next step, and the discussions that examples are from."""
        for shown in self._news(metrics, self._signs):
            log.warning("%s", shown.warning(rewarded))

    def _news(self, metrics: Metrics, signs: Sequence[Sign]) -> list[Shown]:
        """Take in the metrics of a step, and return what they show and has not been told."""
        now = {}
        for name, value in metrics.items():
            if value is not None:
                self._trends[name].add(value)
                now[name] = self._trends[name]
        found = list(_shown_by(now, signs, told=self._told))
        self._told |= {(shown.sign, name) for shown in found for name in shown.trends}
        return found


def lost_signals(metrics: Mapping[str, Any]) -> list[Shown]:
    """Return those of ``LOST_SIGNALS`` that a step's metrics show, in their order."""
    trends = {}
    for name, value in metrics.items():
        if value is not None:
            trends[name] = Trend([value], deque([value]))
    return list(_shown_by(trends, LOST_SIGNALS))


def _shown_by(
    trends: Mapping[str, Trend],
    signs: Sequence[Sign],
    *,
    told: Collection[tuple[Sign, str]] = (),
) -> Iterator[Shown]:
    for sign in signs:
        found = {
            name: trend
            for name, trend in trends.items()
            if re.fullmatch(sign.metric, name)
            and sign.is_shown_by(trend)
            and (sign, name) not in told
        }
        if found:
            yield Shown(sign, found)


def closing_line(rows: Sequence[Mapping[str, Any]], models: Path) -> tuple[int, str]:
    """The last line of a run with these rows, and its level of logging: what half of the latest
    steps or more lacked is said again."""
    steps = [row for row in rows if row["step"] > 0][-WINDOW:]
    found: dict[str, list[Shown]] = {}
    for row in steps:
        for shown in lost_signals(row):
            found.setdefault(shown.sign.metric, []).append(shown)
    lacking = [
        f"{shown[-1]}, in {len(shown)} of the last {len(steps)} steps"
        for shown in found.values()
        if 2 * len(shown) >= len(steps)
    ]
    if not lacking:
        return logging.INFO, f"done: the trained agents are in {models}"
    return logging.WARNING, (
        f"done, but there was little or nothing to learn from: {'; '.join(lacking)}. train.log "
        f"says at the first of these steps what to change. The agents are in {models}"
    )
