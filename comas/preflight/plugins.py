"""The files of a user that a run depends on: plug-ins and prompts."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any

import torch

from comas.config.keys import keys_of
from comas.config.plugins import Registry
from comas.config.schema import Config, Custom
from comas.data import QuestionSet
from comas.engines.policy.optimizers import OPTIMIZERS
from comas.interaction.criticism import CRITICISMS
from comas.interaction.schedules import SCHEDULES
from comas.interaction.wording import location_of
from comas.policy_optimization import ADVANTAGE_ESTIMATORS, LOSSES
from comas.policy_optimization.advantages import compute_advantages
from comas.policy_optimization.losses import LossInputs
from comas.preflight.needs import Checklist, Need
from comas.preflight.sizes import MADE_UP, silent_discussions, silent_rewards
from comas.reward_formulation import REWARD_SCHEMES
from comas.run.trackers import TRACKERS
from comas.types import Question, TrainingSample
from comas.verification.forms import parted
from comas.verification.verifiers import VERIFIERS, verify

PLUGIN_KEYS: dict[str, Registry[Any]] = {
    "interaction.schedule": SCHEDULES,
    "interaction.criticism": CRITICISMS,
    "reward.scheme": REWARD_SCHEMES,
    "algorithm.estimator": ADVANTAGE_ESTIMATORS,
    "algorithm.loss": LOSSES,
    "optimization.optimizer": OPTIMIZERS,
    "verification.verifiers": VERIFIERS,
    "logging.trackers": TRACKERS,
}
"""Key -> the registry in which its value, or each of its values or entries, is a name."""


def named_plugins(config: Config) -> Iterator[tuple[str, Registry[Any], str]]:
    """Yield (key, registry, name) for every name of a configuration, shipped ones included."""
    keys = keys_of(Config, {"algorithm.name": config.algorithm.name})
    for key, registry in PLUGIN_KEYS.items():
        if key not in keys:
            continue
        value = attrgetter(key)(config)
        if isinstance(value, dict):
            yield from ((f"{key}.{entry}", registry, name) for entry, name in value.items())
        else:
            yield from (
                (key, registry, name) for name in (value if isinstance(value, list) else [value])
            )


def user_sources(config: Config) -> dict[str, str]:
    """Return whole path -> text of the user's files: those of plug-ins, and that of prompts."""
    found = [registry.source_of(name) for _, registry, name in named_plugins(config)]
    texts = {str(source.path): source.text for source in found if source is not None}
    if config.interaction.prompts is not None:
        path = location_of(config.interaction.prompts)
        texts[str(path)] = path.read_bytes().decode()
    return texts


def plugin_needs(config: Config, train: QuestionSet | None) -> list[Need]:
    """Return where each plug-in is defined, once it was tried. (Schedules and criticisms are
    tried by whatever counts their turns; trackers are only imported.)"""
    needs = Checklist()
    for key, registry, name in named_plugins(config):
        if name not in registry:
            needs.find(
                f"{key} {name}", "a plug-in", partial(_try, config, key, registry, name, train)
            )
    return needs


def _try(
    config: Config, key: str, registry: Registry[Any], name: str, train: QuestionSet | None
) -> str:
    """Call a reward on discussions in which nobody says anything, a verifier on the first answer
    of its domain, an estimator and a loss on two samples; return where the plug-in is defined."""
    section, _, domain = key.rpartition(".")
    if key == "reward.scheme":
        silent_rewards(config, silent_discussions(config, _asked_in_trial(name, train)))
    asked = () if train is None or section != "verification.verifiers" else train.questions
    question = next((question for question in asked if question.domain == domain), None)
    if train is not None and question is not None:
        gold = train.answers[question.question_id]
        try:
            verify(name, parted(gold)[0], gold)
        except ValueError as error:
            raise ValueError(f"{key}={name}: of {question.question_id}: {error}") from error
    if key == "algorithm.estimator":
        assert isinstance(config.algorithm, Custom)
        one, other = (
            TrainingSample(a, "a", "a", "r0.s0", 0, "solution", (1,), (2, 3), (0.0, 0.0), 1.0 - a)
            for a in range(2)
        )
        advantages = compute_advantages(
            [one, other],
            mask=torch.ones(2, 2, dtype=torch.bool),
            log_ratios=torch.zeros(2, 2),
            algorithm=replace(config.algorithm, role_weights={}),
            memory={},
        )
        _check_per_token(advantages, key)
    if key == "algorithm.loss":
        zeros = torch.zeros(2, 2, requires_grad=True)
        mask = torch.ones(2, 2, dtype=torch.bool)
        inputs = LossInputs(zeros, zeros.detach(), zeros.detach() + 1, mask, (0.2, 0.2))
        _check_per_token(LOSSES[name](inputs).losses, key)
    source = registry.source_of(name)
    return name if source is None else f"{source}, sha256 {source.digest[:12]}"


def _asked_in_trial(name: str, train: QuestionSet | None) -> Sequence[Question]:
    """Return two questions: of the data, where a reward reads their columns (none: if they are not
    there yet), else made up."""
    if not REWARD_SCHEMES[name].reads_columns:
        return MADE_UP
    questions = () if train is None else train.questions
    return [question for question in questions if question.domain == questions[0].domain][:2]


def _check_per_token(found: object, key: str) -> None:
    """Raise ValueError unless the plug-in of ``key`` returned a tensor of the shape [2, 2]."""
    if not isinstance(found, torch.Tensor) or found.shape != (2, 2):
        shape = f" {list(found.shape)}" if isinstance(found, torch.Tensor) else ""
        raise ValueError(
            f"{key}: of [2, 2] tokens it returned {type(found).__name__}{shape}; let it return one "
            "value for each, a tensor of that shape"
        )
