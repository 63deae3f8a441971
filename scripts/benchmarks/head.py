"""Log-probs from hidden states, forward and backward: logits in chunks against all at once.

One thread each, in one process and in turns:

  in chunks          ``token_logprobs``, what the policy update computes
  all logits         the output layer, log-softmax and autograd
  PyTorch's chunks   ``torch.nn.functional.linear_cross_entropy`` by chunks of the same size

The error is that of the log-probs against the same in float64, from the same rounded input.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from scripts.benchmarks._turns import Numbers, Repeated, Report, time_ratios, timed_with_memory
from scripts.command import read_arguments, say

if TYPE_CHECKING:
    import torch


@dataclass
class Arguments(Repeated):
    tokens: int = 8192
    hidden: int = 128
    vocabulary: int = 32_000
    dtype: str = "float32"
    all_logits: bool = True
    """Needs three times the float32 logits."""
    repeats: int = 3


def main(arguments: Arguments) -> None:
    """Measure, and print the ratios."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    dtype = getattr(torch, arguments.dtype)
    hidden = torch.randn(arguments.tokens, arguments.hidden).to(dtype).requires_grad_()
    weight = torch.randn(arguments.vocabulary, arguments.hidden).div(8).to(dtype).requires_grad_()
    token_ids = torch.randint(arguments.vocabulary, (arguments.tokens,))
    kinds = _kinds(hidden, weight, token_ids)
    if not arguments.all_logits:
        del kinds["all logits"]

    logits_mib = 4 * arguments.tokens * arguments.vocabulary / 2**20

    def gradients(logprobs: Callable[[], torch.Tensor]) -> Numbers:
        numbers = timed_with_memory(
            lambda: torch.autograd.grad(logprobs().float().mean(), (hidden, weight))
        )
        return numbers | {"peak / logits": numbers["peak MiB"] / logits_mib}

    report = Report(arguments)
    report.compare(
        f"{arguments.tokens} tokens, {arguments.hidden} hidden values, vocabulary "
        f"{arguments.vocabulary}, {arguments.dtype}: {logits_mib:.0f} MiB of float32 logits",
        {name: partial(gradients, logprobs) for name, logprobs in kinds.items()},
        ratios=[r for name in list(kinds)[1:] for r in time_ratios("in chunks", name)],
    )
    for line in _errors(kinds, hidden, weight, token_ids):
        say(line)
    report.end()


def _kinds(
    hidden: torch.Tensor, weight: torch.Tensor, token_ids: torch.Tensor
) -> dict[str, Callable[[], torch.Tensor]]:
    from torch.nn.functional import linear, linear_cross_entropy
    from torch.nn.modules.linear_cross_entropy_options import LinearCrossEntropyOptions

    from comas.policy_optimization.logprobs import CHUNK_SIZE, token_logprobs

    options = LinearCrossEntropyOptions(batch_chunk_size=CHUNK_SIZE, chunking_method=None)
    rows = range(len(token_ids))
    return {
        "in chunks": lambda: token_logprobs(hidden, weight, token_ids, temperature=1.0)[0],
        "all logits": lambda: linear(hidden, weight).float().log_softmax(-1)[rows, token_ids],
        "PyTorch's chunks": lambda: (
            -linear_cross_entropy(hidden, weight, token_ids, reduction="none", options=options)
        ),
    }


def _errors(
    kinds: dict[str, Callable[[], torch.Tensor]],
    hidden: torch.Tensor,
    weight: torch.Tensor,
    token_ids: torch.Tensor,
) -> list[str]:
    """Errors of the first 100 log-probs of each way, in words."""
    import torch

    with torch.no_grad():
        logits = hidden[:100].double() @ weight.double().T
        exact = logits.log_softmax(-1)[range(len(logits)), token_ids[:100]]
        errors = {name: (way()[:100] - exact).abs() for name, way in kinds.items()}
    return [
        f"error of {name}: {error.mean():.1e} on average, {error.max():.1e} at most"
        for name, error in errors.items()
    ]


if __name__ == "__main__":
    main(read_arguments(Arguments, about=__doc__ or ""))
