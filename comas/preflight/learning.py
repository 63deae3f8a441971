"""Settings under which a run would finish but learn nothing, or not what was meant."""

from collections import Counter
from collections.abc import Iterator
from functools import partial

from comas.config.schema import Config, Custom, Dpo, Grpo, ReinforcePP
from comas.policy_optimization import ADVANTAGE_ESTIMATORS
from comas.policy_optimization.samples import collect_samples
from comas.preflight.checks import Check, Checks
from comas.preflight.sizes import silent_discussions
from comas.run.prepared import Sizes
from comas.types import Question, RewardedDiscussion

MAX_QUESTIONS = 8
"""Questions of a step that are tried."""


def check_learning(config: Config, sizes: Sizes | None) -> list[Check]:
    """Return the errors and warnings about learning; ``sizes`` are None if the questions are not
    known yet."""
    checks = Checks()
    algorithm = config.algorithm
    if not isinstance(algorithm, Dpo) and algorithm.estimator in ADVANTAGE_ESTIMATORS:
        checks.find("learning", "", partial(_check_groups, config, algorithm))
    warnings = [
        Check(key, "", str(value), warning=f"{key}={value}: {warning}")
        for key, value, warning in _warnings(config, sizes)
    ]
    return [*(check for check in checks if check.error is not None), *warnings]


def _check_groups(config: Config, algorithm: ReinforcePP | Grpo | Custom) -> None:
    """Raise ValueError if, in a few silent discussions, each response is alone in the estimator's
    groups, or all have weight 0."""
    estimator = ADVANTAGE_ESTIMATORS[algorithm.estimator]
    group_by = estimator.group_by if algorithm.group_by is None else algorithm.group_by
    num_questions = min(MAX_QUESTIONS, config.rollout.batch_size * max(config.update_every))
    questions = [Question(str(number), "math", "") for number in range(num_questions)]
    rewarded = [
        RewardedDiscussion(held, tuple(None if turn.is_given else 0.0 for turn in held.turns))
        for held in silent_discussions(config, questions)
    ]
    agents = config.policy_of_agent
    buffers = collect_samples(rewarded, policy_of_agent=agents, mask_truncated=False)
    samples = [(p, sample) for p in config.trained_policies for sample in buffers[p]]
    weighed = [(p, s) for p, s in samples if algorithm.role_weights.get(s.role, 1) > 0]
    groups = Counter((p, *(getattr(s, field) for field in group_by)) for p, s in weighed)
    if samples and not weighed:
        raise ValueError(
            f"algorithm.role_weights={algorithm.role_weights}: every role in which a policy speaks "
            f"({', '.join({s.role: None for _, s in samples})}) weighs 0, so that nothing is "
            "learnt; give one of them a weight above 0"
        )
    if samples and max(groups.values()) < 2:
        by = f" by {', '.join(group_by)}" if group_by else ""
        raise ValueError(
            f"{algorithm.estimator} compares responses{by}, and each is alone in its group, so "
            "that its advantage is 0 and nothing is learnt; raise interaction.prompt_reuse, or "
            "change algorithm.group_by"
        )


def _warnings(config: Config, sizes: Sizes | None) -> Iterator[tuple[str, object, str]]:
    """Yield (key, value, warning)."""
    algorithm, optimization, training = config.algorithm, config.optimization, config.training
    if not isinstance(algorithm, Dpo):
        low, high = algorithm.clip_epsilon, algorithm.clip_epsilon_high
        if high is not None and high < low:
            said = f"it is below algorithm.clip_epsilon={low}; set it higher, such as 0.28"
            yield "algorithm.clip_epsilon_high", high, said
        if algorithm.group_by and algorithm.estimator == "reinforce_pp":
            said = "reinforce_pp compares no groups; leave it out, or name another estimator"
            yield "algorithm.group_by", algorithm.group_by, said
    if sizes is None:
        return
    num_steps = min(sizes.num_optimizer_steps[policy] for policy in config.trained_policies)
    if optimization.warmup_steps > num_steps:
        said = f"the run ends within the warm-up, after {num_steps} optimiser steps; set it lower"
        yield "optimization.warmup_steps", optimization.warmup_steps, said
    if training.max_staleness >= sizes.num_steps:
        said = f"all {sizes.num_steps} steps are sampled before the first update; set it lower"
        yield "training.max_staleness", training.max_staleness, said
