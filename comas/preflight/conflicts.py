"""What the keys of a run's configuration must satisfy beyond their own bounds."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from comas.config.faults import Conflict
from comas.config.keys import FOLDER_NAME, FOLDER_NAME_IN_WORDS
from comas.config.paths import tried
from comas.config.schema import Config, Society
from comas.interaction import CRITICISMS, UNCAPPED_SCHEDULES, UNCRITICISED_SCHEDULES
from comas.preflight.chat_conflicts import chat_conflicts
from comas.preflight.engine_options import option_conflicts
from comas.preflight.machine_conflicts import machine_conflicts
from comas.preflight.own_files import name_conflicts, prompt_conflicts
from comas.preflight.question_conflicts import question_conflicts
from comas.preflight.stopping_conflicts import best_conflicts, condition_conflicts
from comas.preflight.update_conflicts import (
    estimator_conflicts,
    loss_conflicts,
    preference_conflicts,
    role_weight_conflicts,
)
from comas.reward_formulation import REWARD_SCHEMES


def find_conflicts(config: Config) -> list[Conflict]:
    """Every conflict of ``config``, which is only read."""
    checks = (
        name_conflicts,
        prompt_conflicts,
        question_conflicts,
        _run_names,
        _societies,
        _criticisms,
        _chains,
        chat_conflicts,
        _updates,
        _micro_batches,
        _train_batches,
        _optimizers,
        _lr_schedules,
        best_conflicts,
        condition_conflicts,
        estimator_conflicts,
        loss_conflicts,
        preference_conflicts,
        role_weight_conflicts,
        _attention,
        _adapters,
        option_conflicts,
        machine_conflicts,
    )
    return [conflict for check in checks for conflict in check(config)]


# ---------------------------------------------------------------- the run and its society


def _run_names(config: Config) -> Iterator[Conflict]:
    if not FOLDER_NAME.fullmatch(config.name):
        yield Conflict(
            ("name",),
            FOLDER_NAME_IN_WORDS,
            "choose a short name such as comas",
        )
    for key, path in (
        ("saves", config.saves),
        ("data.train", config.data.train),
        ("data.validation", config.data.validation),
    ):
        if not path.strip():
            yield Conflict((key,), "must name a file or folder", f"write {key}: path/to/it")
    if config.resume is not None and not (Path(config.resume) / "config.yaml").is_file():
        yield Conflict(
            ("resume",),
            f"must be the folder of a run: one that holds config.yaml{tried(config.resume)}",
            f"name a folder of {config.saves}/, for example resume={config.saves}/latest",
        )


def _societies(config: Config) -> Iterator[Conflict]:
    num_agents, models = config.society.num_agents, config.society.models
    policy_of_agent = config.society.policy_of_agent
    if not all(model.strip() for model in models):
        yield Conflict(("society.models",), "must not hold an empty name", "name every model")
    if policy_of_agent is not None and len(policy_of_agent) != num_agents:
        yield Conflict(
            ("society.num_agents", "society.policy_of_agent"),
            f"must have one entry for each of the {num_agents} agents, has {len(policy_of_agent)}",
            "list one policy index per agent, or write null to give each a policy of its own",
        )
        return
    if policy_of_agent is not None:
        used = sorted(set(policy_of_agent))
        if used != list(range(len(used))):
            yield Conflict(
                ("society.policy_of_agent",),
                f"must use every index from 0 on without gaps, uses {used}",
                "renumber the policies 0, 1, ...",
            )
            return
    num_policies = num_agents if policy_of_agent is None else len(set(policy_of_agent))
    for name, entries in _entries_of_policies(config.society):
        if len(entries) not in (1, num_policies):
            expected = "one entry" if num_policies == 1 else f"one entry, or {num_policies}"
            yield Conflict(
                ("society.num_agents", "society.policy_of_agent", f"society.{name}"),
                f"must have {expected} for {num_policies} policies, has {len(entries)}",
                "list one for each policy, or a single one for all",
            )


def _entries_of_policies(society: Society) -> Iterator[tuple[str, Sequence[object]]]:
    """The lists with an entry for each policy, by their keys."""
    yield "models", society.models
    if society.learning_rates is not None:
        yield "learning_rates", society.learning_rates
    if society.chat_template_kwargs is not None:
        yield "chat_template_kwargs", society.chat_template_kwargs
    yield "update_every", society.update_every


def _updates(config: Config) -> Iterator[Conflict]:
    rates, intervals = config.society.learning_rates or [], config.society.update_every
    if not all(0 < rate <= 1 for rate in rates):
        yield Conflict(
            ("society.learning_rates",),
            "must hold numbers above 0 and at most 1",
            "write one such as 1e-6 for each policy; 0 in society.update_every freezes a policy",
        )
    if not all(every >= 0 for every in intervals) or not any(intervals):
        yield Conflict(
            ("society.update_every",),
            "must hold numbers of at least 0 (frozen), and one above 0",
            "write 1 for each policy that is to be updated in every step",
        )
        return
    uneven = [every for every in intervals if every > 0 and config.training.save_every % every]
    if uneven:
        yield Conflict(
            ("society.update_every", "training.save_every"),
            "a checkpoint must come right after an update, since it holds no samples: "
            f"{config.training.save_every} is no multiple of {uneven[0]}",
            f"set training.save_every to a multiple of {math.lcm(*filter(None, intervals))}",
        )


def _criticisms(config: Config) -> Iterator[Conflict]:
    name, scheme = config.interaction.criticism, config.reward.scheme
    criticism, known_scheme = CRITICISMS.find(name), REWARD_SCHEMES.find(scheme)
    if criticism is None:
        return
    schedule = config.interaction.schedule
    if schedule in UNCRITICISED_SCHEDULES and name != "none":
        yield Conflict(
            ("interaction.schedule", "interaction.criticism"),
            f"in a {schedule} nobody criticises",
            "set interaction.criticism to none, and reward.scheme to one that reads no scores",
        )
    if known_scheme is not None and known_scheme.reads not in (None, criticism.outcome):
        reads = known_scheme.reads
        makers = [n for n, other in CRITICISMS.items() if other.outcome == reads]
        yield Conflict(
            ("reward.scheme", "interaction.criticism"),
            f"{scheme} reads {reads}, and {name} makes none",
            f"choose another reward.scheme, or an interaction.criticism of {', '.join(makers)}",
        )
    if config.interaction.scorers == "others" and config.society.num_agents == 1:
        yield Conflict(
            ("interaction.scorers", "society.num_agents"),
            "others than the solver are to score, and there is one agent",
            "set interaction.scorers to any, or society.num_agents to 2 or more",
        )
    least, most = criticism.min_evaluations, criticism.max_evaluations
    number = config.interaction.num_evaluations
    if number < least or (most is not None and number > most):
        yield Conflict(
            ("interaction.num_evaluations", "interaction.criticism"),
            f"{name} wants {f'at least {least}' if most is None else f'no more than {most}'}",
            f"set interaction.num_evaluations to {least if number < least else most}",
        )


def _chains(config: Config) -> Iterator[Conflict]:
    schedule = config.interaction.schedule
    if config.interaction.max_chain_tokens is not None and schedule in UNCAPPED_SCHEDULES:
        yield Conflict(
            ("interaction.max_chain_tokens", "interaction.schedule"),
            f"{schedule} does not end a discussion early",
            "set interaction.schedule to sequential, or interaction.max_chain_tokens to null",
        )


# ---------------------------------------------------------------- the update


def _micro_batches(config: Config) -> Iterator[Conflict]:
    size, tokens = config.policy.micro_batch_size, config.policy.micro_batch_tokens
    if (size is None) == (tokens is None):
        yield Conflict(
            ("policy.micro_batch_size", "policy.micro_batch_tokens"),
            "exactly one of the two must be set",
            "give one a number and write null for the other",
        )
    elif tokens is None and config.policy.gradient_checkpointing is None:
        yield Conflict(
            ("policy.gradient_checkpointing", "policy.micro_batch_tokens"),
            "null means samples of more than policy.micro_batch_tokens, which is null",
            "set policy.gradient_checkpointing to true or false",
        )


def _train_batches(config: Config) -> Iterator[Conflict]:
    size, ranks = config.optimization.train_batch_size, config.policy.ranks_per_policy
    if size is not None and size < ranks:
        yield Conflict(
            ("optimization.train_batch_size", "policy.ranks_per_policy"),
            f"a batch of {size} cannot give each of {ranks} ranks a sample",
            f"set optimization.train_batch_size to {ranks} or more, or to null",
        )


def _optimizers(config: Config) -> Iterator[Conflict]:
    betas = config.optimization.betas
    if len(betas) != 2 or not all(0 <= beta < 1 for beta in betas):
        yield Conflict(
            ("optimization.betas",),
            "must be two numbers, each at least 0 and below 1",
            "write [0.9, 0.95]",
        )


def _lr_schedules(config: Config) -> Iterator[Conflict]:
    final, schedule = config.optimization.final_lr_ratio, config.optimization.lr_schedule
    if final > 0 and schedule == "constant_with_warmup":
        yield Conflict(
            ("optimization.final_lr_ratio", "optimization.lr_schedule"),
            "a constant learning rate falls to nothing",
            "set optimization.lr_schedule to cosine or linear, or optimization.final_lr_ratio to 0",
        )


def _attention(config: Config) -> Iterator[Conflict]:
    if config.policy.attn_implementation != "flash_attention_2":
        return
    if config.policy.dtype == "float32":
        yield Conflict(
            ("policy.attn_implementation", "policy.dtype"),
            "FlashAttention computes in 16 bits only",
            "set policy.dtype to bfloat16, or policy.attn_implementation to sdpa",
        )
    if config.cluster.device == "cpu":
        yield Conflict(
            ("policy.attn_implementation", "cluster.device"),
            "FlashAttention runs on GPUs only",
            "set policy.attn_implementation to sdpa",
        )


def _adapters(config: Config) -> Iterator[Conflict]:
    lora = config.policy.lora
    if lora.rank is None:
        return
    if config.policy.zero_stage == 3:
        yield Conflict(
            ("policy.zero_stage", "policy.lora.rank"),
            "ZeRO-3 would divide the base model, which the adapters of a family share",
            "set policy.zero_stage to 0, 1, 2 or null",
        )
    if lora.target_modules is not None and not all([lora.target_modules, *lora.target_modules]):
        yield Conflict(
            ("policy.lora.target_modules",),
            "must name the layers that are adapted",
            "write [q_proj, v_proj], or null for all linear layers",
        )
