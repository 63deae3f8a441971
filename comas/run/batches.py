"""The batch of every step: refilled if the reward scheme needs it, and sampled up to
``training.max_staleness`` steps ahead, while the policies train.

With a staleness of 0, ``comas.train`` samples, updates and syncs in turn. With k > 0, batch t + k
is sampled during update t, with the weights from before it::

    k = 0   engines   sample t        .        sample t+1     .
            ranks        .         update t        .       update t+1

    k = 1   engines   sample t+1     sync     sample t+2     sync
            ranks     update t       sync     update t+1     sync

Which weights sample a batch depends on the step alone, so runs with the same seed are equal, also
after a resume.
"""

import json
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any, TypeVar

from pydantic import TypeAdapter

from comas.data import draw_batch, draw_further
from comas.reward_formulation import REWARD_SCHEMES
from comas.run.prepared import Prepared
from comas.types import Discussion, Question, RewardedDiscussion, Rewards
from comas.utils.files import read_json, write_text
from comas.verification.solutions import Verdicts

AHEAD = "ahead.json"
"""File of a checkpoint: batches sampled for later steps."""
NOTED = "noted.json"
"""File of a checkpoint: question id -> the curriculum's note on it."""

T = TypeVar("T")
WaitForVerdicts = Callable[[], Verdicts]
"""Waits for, and returns, the verdicts on all solutions of a batch."""

Discuss = Callable[..., list[Discussion]]
Reward = Callable[..., tuple[Rewards, WaitForVerdicts]]


def sample(
    prepared: Prepared, discuss: Discuss, reward: Reward, step: int, noted: dict[str, float]
) -> tuple[Rewards, WaitForVerdicts]:
    """Draw the questions of a step, or let the reward scheme's curriculum choose them, and return
    the rewarded discussions. The curriculum's notes are added to ``noted``, the only state that a
    resume needs.

    Raises ValueError when the curriculum chooses too few questions.
    """
    config, questions = prepared.config, prepared.train.questions
    size, curriculum = config.rollout.batch_size, REWARD_SCHEMES[config.reward.scheme].curriculum
    if curriculum.choose is None:
        batch = draw_batch(questions, step=step - 1, batch_size=size, seed=config.seed)
        return refill(prepared, discuss, reward, batch, step=step)[1:]
    batch = curriculum.choose(questions, noted, size, Random(f"{config.seed}/{step}/questions"))
    if len({question.question_id for question in batch}) != size:
        raise ValueError(
            f"reward.scheme={config.reward.scheme}: its curriculum has to choose "
            f"rollout.batch_size={size} different questions, and did not in step {step}"
        )
    asked, rewards, verdicts = refill(prepared, discuss, reward, batch, step=step)
    known = sum(name in noted for name in asked)
    notes = {name: curriculum.note(items) for name, items in asked.items()}
    found = {name: note for name, note in notes.items() if note is not None}
    noted |= found
    told = {
        "curriculum/noted": fmean(found.values()) if found else None,
        "curriculum/known_share": known / len(asked),
    }
    return replace(rewards, metrics={**rewards.metrics, **told}), verdicts


def refill(
    prepared: Prepared, discuss: Discuss, reward: Reward, batch: Sequence[Question], *, step: int
) -> tuple[dict[str, list[RewardedDiscussion]], Rewards, WaitForVerdicts]:
    """Discuss ``batch``. If the curriculum says what ``teaches``, replace the other questions by
    further ones, until all teach or ``max_draws`` batches were discussed; what is still missing is
    filled up with questions that teach nothing.

    Returns everything that was discussed, by question id, and the step's rewarded discussions.

    Example: of 4 questions 2 teach; of 2 further ones 1 does, then 1 more: 7 were discussed.
    """
    config = prepared.config
    curriculum = REWARD_SCHEMES[config.reward.scheme].curriculum
    rewards, verdicts = reward(discuss(step=step, questions=batch), step=step)
    asked = _by_question(rewards)
    if (teaches := curriculum.teaches) is None:
        return asked, rewards, verdicts
    size = config.rollout.batch_size
    further = draw_further(prepared.train.questions, batch, step=step - 1, seed=config.seed)
    further = further[: (curriculum.max_draws - 1) * size]
    teaching = [name for name in asked if teaches(asked[name])]
    while (lacking := size - len(teaching)) and further:
        taken, further = further[:lacking], further[lacking:]
        more = _by_question(reward(discuss(step=step, questions=taken), step=step)[0])
        teaching += [name for name in more if teaches(more[name])]
        asked |= more
    told = {"refill/questions": len(asked), "refill/teaching_share": len(teaching) / len(asked)}
    if len(asked) > size:
        chosen = [*teaching, *(name for name in asked if name not in teaching)][:size]
        kept = [item.discussion for name in chosen for item in asked[name]]
        rewards, verdicts = reward(kept, step=step)  # as one batch
    return asked, replace(rewards, metrics={**rewards.metrics, **told}), verdicts


