"""How much of an update the rounding of weights to bfloat16 leaves."""

from pathlib import Path

from safetensors import safe_open

from comas.run.prepared import Prepared
from comas.utils.model_folder import folder_of

SAMPLED = 97
"""Every 97th weight is examined."""


def describe_rounding(prepared: Prepared) -> list[str]:
    """Return a line per model and learning rate, if whole models are trained in bfloat16.

    Adam changes a weight by about the learning rate in a step. These changes accumulate in float32,
    but policy and engines compute with rounded weights.
    """
    config = prepared.config
    if config.policy.dtype != "bfloat16" or config.policy.lora.rank is not None:
        return []
    rates = {
        (prepared.models[policy], config.learning_rates[policy])
        for policy in config.trained_policies
    }
    return [
        f"a change by the learning rate, {rate:g}, alters {share_moved(folder_of(model), rate):.1%}"
        f" of the weights of {Path(model).name} in bfloat16; the others are rounded back"
        for model, rate in sorted(rates)
    ]


def share_moved(folder: Path, change: float) -> float:
    """Return the share of a model's weights that differ in bfloat16 after a ``change`` up or down.

    Example: 1.0 needs a change of 0.002 downwards or 0.004 upwards, for bfloat16 has 8 bits.
    """
    num_moved = num_weights = 0
    for file in folder.glob("*.safetensors"):
        with safe_open(file, "pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118 (it is no mapping)
                weights = tensors.get_tensor(name).flatten()[::SAMPLED].bfloat16().float()
                for changed in (weights + change, weights - change):
                    num_moved += int((changed.bfloat16() != weights).sum())
                num_weights += 2 * len(weights)
    return num_moved / max(num_weights, 1)
