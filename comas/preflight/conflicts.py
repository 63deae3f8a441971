"""Constraints on keys beyond the type and bounds of each: each function of ``CHECKS`` is one.

What vLLM, DeepSpeed, transformers or a reader of files refuses early and clearly is left to them.
"""

import math
import re
from collections.abc import Callable, Iterator
from operator import attrgetter
from pathlib import Path

from pydantic import BaseModel, ValidationError

from comas.config.errors import Conflict
from comas.config.keys import FOLDER_NAME, FOLDER_NAME_IN_WORDS
from comas.config.paths import tried
from comas.config.plugins import PluginError
from comas.config.schema import Config, Dpo, PolicyGradient, Program
from comas.interaction.criticism import CRITICISMS
from comas.interaction.schedules import SCHEDULES, UNCRITICISED_SCHEDULES, roles_of
from comas.interaction.wording import WordingError, quoted_in, wording_of
from comas.preflight.engine_options import option_conflicts
from comas.preflight.plugins import named_plugins
from comas.reward_formulation import REWARD_SCHEMES
from comas.run.metrics.meanings import as_regex, meanings

TASKS = "data.reasoning_gym.tasks"


def find_conflicts(config: Config) -> list[Conflict]:
    """Return all conflicts of ``config``."""
    return [conflict for check in CHECKS for conflict in check(config)]


# ---------------------------------------------------------------- the run, its names and texts


def _names(config: Config) -> Iterator[Conflict]:
    """Find names that lead to nothing usable."""
    if not FOLDER_NAME.fullmatch(config.name):
        yield Conflict(("name",), FOLDER_NAME_IN_WORDS, "choose a short name such as comas")
    if config.resume is not None and not (Path(config.resume) / "config.yaml").is_file():
        yield Conflict(
            ("resume",),
            f"must be the folder of a run: one that holds config.yaml{tried(config.resume)}",
            f"name a folder of {config.saves}/, for example resume={config.saves}/latest",
        )
    for key in ("data.train", "data.validation"):
        if attrgetter(key)(config).startswith("verifiers:"):
            remedy = "set interaction.program, as configs/programs/verifiers_env.py shows"
            yield Conflict((key,), "an environment of verifiers is run as a program", remedy)
    for key, registry, name in named_plugins(config):
        try:
            registry[name]
        except PluginError as error:
            yield Conflict((key,), error.constraint, error.remedy)


def _prompts(config: Config) -> Iterator[Conflict]:
    """Find a file of prompts that cannot be read, or that never shows the discussion."""
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


def _generated_questions(config: Config) -> Iterator[Conflict]:
    """Find impossible numbers of generated questions (the package checks the other options)."""
    for name, options in config.data.reasoning_gym.tasks.items():
        if not isinstance(options, dict):
            said, remedy = "must be a mapping of the task's options", f"write {TASKS}.{name}={{}}"
            yield Conflict((f"{TASKS}.{name}",), said, remedy)
            continue
        for option, least in (("size", 1), ("seed", 0)):
            value = options.get(option, least)
            if type(value) is not int or not least <= value < 2**31:
                said = f"must be a whole number from {least} to {2**31 - 1}"
                yield Conflict((f"{TASKS}.{name}.{option}",), said, "leave it out, or mend it")


def _chats(config: Config) -> Iterator[Conflict]:
    """Find adapters of one model with different chat templates."""
    if config.society.chat_template_kwargs is None:
        return
    kwargs = config.chat_template_kwargs
    is_whole = len(kwargs) == len(config.models) == config.num_policies  # else reported elsewhere
    families = config.families if is_whole else ()
    if any(kwargs[policy] != kwargs[family[0]] for family in families for policy in family):
        yield Conflict(
            ("society.chat_template_kwargs", "policy.lora.rank"),
            "adapters of one model share its rollout engines, which have one chat template",
            "give the policies of a model the same, or set policy.lora.rank to null",
        )


# ---------------------------------------------------------------- the society


def _policies(config: Config) -> Iterator[Conflict]:
    """Find lists per agent or policy with a wrong number of entries."""
    society = config.society
    num_agents, mapped = society.num_agents, society.policy_of_agent
    if mapped is not None and len(mapped) != num_agents:
        yield Conflict(
            ("society.num_agents", "society.policy_of_agent"),
            f"must have one entry for each of the {num_agents} agents, has {len(mapped)}",
            "list one policy index per agent, or write null to give each a policy of its own",
        )
        return
    if mapped is not None and set(mapped) != set(range(len(set(mapped)))):
        yield Conflict(
            ("society.policy_of_agent",),
            f"must use every index from 0 on without gaps, uses {sorted(set(mapped))}",
            "renumber the policies 0, 1, ...",
        )
        return
    num_policies = num_agents if mapped is None else len(set(mapped))
    per_policy = ("models", "learning_rates", "chat_template_kwargs", "update_every")
    per_agent = ("temperature", "max_response_tokens")
    deciding: tuple[str, ...] = ("society.num_agents", "society.policy_of_agent")
    lists = [(f"society.{name}", deciding, num_policies, "policies") for name in per_policy]
    lists += [(f"rollout.{name}", deciding[:1], num_agents, "agents") for name in per_agent]
    for key, keys, count, whose in lists:
        entries = attrgetter(key)(config)
        if isinstance(entries, list) and len(entries) not in (1, count):
            expected = "one entry" if count == 1 else f"one entry, or {count}"
            yield Conflict(
                (*keys, key),
                f"must have {expected} for {count} {whose}, has {len(entries)}",
                "list one for each of them, or a single one for all",
            )