def _by_question(rewards: Rewards) -> dict[str, list[RewardedDiscussion]]:
    found: dict[str, list[RewardedDiscussion]] = {}
    for item in rewards.discussions:
        found.setdefault(item.discussion.question.question_id, []).append(item)
    return found


@dataclass(frozen=True)
class _Saved:
    """The part of a batch that a checkpoint holds."""

    step: int
    sampled_after: int
    """The last step whose update was in the weights that sampled it."""
    rewards: Rewards


_SAVED = TypeAdapter(list[_Saved])


@dataclass(frozen=True)
class Batch(_Saved):
    """The rewarded discussions of a step, and the verdicts to come."""

    wait_for_verdicts: WaitForVerdicts

    @property
    def staleness(self) -> int:
        """By how many updates the weights that sampled it were behind."""
        return self.step - 1 - self.sampled_after


class Batches:
    """Samples batches, up to ``lead`` steps ahead.

    Example: with a lead of 1, ``take(1)`` samples batch 1, and ``sample_ahead(1)``, during the
    update on it, batch 2, which ``take(2)`` returns at once.
    """

    def __init__(
        self,
        sample: Callable[[int, dict[str, float]], tuple[Rewards, WaitForVerdicts]],
        verify: Callable[[Sequence[Discussion]], WaitForVerdicts],
        *,
        lead: int,
        num_steps: int,
        checkpoint: tuple[int, Path] | None = None,
    ) -> None:
        """``sample(step, noted)`` returns rewarded discussions; batches that ``checkpoint`` (step,
        folder) holds for later steps are verified again. Raises FileError when it is damaged."""
        self._sample = sample
        self._lead = lead
        self._num_steps = num_steps
        after, folder = checkpoint or (0, None)
        self._waiting = deque(
            Batch(**vars(saved), wait_for_verdicts=verify(_discussions(saved.rewards)))
            for saved in _read(folder, AHEAD, _SAVED) or ()
        )
        self._last = after + len(self._waiting)
        self._noted = _read(folder, NOTED, TypeAdapter(dict[str, float])) or {}

    def take(self, step: int) -> Batch:
        self._sample_up_to(step, done=step - 1)
        batch = self._waiting.popleft()
        assert batch.step == step, "steps are taken in order"
        return batch

    def sample_ahead(self, step: int) -> None:
        """Sample the batches that are due during the update on the batch of ``step``."""
        self._sample_up_to(min(step + self._lead, self._num_steps), done=step - 1)

    def save(self, folder: Path) -> None:
        """Write the waiting batches and the notes into a checkpoint."""
        if self._waiting:
            waiting = [_Saved(b.step, b.sampled_after, b.rewards) for b in self._waiting]
            text = json.dumps([asdict(saved) for saved in waiting], default=_in_json)
            write_text(folder / AHEAD, text)
        if self._noted:
            write_text(folder / NOTED, json.dumps(self._noted))

    def _sample_up_to(self, last: int, *, done: int) -> None:
        while self._last < last:
            self._last += 1
            self._waiting.append(Batch(self._last, done, *self._sample(self._last, self._noted)))


def _read(folder: Path | None, name: str, form: TypeAdapter[T]) -> T | None:
    if folder is None or not (folder / name).exists():
        return None
    return read_json(folder / name, form, remedy="Resume an earlier one")


def _in_json(value: object) -> list[Any] | str:
    """Encode an array as a list, and other values in a question's columns as text."""
    return list(value) if isinstance(value, array) else str(value)


def _discussions(rewards: Rewards) -> list[Discussion]:
    return [item.discussion for item in rewards.discussions]
