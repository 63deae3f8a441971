"""The costs of a run, estimated from its first batches or parts of them."""

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
    """Seconds and tokens of a step, estimated from parts of it."""

    rollouts_s: Sequence[float]
    """Seconds of a step's rollout, estimated from each batch."""
    sampled_tokens: Sequence[int]
    """Sampled tokens of a discussion."""
    update_s: float
    """Seconds of an update; 0 if there were no samples to train on."""
    trained_tokens: int
    """Tokens of the update's prompts and responses."""
    sync_s: float
    validation_s: float
    """Seconds of a whole validation."""
    discussions: tuple[int, int]
    """Numbers of discussions: in the batches of ``rollouts_s``, and in a step."""
    overlaps: bool
    """True if the next batch is sampled while policies are updated."""

    def step_s(self, rollout_s: float | None = None, *, length: float = 1.0) -> float:
        """Return the seconds of a step with this ``rollout_s`` (by default the mean), and samples
        ``length`` times as long.

        Example: rollouts of 4 s and 12 s, an update of 8 s, and a sync of 1 s: 8 + 8 + 1 = 17 s.
        """
        parts = rollout_s or fmean(self.rollouts_s), self.update_s * length
        return (max(parts) if self.overlaps else sum(parts)) + self.sync_s

    def run_s(self, sizes: Sizes) -> Estimate:
        """Return the seconds of a run after its start, if responses keep their length. The interval
        covers the fastest to the slowest batch, and that of the mean length."""

        def seconds(rollout_s: float | None, length: float) -> float:
            steps_s = sizes.num_steps * self.step_s(rollout_s, length=length)
            return steps_s + sizes.num_validations * self.validation_s * length

        spread = relative_spread(self.sampled_tokens)
        low, high = min(self.rollouts_s), max(self.rollouts_s)
        if len(self.rollouts_s) == 1:
            low, high = low * (1 - spread), high * (1 + spread)
        return Estimate(seconds(None, 1.0), seconds(low, 1 - spread), seconds(high, 1 + spread))


def relative_spread(values: Sequence[float]) -> float:
    """Return half of the 95 % interval of the mean of ``values``, relative to the mean.

    Example: 1, 2, 3 have the mean 2 and the standard deviation 1: 1.96 / sqrt(3) / 2 = 0.566.
    """
    return 1.96 * stdev(values) / sqrt(len(values)) / fmean(values) if len(values) > 1 else 0.0


def describe_costs(
    costs: Costs, memory: Mapping[str, Sequence[MemoryPeak]], prepared: Prepared
) -> list[list[str]]:
    """Return a table of the time, memory and disk space of a run."""
    sizes = prepared.sizes
    run = costs.run_s(sizes)
    unit, unit_s = next((unit for unit in UNITS if run.value >= 2 * unit[1]), UNITS[-1])
    times = Estimate(*(value / unit_s for value in run))
    rollout_s, (num_measured, num_held) = fmean(costs.rollouts_s), costs.discussions
    rate = fmean(costs.sampled_tokens) * num_held / rollout_s
    rollout = f"{rollout_s:.1f} s, {rate:,.0f} sampled tokens a second"
    if num_measured != num_held:
        rollout += f" (by {num_measured} of {num_held} discussions)"
    update, at_least = "not measured: there was nothing to train on", "more than "
    if costs.trained_tokens:
        rate = costs.trained_tokens / costs.update_s
        update = f"{costs.update_s:.1f} s, {rate:,.0f} tokens of samples a second"
        at_least = ""
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
