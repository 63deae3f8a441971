"""Questions that teach nothing are given up for further ones, within a bound."""

from collections.abc import Callable, Collection, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from builders import discussion, turn
from small_runs import QUICKSTART

from comas.data import draw_batch, draw_further
from comas.ideas.refill import rewards_differ
from comas.preflight.configuration import load_config
from comas.reward_formulation import REWARD_SCHEMES
from comas.run.batches import sample
from comas.types import (
    Discussion,
    Question,
    RewardedDiscussion,
    Rewards,
)
from comas.verification.solutions import Verdicts

REFILLED = "reward.scheme=comas.ideas.refill:refilled"
QUESTIONS = [Question(f"q{number}", "math", "?") for number in range(12)]
BATCH = draw_batch(QUESTIONS, step=0, batch_size=4, seed=0)
FURTHER = draw_further(QUESTIONS, BATCH, step=0, seed=0)


def scored(question: Question, copy: int, score: int) -> Discussion:
    said = (turn("r0.s0"), turn("r0.s0.e0"), turn("r0.s0.e0.t0", f"<score>{score}</score>"))
    return discussion(*said, name=f"{question.question_id}/{copy}", question=question)


class Filled:
    """A first step with a batch of four questions, of which some teach: their two copies are scored
    differently."""

    def __init__(self, teaching: Collection[Question], scheme: str = REFILLED) -> None:
        self.asked: list[list[Question]] = []
        self.num_rewarded: list[int] = []
        self._teaching = teaching
        config = load_config(QUICKSTART, ["rollout.batch_size=4", scheme])
        prepared: Any = SimpleNamespace(config=config, train=SimpleNamespace(questions=QUESTIONS))
        self._scheme = REWARD_SCHEMES[config.reward.scheme]
        self.rewards, verdicts = sample(prepared, self.discuss, self.reward, 1, {})
        self.verdicts = verdicts()
        names = [item.discussion.question.question_id for item in self.rewards.discussions]
        self.kept = [question for question in QUESTIONS if question.question_id in names]

    def discuss(self, *, step: int, questions: Sequence[Question]) -> list[Discussion]:
        assert step == 1
        self.asked.append(list(questions))
        return [
            scored(question, copy, 3 if copy and question in self._teaching else 1)
            for question in self.asked[-1]
            for copy in range(2)
        ]

    def reward(
        self, discussions: Sequence[Discussion], *, step: int
    ) -> tuple[Rewards, Callable[[], Verdicts]]:
        assert step == 1
        self.num_rewarded.append(len(discussions))
        verdicts: Verdicts = {(d.discussion_id, "r0.s0"): "correct" for d in discussions}
        return self._scheme(discussions, evidence={}), lambda: verdicts


def in_order(*questions: Question) -> list[Question]:
    return sorted(questions, key=QUESTIONS.index)


def test_as_many_questions_are_asked_as_lack_until_a_batch_teaches():
    # Two of the batch teach, of two more the second, and then the next.
    filled = Filled([BATCH[0], BATCH[2], FURTHER[1], FURTHER[2]])
    assert filled.asked == [BATCH, FURTHER[:2], [FURTHER[2]]]
    assert filled.kept == in_order(BATCH[0], BATCH[2], FURTHER[1], FURTHER[2])
    assert all(map(rewards_differ, [filled.rewards.discussions[i : i + 2] for i in (0, 2, 4, 6)]))
    told = filled.rewards.metrics
    assert (told["refill/questions"], told["refill/teaching_share"]) == (7, 4 / 7)
    assert told["scoring/invalid_rate"] == 0  # of the scheme itself
    # What is kept is rewarded as one batch, and its verdicts are of it.
    assert filled.num_rewarded == [8, 4, 2, 8]
    assert {name for name, _ in filled.verdicts} == {
        item.discussion.discussion_id for item in filled.rewards.discussions
    }


def test_where_too_few_teach_the_batch_is_filled_up_after_three_times_as_many():
    filled = Filled([FURTHER[5]])
    assert filled.asked == [BATCH, FURTHER[:4], FURTHER[4:]]
    assert filled.kept == in_order(FURTHER[5], *BATCH[:3])
    assert filled.rewards.metrics["refill/questions"] == 12


@pytest.mark.parametrize("scheme", [REFILLED, "reward.scheme=interaction"])
def test_a_batch_that_teaches_is_left_as_it_is_and_so_is_that_of_another_reward(scheme):
    filled = Filled(BATCH if scheme == REFILLED else [], scheme)
    assert filled.asked == [BATCH] and filled.num_rewarded == [8]
    assert filled.kept == in_order(*BATCH)
    assert ("refill/questions" in filled.rewards.metrics) == (scheme == REFILLED)


def test_an_agents_rewards_in_one_role_have_to_differ():
    told = discussion(turn("r0.s0"), turn("r0.s1", agent=1), turn("r0.s0.e0", agent=1))

    def differ(*rewards: tuple[float | None, ...]) -> bool:
        return rewards_differ([RewardedDiscussion(told, each) for each in rewards])

    assert not differ((1.0, 0.0, 0.5), (1.0, 0.0, 0.5))  # others' and other roles' do
    assert not differ((1.0, None, 0.5), (None, 0.0, 0.5))
    assert differ((1.0, 0.0, 0.5), (1.0, 0.0, 0.0))


def test_further_questions_are_all_others_in_an_order_of_the_step():
    assert {q.question_id for q in FURTHER} == {q.question_id for q in QUESTIONS} - {
        q.question_id for q in BATCH
    }
    assert draw_further(QUESTIONS, BATCH, step=0, seed=0) == FURTHER
    again = draw_further(QUESTIONS, BATCH, step=3, seed=0)  # of the same batch, an epoch on
    assert again != FURTHER
