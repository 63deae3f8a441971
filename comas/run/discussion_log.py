"""Discussions as people and other programs read them: one JSON object each."""

from collections.abc import Mapping
from typing import Any

from comas.types import RewardedDiscussion, Turn, TurnKey


def discussion_record(
    item: RewardedDiscussion, *, verdicts: Mapping[TurnKey, str]
) -> dict[str, Any]:
    """The question, and every turn with its reward; agent null: nobody said it, it was given.

    Prompts are left out: they repeat the question and earlier turns, and would make the
    files many times as large.
    """
    discussion = item.discussion
    return {
        "discussion_id": discussion.discussion_id,
        "question_id": discussion.question.question_id,
        "domain": discussion.question.domain,
        "question": discussion.question.text,
        "num_overlong_prompts": discussion.num_overlong_prompts,
        "turns": [
            _turn_record(turn, reward, verdicts.get((discussion.discussion_id, turn.turn_id)))
            for turn, reward in zip(discussion.turns, item.rewards, strict=True)
        ],
    }


def _turn_record(turn: Turn, reward: float | None, verdict: str | None) -> dict[str, Any]:
    record = {
        "turn_id": turn.turn_id,
        "parent_turn_id": turn.parent_turn_id,
        "round": turn.round_index,
        "role": turn.role,
        "agent": None if turn.is_given else turn.agent_index,
        "reward": reward,
        "response": turn.text,
        "finish_reason": turn.generation.finish_reason,
        "num_prompt_tokens": len(turn.generation.prompt_token_ids),
        "num_response_tokens": len(turn.generation.response_token_ids),
        "policy_version": turn.generation.policy_version,
    }
    return record if verdict is None else record | {"verdict": verdict}
