"""Collect rewarded discussions into one training buffer per policy."""

from collections.abc import Sequence

from comas.types import RewardedDiscussion, TrainingSample


def collect_samples(
    rewarded: Sequence[RewardedDiscussion], *, policy_of_agent: Sequence[int], mask_truncated: bool
) -> list[list[TrainingSample]]:
    """Collect all turns of each policy, in any role, into its buffer D_k, in order.

    Leaves out turns without a reward and, with ``mask_truncated``, responses cut off by the token
    limit: these count neither in the loss nor in any mean of an estimator.
    """
    buffers: list[list[TrainingSample]] = [[] for _ in range(max(policy_of_agent) + 1)]
    for item in rewarded:
        for turn, reward in zip(item.discussion.turns, item.rewards, strict=True):
            said = turn.generation
            truncated = said.finish_reason == "length"
            if reward is None or (mask_truncated and truncated):
                continue
            assert not turn.is_given, f"{turn.turn_id}: no agent generated it, so it has no reward"
            buffers[policy_of_agent[turn.agent_index]].append(
                TrainingSample(
                    agent_index=turn.agent_index,
                    question_id=item.discussion.question.question_id,
                    discussion_id=item.discussion.discussion_id,
                    turn_id=turn.turn_id,
                    round_index=turn.round_index,
                    role=turn.role,
                    prompt_token_ids=said.prompt_token_ids,
                    response_token_ids=said.response_token_ids,
                    rollout_logprobs=said.rollout_logprobs,
                    reward=reward,
                )
            )
    return buffers


class Buffers:
    """Gathers each policy's samples between its updates, and none for frozen policies."""

    def __init__(self, update_every: Sequence[int]) -> None:
        """``update_every``: steps between the updates of each policy; 0 freezes it."""
        self._update_every = update_every
        self._gathered: list[list[TrainingSample]] = [[] for _ in update_every]

    def add(self, samples: Sequence[Sequence[TrainingSample]]) -> None:
        """Add each policy's samples of a step."""
        for gathered, every, said in zip(self._gathered, self._update_every, samples, strict=True):
            gathered += said if every > 0 else []

    def take_due(self, step: int, *, num_steps: int) -> dict[int, list[TrainingSample]]:
        """Return policy -> its buffer for the policies that are updated in ``step`` (in the last
        step, all), and empty these buffers."""
        due = {}
        for policy, every in enumerate(self._update_every):
            if every > 0 and (step % every == 0 or step == num_steps):
                due[policy], self._gathered[policy] = self._gathered[policy], []
        return due
