"""Plug-ins, tried before the run, and the user's files that a run depends on."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import torch

from comas.config.keys import leaves
from comas.config.plugins import Registry
from comas.config.schema import Config, Custom
from comas.data import QuestionSet
from comas.engines.policy.optimizers import OPTIMIZERS
from comas.interaction.criticism import CRITICISMS
from comas.interaction.held import outcome_of
from comas.interaction.program_runs import PROGRAMS, files_of
from comas.interaction.schedules import SCHEDULES
from comas.interaction.wording import bytes_of, location_of
from comas.policy_optimization import ADVANTAGE_ESTIMATORS, LOSSES
from comas.policy_optimization.advantages import compute_advantages
from comas.policy_optimization.batching import StepTotals
from comas.policy_optimization.losses import Targets, policy_loss
from comas.policy_optimization.samples import collect_samples
from comas.preflight.checks import Check, Checks
from comas.preflight.sizes import READABLE, silent_discussions, silent_rewards
from comas.reward_formulation import REWARD_SCHEMES
from comas.run.guards import check_paid
from comas.run.trackers import TRACKERS
from comas.types import RewardedDiscussion
from comas.verification.forms import parted
from comas.verification.verifiers import VERIFIERS, verify

PLUGIN_KEYS: dict[str, Registry[Any]] = {
    "interaction.program": PROGRAMS,
    "interaction.program.function": PROGRAMS,
    "interaction.schedule": SCHEDULES,
    "interaction.criticism": CRITICISMS,
    "reward.scheme": REWARD_SCHEMES,
    "algorithm.estimator": ADVANTAGE_ESTIMATORS,
    "algorithm.loss": LOSSES,
    "optimization.optimizer": OPTIMIZERS,
    "verification.verifiers.*": VERIFIERS,
    "logging.trackers": TRACKERS,
}
"""Pattern of keys -> registry of the name, or list of names, that they hold."""


def named_plugins(config: Config) -> Iterator[tuple[str, Registry[Any], str]]:
    """Yield (key, registry, name) for every name in a configuration, including shipped ones."""
    values = leaves(asdict(config))
    for pattern, registry in PLUGIN_KEYS.items():
        for key, value in values.items():
            if fnmatchcase(key, pattern):
                names = value if isinstance(value, list) else [value]
                yield from ((key, registry, name) for name in names if isinstance(name, str))


def user_sources(config: Config) -> dict[str, str]:
    """Return absolute path -> text of the user's plug-ins, prompts and program."""
    found = [registry.source_of(name) for _, registry, name in named_plugins(config)]
    texts = {str(source.path): source.text for source in found if source is not None}
    paths = []
    if config.interaction.prompts is not None:
        paths.append(location_of(config.interaction.prompts))
    if (program := config.interaction.chosen_program) is not None:
        paths += files_of(program)
    for path in paths:
        with suppress(UnicodeDecodeError):  # an interpreter, not a program's text
            texts[str(path)] = bytes_of(path).decode()
    return texts


def check_plugins(config: Config, train: QuestionSet | None) -> list[Check]:
    """Return where each plug-in is defined, and rehearse the step in which they are called."""
    checks = Checks()
    for key, registry, name in named_plugins(config):
        if name not in registry:
            source = registry.source_of(name)
            where = name if source is None else f"{source}, sha256 {source.digest[:12]}"
            checks.append(Check(f"{key} {name}", "a plug-in", where))
    if train is not None:
        checks.find("plug-ins and program", "no errors", partial(_rehearse, config, train))
    return checks


