"""The hours of the paper's run on GPUs: arithmetic on assumptions, not a measurement.

The parts of a step and what is assumed of them: comas/preflight/hours.py.

"with the paper's memory settings" is configs/comas_paper_memory.yaml: ZeRO-3 gathers the weights
twice in every micro batch of 2 samples, gradients go over PCIe and back, Adam runs on the host.
"all agents solve in each round" is interaction.schedule=parallel with 2 l rounds: the four times as
many responses that the paper's cost table counts (configs/comas_released.yaml). All of these on 8
GPUs; as LoRA agents (configs/comas_lora.yaml) on one.
"""

from __future__ import annotations

from pathlib import Path

from comas.preflight.configuration import PAPER_CONFIG, load_config
from comas.preflight.hours import Assumptions, hours_interval, one_step
from comas.preflight.memory import ModelShape
from comas.preflight.sizes import derive_sizes
from scripts.command import read_arguments, say

QWEN_3B = ModelShape(3_085_938_688, 36, 2048, 11008, 256, 151936)
NUM_QUESTIONS = 2000
PAPER_MEMORY = Path("configs/comas_paper_memory.yaml")
LORA = Path("configs/comas_lora.yaml")


def main(arguments: Assumptions) -> None:
    """Print the parts of a step and the hours of the run, each from best to worst."""
    lines = [
        f"{'':36} {'rollout':>12} {'update':>12} {'transfers':>10} {'phases':>7} {'step s':>12} "
        f"{'hours':>13}"
    ]
    for name, path, overrides in (
        ("configs/comas.yaml", PAPER_CONFIG, []),
        ("with the paper's memory settings", PAPER_MEMORY, []),
        ("all agents solve in each round", PAPER_CONFIG, ["interaction.schedule=parallel"]),
        ("LoRA agents on one GPU", LORA, []),
    ):
        config = load_config(path, overrides)
        sizes = derive_sizes(config, num_questions=NUM_QUESTIONS)
        best, worst = (
            one_step(config, sizes, QWEN_3B, case) for case in (arguments, arguments.worst)
        )
        least, most = hours_interval(config, sizes, QWEN_3B, arguments)
        lines.append(
            f"{name:36} {_interval(best.rollout, worst.rollout):>12} "
            f"{_interval(best.update, worst.update):>12} {best.transfers:10.0f} "
            f"{best.phases:7.0f} {_interval(best.seconds, worst.seconds):>12} "
            f"{f'{least:.1f} to {most:.1f}':>13}"
        )
    say("\n".join(lines))


def _interval(best: float, worst: float) -> str:
    return f"{best:.0f} to {worst:.0f}"


if __name__ == "__main__":
    main(read_arguments(Assumptions, about=__doc__ or ""))
