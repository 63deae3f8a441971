"""Batches that are sampled while the policies train on those before (``training.max_staleness``).

With a staleness of 0 the loop of ``comas.train`` samples, updates, syncs. With k above it, batch
t + k is sampled by the weights that engines had as the update of step t began::

    k = 0   engines   sample t        .        sample t+1     .
            ranks        .         update t        .       update t+1

    k = 1   engines   sample t+1     sync     sample t+2     sync
            ranks     update t       sync     update t+1     sync

Who samples when with which weights depends on nothing but the step, so a run with the same seed
repeats, and one that is resumed goes on as if it had not stopped.
"""

import json
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter

from comas.types import Rewards
from comas.utils.files import read_json, write_text
from comas.verification.solutions import Verdicts

AHEAD = "ahead.json"
"""Of a checkpoint: the batches that later steps will train on."""


@dataclass(frozen=True)
class Batch:
    """The discussions of one step with their rewards, and what the verifier will say of them."""

    rewards: Rewards
    wait_for_verdicts: Callable[[], Verdicts]
    """Those on the solutions."""


@dataclass(frozen=True)
class Ready:
    """A batch that waits for its step."""

    step: int
    sampled_after: int
    """The last step whose update its agents had."""
    rewards: Rewards


_READY = TypeAdapter(list[Ready])


class Rollouts:
    """The batch of every step, sampled when its step comes or up to ``lead`` steps before.

    Example: with a lead of 1, ``take(1)`` samples batch 1; ``go_ahead(1)``, while the policies are
    updated on it, batch 2, which ``take(2)`` returns at once.
    """

    def __init__(
        self,
        sample: Callable[[int], Batch],
        judge: Callable[[Rewards], Batch],
        *,
        lead: int,
        num_steps: int,
        after: int = 0,
        ready: Sequence[Ready] = (),
    ) -> None:
        """``sample`` makes the batch of a step; ``judge`` that of ``ready`` rewards, which the
        checkpoint of step ``after`` held."""
        self._sample = sample
        self._lead = lead
        self._num_steps = num_steps
        self._waiting = deque((one, judge(one.rewards)) for one in ready)
        self._last = after + len(ready)

    def take(self, step: int) -> tuple[Batch, int]:
        """The batch of ``step``, and its staleness: how many updates its agents had not had yet."""
        self._sample_up_to(step, done=step - 1)
        ready, batch = self._waiting.popleft()
        assert ready.step == step, "steps are taken in order"
        return batch, step - 1 - ready.sampled_after

    def go_ahead(self, step: int) -> None:
        """Sample what may be sampled while the policies are updated on the batch of ``step``."""
        self._sample_up_to(min(step + self._lead, self._num_steps), done=step - 1)

    def save(self, folder: Path) -> None:
        """Write into a checkpoint what its step leaves waiting."""
        if self._waiting:
            text = json.dumps([asdict(ready) for ready, _ in self._waiting], default=list)
            write_text(folder / AHEAD, text)

    def _sample_up_to(self, last: int, *, done: int) -> None:
        while self._last < last:
            batch = self._sample(self._last + 1)
            self._last += 1
            self._waiting.append((Ready(self._last, done, batch.rewards), batch))


def read_ahead(checkpoint: Path) -> list[Ready]:
    """What ``Rollouts.save`` wrote into a checkpoint; nothing, where nothing waited.

    Raises FileError when it is damaged.
    """
    path = checkpoint / AHEAD
    return read_json(path, _READY, remedy="Resume an earlier one") if path.exists() else []
