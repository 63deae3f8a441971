"""Seconds that a step waits for its checkpoint: written beside the next step, and before it.

One rank of DeepSpeed in this process, and the writer of a run's checkpoints with its seal:

  update            a step's update alone
  before it         a checkpoint is copied, written and sealed, then the update begins
  beside it         a checkpoint is copied; it is written and sealed beside the update

In a run there is also the rollout of the next step to write beside.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from comas.types import TrainingSample
from scripts.benchmarks._turns import Repeated, Report, Turns, Way, timed_with_memory
from scripts.benchmarks.update import draw_samples, start_trainer
from scripts.command import read_arguments, say

if TYPE_CHECKING:
    from comas.engines.policy.trainer import PolicyTrainer
    from comas.run import CheckpointWriter


@dataclass
class Arguments(Repeated):
    hidden: int = 96
    """768 with 12 layers: about 100 M parameters."""
    layers: int = 3
    samples: int = 144
    repeats: int = 9


def main(arguments: Arguments) -> None:
    """Measure, and print what a step waits."""
    import torch

    torch.set_num_threads(1)
    report = Report(arguments)
    with tempfile.TemporaryDirectory(dir=".") as folder:
        trainer = start_trainer(
            Path(folder) / "model", hidden_size=arguments.hidden, num_layers=arguments.layers
        )
        millions = sum(weight.numel() for _, weight in trainer.named_weights()) / 1e6
        with _writer(Path(folder), trainer) as checkpoints:
            turns = report.compare(
                f"{millions:.1f} M parameters",
                _ways(trainer, checkpoints, draw_samples(arguments.samples)),
                measure=timed_with_memory,
            )
        [newest] = Path(folder).glob("saves/latest/checkpoints/*")
        num_bytes = sum(path.stat().st_size for path in newest.rglob("*") if path.is_file())
    say(f"a checkpoint of {num_bytes / 2**20:.0f} MiB: {_waits(turns)}")
    report.end()


@contextmanager
def _writer(folder: Path, trainer: PolicyTrainer) -> Iterator[CheckpointWriter]:
    from comas.preflight.configuration import load_config
    from comas.run import CheckpointWriter, RunDirectory

    settings = [f"saves={folder / 'saves'}", "training.keep_checkpoints=1"]
    with ThreadPoolExecutor(1) as thread, RunDirectory.create(load_config(None, settings)) as run:

        def begin(path: Path) -> list[Future[None]]:
            trainer.copy_checkpoint(path / "policy_0")
            return [thread.submit(trainer.write_checkpoint)]

        with CheckpointWriter(run, begin, timeout_s=600) as checkpoints:
            yield checkpoints


def _ways(
    trainer: PolicyTrainer, checkpoints: CheckpointWriter, samples: list[TrainingSample]
) -> dict[str, Way]:
    steps = count(1)

    def update() -> None:
        trainer.update(samples, step=0)

    def before_it() -> None:
        checkpoints.save(next(steps))
        checkpoints.wait()
        update()

    def beside_it() -> None:
        checkpoints.save(next(steps))
        update()
        checkpoints.wait()

    return {"update": update, "before it": before_it, "beside it": beside_it}


def _waits(turns: Turns) -> str:
    """Medians of the differences, turn by turn: about 0 where only noise is left."""
    before, beside = (
        median(
            with_it["seconds"] - alone["seconds"]
            for with_it, alone in zip(turns[name], turns["update"], strict=True)
        )
        for name in ("before it", "beside it")
    )
    return (
        f"a step waits {before:.3f} s for a checkpoint before it, {beside:.3f} s for one beside it"
    )


if __name__ == "__main__":
    given = read_arguments(Arguments, about=__doc__ or "")
    os.environ["DS_ACCELERATOR"] = "cpu"
    main(given)