def _updates(config: Config) -> Iterator[Conflict]:
    """Find checkpoints that do not come right after an update of every policy."""
    intervals, training = config.society.update_every, config.training
    if not any(intervals):
        yield Conflict(
            ("society.update_every",),
            "freezes every policy (0): one must be above 0",
            "write 1 for each policy that is to be updated in every step",
        )
        return
    common = math.lcm(*filter(None, intervals))
    for key, every, is_due in (
        ("training.save_every", training.save_every, True),
        ("training.validate_every", training.validate_every, training.keep_best is not None),
    ):
        if is_due and every % common:
            best = " of the best validation" * (key == "training.validate_every")
            yield Conflict(
                ("society.update_every", key),
                f"a checkpoint{best} must come right after an update, since it holds no samples: "
                f"{every} is no multiple of {common}",
                f"set {key} to a multiple of {common}",
            )


def _keep_best(config: Config) -> Iterator[Conflict]:
    """Find a metric that the run's validations do not have, or of which lower is better."""
    name = config.training.keep_best
    if name is None:
        return
    agent, _, own = name.partition("/") if name.startswith("agent_") else ("", "", name)
    whole = [f"agent_{index}" for index in range(config.society.num_agents)]
    given = ["validation/" if agent else "validation/(?!discussion/)"]
    given[0] += "(?!greedy/)" * (config.validation.temperature == 0)
    given += ["validation/discussion/"] * config.validation.discussions
    given += ["probe/"] * (config.data.probe is not None)
    found = [each for each in meanings() if re.fullmatch(as_regex(each.pattern), name)]
    if not found or not re.match("|".join(given), own) or (agent and agent not in whole):
        said, remedy = "is no metric of this run's validations", "name one of"
    elif found[0].better == "lower":
        said, remedy = "is better the lower it is, and the highest is kept", "name another, such as"
    else:
        return
    best = f"validation/{'greedy/' * (config.validation.temperature > 0)}accuracy"
    remedy += f" {best}, agent_0/{best} (comas/run/metrics/metrics.md lists them)"
    yield Conflict(("training.keep_best",), said, remedy)


def _program(config: Config) -> Iterator[Conflict]:
    """Find a program that cannot be used, that no reward pays, or whose rewards are not read."""
    try:
        program = config.interaction.chosen_program
    except ValidationError as error:
        yield from _errors_of(error, "interaction.program", Program)
        return
    if program is not None and config.interaction.criticism == "exchanged":
        yield Conflict(
            ("interaction.program", "interaction.criticism"),
            "the solutions of two programs do not correspond, so nothing can be exchanged",
            "choose another interaction.criticism",
        )
    if program is None and config.reward.scheme == "program":
        yield Conflict(
            ("reward.scheme", "interaction.program"),
            "program pays what a program returns, but none is set",
            "set interaction.program, or choose another reward.scheme",
        )


def _errors_of(error: ValidationError, key: str, kind: type[BaseModel]) -> Iterator[Conflict]:
    """Return the errors in the entries of a key that holds a mapping."""
    for fault in error.errors():
        entry = "" if fault["type"] == "missing" or not fault["loc"] else f".{fault['loc'][0]}"
        said = f"{fault['msg'][:1].lower()}{fault['msg'][1:]}"
        lacks = f"{fault['loc'][0]}: " if fault["loc"] and not entry else ""
        names = ", ".join(kind.model_fields)
        remedy = f"it holds {names} (comas/config/schema/interaction.py)"
        yield Conflict((f"{key}{entry}",), f"{lacks}{said}", remedy)


def _role_weights(config: Config) -> Iterator[Conflict]:
    """Find weights of roles that these discussions do not have."""
    rules = config.interaction
    if any(_program(config)) or not CRITICISMS.find(rules.criticism):
        return
    if SCHEDULES.find(rules.schedule):
        known = roles_of(rules)
        for name in getattr(config.algorithm, "role_weights", ()):
            if name not in known:
                remedy = (
                    f"choose among {', '.join(known)}; a schedule or criticism may declare more"
                )
                yield Conflict(("algorithm.role_weights",), f"{name} is no role", remedy)


# ---------------------------------------------------------------- the discussion and its reward


