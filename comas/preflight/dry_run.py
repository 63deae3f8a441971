"""What a run would do, without doing it: ``bash scripts/train_comas.sh --dry-run``."""

from collections.abc import Sequence

from comas.config.schema import Config
from comas.engines.cluster.placement import PolicyPlacement, Slot, family_in_words, plan_policy
from comas.preflight.needs import aligned, faults_of, table
from comas.preflight.sizes import describe_sizes
from comas.preflight.survey import Findings
from comas.types import Device


def describe_run(found: Findings) -> list[str]:
    """Return the table of needs, where every engine would run, the sizes, and the faults."""
    config, sizes = found.config, found.sizes
    lines = [*table(found.needs), "", *describe_placement(config, device=found.device)]
    if sizes is not None:
        lines += ["", *describe_sizes(config, sizes)]
    if found.sharding is not None:
        lines.append(found.sharding)
    faults = faults_of(found.needs)
    doubts = [need.doubt for need in found.needs if need.doubt is not None]
    lines += ["", *(f"doubt: {doubt}" for doubt in doubts)]
    lines += [f"fault {number}: {fault}" for number, fault in enumerate(faults, start=1)]
    count = f"{_counted(faults, 'fault')}, {_counted(doubts, 'doubt')}"
    return [*lines, f"dry run: {count}; nothing was started or written"]


def describe_placement(config: Config, *, device: Device) -> list[str]:
    """Return which engine runs on which slot: a line for each GPU, on a CPU for each policy.

    Example: ``GPU 2 (group 1)  policy 1 (agent 1): rollout engine 0, rank 0``
    """
    placement = plan_policy(config, device=device)
    sharers = placement.policies_per_group
    where = "on the cores of this machine"
    if device == "cuda":
        where = f"{config.cluster.placement}; the GPUs of a group are on one node"
    rows = []
    for group in range(placement.num_groups(len(config.families))):
        first, part = divmod(group, placement.num_parts)
        families = config.families[first * sharers : (first + 1) * sharers]
        for bundle in range(len(placement.bundles)):
            number = group * len(placement.bundles) + bundle
            slot = f"GPU {number} (group {group})" if device == "cuda" else "CPU"
            rows.append([f"  {slot}", _on_bundle(config, placement, (part, bundle), families)])
    return [f"placement: {where}", *aligned(rows)]


def _on_bundle(
    config: Config,
    placement: PolicyPlacement,
    place: tuple[int, int],
    families: Sequence[tuple[int, ...]],
) -> str:
    """``policy 0 (agent 0): rollout engine 0, rank 0; policy 1 (agent 1): ...``"""
    words = []
    for family in families:
        engines = _numbered("rollout engine", placement.rollout_slots, place)
        if family in config.trained_families:
            engines += _numbered("rank", placement.policy_slots, place)
        agents = [str(a) for a, policy in enumerate(config.policy_of_agent) if policy in family]
        who = f"agent{'s' * (len(agents) != 1)} {', '.join(agents)}"
        words.append(f"{family_in_words(family)} ({who}): {', '.join(engines)}")
    return "; ".join(words)


def _numbered(kind: str, slots: Sequence[Slot], place: tuple[int, int]) -> list[str]:
    part, bundle = place
    return [
        f"{kind} {n}"
        for n, slot in enumerate(slots)
        if slot.part == part and bundle in slot.bundles
    ]


def _counted(things: Sequence[str], name: str) -> str:
    """``2 faults``, ``1 doubt``, ``no doubts``"""
    return f"{len(things) or 'no'} {name}{'s' * (len(things) != 1)}"
