"""The metrics of a step, from its discussions and updates."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean

from comas.config.schema import Config
from comas.interaction.held import outcome_of
from comas.policy_optimization.update_stats import UpdateStats
from comas.reward_formulation import REWARD_SCHEMES
from comas.run.metrics.reward_effectiveness import (
    agreement,
    false_accusations,
    reward_effectiveness,
)
from comas.types import ALL_DOMAINS, Domain, Generation, Metrics, RewardedDiscussion, Rewards
from comas.verification.forms import Verdict
from comas.verification.solutions import Verdicts

NO_ADVANTAGE = 1e-6
"""Smaller values are rounding errors."""
UPDATE_METRICS = {
    **{f"policy/{name}": name for name in ("kl", "entropy", "clip_fraction", "gradient_norm")},
    **{f"policy/{name}": name for name in ("learning_rate", "num_samples", "num_tokens")},
    "policy/loss": "policy_loss",
    "policy/optimizer_steps": "num_optimizer_steps",
    "policy/skipped_steps": "num_skipped_steps",
    "rollout_mismatch/mean": "mismatch_mean",
    "rollout_mismatch/max": "mismatch_max",
    "rollout_mismatch/corrected_share": "corrected_share",
}
"""Metric of an agent's policy -> attribute of ``UpdateStats``."""
LONG_STEP_S = 100
"""Times from here on are shown without decimals."""


def step_metrics(
    rewards: Rewards, stats: Mapping[int, UpdateStats], verdicts: Verdicts, *, config: Config
) -> Metrics:
    """Return all metrics of a step but times."""
    discussions = [item.discussion for item in rewards.discussions]
    scheme = REWARD_SCHEMES[config.reward.scheme]
    domains = {d.discussion_id: d.question.domain for d in discussions}
    judged = [(domains[discussion_id], v) for (discussion_id, _), v in verdicts.items()]
    failed = (d for d in discussions if (outcome := outcome_of(d)) and outcome.error)
    judged += [(discussion.question.domain, "unanswered") for discussion in failed]
    return {
        **rewards.metrics,
        **rollout_metrics(rewards.discussions, num_agents=config.society.num_agents),
        "reward/spread": None if scheme.pays_alike else reward_spread(rewards.discussions),
        **update_metrics(stats, policy_of_agent=config.policy_of_agent),
        **accuracy_metrics("train", judged),
        **reward_effectiveness(
            rewards.discussions, verdicts=verdicts, sees_verdicts=scheme.sees_verdicts
        ),
        **false_accusations(discussions, verdicts=verdicts),
        **agreement(rewards.discussions, verdicts=verdicts),
    }


def rollout_metrics(rewarded: Sequence[RewardedDiscussion], *, num_agents: int) -> Metrics:
    """Return rewards by role and agent, response lengths in tokens, and counts of problems, for the
    roles in which somebody spoke."""
    turns = [
        (turn, reward)
        for item in rewarded
        for turn, reward in zip(item.discussion.turns, item.rewards, strict=True)
        if not turn.is_given
    ]
    said = [turn.generation for turn, _ in turns]
    roles = list(dict.fromkeys(turn.role for turn, _ in turns))
    metrics: Metrics = {
        "interaction/overlong_prompts": sum(i.discussion.num_overlong_prompts for i in rewarded),
        "interaction/spelt_marks": sum(each.spells_mark for each in said),
        "tokens/prompt": sum(len(each.prompt_token_ids) for each in said),
        "tokens/response": sum(len(each.response_token_ids) for each in said),
    }
    outcomes = list(filter(None, (outcome_of(item.discussion) for item in rewarded)))
    if outcomes:
        metrics["program/failed"] = sum(outcome.error != "" for outcome in outcomes)
        metrics["program/rewritten"] = sum(outcome.num_rewritten for outcome in outcomes)
        metrics["program/concurrent"] = sum(outcome.num_concurrent for outcome in outcomes)
    for role in roles:
        its = [turn.generation for turn, _ in turns if turn.role == role]
        metrics[f"truncated_rate/{role}"] = _truncated_rate(its)
        metrics[f"response_length/{role}"] = _mean_length(its)
    speakers = {"": turns}
    for agent in range(num_agents):
        speakers[f"agent_{agent}/"] = [(t, reward) for t, reward in turns if t.agent_index == agent]
    for prefix, spoken in speakers.items():
        said = [turn.generation for turn, _ in spoken]
        for role in roles:
            paid = [r for turn, r in spoken if turn.role == role and r is not None]
            metrics[f"{prefix}reward/{role}"] = _mean(paid)
        metrics[f"{prefix or 'interaction/'}truncated_rate"] = _truncated_rate(said)
        metrics[f"{prefix}response_length"] = _mean_length(said)
        metrics |= _thinking_metrics(prefix, said)
    return metrics


