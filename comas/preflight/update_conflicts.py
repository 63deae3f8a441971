"""What the keys of the update must satisfy together: estimator, groups and loss."""

import math
from collections import Counter
from collections.abc import Collection, Iterator

from comas.config.faults import Conflict
from comas.config.schema import Config
from comas.policy_optimization import ADVANTAGE_ESTIMATORS
from comas.policy_optimization.samples import GROUP_KEYS
from comas.types import ROLES


def estimator_conflicts(config: Config) -> Iterator[Conflict]:
    """What does not fit ``optimization.estimator``, or is no group."""
    optimization = config.optimization
    name, estimator = optimization.estimator, ADVANTAGE_ESTIMATORS.find(optimization.estimator)
    if optimization.group_by is not None:
        yield from _group_conflicts(optimization.group_by)
    if estimator is None:
        return
    if optimization.group_by is not None and not estimator.group_by:
        others = ", ".join(other for other, of in ADVANTAGE_ESTIMATORS.items() if of.group_by)
        yield Conflict(
            ("optimization.group_by", "optimization.estimator"),
            f"{name} does not compare samples by groups",
            f"set optimization.group_by to null, or choose an estimator that does: {others}",
        )
    if optimization.discount != 1 and not estimator.reads_discount:
        yield Conflict(
            ("optimization.discount", "optimization.estimator"),
            f"{name} gives every token of a response the same advantage, so it has no discount",
            "set optimization.discount to 1, or choose an estimator that reads it",
        )
    wanted, chosen = estimator.loss_aggregation, optimization.loss_aggregation
    if wanted is not None and chosen not in (None, wanted):
        yield Conflict(
            ("optimization.loss_aggregation", "optimization.estimator"),
            f"{name} is defined with the loss aggregation {wanted}",
            "set optimization.loss_aggregation to null, which is that",
        )


def loss_conflicts(config: Config) -> Iterator[Conflict]:
    """What of the loss and of the lengths of responses contradicts itself."""
    optimization, rollout = config.optimization, config.rollout
    correction, bounds = optimization.rollout_correction, optimization.rollout_ratio_bounds
    if bounds is not None and not (len(bounds) == 2 and 0 <= bounds[0] <= 1 <= bounds[1]):
        yield Conflict(
            ("optimization.rollout_ratio_bounds",),
            "must be a lowest ratio from 0 to 1 and a highest from 1 on",
            "write [0.5, 5.0], or null for the bounds of the correction",
        )
    if bounds is not None and correction == "none":
        yield Conflict(
            ("optimization.rollout_ratio_bounds", "optimization.rollout_correction"),
            "without a correction nothing reads its bounds",
            "set optimization.rollout_correction to tis, icepop or seq_mask_tis, or the bounds "
            "to null",
        )
    if correction != "none" and optimization.old_logprobs == "rollout":
        yield Conflict(
            ("optimization.rollout_correction", "optimization.old_logprobs"),
            "old log-probs that are the rollout engine's leave nothing to correct",
            "set optimization.old_logprobs to recomputed, or optimization.rollout_correction to "
            "none",
        )
    longest, buffer = rollout.max_response_tokens, optimization.overlong_buffer_tokens
    if buffer is not None and buffer > longest:
        yield Conflict(
            ("optimization.overlong_buffer_tokens", "rollout.max_response_tokens"),
            f"the penalty begins that many tokens before the end, and there are only {longest}",
            f"set optimization.overlong_buffer_tokens to {longest} or less, or to null",
        )
    if rollout.min_response_tokens > longest:
        yield Conflict(
            ("rollout.min_response_tokens", "rollout.max_response_tokens"),
            "the shortest response cannot be longer than the longest",
            f"set rollout.min_response_tokens to {longest} or less",
        )


UNREAD_BY_DPO = {
    "estimator": "reinforce_pp",
    "group_by": None,
    "discount": 1.0,
    "clip_epsilon_high": None,
    "dual_clip": None,
    "loss_aggregation": None,
    "old_logprobs": "recomputed",
    "rollout_correction": "none",
}
"""Keys of advantages and ratios, and what leaves them unsaid."""


def preference_conflicts(config: Config) -> Iterator[Conflict]:
    """What the loss of pairs lacks or does not read."""
    if config.optimization.loss != "dpo":
        return
    if config.optimization.kl_coef == 0:
        yield Conflict(
            ("optimization.loss", "optimization.kl_coef"),
            "dpo compares with a reference model, by a weight above 0",
            "set optimization.kl_coef to 0.1",
        )
    if config.interaction.prompt_reuse == 1:
        yield Conflict(
            ("optimization.loss", "interaction.prompt_reuse"),
            "dpo compares an agent's responses to the same prompt, and there is only one",
            "set interaction.prompt_reuse to 2 or more, such as 4",
        )
    for name, unsaid in UNREAD_BY_DPO.items():
        if getattr(config.optimization, name) != unsaid:
            yield Conflict(
                ("optimization.loss", f"optimization.{name}"),
                f"dpo has no advantages and no ratios: it does not read optimization.{name}",
                f"set optimization.{name} to {'null' if unsaid is None else unsaid}",
            )


def _group_conflicts(group_by: Collection[str]) -> Iterator[Conflict]:
    unknown = [key for key in group_by if key not in GROUP_KEYS]
    repeated = [key for key, count in Counter(group_by).items() if count > 1]
    if unknown or repeated or not group_by:
        wrong = ", ".join(unknown or repeated) or "there is none"
        yield Conflict(
            ("optimization.group_by",),
            f"must hold group keys, each once: {wrong}",
            f"choose among {', '.join(GROUP_KEYS)}, or write null for the estimator's own groups",
        )


def role_weight_conflicts(config: Config) -> Iterator[Conflict]:
    """What is no weight of a role."""
    weights = config.optimization.role_weights
    wrong = [
        f"{role}: {weight}"
        for role, weight in weights.items()
        if role not in ROLES or not isinstance(weight, int | float) or not 0 <= weight < math.inf
    ]
    if wrong:
        yield Conflict(
            ("optimization.role_weights",),
            f"must map roles to numbers from 0 on, has {', '.join(wrong)}",
            f"write {{scoring: 0.1}}; the roles are {', '.join(ROLES)}",
        )
    if weights and config.optimization.loss == "dpo":
        yield Conflict(
            ("optimization.role_weights", "optimization.loss"),
            "a loss over pairs has no advantages",
            "write {} for optimization.role_weights",
        )
