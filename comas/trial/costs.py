"""What a run will cost, from what was measured of its first batches, or of parts of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev

import psutil

from comas.engines.cluster.actors import MemoryPeak
from comas.run.prepared import Prepared, Sizes
from comas.trial.judging import Estimate
from comas.utils.processes import peak_bytes

GIB = 1 << 30
UNITS = (("hours", 3600.0), ("minutes", 60.0), ("seconds", 1.0))


@dataclass(frozen=True)
class Costs:
    """Seconds and tokens that were measured."""

    rollouts_s: Sequence[float]
    """Of each batch."""
    sampled_tokens: Sequence[int]
    """Of each discussion."""
    update_s: float
    """Of one batch; 0 if there was nothing to train on."""
    trained_tokens: int
    """Prompts and responses of the update."""
    sync_s: float
    validation_s: float
    """Of a whole validation."""
    batches_per_step: float
    """1, or more where a batch is a part of a step's."""
    overlaps: bool
    """True if the next batch is sampled while policies are updated."""

    def step_s(self, rollout_s: float | None = None, *, length: float = 1.0) -> float:
        """The seconds of a step, at a batch's ``rollout_s`` (None: the mean), and with samples
        ``length`` times as long.

        Example: batches of 1 s and 3 s, a quarter of a step each, updated on in 2 s, and a sync of
        1 s: 4 x 2 + 4 x 2 + 1 = 17 s.
        """
        batch_s = fmean(self.rollouts_s) if rollout_s is None else rollout_s
        parts = batch_s * self.batches_per_step, self.update_s * length * self.batches_per_step
        return (max(parts) if self.overlaps else sum(parts)) + self.sync_s

    def run_s(self, sizes: Sizes) -> Estimate:
        """The seconds of a run beyond its start, if responses keep their lengths; the interval is
        from the fastest batch to the slowest, and of the mean length."""

        def seconds(rollout_s: float | None, length: float) -> float:
            steps_s = sizes.num_steps * self.step_s(rollout_s, length=length)
            return steps_s + sizes.num_validations * self.validation_s * length

        spread = relative_spread(self.sampled_tokens)
        low, high = min(self.rollouts_s), max(self.rollouts_s)
        if len(self.rollouts_s) == 1:
            low, high = low * (1 - spread), high * (1 + spread)
        return Estimate(seconds(None, 1.0), seconds(low, 1 - spread), seconds(high, 1 + spread))


def relative_spread(values: Sequence[float]) -> float:
    """Return half of the 95 % interval of the mean of ``values``, as a share of it.

    Example: 1, 2, 3 have the mean 2 and the standard deviation 1: 1.96 / sqrt(3) / 2 = 0.566.
    """
    return 1.96 * stdev(values) / sqrt(len(values)) / fmean(values) if len(values) > 1 else 0.0


def describe_costs(
    costs: Costs, memory: Mapping[str, Sequence[MemoryPeak]], prepared: Prepared
) -> list[list[str]]:
    """Return a table of what a run takes: time, memory and disk."""
    sizes, whole = prepared.sizes, costs.batches_per_step
    run = costs.run_s(sizes)
    unit, unit_s = next((unit for unit in UNITS if run.value >= 2 * unit[1]), UNITS[-1])
    times = Estimate(*(value / unit_s for value in run))
    rollout_rate = sum(costs.sampled_tokens) / sum(costs.rollouts_s)
    update, at_least = "not measured, as nothing that was said is learnt from", "more than "
    if costs.trained_tokens:
        rate = costs.trained_tokens / costs.update_s
        update = f"{costs.update_s * whole:.1f} s, {rate:,.0f} tokens of samples a second"
        at_least = ""
    rollout = (
        f"{fmean(costs.rollouts_s) * whole:.1f} s, {rollout_rate:,.0f} sampled tokens a second"
    )
    rows = [
        ["rollout of a step", rollout],
        ["update", update],
        ["sync", f"{costs.sync_s:.1f} s"],
        ["a step", f"{at_least}{costs.step_s():.1f} s"],
        ["validation", f"{costs.validation_s:.1f} s"],
        ["the run", f"{at_least}{times} {unit}: {sizes.num_steps} steps, "
         f"{sizes.num_validations} validations"],
    ]  # fmt: skip
    for part, peaks in memory.items():
        host, gpu = (max(sizes) / GIB for sizes in zip(*peaks, strict=True))
        on_gpu = f", {gpu:.1f} GiB of a GPU" * (gpu > 0)
        rows.append([f"memory, {part}", f"{len(peaks)} of up to {host:.1f} GiB{on_gpu}"])
    rows.append(["memory, driver", f"{peak_bytes(psutil.Process()) / GIB:.1f} GiB"])
    return [*rows, ["disk", prepared.disk]]
