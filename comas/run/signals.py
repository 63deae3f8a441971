"""Signs in a step's metrics that there is little or nothing to learn from it: what each says, what
was said by way of example, and which key to change."""

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comas.reward_formulation.interaction_reward import parse_score
from comas.reward_formulation.judgment_reward import parse_judgment
from comas.reward_formulation.self_rewarding import parse_rating
from comas.types import ROLES, RewardedDiscussion, Turn
from comas.utils.terminal import excerpt

LARGE_SHARE = 0.5
"""Share of unreadable scorings, or of responses that are cut off, from which it is said."""
CORRECTED_SHARE = 0.1
"""Share beyond the bounds of ``optimization.rollout_correction`` that is warned of."""
NO_DIFFERENCE = 1e-6
"""Rewards that differ by less are equal."""
LATEST_STEPS = 10
"""Steps that the end of a run speaks of."""

_NAME = re.compile(rf"(?:agent_(\d+)/)?(.+?)(?:/({'|'.join(ROLES)}))?")
"""A metric's name: whose it is, an agent's or a role's, and what it is of."""


@dataclass(frozen=True)
class Sign:
    """What a single step shows, whatever came before it."""

    metric: str
    """Without the agent or the role that it is of."""
    is_shown_by: Callable[[float], bool]
    says: str
    """With ``{value}``, the greatest, ``{who}``, the agents, or ``{each}``: agents and roles with
    their values."""
    remedy: str
    is_example: Callable[[Turn], bool] | None = None
    """Which of the turns are an example of it; None: none is quoted."""


@dataclass(frozen=True)
class Shown:
    """A sign, and who shows it in a step."""

    sign: Sign
    values: Mapping[str, float]
    """By the name of the metric, such as ``{"agent_0/truncated_rate": 0.9}``."""

    def __str__(self) -> str:
        subjects = {name: _subject(name) for name in self.values}
        each = (f"{subject} {self.values[name]:.0%}" for name, subject in subjects.items())
        return self.sign.says.format(
            value=max(self.values.values()),
            who=" and ".join(subjects.values()),
            each=", ".join(each),
        )

    def warning(self, rewarded: Iterable[RewardedDiscussion]) -> str:
        """What is shown, an example among ``rewarded``, and the remedy."""
        name = next(iter(self.values)) if len(self.values) == 1 else self.sign.metric
        said = self._example(rewarded)
        return f"{name}: {self}{f', such as {said}' if said else ''}; {self.sign.remedy}"

    def _example(self, rewarded: Iterable[RewardedDiscussion]) -> str | None:
        is_one, subjects = self.sign.is_example, set(map(_subject, self.values))
        if is_one is None:
            return None
        turns = (
            (turn, reward)
            for item in rewarded
            for turn, reward in zip(item.discussion.turns, item.rewards, strict=True)
            if not turn.is_given and {"", f"agent {turn.agent_index}", f"{turn.role}s"} & subjects
        )
        return next((_quoted(turn, reward) for turn, reward in turns if is_one(turn)), None)


def _subject(name: str) -> str:
    """Whose a metric is, such as "agent 0" or "solutions"; "": everybody's."""
    agent, _, role = _parts(name)
    return f"agent {agent}" if agent else f"{role}s" if role else ""


def _parts(name: str) -> tuple[str | None, ...]:
    """``"agent_0/truncated_rate" -> ("0", "truncated_rate", None)``"""
    match = _NAME.fullmatch(name)
    return ("", name, "") if match is None else match.groups()


def _quoted(turn: Turn, reward: float | None) -> str:
    text = turn.text or turn.generation.thinking_text
    was_cut = ", cut off" * (turn.generation.finish_reason == "length")
    paid = "no reward" if reward is None else f"reward {reward:.2f}"
    return f'the {turn.role} "{excerpt(text)}" of agent {turn.agent_index} ({paid}{was_cut})'


def _at_least_half(value: float) -> bool:
    return value >= LARGE_SHARE


def _is_unread(role: str, parse: Callable[[str], object | None]) -> Callable[[Turn], bool]:
    return lambda turn: turn.role == role and parse(turn.text) is None


