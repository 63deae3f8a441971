"""A discussion in progress, which requests turns from agents and collects them."""

import asyncio
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from comas.config.schema import Interaction
from comas.interaction.prompts import EVALUATION, SCORING, HistoryItem, Template, fill
from comas.interaction.wording import wording_of
from comas.types import (
    ROLE_LETTERS,
    ROLES,
    Discussion,
    Generate,
    Generation,
    Question,
    Request,
    Turn,
)
from comas.utils.seeds import sampling_seed


class OpenDiscussion:
    """Requests the turns of one discussion and collects them. All randomness derives from
    ``seed_text``, so the order in which responses arrive does not matter.

    Example: a solution and an evaluation of it::

        solution = await discussion.ask("solution", 2, SOLUTION, round_index=0)
        evaluation = await discussion.ask("evaluation", 0, EVALUATION, parent=solution)
    """

    def __init__(
        self,
        question: Question,
        *,
        discussion_id: str,
        seed_text: str,
        rules: Interaction,
        generate: Generate,
    ) -> None:
        self.question = question
        self.rules = rules
        self.rng = Random(seed_text)
        """Random generator for the schedule's draws in this discussion."""
        self.batch: Sequence[OpenDiscussion] = [self]
        """All discussions held together with this one."""
        self.roles = ROLES
        """Roles that turns may have; ``schedules.hold`` adds those that plug-ins declare."""
        self.generate = generate
        """Function that answers requests; a schedule may replace it."""
        self.tasks: asyncio.TaskGroup | None = None
        """Task group that runs the scorings; set by ``schedules.hold``."""
        self._wording = wording_of(rules.prompts)
        self.discussion_id = discussion_id
        self.seed_text = seed_text
        self._turns: dict[str, Turn] = {}
        self._asked: set[str] = set()
        self._was_asked: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.num_overlong_prompts = 0
        self.closed: Callable[..., Discussion] = Discussion
        """Class of the finished discussion; a schedule may replace it."""

    async def ask(
        self,
        role: str,
        agent: int,
        template: Template,
        *,
        parent: Turn | None = None,
        round_index: int = 0,
        index: int = 0,
        history: Sequence[HistoryItem] = (),
    ) -> Turn | None:
        """Ask ``agent`` for the ``index``-th turn of ``role`` in response to ``parent`` (None: to
        the question).

        The prompt is ``template``, filled with the question, the history, and the text of each
        turn above, under the name of its role.

        Returns None when the prompt is over the limit and cannot be shortened; turns that would
        respond to this one are then not requested either.
        """
        round_index = round_index if parent is None else parent.round_index
        turn_id = self.name_of(role, index, parent=parent, round_index=round_index)
        if turn_id in self._asked:
            raise ValueError(f"the turn {turn_id} was asked for twice: give each another index=")
        self._asked.add(turn_id)
        key, seed = (self.discussion_id, turn_id), sampling_seed(self.seed_text, turn_id)
        quoted = {"question": self.question.text, **self._texts_above(parent)}
        for first in range(len(history) + 1):  # an overlong prompt loses its oldest history
            prompt = fill(
                template,
                self.question.domain,
                history=history[first:],
                wording=self._wording,
                **quoted,
            )
            generation = await self.generate(Request(agent, prompt, key, role, seed))
            if generation is not None:
                parent_id = None if parent is None else parent.turn_id
                self.keep(Turn(turn_id, parent_id, round_index, role, agent, prompt, generation))
                break
            self.num_overlong_prompts += first == 0
        self._was_asked[turn_id].set()
        return self._turns.get(turn_id)

    def give(self, role: str, agent: int, text: str, *, parent: Turn, index: int = 0) -> Turn:
        """Add a turn with that text, without asking ``agent`` for it."""
        turn_id = self.name_of(role, index, parent=parent)
        text = text.encode(errors="replace").decode()  # programs may return lone surrogates
        generation = Generation((), (), text, (), "given", policy_version=0)
        return self.keep(
            Turn(turn_id, parent.turn_id, parent.round_index, role, agent, "", generation)
        )

    def keep(self, turn: Turn) -> Turn:
        self._turns[turn.turn_id] = turn
        return turn

    async def hear(self, turn_id: str) -> Turn | None:
        """Wait for a turn; None when it, or a turn above it, could not be requested."""
        parent_id = turn_id.rpartition(".")[0]
        if "." in parent_id and await self.hear(parent_id) is None:
            return None
        await self._was_asked[turn_id].wait()
        return self._turns.get(turn_id)

    def close(self) -> Discussion:
        """Return the finished discussion, its turns depth first."""
        turns = tuple(self._turns[turn_id] for turn_id in sorted(self._turns, key=_path))
        overlong, roles = self.num_overlong_prompts, self.roles
        return self.closed(self.discussion_id, self.question, turns, overlong, roles)

    def name_of(self, role: str, index: int, *, parent: Turn | None, round_index: int = 0) -> str:
        """Name a turn, such as "r0.s1.e0". Raises ValueError for a role that is not declared."""
        if role not in self.roles:
            raise ValueError(
                f"the role {role} is not declared: list Role({role!r}, PURPOSE) (comas/types.py) "
                "in the roles of the schedule or criticism that asks for it"
            )
        root = f"r{round_index}" if parent is None else parent.turn_id
        return f"{root}.{ROLE_LETTERS.get(role, role)}{index}"

    def _texts_above(self, turn: Turn | None) -> dict[str, str]:
        """Role -> text of the nearest turn of that role, from ``turn`` upwards."""
        texts: dict[str, str] = {}
        while turn is not None:
            texts.setdefault(turn.role, turn.text)
            turn = self._turns.get(turn.parent_turn_id or "")
        return texts


class Critics(NamedTuple):
    """The agents that evaluate a solution, and score that evaluation."""

    evaluator: int
    scorer: int


@dataclass(frozen=True)
class Submission:
    """A solution to criticise for the ``index``-th time, and the history its evaluator sees."""

    discussion: OpenDiscussion
    solution: Turn
    critics: Critics
    index: int
    history: Sequence[HistoryItem]

    async def evaluate(self, template: Template = EVALUATION) -> Turn | None:
        """Ask for an evaluation of the solution; None when the prompt is over the limit."""
        return await self.discussion.ask(
            "evaluation",
            self.critics.evaluator,
            template,
            parent=self.solution,
            index=self.index,
            history=self.history,
        )

    def score(self, weighed: Turn, template: Template = SCORING) -> None:
        """Have a turn scored, such as an evaluation or the solution itself. Nothing waits for the
        scoring, as it never enters the history."""
        assert self.discussion.tasks is not None, "discussions run in schedules.hold"
        asking = self.discussion.ask("scoring", self.critics.scorer, template, parent=weighed)
        self.discussion.tasks.create_task(asking)

    def history_item(self, evaluation: Turn | None) -> HistoryItem:
        """Return what later rounds may see."""
        return HistoryItem(self.solution.text, None if evaluation is None else evaluation.text)


def _path(turn_id: str) -> list[tuple[str, int]]:
    """``"r0.s10.e1" -> [("r", 0), ("s", 10), ("e", 1)]``, which sorts depth first."""
    return [(letter, int(index)) for letter, index in re.findall(r"([a-z_]+)(\d+)", turn_id)]
