"""What a reward scheme asks for when discussions are over, before it pays: more turns, which nobody
is trained on."""

import asyncio
from collections.abc import Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass, replace

from comas.config.schema import Interaction
from comas.interaction.discussion import OpenDiscussion, turn_id_of
from comas.interaction.prompts import HistoryItem, Template
from comas.types import ROLES, Discussion, Generate, Rewards, Role, Turn
from comas.utils.concurrency import run_all
from comas.utils.progress import progress_bar


@dataclass(frozen=True)
class Ask:
    """One more turn: ``agent`` is asked for one of ``role`` that answers ``parent``, which may
    itself have been asked for.

    ``template`` is filled as in ``OpenDiscussion.ask``. A turn is named after its parent, and
    numbered after those of its role that are there: a revision that answers "r0.s1.e0" is
    "r0.s1.e0.s0", and the scoring of that "r0.s1.e0.s0.t0".
    """

    discussion: Discussion
    role: Role
    agent: int
    template: Template
    parent: Turn
    history: Sequence[HistoryItem] = ()


Answers = list[Turn | None]
"""In the order of what was asked for; None: the prompt was over the limit."""
Formulating = Generator[Sequence[Ask], Answers, Rewards]
"""A scheme that asks: as often as it likes it yields what it asks for, over the whole batch, and is
sent the answers; it returns the rewards."""


class Inquiry:
    """Asks for more turns of a batch of finished discussions, and keeps what is said.

    What is asked for at once is generated at once. What is said depends on the weights, the seed
    and the name of the turn, so a step that is repeated repeats it.
    """

    def __init__(
        self,
        discussions: Sequence[Discussion],
        *,
        generate: Generate,
        num_agents: int,
        rules: Interaction,
        seed: int,
        serve: Callable[[bool], None] | None = None,
    ) -> None:
        """``serve`` is called before scorings are asked for (True), and before anything else is
        (False), where scorers have other weights."""
        # Without the history that it names, a prompt would ask for something else.
        rules = replace(rules, overlong_prompts="skip")
        self._open = {
            own.discussion_id: _Reopened(own, generate=generate, rules=rules, seed=seed)
            for own in discussions
        }
        self._num_agents = num_agents
        self._serve = serve

    def hear_out(self, formulating: Formulating) -> Rewards:
        """Answer a scheme until it pays; its discussions then hold what was said.

        Raises:
            ValueError: it asks for what there cannot be; raised where it does.
        """
        try:
            asks = next(formulating)
            while True:
                if (fault := self._fault(asks)) is not None:
                    asks = formulating.throw(ValueError(f"nobody can be asked so: {fault}"))
                else:
                    asks = formulating.send(self._answers(asks))
        except StopIteration as end:
            rewards = end.value
        if not isinstance(rewards, Rewards):
            raise ValueError(f"the reward scheme returned {type(rewards).__name__} and no Rewards")
        return replace(
            rewards,
            discussions=[
                replace(item, discussion=self._open[item.discussion.discussion_id].close())
                for item in rewards.discussions
            ],
        )

    def _fault(self, asks: Sequence[Ask]) -> str | None:
        """What is wrong with what a scheme has yielded."""
        if not isinstance(asks, Sequence) or not all(isinstance(ask, Ask) for ask in asks):
            return "what it yields is no list of Ask"
        return next(filter(None, map(self._fault_of_one, asks)), None)

    def _fault_of_one(self, ask: Ask) -> str | None:
        own = self._open.get(ask.discussion.discussion_id)
        if own is None:
            return f"{ask.discussion.discussion_id} is none of the discussions that it was given"
        if own.turn(ask.parent.turn_id) is not ask.parent:
            return f"parent={ask.parent.turn_id} is no turn of {ask.discussion.discussion_id}"
        if ask.role not in ROLES:
            return f"role={ask.role} is none of {', '.join(ROLES)}"
        if ask.agent not in range(self._num_agents):
            return f"agent={ask.agent}, where agents are 0 to {self._num_agents - 1}"
        return None

    def _answers(self, asks: Sequence[Ask]) -> Answers:
        if self._serve is None:
            return self._generated(asks)
        answers: dict[int, Turn | None] = {}
        for is_scoring in (False, True):
            places = [n for n, ask in enumerate(asks) if (ask.role == "scoring") == is_scoring]
            if places:
                self._serve(is_scoring)
                generated = self._generated([asks[place] for place in places])
                answers |= zip(places, generated, strict=True)
        return [answers[place] for place in range(len(asks))]

    def _generated(self, asks: Sequence[Ask]) -> Answers:
        with progress_bar("asked by the reward", unit="turn", total=len(asks)) as bar:

            async def generate(answer: Coroutine[None, None, Turn | None]) -> Turn | None:
                turn = await answer
                bar.update()
                return turn

            answers = [self._open[ask.discussion.discussion_id].answer(ask) for ask in asks]
            return asyncio.run(run_all(map(generate, answers)))


class _Reopened(OpenDiscussion):
    """A finished discussion, in which more is asked."""

    def __init__(
        self, finished: Discussion, *, generate: Generate, rules: Interaction, seed: int
    ) -> None:
        super().__init__(
            finished.question,
            discussion_id=finished.discussion_id,
            seed_text=f"{seed}/{finished.discussion_id}",
            rules=rules,
            generate=generate,
        )
        self._finished = finished
        self._turns = {turn.turn_id: turn for turn in finished.turns}
        self._names = set(self._turns)

    def turn(self, turn_id: str) -> Turn | None:
        """The turn of that name, said before or asked for."""
        return self._turns.get(turn_id)

    def answer(self, ask: Ask) -> Coroutine[None, None, Turn | None]:
        """What asks for the turn, which has its name by now."""
        index = 0
        while (name := turn_id_of(ask.role, index, parent=ask.parent)) in self._names:
            index += 1
        self._names.add(name)
        return self.ask(
            ask.role,
            ask.agent,
            ask.template,
            parent=ask.parent,
            index=index,
            history=ask.history,
        )

    def close(self) -> Discussion:
        """The discussion, with what was asked for."""
        known = {turn.turn_id for turn in self._finished.turns}
        turns = super().close().turns
        return replace(self._finished, asked=tuple(t for t in turns if t.turn_id not in known))
