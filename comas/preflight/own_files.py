"""The user's own files: plug-ins, whether each name leads to something that can be used, and
prompts."""

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any, get_args

from comas.config.faults import Conflict
from comas.config.plugins import PluginError, Registry
from comas.config.schema import Config
from comas.data import QuestionSet
from comas.interaction import CRITICISMS, SCHEDULES
from comas.interaction.prompts import WordingError, location_of, quoted_in, read_wording, wording_of
from comas.policy_optimization import ADVANTAGE_ESTIMATORS
from comas.preflight.needs import Checklist, Need
from comas.preflight.sizes import silent_discussions, silent_rewards
from comas.quickstart import QUICKSTART_PREFIX
from comas.reward_formulation import REWARD_SCHEMES
from comas.run.trackers import TRACKERS
from comas.types import ALL_DOMAINS, DOMAINS
from comas.verification.forms import Verdict
from comas.verification.verifiers import VERIFIERS

CHOICES: dict[str, Registry[Any]] = {
    "interaction.schedule": SCHEDULES,
    "interaction.criticism": CRITICISMS,
    "reward.scheme": REWARD_SCHEMES,
    "optimization.estimator": ADVANTAGE_ESTIMATORS,
    **{f"verification.{domain}": VERIFIERS for domain in ALL_DOMAINS},
    "logging.trackers": TRACKERS,
}
"""Key -> the registry in which its value, or each of its values, is a name."""


def choices(config: Config) -> Iterator[tuple[str, Registry[Any], str]]:
    """Every (key, registry, name) of a configuration."""
    for key, registry in CHOICES.items():
        value = attrgetter(key)(config)
        for name in value if isinstance(value, list) else [value]:
            yield key, registry, name


def name_conflicts(config: Config) -> Iterator[Conflict]:
    """The names that lead to nothing that can be used."""
    for key, registry, name in choices(config):
        try:
            registry[name]
        except PluginError as error:
            yield Conflict((key,), error.constraint, error.remedy)


def own_sources(config: Config) -> dict[str, str]:
    """Whole path -> text of the user's own files: those that plug-ins are defined in, and that of
    the prompts."""
    found = [registry.source_of(name) for _, registry, name in choices(config)]
    texts = {str(source.path): source.text for source in found if source is not None}
    if config.interaction.prompts is not None:
        path = location_of(config.interaction.prompts)
        texts[str(path)] = path.read_bytes().decode()
    return texts


def prompt_conflicts(config: Config) -> Iterator[Conflict]:
    """What is wrong with the user's file of prompts."""
    rules = config.interaction
    try:
        solutions = wording_of(rules.prompts)["solution"]
    except WordingError as error:
        remedy = "mend these lines; comas/interaction/prompts.yaml is an example"
        yield Conflict(("interaction.prompts",), str(error), remedy)
        return
    lacking = [domain for domain, text in solutions.items() if "discussion" not in quoted_in(text)]
    if lacking and rules.num_rounds > 1 and (rules.horizon or rules.schedule == "debate"):
        named = ", ".join(f"solution.{domain}" for domain in lacking)
        yield Conflict(
            ("interaction.prompts", "interaction.num_rounds"),
            f"{named} must quote {{discussion}}, or nobody sees the rounds before",
            "put {discussion} there, or set interaction.num_rounds to 1",
        )


def prompt_needs(config: Config, train: QuestionSet | None) -> Iterator[Need]:
    """What the user's file of prompts words differently, and whether the agents understand it and
    the prompts of every domain."""
    prompts = config.interaction.prompts
    embedded = [model for model in config.models if model.startswith(QUICKSTART_PREFIX)]
    only_know = f"the quick-start's agents ({', '.join(embedded[:1])}) only know"
    further = {q.domain for q in train.questions} - {*DOMAINS} if train is not None else set()
    if embedded and further:
        names, known = ", ".join(sorted(further)), ", ".join(DOMAINS)
        learns = f"prompts of {known}, and learn nothing from {names}; use models that can read"
        doubt = f"data.train={config.data.train}: {only_know} {learns}"
        yield Need("domains of the questions", "that the agents know", names, doubt=doubt)
    if prompts is None:
        return
    own = read_wording(location_of(prompts))
    words = ", ".join(f"{section}.{key}" for section, texts in own.items() for key in texts)
    says = "the shipped wording, and say nothing sensible to any other; use models that can read"
    yield Need(
        f"interaction.prompts {prompts}",
        "prompts by role",
        words,
        doubt=f"interaction.prompts={prompts}: {only_know} {says}" if embedded else None,
    )


def plugin_needs(config: Config, train: QuestionSet | None) -> list[Need]:
    """Where each plug-in is defined, once it was tried: a reward on discussions in which nobody
    says anything, a verifier on the first answer of its domain. (Schedules, criticisms and
    estimators are tried by whatever counts their turns and groups; trackers are only imported.)"""
    needs = Checklist()
    for key, registry, name in choices(config):
        if name in registry:
            continue
        source = registry.source_of(name)
        where = name if source is None else f"{source}, sha256 {source.digest[:12]}"
        needs.find(f"{key} {name}", "a plug-in", _trial(config, key, name, train), show=_as(where))
    return needs


def _as(text: str) -> Callable[[object], str]:
    return lambda found: text


def _trial(config: Config, key: str, name: str, train: QuestionSet | None) -> Callable[[], None]:
    def tried() -> None:
        section, _, domain = key.partition(".")
        if key == "reward.scheme":
            _try_reward(config)
        elif section == "verification" and train is not None:
            _try_verifier(name, domain, train)

    return tried


def _try_reward(config: Config) -> None:
    silent_rewards(config, silent_discussions(config, num_questions=2))


def _try_verifier(name: str, domain: str, train: QuestionSet) -> None:
    of_domain = [q.question_id for q in train.questions if q.domain == domain]
    for question_id in of_domain[:1]:
        verdict = VERIFIERS[name](gold := train.answers[question_id], gold)
        if verdict not in get_args(Verdict):
            raise ValueError(
                f"verification.{domain}={name}: of {question_id} it says {verdict!r}; let it say "
                f"one of {', '.join(get_args(Verdict))}"
            )