def update_metrics(stats: Mapping[int, UpdateStats], *, policy_of_agent: Sequence[int]) -> Metrics:
    """Return the metrics of each agent's policy update, if any; agents that share a policy
    have the same numbers."""
    metrics: Metrics = {}
    for agent, policy in enumerate(policy_of_agent):
        if policy not in stats:
            continue
        update = stats[policy]
        for name, attribute in UPDATE_METRICS.items():
            value = getattr(update, attribute)
            is_mean = isinstance(value, float) and attribute != "learning_rate"
            metrics[f"agent_{agent}/{name}"] = None if is_mean and not update.num_samples else value
        largest = [max(map(abs, tokens), default=0.0) for tokens in update.advantages]
        share = _mean([float(advantage < NO_ADVANTAGE) for advantage in largest])
        metrics[f"agent_{agent}/policy/no_advantage_share"] = share
    return metrics


def accuracy_metrics(prefix: str, judged: Sequence[tuple[Domain, Verdict]]) -> Metrics:
    """Return the ``accuracies``, the share of unanswered questions and the number of failures, both
    of which count as incorrect."""
    verdicts = [verdict for _, verdict in judged]
    metrics = accuracies(prefix, judged)
    metrics[f"{prefix}/unanswered_rate"] = _share(verdicts, "unanswered")
    metrics[f"{prefix}/verifier_failures"] = sum(verdict == "failed" for verdict in verdicts)
    return metrics


def accuracies(prefix: str, judged: Sequence[tuple[Domain, Verdict]]) -> Metrics:
    """Return the share of correct answers, over all and by domain."""
    said = {domain: [each for of, each in judged if of == domain] for domain in ALL_DOMAINS}
    of = {f"/{domain}": _share(there, "correct") for domain, there in said.items() if there}
    whole = {"": _share([verdict for _, verdict in judged], "correct")}
    return {f"{prefix}/accuracy{part}": share for part, share in (whole | of).items()}


def step_lines(step: int, num_steps: int, metrics: Mapping[str, float | None]) -> Iterator[str]:
    """Yield log lines of at most 80 columns for a training step and a validation.

    ``valid`` is the share of readable scorings (or judgments, or ratings). Example::

        step 12/50  acc 0.61  reward sol 0.58 eval 0.42  valid 99%  14 tok  2.8s
        step 12/50  held-out acc 0.66 (greedy 0.91, discussed 0.70)
    """
    heading = f"step {step}/{num_steps}"

    def show(label: str, key: str) -> list[str]:
        return [f"{label} {_figure(metrics[key], '.2f')}"] if key in metrics else []

    if "train/accuracy" in metrics:
        roles = [name.removeprefix("reward/") for name in metrics if name.startswith("reward/")]
        paid = [role for role in roles if role not in ("scoring", "spread")]
        rewards = [text for of in paid for text in show(SHORT.get(of, of), f"reward/{of}")]
        unread = [metrics[name] for name in _INVALID_RATES if name in metrics]
        valid = [f"valid {_figure(None if rate is None else 1 - rate, '.0%')}" for rate in unread]
        length, seconds = metrics.get("response_length"), metrics.get("time/step_s")
        fields = [
            *show("acc", "train/accuracy"),
            *([" ".join(["reward", *rewards])] if rewards else []),
            *valid,
            f"{_figure(length, '.0f')} tok",
            f"{_figure(seconds, '.1f' if (seconds or 0) < LONG_STEP_S else '.0f')}s",
        ]
        yield "  ".join([heading, *fields])
    if "validation/accuracy" in metrics:
        others = show("greedy", "validation/greedy/accuracy")
        others += show("discussed", "validation/discussion/accuracy")
        beside = f" ({', '.join(others)})" if others else ""
        yield f"{heading}  {show('held-out acc', 'validation/accuracy')[0]}{beside}"


SHORT = {"solution": "sol", "evaluation": "eval"}
"""Roles as the log line abbreviates them."""
_INVALID_RATES = ("scoring/invalid_rate", "judgment/invalid_rate", "rating/invalid_rate")


def _figure(value: float | None, form: str) -> str:
    return "-" if value is None else f"{value:{form}}"


def reward_spread(rewarded: Iterable[RewardedDiscussion]) -> float | None:
    """Return the largest difference between rewards of one role in one round; None without rewards.

    Example: solutions paid 1 and 0.5, scorings paid 0 and 0: 0.5.
    """
    paid: dict[tuple[str, int], list[float]] = {}
    for item in rewarded:
        for turn, reward in zip(item.discussion.turns, item.rewards, strict=True):
            if reward is not None:
                paid.setdefault((turn.role, turn.round_index), []).append(reward)
    return max((max(rewards) - min(rewards) for rewards in paid.values()), default=None)


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def _share(verdicts: Sequence[str], wanted: str) -> float | None:
    return _mean([float(verdict == wanted) for verdict in verdicts])


def _thinking_metrics(prefix: str, said: Iterable[Generation]) -> Metrics:
    lengths = [
        (num, num == len(each.response_token_ids) and each.finish_reason == "length")
        for each in said
        if (num := each.num_thinking_tokens) is not None
    ]
    if not lengths:
        return {}
    return {
        f"{prefix}thinking_length": fmean(num for num, _ in lengths),
        f"{prefix}thinking_truncated_rate": fmean(is_cut for _, is_cut in lengths),
    }


def _mean_length(said: Iterable[Generation]) -> float | None:
    return _mean([len(each.response_token_ids) for each in said])


def _truncated_rate(said: Iterable[Generation]) -> float | None:
    return _mean([float(each.finish_reason == "length") for each in said])
