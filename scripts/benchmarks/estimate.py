"""The hours of the paper's run on GPUs: arithmetic on assumptions, not a measurement.

The parts of a step and what is assumed of them: comas/preflight/hours.py.

"with the paper's memory settings" is configs/comas_paper_memory.yaml: ZeRO-3 gathers the weights
twice in every micro batch of 2 samples, gradients go over PCIe and back, Adam runs on the host.
"all agents solve in each round" is interaction.schedule=parallel with 2 l rounds: the four times as
many responses that the paper's cost table counts (configs/comas_released.yaml). All of these on 8
GPUs; as LoRA agents (configs/comas_lora.yaml) on one.
"""

from __future__ import annotations

import sys
from pathlib import Path

from comas.preflight.configuration import PAPER_CONFIG, load_config
from comas.preflight.hours import Assumptions, hours, one_step
from comas.preflight.memory import ModelShape
from comas.preflight.sizes import derive_sizes
from scripts.benchmarks import read_arguments

QWEN_3B = ModelShape(3_085_938_688, 36, 2048, 11008, 256, 151936)
NUM_QUESTIONS = 2000
PAPER_MEMORY = Path("configs/comas_paper_memory.yaml")
LORA = Path("configs/comas_lora.yaml")


def main(arguments: Assumptions) -> None:
    """Print the parts of a step and the hours of the run, with either memory settings."""
    lines = [
        f"{'':36} {'rollout':>8} {'update':>8} {'transfers':>10} {'phases':>7} {'step s':>7} "
        f"{'hours':>6}"
    ]
    for name, path, overrides in (
        ("configs/comas.yaml", PAPER_CONFIG, []),
        ("with the paper's memory settings", PAPER_MEMORY, []),
        ("all agents solve in each round", PAPER_CONFIG, ["interaction.schedule=parallel"]),
        ("LoRA agents on one GPU", LORA, []),
    ):
        config = load_config(path, overrides)
        sizes = derive_sizes(config, num_questions=NUM_QUESTIONS)
        step = one_step(config, sizes, QWEN_3B, arguments)
        in_all = hours(step, config, sizes, QWEN_3B, arguments)
        lines.append(
            f"{name:36} {step.rollout:8.0f} {step.update:8.0f} {step.transfers:10.0f} "
            f"{step.phases:7.0f} {step.seconds:7.0f} {in_all:6.1f}"
        )
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(read_arguments(Assumptions, about=__doc__ or ""))
