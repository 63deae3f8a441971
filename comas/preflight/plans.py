"""The cheapest plan of a society on so many GPUs: a search over settings, without a machine.

Every combination of ``DIMENSIONS`` that ``find_conflicts`` allows is weighed by the arithmetic of
the dry run: ``sharding.py`` and ``checks.py`` say whether it fits, ``hours.py`` how long it takes.
Nothing that changes what is learnt is searched over, but for LoRA adapters where whole models do
not fit.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from comas.config.schema import Config
from comas.engines.cluster.placement import check_gpus, gpus_in_all, plan_policy
from comas.preflight.checks import gpu_memory_needs
from comas.preflight.configuration import PAPER_CONFIG, load_config
from comas.preflight.conflicts import find_conflicts
from comas.preflight.hours import Assumptions, hours_interval
from comas.preflight.machine import GPUS_OF_A_NODE, Machine
from comas.preflight.memory import GIB, MIB, ModelShape, kv_cache_bytes, kv_room_bytes
from comas.preflight.needs import Need
from comas.preflight.sharding import (
    PROCESS_BYTES,
    USABLE_SHARE,
    Plan,
    choices,
    gib,
    plan_update,
)
from comas.preflight.sizes import derive_sizes
from comas.run.prepared import Sizes

LORA_CONFIG = Path("configs/comas_lora.yaml")
NUM_QUESTIONS = 2000
"""Of the paper's training questions."""
Settings = Mapping[str, Any]

DIMENSIONS: tuple[Sequence[Settings], ...] = (
    [{"cluster.placement": value} for value in ("colocated", "disaggregated")],
    [{"cluster.gpus_per_policy": value} for value in (1, 2, 4, 8)],
    [{"policy.ranks_per_policy": value} for value in (1, 2, 4, 6, 8)],
    [{"rollout.engines_per_policy": value} for value in (1, 2, 4, 6, 8)],
    [{"rollout.tensor_parallel": value} for value in (1, 2, 4, 8)],
    [{"cluster.policies_per_gpu": value} for value in (1, 2)],
    [{"rollout.gpu_memory_utilization": value} for value in (0.6, 0.9, 0.4)],
    [
        {},
        {"policy.gradient_checkpointing": True},
        {"policy.gradient_checkpointing": True, "policy.micro_batch_tokens": 32768},
    ],
)
"""What the search may set, beside ``policy.zero_stage`` and ``policy.adam_offload``. Activations
that are recomputed have room for a micro batch of the longest sample's tokens."""

NODES_PER_POLICY = (1, 2, 4)
"""``cluster.nodes_per_policy``: a policy on several nodes has all GPUs of each, all used alike."""
DIVIDED = ("cluster.gpus_per_policy", "policy.ranks_per_policy", "rollout.engines_per_policy")
"""What grows with the nodes of a policy."""

REMEDIES: tuple[Settings, ...] = (
    {"policy.lora.rank": 8},
    {"rollout.max_prompt_tokens": 12288},
)
"""What may make fit what does not, at the price of another run (a rank is read by adapters alone);
else more GPUs."""
STALE: Settings = {"training.max_staleness": 1, "optimization.rollout_correction": "tis"}
"""What learns from samples of the update before, and samples while it trains."""
NUMBERS_OF_GPUS = (2, 4, 8, 16, 32, 64, 128, 256, 512)


@dataclass(frozen=True)
class Candidate:
    """A plan, whether it fits or not, and what it costs."""

    config: Config
    """Whole, with sharding settled."""
    shape: ModelShape
    gpus_used: int
    update: Plan
    host: float
    """Bytes of a node's memory, the object store included."""
    hours: tuple[float, float]

    @property
    def expected_hours(self) -> float:
        """The middle of the interval, by which plans are compared."""
        return sum(self.hours) / 2


@dataclass(frozen=True)
class Cell:
    """The answer to: does this model, for so many agents, fit on so many GPUs?"""

    num_agents: int
    num_gpus: int
    fit: Candidate | None
    reason: str = ""
    """Without a fit: what is missing where the least is, and what would help."""
    stale: Candidate | None = None
    """The cheapest plan that samples beside training (``STALE``), where it takes fewer hours."""


