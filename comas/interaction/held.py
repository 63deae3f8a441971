"""A discussion that a program held (``interaction.program``)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from comas.types import Discussion, Message, Purpose, Turn


@dataclass(frozen=True)
class Asked:
    """A program's request for a turn."""

    messages: Sequence[Message]
    """The chat, or its messages after the answer that it continues."""
    continues: str | None
    """The turn whose chat and answer come before ``messages``."""
    tools: Sequence[str]
    """Names of the tools that it offers."""


@dataclass(frozen=True)
class Outcome:
    """How the program of a discussion ended."""

    answer: str | None
    """The turn id of the final answer; None if the program failed."""
    rewards: Mapping[str, float] = field(default_factory=dict)
    """Rewards that the program returned, by turn id."""
    returned: str = ""
    """An excerpt of what the program returned."""
    error: str = ""
    asked: Mapping[str, Asked] = field(default_factory=dict)
    """Turn id -> its request, in the order of requests."""
    num_rewritten: int = 0
    """Chats whose last assistant message is not an earlier answer of the agent."""
    num_concurrent: int = 0
    """Chats that began while the same agent was answering another, so their order may vary."""


@dataclass(frozen=True, kw_only=True)
class HeldDiscussion(Discussion):
    """A discussion that a program held. Its turns form a chain, which turn ids do not show."""

    outcome: Outcome

    def turns_that(self, purpose: Purpose) -> list[Turn]:
        """Return those turns; a judgment that the program asked for itself decides no reward."""
        own = self.outcome.asked if purpose in ("judges", "scores") else ()
        return [turn for turn in super().turns_that(purpose) if turn.turn_id not in own]

    def solutions(self) -> list[Turn]:
        """Return the final answer, if there is one."""
        return [turn for turn in self.turns if turn.turn_id == self.outcome.answer]

    def path_to(self, turn: Turn) -> list[Turn]:
        """Return the turn, its parent, and so on up to the first turn."""
        turns = {each.turn_id: each for each in self.turns}
        path = [turn]
        while (parent := turns.get(path[-1].parent_turn_id or "")) is not None:
            path.append(parent)
        return path


def outcome_of(discussion: Discussion) -> Outcome | None:
    """Return how the discussion's program ended; None if no program held it."""
    return discussion.outcome if isinstance(discussion, HeldDiscussion) else None
