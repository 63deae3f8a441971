"""Where the time of an update goes: its phases, and the operations that take longest."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from comas.types import TrainingSample


class Stopwatch:
    """Sums up the seconds of phases, without those of phases inside them."""

    def __init__(self, synchronize: Callable[[], object]) -> None:
        self.seconds, self._synchronize = Counter[str](), synchronize
        self._running, self._since = ["other"], time.perf_counter()

    def lap(self) -> None:
        """Add the time since the last lap to the innermost phase."""
        self._synchronize()
        now = time.perf_counter()
        self.seconds[self._running[-1]] += now - self._since  # type: ignore[assignment]
        self._since = now

    def watch(self, phase: str, owner: Any, method: str) -> None:
        """Make a call of the method a phase."""
        inner = getattr(owner, method)

        def watched(*arguments: Any, **named: Any) -> Any:
            self.lap()
            self._running.append(phase)
            try:
                return inner(*arguments, **named)
            finally:
                self.lap()
                self._running.pop()

        setattr(owner, method, watched)


def profile_update(
    actor: Any, buffers: Mapping[int, Sequence[TrainingSample]], step: int
) -> dict[str, Any]:
    """Update the only policy of a ``PolicyActor`` twice, in its process: once for the 20
    ``operations`` (kernels on a GPU) that take longest (name, calls, seconds without those inside),
    once for its ``phases`` in seconds, each of which waits for the GPU, which takes longer."""
    import torch
    from torch.profiler import profile

    family, on_gpu = actor._trainer, actor.device == "cuda"
    [trainer] = family.trainers.values()
    engine = trainer._engine
    with profile() as recorded:
        family.update(buffers, step=step)
    own, kind = ("self_device_time_total", "CUDA") if on_gpu else ("self_cpu_time_total", "CPU")
    events = [e for e in recorded.key_averages() if e.device_type.name == kind]
    events = sorted((e for e in events if not e.is_user_annotation), key=lambda e: -getattr(e, own))
    longest = [(e.key, e.count, getattr(e, own) / 1e6) for e in events[:20]]
    watch = Stopwatch(torch.cuda.synchronize if on_gpu else lambda: None)
    layers = [m for n, m in engine.module.named_modules() if n.endswith("self_attn")]
    for phase in (
        ("states back", family, "reload_states"),
        ("advantages", trainer, "_targets"),
        ("packing", trainer, "_micro_batches"),
        ("packing", trainer, "_assemble"),
        ("forward", engine, "forward"),
        ("log-prob head", engine.module.head, "forward"),
        ("backward", engine, "backward"),
        ("optimiser", engine, "step"),
        *(("attention", layer, "forward") for layer in layers),
    ):
        watch.watch(*phase)
    if on_gpu:
        family.offload_states()
        watch.lap()
        watch.seconds.clear()
        family.reload_states()
    family.update(buffers, step=step)
    watch.lap()
    return {"phases": dict(watch.seconds), "operations": longest}
