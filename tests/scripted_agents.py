"""A society without engines, for tests of the driver."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

import pytest

from comas import train as driver
from comas.config.schema import Config
from comas.engines.cluster.actors import MemoryPeak
from comas.policy_optimization.update_stats import UpdateStats
from comas.preflight.preparation import prepare
from comas.run import RunDirectory
from comas.types import Generation, Request, TrainingSample

Buffers = Mapping[int, Sequence[TrainingSample]]
"""Policy -> its samples."""


class ScriptedAgents(AbstractContextManager["ScriptedAgents"]):
    """Two agents that answer with the turn's seed and the number of updates at the last sync."""

    def __init__(self, fails_in: list[int] | None = None, error: Any = KeyboardInterrupt) -> None:
        """The first update of each step of ``fails_in``, which are taken out of it, raises
        ``error(step)``."""
        self.fails_in = fails_in or []
        self.error = error
        self.weights = 0
        self.served = 0
        """The weights of the last sync."""
        self.loaded: list[int] = []
        """The steps of the loaded checkpoints."""

    def __exit__(self, *error: object) -> None:
        pass

    async def generate(self, request: Request) -> Generation:
        text = f"\\boxed{{{request.seed}{self.served}}} <score>1</score>"
        return Generation((1,), (2, 3), text, (-0.1, -1e-17), "stop", self.served)

    def begin_update(self, buffers: Buffers, *, step: int) -> Callable[[], dict[int, UpdateStats]]:
        if self.fails_in[:1] == [step]:
            raise self.error(self.fails_in.pop(0))
        self.weights += 1
        sizes = {policy: len(own) for policy, own in buffers.items()}
        return lambda: {
            policy: UpdateStats(learning_rate=0.1, num_samples=num, advantages=((),) * num)
            for policy, num in sizes.items()
        }

    def sync_weights(self, policies: object = None) -> None:
        self.served = self.weights

    def memory_peaks(self) -> dict[str, list[MemoryPeak]]:
        return {"ranks": [MemoryPeak(1 << 30, 0), MemoryPeak(3 << 29, 0)]}

    def save_checkpoint(self, folder: Path) -> None:
        (folder / "state").write_text(str(self.weights))

    def load_checkpoint(self, folder: Path, *, step: int) -> None:
        self.weights = int((folder / "state").read_text())
        self.loaded.append(step)

    def save_models(self, folder: Path) -> None:
        for agent in range(2):
            (folder / f"agent_{agent}").mkdir()
            (folder / f"agent_{agent}/weights").write_text(str(self.weights))


def play(monkeypatch: pytest.MonkeyPatch, config: Config, agents: ScriptedAgents) -> Path:
    monkeypatch.setattr(driver, "agents_of", lambda *_: agents)
    prepared = prepare(config)
    begin = RunDirectory.open if config.resume else RunDirectory.create
    with begin(prepared.config) as run, suppress(KeyboardInterrupt if agents.fails_in else ()):
        driver.train(prepared, run)
    return run.path
