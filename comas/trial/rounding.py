"""What the rounding of weights to bfloat16 leaves of an update."""

from pathlib import Path

from safetensors import safe_open

from comas.run.prepared import Prepared
from comas.utils.model_folder import folder_of

SAMPLED = 97
"""One weight in so many is looked at."""


def describe_rounding(prepared: Prepared) -> list[str]:
    """Return a line for each model and learning rate of a run in bfloat16 that trains whole models.

    Adam's optimiser changes a weight by about the learning rate in a step. It adds up in float32,
    but policy and engines compute with what was rounded.
    """
    config = prepared.config
    if config.policy.dtype != "bfloat16" or config.policy.lora.rank is not None:
        return []
    rates = {
        (prepared.models[policy], config.learning_rates[policy])
        for policy in config.trained_policies
    }
    return [
        f"a change by the learning rate, {rate:g}, takes {share_moved(folder_of(model), rate):.1%} "
        f"of the weights of {Path(model).name} to another number in bfloat16"
        for model, rate in sorted(rates)
    ]


def share_moved(folder: Path, change: float) -> float:
    """Return the share of a model's weights that ``change``, up or down, takes to another number
    in bfloat16: 8 bits, so that 1.0 needs 0.002 downwards and 0.004 upwards."""
    num_moved = num_weights = 0
    for file in folder.glob("*.safetensors"):
        with safe_open(file, "pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118 (it is no mapping)
                weights = tensors.get_tensor(name).flatten()[::SAMPLED].bfloat16().float()
                for changed in (weights + change, weights - change):
                    num_moved += int((changed.bfloat16() != weights).sum())
                num_weights += 2 * len(weights)
    return num_moved / max(num_weights, 1)
