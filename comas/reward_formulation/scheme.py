"""What a reward scheme is: what it needs, and what it gives back."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from comas.interaction.criticism import Outcome
from comas.types import Discussion, Metrics, RewardedDiscussion

Evidence = Literal["verdicts"]
"""What a scheme may ask for beside the discussions, by the name of its argument.

``verdicts``: turn -> what the verifier says of it (``Mapping[TurnKey, Verdict]``); a scheme that
asks for them is not CoMAS's, whose rewards come from the discussion alone.
"""


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

    def __call__(
        self, discussions: Sequence[Discussion], *, evidence: dict[Evidence, Callable[[], object]]
    ) -> Rewards:
        """Reward a batch; of ``evidence`` only what is needed is computed and handed over."""
        return self.formulate(discussions, **{need: evidence[need]() for need in self.needs})
