"""The batch of every step, sampled up to ``training.max_staleness`` steps ahead, while the policies
train.

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
from dataclasses import asdict, dataclass
from pathlib import Path

from comas.interaction.held import HeldDiscussion
from comas.types import Discussion, Metrics, RewardedDiscussion, Rewards
from comas.utils.files import read_json, write_text
from comas.verification.solutions import Verdicts

AHEAD = "ahead.json"
"""File of a checkpoint: batches sampled for later steps."""
WaitForVerdicts = Callable[[], Verdicts]
"""Waits for, and returns, the verdicts on all solutions of a batch."""


@dataclass(frozen=True)
class Batch:
    """The rewarded discussions of a step, and the verdicts to come."""

    step: int
    sampled_after: int
    """The last step whose update was in the weights that sampled it."""
    rewards: Rewards
    wait_for_verdicts: WaitForVerdicts

    @property
    def staleness(self) -> int:
        """Number of updates that the weights which sampled it were behind."""
        return self.step - 1 - self.sampled_after


# A HeldDiscussion keeps how its program ended.
_Rewarded = tuple[HeldDiscussion | Discussion, tuple[float | None, ...]]
_Saved = tuple[str, int, int, list[_Rewarded], Metrics]
"""``made_with``, step, ``sampled_after``, discussions with rewards, and metrics of a batch."""


class Batches:
    """Samples batches, up to ``lead`` steps ahead.

    Example: with a lead of 1, ``take(1)`` samples batch 1, and ``sample_ahead(1)``, during the
    update on it, batch 2, which ``take(2)`` returns at once.
    """

    def __init__(
        self,
        sample: Callable[[int], tuple[Rewards, WaitForVerdicts]],
        verify: Callable[[Sequence[Discussion]], WaitForVerdicts],
        *,
        lead: int,
        num_steps: int,
        made_with: str = "",
        checkpoint: tuple[int, Path] | None = None,
    ) -> None:
        """``sample(step)`` returns rewarded discussions; batches that ``checkpoint`` (step,
        folder) holds for later steps are verified again, or sampled again if they were not
        ``made_with`` the same settings. Raises FileError when it is damaged."""
        self._sample = sample
        self._lead = lead
        self._num_steps, self._made_with = num_steps, made_with
        self._waiting = deque[Batch]()
        self._last, folder = checkpoint or (0, None)
        if folder is not None and (folder / AHEAD).exists():
            saved = read_json(folder / AHEAD, list[_Saved], remedy="Resume an earlier one")
            for _, step, after, rewarded, metrics in (s for s in saved if s[0] == made_with):
                rewards = Rewards([RewardedDiscussion(*each) for each in rewarded], metrics)
                verdicts = verify([discussion for discussion, _ in rewarded])
                self._waiting.append(Batch(step, after, rewards, verdicts))
        self._last += len(self._waiting)

    def take(self, step: int) -> Batch:
        self._sample_up_to(step, done=step - 1)
        batch = self._waiting.popleft()
        assert batch.step == step, "steps are taken in order"
        return batch

    def sample_ahead(self, step: int) -> None:
        """Sample the batches that are due during the update on the batch of ``step``."""
        self._sample_up_to(min(step + self._lead, self._num_steps), done=step - 1)

    def save(self, folder: Path) -> None:
        if self._waiting:
            waiting = []
            for batch in self._waiting:
                said = [(asdict(i.discussion), i.rewards) for i in batch.rewards.discussions]
                when = batch.step, batch.sampled_after
                waiting.append((self._made_with, *when, said, batch.rewards.metrics))
            # An array is written as a list, and other values in a question's columns as text.
            text = json.dumps(waiting, default=lambda v: [*v] if isinstance(v, array) else str(v))
            write_text(folder / AHEAD, text)

    def _sample_up_to(self, last: int, *, done: int) -> None:
        while self._last < last:
            self._last += 1
            self._waiting.append(Batch(self._last, done, *self._sample(self._last)))
