"""Constraints on keys beyond the type and bounds of each.

What vLLM, DeepSpeed, transformers or a reader of files refuses early and clearly is left to them.
"""

import math
import re
from collections.abc import Iterator
from difflib import get_close_matches
from fnmatch import filter as filter_names
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path

import yaml
from pydantic import ValidationError

from comas.config.errors import Conflict, yaml_text
from comas.config.keys import FOLDER_NAME, FOLDER_NAME_IN_WORDS, leaves
from comas.config.paths import tried
from comas.config.plugins import PluginError
from comas.config.schema import Config, Dpo, Program
from comas.interaction.criticism import CRITICISMS
from comas.interaction.schedules import UNCRITICISED_SCHEDULES, roles_of
from comas.interaction.wording import quoted_in, wording_of
from comas.preflight.plugins import named_plugins
from comas.reward_formulation import REWARD_SCHEMES
from comas.run.metrics.meanings import meanings_of


def find_conflicts(config: Config) -> Iterator[Conflict]:
    """Yield all conflicts of ``config``."""
    society = (_names, _prompts, _policies, _program, _criticism, _role_weights)
    for check in (*society, _updates, _keep_best, _engines, _options):
        yield from check(config)


def _names(config: Config) -> Iterator[Conflict]:
    """Find unusable names of the run, of the run to resume, and of plug-ins."""
    if not FOLDER_NAME.fullmatch(config.name):
        yield Conflict(("name",), FOLDER_NAME_IN_WORDS, "choose a short name such as comas")
    if config.resume is not None and not (Path(config.resume) / "config.yaml").is_file():
        yield Conflict(
            ("resume",),
            f"must be the folder of a run: one that holds config.yaml{tried(config.resume)}",
            f"name the folder of a run, which training writes to {config.saves}/",
        )
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
    except ValueError as error:
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
    deciding: tuple[str, ...] = ("society.num_agents", "society.policy_of_agent")
    of_policies = ("models", "learning_rates", "chat_template_kwargs", "update_every")
    lists = [(f"society.{n}", deciding, config.num_policies, "policies") for n in of_policies]
    of_agents = ("temperature", "max_response_tokens")
    lists += [(f"rollout.{n}", deciding[:1], num_agents, "agents") for n in of_agents]
    is_whole = True
    for key, keys, count, whose in lists:
        entries = attrgetter(key)(config)
        if isinstance(entries, list) and len(entries) not in (1, count):
            is_whole = False
            expected = "one entry" if count == 1 else f"one entry, or {count}"
            yield Conflict(
                (*keys, key),
                f"must have {expected} for {count} {whose}, has {len(entries)}",
                "list one for each of them, or a single one for all",
            )
    kwargs = config.chat_template_kwargs
    families = config.families if is_whole else ()
    if any(kwargs[policy] != kwargs[family[0]] for family in families for policy in family):
        yield Conflict(
            ("society.chat_template_kwargs", "policy.lora.rank"),
            "adapters of one model share its rollout engines, which have one chat template",
            "give the policies of a model the same, or set policy.lora.rank to null",
        )


def _updates(config: Config) -> Iterator[Conflict]:
    """Find updates without pairs, and checkpoints that do not come right after an update."""
    intervals, training = config.society.update_every, config.training
    if isinstance(config.algorithm, Dpo) and config.interaction.prompt_reuse == 1:
        yield Conflict(
            ("algorithm.name", "interaction.prompt_reuse"),
            "dpo compares an agent's responses to the same prompt, and there is only one",
            "set interaction.prompt_reuse to 2 or more, such as 4",
        )
    is_whole = getattr(config.algorithm, "estimator", None) == "reinforce_pp"
    if is_whole and config.algorithm.group_by:  # type: ignore[union-attr]
        yield Conflict(
            ("algorithm.group_by", "algorithm.estimator"),
            "reinforce_pp whitens over the whole buffer and has no groups",
            "leave algorithm.group_by out, or choose another estimator",
        )
    if not any(intervals):
        yield Conflict(
            ("society.update_every",),
            "freezes every policy (0): one must be above 0",
            "write 1 for each policy that is to be updated in every step",
        )
        return
    common = math.lcm(*filter(None, intervals))
    saved = {"training.save_every": training.save_every}
    if training.keep_best is not None:
        saved["training.validate_every"] = training.validate_every
    for key, every in saved.items():
        if every % common:
            best = " of the best validation" * (key == "training.validate_every")
            yield Conflict(
                ("society.update_every", key),
                f"a checkpoint{best} must come right after an update, since it holds no samples: "
                f"{every} is no multiple of {common}",
                f"set {key} to a multiple of {common}",
            )


