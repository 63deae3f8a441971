"""What a run watches itself for."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence

from comas.types import RewardedDiscussion, TrainingSample

log = logging.getLogger(__name__)

MAX_EMPTY_UPDATES = 5
"""Updates in a row in which a policy may have nothing to learn from."""


class EmptyUpdates:
    """Ends a run whose updates change nothing, which would otherwise look like training."""

    def __init__(self) -> None:
        self._in_a_row: Counter[int] = Counter()

    def check(
        self,
        buffers: Mapping[int, Sequence[TrainingSample]],
        rewarded: Sequence[RewardedDiscussion],
        *,
        policy_of_agent: Sequence[int],
    ) -> None:
        """Warn of every policy whose buffer is empty.

        Args:
            buffers: policy -> what it is about to be updated with.
            rewarded: the discussions of the step, which tell the reason.

        Raises:
            RuntimeError: a policy had nothing for the ``MAX_EMPTY_UPDATES``-th time in a row.
        """
        for policy, samples in buffers.items():
            if samples:
                self._in_a_row[policy] = 0
                continue
            self._in_a_row[policy] += 1
            reason = _why_empty(rewarded, policy, policy_of_agent)
            if self._in_a_row[policy] >= MAX_EMPTY_UPDATES:
                raise RuntimeError(
                    f"policy {policy} had nothing to learn from in {MAX_EMPTY_UPDATES} updates in "
                    f"a row ({reason}). If most are cut off, its model may have no end-of-sequence "
                    "token, or rollout.max_response_tokens is too small"
                )
            log.warning("policy %d has nothing to learn from in this step: %s", policy, reason)


def _why_empty(
    rewarded: Sequence[RewardedDiscussion], policy: int, policy_of_agent: Sequence[int]
) -> str:
    """``of its 12 responses 9 are cut off and 3 have no reward``"""
    said = [
        (turn.generation.finish_reason == "length", reward is None)
        for item in rewarded
        for turn, reward in zip(item.discussion.turns, item.rewards, strict=True)
        if not turn.is_given and policy_of_agent[turn.agent_index] == policy
    ]
    num_cut = sum(is_cut for is_cut, _ in said)
    num_without = sum(not is_cut and without for is_cut, without in said)
    return f"of its {len(said)} responses {num_cut} are cut off and {num_without} have no reward"
