"""The costs of a run, estimated from its first batches or parts of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import psutil

from comas.config.schema import Config
from comas.engines.cluster.actors import MemoryPeak
from comas.run.pages.live import duration
from comas.run.prepared import Prepared, Sizes
from comas.trial.signal import Batch, Update
from comas.utils.processes import peak_bytes

GIB = 1 << 30


@dataclass(frozen=True)
class Costs:
    """Seconds and tokens of a step, estimated from parts of it."""

    rollout_s: float
    sampled_tokens: float
    update_s: float
    """Seconds of an update; 0 if there were no samples to train on."""
    trained_tokens: float
    """Tokens of the update's prompts and responses."""
    sync_s: float
    validation_s: float
    """Seconds of a whole validation."""
    overlaps: bool
    """True if the next batch is sampled while policies are updated."""

    @property
    def step_s(self) -> float:
        parts = self.rollout_s, self.update_s
        return (max(parts) if self.overlaps else sum(parts)) + self.sync_s

    def run_s(self, sizes: Sizes) -> float:
        """Return the seconds of a run after its start, if responses keep their length."""
        return sizes.num_steps * self.step_s + sizes.num_validations * self.validation_s


def costs_of(
    batches: Sequence[Batch], update: Update, validation_s: float, *, config: Config
) -> Costs:
    """Return the measured costs of whole steps: from the update, and from the batches nearest to a
    step in size (without the first, which warmed up the engines, unless it is the only one)."""
    num_held = config.rollout.batch_size * config.interaction.prompt_reuse
    warm = [(len(of.rewards.discussions), of.rollout_s) for of in batches[1:] or batches]
    near = min((num for num, _ in warm), key=lambda num: abs(num - num_held))
    sampled = [
        sum(len(turn.generation.response_token_ids) for turn in item.discussion.turns)
        for batch in batches
        for item in batch.rewards.discussions
    ]
    trained = [sample for samples in update.buffers.values() for sample in samples]
    parts = num_held / len(update.batch.rewards.discussions)
    lengths = sum(len(s.prompt_token_ids) + len(s.response_token_ids) for s in trained)
    return Costs(
        rollout_s=fmean(seconds for num, seconds in warm if num == near) * num_held / near,
        sampled_tokens=fmean(sampled) * num_held,
        update_s=update.update_s * parts if trained else 0.0,
        trained_tokens=lengths * parts,
        sync_s=update.sync_s,
        validation_s=validation_s,
        overlaps=config.training.max_staleness > 0,
    )


def describe_costs(
    costs: Costs, memory: Mapping[str, Sequence[MemoryPeak]], prepared: Prepared
) -> list[list[str]]:
    """Return a table of the time, memory and disk space of a run."""
    sizes = prepared.sizes
    rate = costs.sampled_tokens / costs.rollout_s
    update, at_least = "not measured: there was nothing to train on", "more than "
    if costs.trained_tokens:
        trained = costs.trained_tokens / costs.update_s
        update, at_least = f"{costs.update_s:.1f} s, {trained:,.0f} tokens of samples a second", ""
    steps = f"{sizes.num_steps} steps, {sizes.num_validations} validations"
    rows = [
        ["rollout of a step", f"{costs.rollout_s:.1f} s, {rate:,.0f} sampled tokens a second"],
        ["update", update],
        ["sync", f"{costs.sync_s:.1f} s"],
        ["a step", f"{at_least}{costs.step_s:.1f} s"],
        ["validation", f"{costs.validation_s:.1f} s"],
        ["the run", f"{at_least}{duration(costs.run_s(sizes))}: {steps}"],
    ]
    for part, peaks in memory.items():
        host, gpu = (max(sizes) / GIB for sizes in zip(*peaks, strict=True))
        on_gpu = f", {gpu:.1f} GiB of a GPU" * (gpu > 0)
        rows.append([f"memory, {part}", f"{len(peaks)} of up to {host:.1f} GiB{on_gpu}"])
    rows.append(["memory, driver", f"{peak_bytes(psutil.Process()) / GIB:.1f} GiB"])
    return [*rows, ["disk", prepared.disk]]