def _keep_best(config: Config) -> Iterator[Conflict]:
    """Find a metric that the run's validations lack, or that is better the lower it is."""
    name = config.training.keep_best
    if name is None:
        return
    agent, _, own = name.partition("/") if name.startswith("agent_") else ("", "", name)
    whole = [f"agent_{index}" for index in range(config.society.num_agents)]
    given = ["validation/" if agent else "validation/(?!discussion/)"]
    given[0] += "(?!greedy/)" * (config.validation.temperature == 0)
    given += ["validation/discussion/"] * config.validation.discussions
    given += ["probe/"] * (config.data.probe is not None)
    found = meanings_of(name)
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
    """Find a program that cannot be used, or a reward or criticism that needs another."""
    try:
        program = config.interaction.chosen_program
    except ValidationError as error:
        for fault in error.errors():
            entry = f".{fault['loc'][0]}" if fault["loc"] else ""
            said = fault["msg"].removeprefix("Value error, ")
            said = f"{said[:1].lower()}{said[1:]}"
            names = f"{', '.join(Program.model_fields)} (comas/config/schema/interaction.py)"
            yield Conflict((f"interaction.program{entry}",), said, f"it holds {names}")
        return
    if program is None and config.reward.scheme == "program":
        yield Conflict(
            ("reward.scheme", "interaction.program"),
            "program pays what a program returns, but none is set",
            "set interaction.program, or choose another reward.scheme",
        )
    if program is not None and config.interaction.criticism == "exchanged":
        yield Conflict(
            ("interaction.program", "interaction.criticism"),
            "the solutions of two programs do not correspond, so nothing can be exchanged",
            "choose another interaction.criticism",
        )
    if program and "round_index" in (getattr(config.algorithm, "group_by", None) or ()):
        keys = ("interaction.program", "algorithm.group_by")
        why = "turns of a program are of no round, so round_index tells none apart"
        yield Conflict(keys, why, "leave round_index out of algorithm.group_by")


def _criticism(config: Config) -> Iterator[Conflict]:
    """Find a schedule, criticism and reward that do not go together."""
    name, schedule = config.interaction.criticism, config.interaction.schedule
    criticism, scheme = CRITICISMS.find(name), REWARD_SCHEMES.find(config.reward.scheme)
    if config.interaction.program is None and schedule in UNCRITICISED_SCHEDULES and name != "none":
        yield Conflict(
            ("interaction.schedule", "interaction.criticism"),
            f"in a {schedule} nobody criticises",
            "set interaction.criticism to none, and reward.scheme to one that reads no scores",
        )
    if criticism is None:
        return
    if scheme and scheme.reads not in (None, criticism.outcome):
        makers = [n for n, other in CRITICISMS.items() if other.outcome == scheme.reads]
        fit = [n for n, s in REWARD_SCHEMES.items() if s.reads in (None, criticism.outcome)]
        yield Conflict(
            ("reward.scheme", "interaction.criticism"),
            f"{config.reward.scheme} reads {scheme.reads}, and {name} makes none",
            f"choose a reward.scheme of {', '.join(fit)}, or "
            f"an interaction.criticism of {', '.join(makers)}",
        )
    least, most = criticism.min_evaluations, criticism.max_evaluations or math.inf
    if not least <= (number := config.interaction.num_evaluations) <= most:
        wanted, limit = ("at least", least) if number < least else ("no more than", most)
        yield Conflict(
            ("interaction.num_evaluations", "interaction.criticism"),
            f"{name} wants {wanted} {limit}",
            f"set interaction.num_evaluations to {limit}",
        )


def _role_weights(config: Config) -> Iterator[Conflict]:
    """Find weights of roles that no discussion has."""
    try:
        known = roles_of(config.interaction)
    except ValueError:  # of a name or the program, reported as such
        return
    for name in getattr(config.algorithm, "role_weights", ()):
        if name not in known:
            more = "a schedule, criticism or program may declare more"
            remedy = f"choose among {', '.join(known)}; {more}"
            yield Conflict(("algorithm.role_weights",), f"{name} is no role", remedy)


