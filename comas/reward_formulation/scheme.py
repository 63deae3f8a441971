"""What a reward scheme is: what it needs, and what it gives back."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Literal

from comas.interaction.criticism import Outcome
from comas.types import Discussion, Metrics, RewardedDiscussion
from comas.verification.solutions import Verdicts

Evidence = Literal["verdicts", "rng"]
"""What a scheme may ask for beside the discussions, by the name of its argument.

``verdicts``: turn -> what the verifier says of it (``Verdicts``); a scheme that asks for them is
not CoMAS's, whose rewards come from the discussion alone. ``rng``: the step's own generator
(``Random``).
"""


def offer_evidence(
    wait_for_verdicts: Callable[[], Verdicts], *, seed: int, step: int
) -> dict[Evidence, Callable[[], object]]:
    """What a scheme may choose from at ``step``; nothing is computed before it is asked for."""
    return {"verdicts": wait_for_verdicts, "rng": lambda: Random(f"{seed}/{step}/rewards")}


@dataclass(frozen=True)
class Rewards:
    """A batch of discussions with its rewards, and what the scheme saw on the way."""

    discussions: list[RewardedDiscussion]
    """In the order of the discussions given."""
    metrics: Metrics = field(default_factory=dict)


@dataclass(frozen=True)
class RewardScheme:
    """A function from a step's discussions to rewards, and what it has to be given.

    ``formulate(discussions, **evidence)`` is called with the whole batch, so a scheme may compare
    the discussions of one question; ``evidence`` holds what ``needs`` names and nothing else.

    Example: ``RewardScheme(agreement_with_gold, needs=("verdicts",))`` has
    ``agreement_with_gold(discussions, verdicts=...)`` called.
    """

    formulate: Callable[..., Rewards]
    reads: Outcome | None = None
    """What it reads in the discussions; the criticism has to make it."""
    needs: tuple[Evidence, ...] = ()

    @property
    def sees_verdicts(self) -> bool:
        """Whether its rewards are made of what the verifier says."""
        return "verdicts" in self.needs

    def __call__(
        self, discussions: Sequence[Discussion], *, evidence: dict[Evidence, Callable[[], object]]
    ) -> Rewards:
        """Reward a batch; of ``evidence`` only what is needed is computed and handed over."""
        return self.formulate(discussions, **{need: evidence[need]() for need in self.needs})
