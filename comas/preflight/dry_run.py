"""What a run would do, without doing it: ``bash scripts/train_comas.sh --dry-run``."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from comas.config import ConfigError, changed_keys, load
from comas.config.schema import Config
from comas.engines.cluster.placement import PolicyPlacement, Slot, family_in_words, plan_policy
from comas.preflight.engine_options import described_options
from comas.preflight.needs import aligned, faults_of, table
from comas.preflight.sizes import describe_sizes
from comas.preflight.survey import Survey
from comas.run.prepared import Sizes
from comas.run.records import Row, read_rows
from comas.types import Device
from comas.utils.files import FileError

IRRELEVANT = ("name", "seed", "saves", "resume", "training.", "logging.", "cluster.start_timeout_s")
"""Beginnings of the keys that change neither a step nor a validation."""
MIN_STEPS = 3
OF_A_STEP = ("time/step_s", "tokens/prompt", "tokens/response")
OF_A_VALIDATION = ("time/validation_s",)


@dataclass(frozen=True)
class MeasuredRun:
    """Medians over the steps of a run."""

    folder: Path
    step_s: float
    validation_s: float
    prompt_tokens: float
    response_tokens: float

    def seconds(self, sizes: Sizes) -> float:
        """Duration of a run of these sizes, once its engines are up."""
        return sizes.num_steps * self.step_s + sizes.num_validations * self.validation_s


def describe_run(found: Survey) -> list[str]:
    """The table of needs, where every engine would run, the sizes, the time, and the faults."""
    config, sizes = found.config, found.sizes
    lines = [*table(found.needs), "", *describe_placement(config, device=found.device)]
    lines += described_options(config)
    if sizes is not None:
        measured = earlier_run(config)
        lines += ["", *describe_sizes(config, sizes)]
        lines.append(describe_tokens(config, sizes, measured))
        lines += [found.sharding] if found.sharding is not None else []
        lines.append(describe_time(config, sizes, measured))
    faults = faults_of(found.needs)
    doubts = [need.doubt for need in found.needs if need.doubt is not None]
    lines += ["", *(f"doubt: {doubt}" for doubt in doubts)]
    lines += [f"fault {number}: {fault}" for number, fault in enumerate(faults, start=1)]
    count = f"{_counted(faults, 'fault')}, {_counted(doubts, 'doubt')}"
    return [*lines, f"dry run: {count}; nothing was started or written"]


def describe_placement(config: Config, *, device: Device) -> list[str]:
    """Which engine runs on which slot: a line for each GPU, on a CPU for each policy.

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


def describe_tokens(config: Config, sizes: Sizes, measured: MeasuredRun | None) -> str:
    """Tokens of a step: those of an earlier run, else the most there can be."""
    if measured is not None:
        return (
            f"tokens of a step: about {measured.prompt_tokens:,.0f} of prompts and "
            f"{measured.response_tokens:,.0f} of responses, as in {measured.folder}"
        )
    turns = sizes.num_discussions * sum(sizes.turns_per_discussion.values())
    rollout = config.rollout
    return (
        f"tokens of a step: {turns:,} prompts of at most {rollout.max_prompt_tokens:,} and "
        f"responses of at most {rollout.max_response_tokens:,}"
    )


def describe_time(config: Config, sizes: Sizes, measured: MeasuredRun | None) -> str:
    """Return the time of a run as an earlier one predicts it; nothing is guessed."""
    if measured is not None:
        return (
            f"time: about {_duration(measured.seconds(sizes))} once the engines are up: steps of "
            f"{measured.step_s:.1f} s and validations of {measured.validation_s:.1f} s, as in "
            f"{measured.folder}"
        )
    return f"time: not known: no run of these settings under {config.saves} has made a step"


def _on_bundle(
    config: Config,
    placement: PolicyPlacement,
    place: tuple[int, int],
    families: Sequence[tuple[int, ...]],
) -> str:
    """``policy 0 (agent 0): rollout engine 0, rank 0; policy 1 (agent 1): ...``"""
    words = []
    for family in families:
        own = _numbered("rollout engine", placement.rollout_slots, place)
        if family in config.trained_families:
            own += _numbered("rank", placement.policy_slots, place)
        agents = [str(a) for a, of in enumerate(config.policy_of_agent) if of in family]
        who = f"agent{'s' * (len(agents) != 1)} {', '.join(agents)}"
        words.append(f"{family_in_words(family)} ({who}): {', '.join(own)}")
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


def _duration(seconds: float) -> str:
    """``5400 -> "1.5 h"``, ``90 -> "2 min"``"""
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{max(seconds / 60, 1):.0f} min"


# ---------------------------------------------------------------- earlier runs


def earlier_run(config: Config) -> MeasuredRun | None:
    """The newest run under ``config.saves`` with the same settings, metrics that can be read and at
    least ``MIN_STEPS`` steps; None: there is none."""
    folders = sorted(Path(config.saves).glob("*/metrics.jsonl"), reverse=True)
    for folder in (metrics.parent for metrics in folders if not metrics.parent.is_symlink()):
        if _is_like(folder, config) and (measured := _measure(folder)) is not None:
            return measured
    return None


def _is_like(folder: Path, config: Config) -> bool:
    try:
        before = load(Config, folder / "config.yaml", [])
    except ConfigError:  # of an older version
        return False
    return all(key.startswith(IRRELEVANT) for key in changed_keys(before, config))


def _measure(folder: Path) -> MeasuredRun | None:
    """None where the metrics are too few, of an older version or cannot be read."""
    try:
        rows = read_rows(folder / "metrics.jsonl")
    except (FileError, OSError):
        return None
    steps = _numbers(rows, OF_A_STEP)[1:]  # the first one warms up
    validations = _numbers(rows, OF_A_VALIDATION)
    if len(steps) < MIN_STEPS or not validations:
        return None
    step_s, prompts, responses = map(median, zip(*steps, strict=True))
    return MeasuredRun(folder, step_s, median(s for (s,) in validations), prompts, responses)


def _numbers(rows: Iterable[Row], names: Sequence[str]) -> list[list[float]]:
    """The values under ``names``, of every row that has a number under each."""
    return [
        [row[name] for name in names]
        for row in rows
        if all(isinstance(row.get(name), int | float) for name in names)
    ]