def node_of(num_gpus: int, *, gpu_gib: float, host_gib: float) -> Machine:
    """The machine that each of the nodes is which so many GPUs are in."""
    on_a_node = min(num_gpus, GPUS_OF_A_NODE)
    return Machine(
        "cuda", on_a_node, int(gpu_gib * GIB), int(host_gib * GIB), has_cuda_compiler=True
    )


def paper_run(path: Path, num_agents: int, *, schedule: str) -> tuple[Config, Sizes]:
    """The run of ``path`` with so many agents and, as the paper has it, twice as many rounds.

    Example: 4 agents and 8 rounds under the sequential schedule are 24 turns a discussion,
    192,000 responses of 2,000 questions and 4 copies.
    """
    overrides = [f"society.num_agents={num_agents}", f"interaction.num_rounds={2 * num_agents}"]
    config = load_config(path, [*overrides, f"interaction.schedule={schedule}"])
    return config, derive_sizes(config, num_questions=NUM_QUESTIONS)


def plan_cell(
    runs: Sequence[tuple[Config, Sizes]], shape: ModelShape, num_gpus: int, node: Machine
) -> Cell:
    """The cheapest plan of the first of ``runs`` that has any; of the paper's, whole models come
    before adapters."""
    for config, sizes in runs:
        fit = cheapest(config, sizes, shape, num_gpus, node)
        if fit is not None:
            stale = cheapest(with_settings(config, STALE), sizes, shape, num_gpus, node)
            if stale is not None and stale.expected_hours >= fit.expected_hours:
                stale = None
            return Cell(config.society.num_agents, num_gpus, fit, stale=stale)
    missing = [
        f"{kind_of(config)}: {closest(config, sizes, shape, num_gpus, node)}"
        for config, sizes in runs
    ]
    reason = "; ".join([*missing, remedies(runs, shape, num_gpus, node)])
    return Cell(runs[0][0].society.num_agents, num_gpus, None, reason)


def kind_of(config: Config) -> str:
    """Whether its policies are whole models."""
    rank = config.policy.lora.rank
    return "whole models" if rank is None else f"LoRA of rank {rank}"


def cheapest(
    config: Config, sizes: Sizes, shape: ModelShape, num_gpus: int, node: Machine
) -> Candidate | None:
    """The plan of the fewest expected hours, and among equals of the fewest GPUs and of the
    earliest settings; None: nothing fits."""
    fits = (fit for fit in candidates(config, sizes, shape, num_gpus, node) if fits_in(fit, node))
    return min(fits, key=lambda fit: (round(fit.expected_hours, 3), fit.gpus_used), default=None)


def candidates(
    config: Config, sizes: Sizes, shape: ModelShape, num_gpus: int, node: Machine
) -> Iterator[Candidate]:
    """Every setting that the GPUs allow, whether it fits into their memory or not."""
    for settings in allowed_settings():
        tried = with_settings(config, settings)
        if shape.shardable % tried.rollout.tensor_parallel or not may_overlap(tried):
            continue
        placement = plan_policy(tried, device="cuda")
        num_nodes, rest = divmod(num_gpus, GPUS_OF_A_NODE)
        try:
            check_gpus(
                placement,
                num_policies=len(tried.families),
                node_gpus=[GPUS_OF_A_NODE] * num_nodes + [rest] * (rest > 0),
            )
        except ValueError:
            continue
        for choice in choices(tried, node):
            states = {f"policy.{name}": value for name, value in choice._asdict().items()}
            settled = with_settings(tried, states)
            update = plan_update(settled, [shape], choice, node)
            given = Assumptions(gpu_gib=node.gpu_bytes / GIB)
            yield Candidate(
                settled,
                shape,
                gpus_in_all(placement, len(tried.families)),
                update,
                update.host + settled.cluster.object_store_mib * MIB,
                hours_interval(settled, sizes, shape, given),
            )


def may_overlap(config: Config) -> bool:
    """Whether a policy's engines can sample while it is trained, if they are meant to."""
    return config.cluster.placement == "disaggregated" or not config.training.max_staleness


def fits_in(fit: Candidate, node: Machine) -> bool:
    """Whether the dry run would have neither a fault nor a doubt about memory, and the engines
    leave each other and the system room on a GPU."""
    config = fit.config
    awake = config.cluster.policies_per_gpu
    engines = awake * (config.rollout.gpu_memory_utilization * node.gpu_bytes + PROCESS_BYTES)
    if not fit.update.fits or engines > USABLE_SHARE * node.gpu_bytes:
        return False
    return all(need.fault is None and need.doubt is None for need in needs_of(fit, node))