def _criticism(config: Config) -> Iterator[Conflict]:
    """Find a schedule, criticism, reward and number of evaluations that do not go together."""
    name, schedule = config.interaction.criticism, config.interaction.schedule
    criticism, scheme = CRITICISMS.find(name), REWARD_SCHEMES.find(config.reward.scheme)
    if schedule in UNCRITICISED_SCHEDULES and name != "none":
        yield Conflict(
            ("interaction.schedule", "interaction.criticism"),
            f"in a {schedule} nobody criticises",
            "set interaction.criticism to none, and reward.scheme to one that reads no scores",
        )
    if criticism is None:
        return
    if scheme and scheme.reads not in (None, criticism.outcome):
        makers = [n for n, other in CRITICISMS.items() if other.outcome == scheme.reads]
        yield Conflict(
            ("reward.scheme", "interaction.criticism"),
            f"{config.reward.scheme} reads {scheme.reads}, and {name} makes none",
            f"choose another reward.scheme, or an interaction.criticism of {', '.join(makers)}",
        )
    number = config.interaction.num_evaluations
    least, most = criticism.min_evaluations, criticism.max_evaluations
    if number < least or (most is not None and number > most):
        yield Conflict(
            ("interaction.num_evaluations", "interaction.criticism"),
            f"{name} wants {f'at least {least}' if most is None else f'no more than {most}'}",
            f"set interaction.num_evaluations to {least if number < least else most}",
        )


# ---------------------------------------------------------------- the update and its GPUs


def _excluded(config: Config) -> Iterator[Conflict]:
    algorithm, training = config.algorithm, config.training
    batch, ranks = config.optimization.train_batch_size, config.policy.ranks_per_policy
    engines, size = config.rollout.engines_per_policy, config.rollout.tensor_parallel
    shortest, limits = config.rollout.min_response_tokens, config.rollout.max_response_tokens
    limit = min(limits, default=shortest) if isinstance(limits, list) else limits
    shares_gpus = config.cluster.device != "cpu" and config.cluster.placement == "colocated"
    for is_wrong, keys, constraint, remedy in (
        (
            batch is not None and batch < ranks,
            ("optimization.train_batch_size", "policy.ranks_per_policy"),
            f"a batch of {batch} cannot give each of {ranks} ranks a sample",
            f"set optimization.train_batch_size to {ranks} or more, or to null",
        ),
        (
            isinstance(algorithm, Dpo) and config.interaction.prompt_reuse == 1,
            ("algorithm.name", "interaction.prompt_reuse"),
            "dpo compares an agent's responses to the same prompt, and there is only one",
            "set interaction.prompt_reuse to 2 or more, such as 4",
        ),
        (
            shortest > limit - algorithm.mask_truncated,
            ("rollout.min_response_tokens", "rollout.max_response_tokens"),
            "no response could end before it is cut off"
            + ", and those that are cut off are not trained" * algorithm.mask_truncated,
            f"set rollout.min_response_tokens below {limit}",
        ),
        (
            config.policy.lora.rank is not None and config.policy.lora.target_modules == [],
            ("policy.lora.target_modules", "policy.lora.rank"),
            "adapters of no layers learn nothing",
            "name linear layers, or set policy.lora.target_modules to null for all of them",
        ),
        (
            config.policy.lora.rank is not None and config.policy.zero_stage == 3,
            ("policy.zero_stage", "policy.lora.rank"),
            "ZeRO-3 would divide the base model, which the adapters of a family share",
            "set policy.zero_stage to 0, 1, 2 or null",
        ),
        (
            shares_gpus and ranks != engines * size,
            (
                "policy.ranks_per_policy",
                "rollout.engines_per_policy",
                "rollout.tensor_parallel",
                "cluster.placement",
            ),
            f"colocated, each GPU holds one rank and its part of an engine: {ranks} ranks are not "
            f"{engines} engines x {size} GPUs",
            "set policy.ranks_per_policy to rollout.engines_per_policy x rollout.tensor_parallel, "
            "or cluster.placement to disaggregated, or cluster.device to cpu, where the number of "
            "GPUs does not matter",
        ),
        (
            training.max_staleness > 0 and shares_gpus,
            ("training.max_staleness", "cluster.placement"),
            "on GPUs that they share, a policy's engines sleep while it is trained",
            "set cluster.placement to disaggregated, or cluster.device to cpu, or "
            "training.max_staleness to 0",
        ),
        (
            training.max_staleness > 0
            and isinstance(algorithm, PolicyGradient)
            and algorithm.rollout_correction == "none",
            ("training.max_staleness", "algorithm.rollout_correction"),
            "nothing would correct for samples from before the latest updates",
            "set algorithm.rollout_correction to ratio, tis or icepop, or training.max_staleness "
            "to 0",
        ),
    ):
        if is_wrong:
            yield Conflict(keys, constraint, remedy)


CHECKS: tuple[Callable[[Config], Iterator[Conflict]], ...] = (
    _names,
    _prompts,
    _generated_questions,
    _policies,
    _updates,
    _keep_best,
    _program,
    _role_weights,
    _chats,
    _criticism,
    _excluded,
    option_conflicts,
)
"""Checks, in the order in which conflicts are reported."""
