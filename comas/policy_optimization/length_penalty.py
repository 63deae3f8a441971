"""A softer end of the response limit: rewards fall before it cuts a response off."""

from collections.abc import Sequence
from dataclasses import replace

from comas.types import TrainingSample


def penalise_length(
    samples: Sequence[TrainingSample], *, buffer_tokens: int | None, max_response_tokens: int
) -> Sequence[TrainingSample]:
    """The samples with ``overlong_punishment`` added to their rewards; as they are without a
    buffer."""
    if buffer_tokens is None:
        return samples
    return [
        replace(
            sample,
            reward=sample.reward
            + overlong_punishment(
                len(sample.response_token_ids),
                buffer_tokens=buffer_tokens,
                max_response_tokens=max_response_tokens,
            ),
        )
        for sample in samples
    ]


def overlong_punishment(num_tokens: int, *, buffer_tokens: int, max_response_tokens: int) -> float:
    """DAPO's soft overlong punishment (eq. 13 of arXiv 2503.14476) of a response of |y| tokens::

        0                                       |y| <= L_max - L_buffer
        (L_max - L_buffer - |y|) / L_buffer     in between
        -1                                      |y| >= L_max

    Example: of at most 100 tokens the last 20 are the buffer; a response of 85 gets -0.25.
    """
    excess = num_tokens - (max_response_tokens - buffer_tokens)
    return -min(max(excess / buffer_tokens, 0.0), 1.0)