def needs_of(fit: Candidate, node: Machine) -> list[Need]:
    """The dry run's lines about memory."""
    shapes = [fit.shape] * fit.config.num_policies
    return gpu_memory_needs(fit.config, shapes, node, host_bytes=node.host_bytes)


def with_settings(config: Any, settings: Settings) -> Any:
    """A copy of ``config`` with other values under some keys."""
    for name, value in settings.items():
        first, _, rest = name.partition(".")
        new = with_settings(getattr(config, first), {rest: value}) if rest else value
        config = replace(config, **{first: new})
    return config


@cache
def allowed_settings() -> tuple[Settings, ...]:
    """The combinations of ``DIMENSIONS`` without a conflict, over ``NODES_PER_POLICY``."""
    paper = load_config(PAPER_CONFIG, [])
    combined = [
        {key: value for part in parts for key, value in part.items()}
        for parts in itertools.product(*DIMENSIONS)
    ]
    allowed = [each for each in combined if not find_conflicts(with_settings(paper, each))]
    return tuple(
        over_nodes(each, number)
        for number in NODES_PER_POLICY
        for each in allowed
        if number == 1 or each["cluster.gpus_per_policy"] == GPUS_OF_A_NODE
    )


def over_nodes(settings: Settings, number: int) -> Settings:
    """What a policy has on one node, on so many."""
    grown = {key: number * settings[key] for key in DIVIDED}
    return {**settings, **grown, "cluster.nodes_per_policy": number}


# ---------------------------------------------------------------- what does not fit


def closest(config: Config, sizes: Sizes, shape: ModelShape, num_gpus: int, node: Machine) -> str:
    """What is missing in the plan that lacks least, in words."""
    tried = list(candidates(config, sizes, shape, num_gpus, node))
    if not tried:
        return f"fewer GPUs than {len(config.families)} policies have room on"
    shortages = [shortage_of(fit, node) for fit in tried]
    factor, words = min(shortages)
    assert factor > 1, "something fits"
    return words


def shortage_of(fit: Candidate, node: Machine) -> tuple[float, str]:
    """How many times too large the need is that exceeds its memory most, and what it is."""
    update, config = fit.update, fit.config
    sharers = config.cluster.policies_per_gpu
    engine = config.rollout.gpu_memory_utilization * node.gpu_bytes
    sampling = engine - kv_room_bytes(fit.shape, config, gpu_bytes=node.gpu_bytes)
    usable = USABLE_SHARE * node.gpu_bytes
    needs = [
        ("a GPU in an update", update.gpu_peak, update.gpu_free),
        ("a GPU in sampling", sampling + kv_cache_bytes(fit.shape, config), engine),
        ("a GPU's engines", sharers * (engine + PROCESS_BYTES), usable),
        ("a node's memory", fit.host, update.host_free),
    ]
    name, needed, given = max(needs, key=lambda need: need[1] / need[2])
    return needed / given, f"{name}: {gib(needed)} of {gib(given)} GiB"


def remedies(
    runs: Sequence[tuple[Config, Sizes]], shape: ModelShape, num_gpus: int, node: Machine
) -> str:
    """Which of ``REMEDIES`` make it fit, and how many GPUs do, in words."""
    found = [
        " ".join(f"{key}={value}" for key, value in settings.items())
        for settings in REMEDIES
        if can_fit(runs, shape, num_gpus, node, settings)
    ]
    for larger in (number for number in NUMBERS_OF_GPUS if number > num_gpus):
        if can_fit(runs, shape, larger, replace(node, num_gpus=min(larger, GPUS_OF_A_NODE)), {}):
            found.append(f"{larger} GPUs")
            break
    if not found:
        return f"would need policies over more than {max(NODES_PER_POLICY)} nodes"
    return f"fits with {' or '.join(found)}"


def can_fit(
    runs: Sequence[tuple[Config, Sizes]],
    shape: ModelShape,
    num_gpus: int,
    node: Machine,
    settings: Settings,
) -> bool:
    """Whether any plan of ``runs`` fits with these ``settings``."""
    return any(
        fits_in(fit, node)
        for config, sizes in runs
        if "policy.lora.rank" not in settings or config.policy.lora.rank is not None
        for fit in candidates(with_settings(config, settings), sizes, shape, num_gpus, node)
    )