def _rehearse(config: Config, train: QuestionSet) -> str:
    """Discuss two questions of each domain with agents that all say the same, reward that, compute
    its advantages and loss, and verify a gold answer of each. Raises ValueError if a plug-in or
    program fails, returns something wrong, or leaves what was said without a reward."""
    scheme = config.reward.scheme
    of_domain = [[q for q in train.questions if q.domain == domain] for domain in config.verifiers]
    asked = [question for questions in of_domain for question in questions[:2]]
    discussions = silent_discussions(config, asked, said=READABLE)
    for outcome in filter(None, map(outcome_of, discussions)):
        if outcome.error:
            said = f"with agents that say {READABLE!r}, {outcome.error}"
            raise ValueError(f"interaction.program: {said}")
        if bool(outcome.rewards) != (scheme == "program"):
            returns = "rewards" if outcome.rewards else "no rewards"
            other = "program" if outcome.rewards else "interaction, for example"
            raise ValueError(
                f"interaction.program returns {returns}, and reward.scheme={scheme} reads "
                f"{'the programs' if scheme == 'program' else 'others'}; set reward.scheme={other}"
            )
    spoken = [turn for d in discussions for turn in d.turns if not turn.is_given]
    num_agents = config.society.num_agents
    if strange := {turn.agent_index for turn in spoken}.difference(range(num_agents)):
        raise ValueError(
            f"interaction.schedule={config.interaction.schedule} asks agent {strange.pop()!r} of "
            f"0 to {num_agents - 1}; set society.num_agents, or let it ask one of these"
        )
    rewarded = silent_rewards(config, discussions).discussions
    check_paid(config, rewarded, is_dry_run=True)
    if isinstance(config.algorithm, Custom):
        _try_update(config.algorithm, rewarded, policy_of_agent=config.policy_of_agent)
    for domain, name in config.verification.verifiers.items():
        for question in [each for each in asked if each.domain == domain]:
            gold = train.answers[question.question_id]
            try:
                verify(name, parted(gold)[0], gold)
            except ValueError as error:
                where = f"verification.verifiers.{domain}={name}: of {question.question_id}"
                raise ValueError(f"{where}: {error}") from error
    return "called with agents that all say the same"


def _try_update(
    algorithm: Custom, rewarded: Sequence[RewardedDiscussion], *, policy_of_agent: Sequence[int]
) -> None:
    """Compute the advantages and the loss of these discussions' turns, with made-up log-probs.
    Raises ValueError if they have the wrong shape or are not finite, or if nothing subtracts the
    KL penalty that ``algorithm.kl_coef`` asks for."""
    buffers = collect_samples(rewarded, policy_of_agent=policy_of_agent, mask_truncated=False)
    samples = 2 * [sample for buffer in buffers for sample in buffer]  # no group has a single one
    mask = torch.tensor([[True, True, True], [True, False, False]]).repeat(len(samples) // 2, 1)
    advantages = partial(compute_advantages, samples, mask=mask, algorithm=algorithm)
    unpenalised = advantages(log_ratios=torch.zeros(mask.shape), memory={})
    name = f"algorithm.estimator={algorithm.estimator}"
    if not unpenalised[mask].isfinite().all():
        raise ValueError(f"{name}: its advantages of equal rewards are not finite; let them be 0")
    has_kl_loss = ADVANTAGE_ESTIMATORS[algorithm.estimator].kl_loss is not None
    if algorithm.kl_coef > 0 and not has_kl_loss:
        distinct = torch.linspace(-1, 1, mask.numel()).reshape(mask.shape) * mask
        if torch.equal(advantages(log_ratios=distinct, memory={}), unpenalised):
            raise ValueError(
                f"algorithm.kl_coef={algorithm.kl_coef}: {name} ignores inputs.log_ratios, so "
                "there would be no KL penalty; subtract it there, make it an AdvantageEstimator "
                "with a kl_loss, or set algorithm.kl_coef=0"
            )
    logprobs = torch.full(mask.shape, -1.0, requires_grad=True)
    targets = Targets(mask, unpenalised, None, None, None, logprobs.detach())
    totals = StepTotals(int(mask.sum()), len(samples), mask.shape[1], num_ranks=1)
    loss = policy_loss(logprobs, targets=targets, totals=totals, algorithm=algorithm).loss
    (gradient,) = torch.autograd.grad(loss, logprobs)
    if not (loss.isfinite() and gradient.isfinite().all()):
        raise ValueError(f"algorithm.loss={algorithm.loss}: not finite for log-probs of -1")
