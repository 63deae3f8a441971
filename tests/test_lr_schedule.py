"""The learning rate of every optimiser step, computed by hand."""

from math import sqrt

import pytest
import torch

from comas.config.schema import Optimization
from comas.engines.policy.optimizers import create_schedule

LEARNING_RATE = 1e-6


class Run:
    """An optimiser with its schedule; ``rates`` are shares of the learning rate."""

    def __init__(self, *, num_steps: int | None = None, **settings: object) -> None:
        optimization = Optimization(learning_rate=LEARNING_RATE, **settings)  # type: ignore[arg-type]
        self._optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], LEARNING_RATE)
        self.schedule = create_schedule(self._optimizer, optimization, num_steps=num_steps)

    def rates(self, count: int) -> list[float]:
        """The rates of the next ``count`` optimiser steps."""
        found = []
        for _ in range(count):
            found.append(self._optimizer.param_groups[0]["lr"] / LEARNING_RATE)
            self._optimizer.step()
            self.schedule.step()
        return found


def test_rates_are_warmed_up_and_stay_or_fall_by_equal_parts():
    expected = [1 / 4, 2 / 4, 3 / 4, 1, 1, 1]
    assert Run(warmup_steps=4).rates(6) == pytest.approx(expected)
    assert Run(warmup_steps=4, num_steps=6).rates(6) == pytest.approx(expected)
    assert Run(warmup_steps=0).rates(2) == [1, 1]
    settings = {"lr_schedule": "linear", "num_steps": 8}
    falls = [0.1 + 0.9 * k / 5 for k in (4, 3, 2, 1, 0)]
    expected = [1 / 4, 2 / 4, 3 / 4, 1, *falls, 0.1, 0.1]
    assert Run(**settings, warmup_steps=4).rates(11) == pytest.approx(expected)
    expected = [0.1 + 0.9 * k / 8 for k in (8, 7, 6, 5, 4, 3, 2, 1, 0, 0)]
    assert Run(**settings, warmup_steps=0).rates(10) == pytest.approx(expected)


def test_cosine_falls_along_half_a_wave_to_its_share():
    # Two steps of warm-up, then (1 + cos(k pi / 4)) / 2 for k = 1, 2, 3: of what is above 0.1.
    run = Run(lr_schedule="cosine", warmup_steps=2, num_steps=5)
    assert run.rates(7) == pytest.approx(
        [
            1 / 2,
            1,
            0.1 + 0.9 * (1 + sqrt(1 / 2)) / 2,
            0.1 + 0.9 * (1 + 0) / 2,
            0.1 + 0.9 * (1 - sqrt(1 / 2)) / 2,
            0.1,
            0.1,
        ]
    )


@pytest.mark.parametrize("lr_schedule", ["cosine", "linear"])
def test_a_rate_that_has_fallen_never_rises_again(lr_schedule):
    # 744 steps instead of the expected 125, where a plain cosine would rise to 1 again.
    run = Run(lr_schedule=lr_schedule, warmup_steps=4, num_steps=125)
    rates = run.rates(744)
    assert rates[3] == 1
    assert rates[3:] == sorted(rates[3:], reverse=True)
    assert rates[125:] == pytest.approx([0.1] * 619)