def _unread(name: str, role: str, parse: Callable[[str], object | None], wanted: str) -> Sign:
    return Sign(
        f"{name}/invalid_rate",
        _at_least_half,
        f"no {name.replace('scoring', 'score')} can be read in {{value:.0%}} of all {role}s",
        f"each has to hold {wanted}: where they are cut off, raise rollout.max_response_tokens, "
        "else choose society.models that follow the prompts, or write others (interaction.prompts)",
        _is_unread(role, parse),
    )


LOST_SIGNALS = (
    Sign(
        "truncated_rate",
        _at_least_half,
        "half of the responses or more are cut off: {each}",
        "raise rollout.max_response_tokens, choose society.models that come to an end, or stop a "
        "model from thinking (rollout.chat_template_kwargs); optimization.mask_truncated leaves "
        "them out of the update",
        lambda turn: turn.generation.finish_reason == "length",
    ),
    _unread("scoring", "scoring", parse_score, "<score>1</score>, 2 or 3"),
    _unread("judgment", "evaluation", parse_judgment, "<judgment>correct</judgment> or incorrect"),
    _unread("rating", "evaluation", parse_rating, "<rating>0</rating> to 5"),
    Sign(
        "reward/spread",
        lambda value: value < NO_DIFFERENCE,
        "no response has another reward than the others of its role and round",
        "see in discussions/ what the judges say, and change society.models, interaction.prompts, "
        "the difficulty of data.train, or reward.scheme",
        lambda turn: True,
    ),
    Sign(
        "policy/num_samples",
        lambda value: value == 0,
        "nothing that {who} said is learnt from",
        "left out is what is cut off (optimization.mask_truncated; raise "
        "rollout.max_response_tokens), what reward.scheme does not pay, and under "
        "optimization.loss=dpo what has no pair with another reward",
        lambda turn: True,
    ),
    Sign(
        "policy/no_advantage_share",
        lambda value: value > 1 - NO_DIFFERENCE,
        "no response of {who} has an advantage over another",
        "where their rewards differ, raise interaction.prompt_reuse, so that there are others to "
        "compare with, or change optimization.group_by or optimization.estimator",
        lambda turn: True,
    ),
)
"""What leaves a run without a signal; a cause comes before what follows from it."""


def mismatch_signs(limit: float) -> tuple[Sign, ...]:
    """Signs that an update is on other probabilities than were sampled from; ``limit`` is
    ``optimization.mismatch_warning``."""
    return (
        Sign(
            "rollout_mismatch/mean",
            lambda value: value > limit,
            "the policy's log-probs differ from its rollout engine's by {value:.3f} a token "
            f"(optimization.mismatch_warning={limit:g}), so importance ratios are wrong",
            "look at rollout.dtype and policy.dtype, and at optimization.rollout_correction",
        ),
        Sign(
            "rollout_mismatch/corrected_share",
            lambda value: value > CORRECTED_SHARE,
            "{value:.0%} of what {who} said was beyond optimization.rollout_ratio_bounds, and so "
            "clipped or left out of the update",
            "look at the mismatch of the same agent",
        ),
    )


def shown_by(metrics: Mapping[str, Any], signs: Sequence[Sign]) -> Iterator[Shown]:
    """Those of ``signs`` that a step's metrics show, in their order."""
    values = [(_parts(name)[1], name, value) for name, value in metrics.items()]
    for sign in signs:
        own = {name: v for metric, name, v in values if metric == sign.metric and v is not None}
        if found := {name: value for name, value in own.items() if sign.is_shown_by(value)}:
            yield Shown(sign, found)


def closing_line(rows: Sequence[Mapping[str, Any]], models: Path) -> tuple[int, str]:
    """The last line of a run with these rows, and its level of logging: what half of the latest
    steps or more lacked is said again."""
    steps = [row for row in rows if row["step"] > 0][-LATEST_STEPS:]
    found: dict[str, list[Shown]] = {}
    for row in steps:
        for shown in shown_by(row, LOST_SIGNALS):
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