def _engines(config: Config) -> Iterator[Conflict]:
    """Find engines and ranks that cannot work together."""
    staleness = config.training.max_staleness
    batch, ranks = config.optimization.train_batch_size, config.policy.ranks_per_policy
    engines, size = config.rollout.engines_per_policy, config.rollout.tensor_parallel
    shares_gpus = config.cluster.device != "cpu" and config.cluster.placement == "colocated"
    if batch is not None and batch < ranks:
        yield Conflict(
            ("optimization.train_batch_size", "policy.ranks_per_policy"),
            f"a batch of {batch} cannot give each of {ranks} ranks a sample",
            f"set optimization.train_batch_size to {ranks} or more, or to null",
        )
    limits = config.rollout.max_response_tokens
    shortest = min(limits, default=1) if isinstance(limits, list) else limits
    if config.rollout.min_response_tokens >= shortest:
        yield Conflict(
            ("rollout.min_response_tokens", "rollout.max_response_tokens"),
            "every response of an agent would be cut off, and left out of the update",
            "lower rollout.min_response_tokens",
        )
    is_ready = find_spec("flash_attn") is not None and config.policy.dtype == "bfloat16"
    if config.policy.attn_implementation != "sdpa" and not is_ready:
        yield Conflict(
            ("policy.attn_implementation",),
            "flash_attention_2 needs policy.dtype=bfloat16 and the package flash-attn",
            "see to both, or set policy.attn_implementation=sdpa",
        )
    if config.policy.lora.rank is not None and config.policy.zero_stage == 3:
        yield Conflict(
            ("policy.zero_stage", "policy.lora.rank"),
            "ZeRO-3 would divide the base model, which the adapters of a family share",
            "set policy.zero_stage to 0, 1, 2 or null",
        )
    if shares_gpus and ranks != engines * size:
        sizes = "policy.ranks_per_policy", "rollout.engines_per_policy", "rollout.tensor_parallel"
        yield Conflict(
            (*sizes, "cluster.placement"),
            f"colocated, each GPU holds one rank and its part of an engine: {ranks} ranks are not "
            f"{engines} engines x {size} GPUs",
            "set policy.ranks_per_policy to rollout.engines_per_policy x rollout.tensor_parallel, "
            "or cluster.placement to disaggregated, or cluster.device to cpu, where the number of "
            "GPUs does not matter",
        )
    if staleness > 0 and shares_gpus:
        yield Conflict(
            ("training.max_staleness", "cluster.placement"),
            "on GPUs that they share, a policy's engines sleep while it is trained",
            "set cluster.placement to disaggregated, or cluster.device to cpu, or "
            "training.max_staleness to 0",
        )
    if staleness > 0 and getattr(config.algorithm, "rollout_correction", None) == "none":
        yield Conflict(
            ("training.max_staleness", "algorithm.rollout_correction"),
            "nothing would correct for samples from before the latest updates",
            "set algorithm.rollout_correction to ratio, tis, icepop or seq_mask_tis, or "
            "training.max_staleness to 0",
        )


REFUSED = yaml.safe_load(Path(__file__).with_name("refused.yaml").read_text("utf-8"))
"""Library -> patterns of its options -> why a run refuses them."""


def _options(config: Config) -> Iterator[Conflict]:
    """Find options that would break a run, or that the installed library does not have; every other
    one is passed on with any value."""
    vllm, deepspeed = config.rollout.vllm_options, config.policy.deepspeed_options
    for prefix, options, refused, names, depth in (
        ("rollout.vllm_options", vllm, REFUSED["vllm"], names_of_vllm, 1),
        ("policy.deepspeed_options", deepspeed, REFUSED["deepspeed"], names_of_deepspeed, 2),
    ):
        known = names() if options else ()
        for leaf in leaves(options):
            key, (name, *inner) = f"{prefix}.{leaf}", leaf.split(".")
            entries = (name, ".".join([name, *inner[:1]]))
            reasons = [
                why
                for each, why in refused.items()
                if any(filter_names(entries, p) or p.startswith(f"{leaf}.") for p in each.split())
            ]
            if reasons:
                yield Conflict((key,), f"cannot be set here: {reasons[0]}", "leave it out")
            elif wrong := [each for each in (name, *inner)[:depth] if each not in known]:
                close = [f"did you mean {n}?" for n in get_close_matches(wrong[0], known, n=1)]
                said = f"the installed library has no option {wrong[0]}"
                yield Conflict((key,), said, [*close, "leave it out"][0])
    if vllm.get("enable_chunked_prefill") and config.cluster.device != "cuda":
        yield Conflict(
            ("rollout.vllm_options.enable_chunked_prefill", "cluster.device"),
            "on a CPU, vLLM crashes on a seeded request whose prompt is prefilled in chunks",
            "leave it out; on GPUs (cluster.device=cuda) it is vLLM's default",
        )


def passed_on(config: Config) -> list[str]:
    """Return a log line for each library that is passed options."""
    options = {"vLLM": config.rollout.vllm_options, "DeepSpeed": config.policy.deepspeed_options}
    return [f"passed on to {name}: {yaml_text(given)}" for name, given in options.items() if given]


def names_of_vllm() -> set[str]:
    """Return the arguments of ``EngineArgs``, read from its source: importing vLLM takes 10 s."""
    [text] = _sources("vllm", "engine/arg_utils.py")
    fields = text.partition("\nclass EngineArgs:\n")[2].partition("\n    def ")[0]
    return {*re.findall(r"^    (\w+): ", fields, re.M)}


def names_of_deepspeed() -> set[str]:
    """Return all names in the modules that read DeepSpeed's configuration, since DeepSpeed ignores
    unknown entries silently, or refuses them only when engines start."""
    texts = [*_sources("deepspeed", "**/*config.py"), *_sources("deepspeed", "**/*constants.py")]
    named = re.compile(r"(?:[\"']|^    )(\w+)(?:[\"']|: )", re.M)  # in quotes, or a field
    return {name for text in texts for name in named.findall(text)}


def _sources(package: str, pattern: str) -> list[str]:
    spec = find_spec(package)
    assert spec is not None and spec.origin is not None, f"{package} is a requirement"
    return [file.read_text("utf-8") for file in Path(spec.origin).parent.glob(pattern)]
