"""Plug-ins, tried before the run, and the user's files that a run depends on."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
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
from comas.interaction.wording import location_of
from comas.policy_optimization import ADVANTAGE_ESTIMATORS, LOSSES
from comas.policy_optimization.advantages import compute_advantages
from comas.policy_optimization.losses import LossInputs
from comas.preflight.checks import Check, Checks
from comas.preflight.sizes import MADE_UP, READABLE, silent_discussions, silent_rewards
from comas.reward_formulation import REWARD_SCHEMES
from comas.run.guards import check_paid
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
"""Key -> registry of the names in its value, list or mapping."""


def named_plugins(config: Config) -> Iterator[tuple[str, Registry[Any], str]]:
    """Yield (key, registry, name) for every name in a configuration, including shipped ones."""
    values = leaves(asdict(config))
    program = values.get("interaction.program", values.get("interaction.program.function"))
    if isinstance(program, str):
        yield "interaction.program", PROGRAMS, program
    for key, registry in PLUGIN_KEYS.items():
        for name, value in values.items():
            if f"{name}.".startswith(f"{key}."):
                names = value if isinstance(value, list | dict) else [value]
                yield from ((name, registry, each) for each in names)


def user_sources(config: Config) -> dict[str, str]:
    """Return absolute path -> text of the user's plug-ins, prompts and program."""
    found = [registry.source_of(name) for _, registry, name in named_plugins(config)]
    texts = {str(source.path): source.text for source in found if source is not None}
    if config.interaction.prompts is not None:
        path = location_of(config.interaction.prompts)
        texts[str(path)] = path.read_bytes().decode()
    program = config.interaction.chosen_program
    for path in () if program is None else files_of(program):
        with suppress(UnicodeDecodeError):  # an interpreter, not a program's text
            texts[str(path)] = path.read_bytes().decode()
    return texts


TRIED_BY_A_RUN = {
    "logging.trackers": "it writes files",
    "optimization.optimizer": "it is made for the weights",
}
"""Key -> why its plug-ins are never tried."""


def check_plugins(config: Config, train: QuestionSet | None) -> list[Check]:
    """Try each plug-in; return where it is defined, with a warning if it cannot be tried yet."""
    checks = Checks()
    for key, registry, name in named_plugins(config):
        if name not in registry:
            subject, find = f"{key} {name}", partial(_try, config, key, registry, name, train)
            why = TRIED_BY_A_RUN.get(key) or _why_later(key, name, train)
            show = str if why is None else f"{{}}, not tried: {why}".format
            if checks.find(subject, "a plug-in", find, show=show) and key not in TRIED_BY_A_RUN:
                warning = None if why is None else f"{key}={name} was not tried: {why}"
                checks[-1] = replace(checks[-1], warning=warning)
    program = config.interaction.chosen_program
    if program is not None and program.command is not None:
        find = partial(_try_program, config, train)
        checks.find("interaction.program", program.command[0], find)
    return checks


def _why_later(key: str, name: str, train: QuestionSet | None) -> str | None:
    """Return why a plug-in cannot be tried yet, or None."""
    section, _, domain = key.rpartition(".")
    reads_questions = key == "reward.scheme" and REWARD_SCHEMES[name].reads_columns
    if section != "verification.verifiers" and not reads_questions:
        return None
    if train is None:
        return "it is called with questions of data.train, which are not here yet"
    is_asked = reads_questions or any(q.domain == domain for q in train.questions)
    return None if is_asked else f"data.train asks nothing of the domain {domain}"


def _try(
    config: Config, key: str, registry: Registry[Any], name: str, train: QuestionSet | None
) -> str:
    """Return where a plug-in is defined, after calling it: a schedule or reward on discussions in
    which all agents say the same, a verifier on the first gold answer of its domain, an estimator
    or loss on two samples."""
    section, _, domain = key.rpartition(".")
    if key == "interaction.program":
        _try_program(config, train)
    elif section in ("interaction", "reward"):
        questions = _asked_in_trial(config.reward.scheme, train)
        rewards = silent_rewards(config, silent_discussions(config, questions, said=READABLE))
        check_paid(config, rewards.discussions, is_dry_run=True)
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
        _try_loss(name)
    source = registry.source_of(name)
    return name if source is None else f"{source}, sha256 {source.digest[:12]}"


def _try_program(config: Config, train: QuestionSet | None) -> str:
    """Run the program with agents that all say the same. Raises ValueError if it fails, returns
    rewards that are not read, or leaves everything that was said without a reward."""
    questions = _asked_in_trial(config.reward.scheme, train)
    discussions = silent_discussions(config, questions, said=READABLE)
    scheme = config.reward.scheme
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
    check_paid(config, silent_rewards(config, discussions).discussions, is_dry_run=True)
    return "it asks agents, and its turns are rewarded"


def _try_loss(name: str) -> None:
    """Raise ValueError unless the loss of two samples and its gradient are finite."""
    old, advantages = torch.tensor([[[-1, -0.5], [-2, -0.1]], [[1, 0.5], [-1, -2]]])
    logprobs, mask = old.clone().requires_grad_(), torch.ones(2, 2, dtype=torch.bool)
    losses = LOSSES[name](LossInputs(logprobs, old, advantages, mask, (0.2, 0.2))).losses
    _check_per_token(losses, "algorithm.loss")
    if not losses.requires_grad:
        raise ValueError("algorithm.loss: it has no gradient; let it depend on inputs.logprobs")
    [gradient] = torch.autograd.grad(losses.sum(), logprobs)
    _check_per_token(gradient, "algorithm.loss: its gradient")


def _asked_in_trial(name: str, train: QuestionSet | None) -> Sequence[Question]:
    """Return two questions of the data if the reward reads their columns, else made-up ones."""
    if not REWARD_SCHEMES[name].reads_columns:
        return MADE_UP
    questions = () if train is None else train.questions
    return [question for question in questions if question.domain == questions[0].domain][:2]


def _check_per_token(found: object, key: str) -> None:
    """Raise ValueError unless the plug-in of ``key`` returned a finite tensor, [2, 2]."""
    if not isinstance(found, torch.Tensor) or found.shape != (2, 2):
        shape = f" {list(found.shape)}" if isinstance(found, torch.Tensor) else ""
        raise ValueError(
            f"{key}: of [2, 2] tokens it returned {type(found).__name__}{shape}; let it return one "
            "value for each, a tensor of that shape"
        )
    if not found.isfinite().all():
        values = found.tolist()
        raise ValueError(f"{key}: of [2, 2] tokens it is {values}; let every value be finite")
