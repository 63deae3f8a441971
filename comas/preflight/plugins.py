"""Plug-ins, tried before the run, and the user's files that a run depends on."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from comas.config.keys import leaves
from comas.config.plugins import Registry
from comas.config.schema import Config
from comas.data import QuestionSet
from comas.engines.policy.optimizers import OPTIMIZERS
from comas.interaction.criticism import CRITICISMS
from comas.interaction.held import outcome_of
from comas.interaction.program_runs import PROGRAMS, files_of
from comas.interaction.schedules import SCHEDULES
from comas.interaction.wording import bytes_of, location_of
from comas.policy_optimization import ADVANTAGE_ESTIMATORS, LOSSES
from comas.preflight.checks import Check, Checks
from comas.preflight.sizes import READABLE, silent_discussions, silent_rewards
from comas.reward_formulation import REWARD_SCHEMES
from comas.run.guards import check_paid
from comas.run.trackers import TRACKERS
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
    """Discuss two questions of each domain with agents that all say the same, reward that, and
    verify a gold answer of each. Raises ValueError if a plug-in or program fails, returns something
    wrong, or leaves what was said without a reward."""
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
    check_paid(config, silent_rewards(config, discussions).discussions, is_dry_run=True)
    for domain, name in config.verification.verifiers.items():
        for question in [each for each in asked if each.domain == domain]:
            gold = train.answers[question.question_id]
            try:
                verify(name, parted(gold)[0], gold)
            except ValueError as error:
                where = f"verification.verifiers.{domain}={name}: of {question.question_id}"
                raise ValueError(f"{where}: {error}") from error
    return "called with agents that all say the same"
