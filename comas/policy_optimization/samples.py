"""From rewarded discussions to one training buffer per policy."""

from collections.abc import Sequence

from comas.types import RewardedDiscussion, TrainingSample


def collect_samples(
    rewarded: Sequence[RewardedDiscussion],
    *,
    policy_of_agent: Sequence[int],
    mask_truncated: bool,
) -> list[list[TrainingSample]]:
    """Collect everything each policy said, in any role, into its buffer D_k, in order.

    A turn without a reward or without a sampled token is left out, and with ``mask_truncated``
    also a response cut off by the token limit: it counts neither in the loss nor in any mean of an
    estimator.
    """
    buffers: list[list[TrainingSample]] = [[] for _ in range(max(policy_of_agent) + 1)]
    for item in rewarded:
        for turn, reward in zip(item.discussion.turns, item.rewards, strict=True):
            said = turn.generation
            truncated = said.finish_reason == "length"
            if reward is None or (mask_truncated and truncated):
                continue
            assert not turn.is_given, f"{turn.turn_id}: nobody said it, so it has no reward"
            if said.num_sampled_tokens == 0:
                continue
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
                    sampled=said.sampled,
                )
            )
    return buffers


class Buffers:
    """The samples that each policy gathers between its updates; a frozen one gathers none."""

    def __init__(self, update_every: Sequence[int]) -> None:
        """``update_every``: steps from one update of each policy to the next; 0 for none."""
        self._update_every = update_every
        self._gathered: list[list[TrainingSample]] = [[] for _ in update_every]

    def add(self, samples: Sequence[Sequence[TrainingSample]]) -> None:
        """Add what each policy said in a step."""
        for gathered, every, said in zip(self._gathered, self._update_every, samples, strict=True):
            gathered += said if every > 0 else []

    def take_due(self, step: int, *, num_steps: int) -> dict[int, list[TrainingSample]]:
        """Return policy -> its buffer, of those that are updated in ``step``, as all are in the
        last; they begin anew."""
        due = {}
        for policy, every in enumerate(self._update_every):
            if every > 0 and (step % every == 0 or step == num_steps):
                due[policy], self._gathered[policy] = self._gathered[policy], []
        return due
