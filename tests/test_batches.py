"""Batches sampled during an update."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from config_errors import only_error
from small_runs import QUICKSTART
from tables import cases

from comas.run.batches import Batches
from comas.types import Discussion, Rewards
from comas.verification.solutions import Verdicts


def verdicts_of(discussions: Sequence[Discussion]) -> Callable[[], Verdicts]:
    return lambda: {(d.discussion_id, t.turn_id): "correct" for d in discussions for t in d.turns}


class Loop:
    """The driver's loop without its work; ``told`` lists its actions: "s2/1" samples batch 2 with
    the weights of step 1, "u1" is update 1."""

    def __init__(self, lead: int, *, checkpoint: tuple[int, Path] | None = None) -> None:
        self.told: list[str] = []
        self.served = 0 if checkpoint is None else checkpoint[0]
        self.batches = Batches(
            self.sample, verdicts_of, lead=lead, num_steps=5, checkpoint=checkpoint
        )

    def sample(self, step: int) -> tuple[Rewards, Callable[[], Verdicts]]:
        self.told.append(f"s{step}/{self.served}")
        return Rewards([], {"of": step}), dict

    def step(self, step: int) -> int:
        batch = self.batches.take(step)
        assert batch.rewards.metrics == {"of": step}
        self.told.append(f"u{step}")
        self.batches.sample_ahead(step)
        self.served = step
        return batch.staleness


@cases("lead, staleness, told")
def test_batches_are_sampled_beside_updates_and_none_is_staler_than_the_lead(lead, staleness, told):
    loop = Loop(lead)
    assert [loop.step(step) for step in range(1, 6)] == staleness
    assert loop.told == told.split()


@pytest.mark.parametrize("lead", [1, 2])
def test_what_a_checkpoint_held_is_trained_on_before_anything_is_sampled(tmp_path, lead):
    whole, first = Loop(lead), Loop(lead)
    expected = [whole.step(step) for step in range(1, 6)]
    found = [first.step(step) for step in (1, 2)]
    first.batches.save(tmp_path)
    second = Loop(lead, checkpoint=(2, tmp_path))
    assert found + [second.step(step) for step in (3, 4, 5)] == expected
    assert first.told + second.told == whole.told


AHEAD_OF = ("training.max_staleness=1", "algorithm.rollout_correction=tis")


@cases(
    "settings, said",
    (["cluster.device=cuda", *AHEAD_OF], "set cluster.placement to disaggregated"),
    (["cluster.device=cpu", AHEAD_OF[0]], "set algorithm.rollout_correction to ratio, tis or"),
)
def test_what_staleness_cannot_have_is_refused_with_the_remedy(settings, said):
    assert said in only_error(*settings, file=QUICKSTART)
