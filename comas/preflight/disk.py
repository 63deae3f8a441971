"""How much disk a run needs, from nothing but the sizes of its models and the settings."""

import math
from collections.abc import Sequence
from pathlib import Path

from safetensors import safe_open

from comas.config.schema import Config
from comas.preflight.memory import BYTES, GIB, model_shape
from comas.utils.model_folder import description_of

RECORDS_BYTES = GIB // 2
"""Room for metrics, discussions, logs and plots."""


def num_parameters(model: str) -> int:
    """Parameters of a model: in a folder, counted in the heads of its files; of a hub name, by its
    config.json.

    Raises ValueError when the hub has no such model, or cannot be reached.
    """
    if not Path(model).is_dir():
        return model_shape(str(description_of(model))).num_parameters
    total = 0
    for path in Path(model).glob("*.safetensors"):
        with safe_open(path, framework="np") as weights:
            names = list(weights.keys())
            total += sum(math.prod(weights.get_slice(name).get_shape()) for name in names)
    return total


def checkpoint_bytes(sizes: Sequence[int], config: Config) -> int:
    """Size of one checkpoint of trained policies with so many parameters each.

    It holds Adam's two moments and the float32 weights, and below ZeRO-3 the model's own weights
    (without ZeRO in float32 these are the float32 weights).

    Example: four policies of 3.09e9 parameters in bfloat16: 14 bytes each under ZeRO-2 are 173
    GB, 12 bytes under ZeRO-3 148 GB.
    """
    policy = config.policy
    is_own_master = policy.zero_stage == 0 and policy.dtype == "float32"
    holds_weights = policy.zero_stage != 3 and not is_own_master
    return (8 + 4 + holds_weights * BYTES[policy.dtype]) * sum(sizes)


def needed_bytes(sizes: Sequence[int], config: Config, *, num_kept: int) -> int:
    """Free disk that a run needs whose trained policies have so many parameters each.

    The checkpoints that are kept and the one that is being written, less ``num_kept`` that a
    resumed run has already; the trained agents' models; records.
    """
    num_checkpoints = max(1, config.training.keep_checkpoints + 1 - num_kept)
    of_policy = dict(zip(config.trained_policies, sizes, strict=True))
    models = BYTES[config.policy.dtype] * sum(of_policy.get(p, 0) for p in config.policy_of_agent)
    return num_checkpoints * checkpoint_bytes(sizes, config) + models + RECORDS_BYTES
