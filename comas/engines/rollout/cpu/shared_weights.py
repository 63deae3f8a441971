"""Weights for the rollout engines of a CPU, in a file in memory."""

import os
from collections.abc import Callable, Iterable

import torch


def send_in_memory(
    load: Callable[[str], object],
    named_weights: Iterable[tuple[str, torch.Tensor]],
    *,
    is_first: bool,
) -> None:
    """Make engines serve ``named_weights``, (Hugging Face name, full tensor), which all ranks of a
    policy gather together.

    The first rank writes them into memory that only processes of this user can open, and calls
    ``load`` with its path, which returns when the engines have loaded them.
    """
    weights = {name: weight for name, weight in named_weights if is_first}
    if not is_first:
        return
    with open(os.memfd_create("weights"), "wb") as file:
        os.fchmod(file.fileno(), 0o600)
        torch.save(weights, file)
        file.flush()
        load(f"/proc/{os.getpid()}/fd/{file.fileno()}")
