"""Schedules: who speaks when, and who sees what.

To add one, write a function and a line in ``SCHEDULES``.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from itertools import product
from random import Random

from comas.config.plugins import Registry
from comas.config.schema import Interaction
from comas.interaction.checks import as_schedule, check_talks
from comas.interaction.comparisons import debate
from comas.interaction.criticism import CRITICISMS, criticise
from comas.interaction.discussion import Critics, OpenDiscussion, Submission
from comas.interaction.program import ByProgram
from comas.interaction.prompts import SOLUTION, HistoryItem
from comas.types import ROLES, Discussion, Generate, Question, Roles, Turn
from comas.utils.concurrency import first_error, run_all
from comas.utils.interrupts import run

Talks = list[Coroutine[None, None, None]]
"""One coroutine for each discussion of a batch."""
Schedule = Callable[..., Talks]
"""Makes the coroutine that requests the turns of each discussion; called as ``sequential`` is. It
draws from ``rng`` for the batch, and from ``OpenDiscussion.rng`` for one discussion. An optional
attribute ``roles`` holds those that it adds to the paper's (``Role``)."""


def sequential(
    discussions: Sequence[OpenDiscussion], *, num_agents: int, rules: Interaction, rng: Random
) -> Talks:
    """The schedule of the paper's text: one solution per round, speakers drawn uniformly.

    In round i one of the l agents proposes the solution s_i, n evaluators evaluate it, and a scorer
    scores each evaluation (section 3 of the paper). Solver and evaluators see the last kappa
    rounds, without scorings.
    """
    draw = partial(draw_speakers, num_agents=num_agents, rules=rules)
    return [take_turns(discussion, draw(discussion.rng)) for discussion in discussions]


def draw_speakers(
    rng: Random, *, num_agents: int, rules: Interaction
) -> list[tuple[int, list[Critics]]]:
    """Draw the solver and the critics of every round, uniformly."""
    draw = partial(rng.randrange, num_agents)
    return [
        (draw(), [Critics(draw(), draw()) for _ in range(rules.num_evaluations)])
        for _ in range(rules.num_rounds)
    ]


async def take_turns(discussion: OpenDiscussion, rounds: list[tuple[int, list[Critics]]]) -> None:
    """Run a discussion with one solution per round; ``rounds`` are its solvers and critics."""
    rules = discussion.rules
    past_rounds: list[list[HistoryItem]] = []
    for round_index, (solver, critics) in enumerate(rounds):
        shown = past_rounds[-rules.horizon :] if rules.horizon else []
        history = [item for past in shown for item in past]
        solution = await discussion.ask(
            "solution", solver, SOLUTION, round_index=round_index, history=history
        )
        items: list[HistoryItem | None] = []
        if solution is not None:
            submissions = (
                Submission(discussion, solution, each, index, history)
                for index, each in enumerate(critics)
            )
            items = await asyncio.gather(*map(criticise, submissions))
        past_rounds.append([item for item in items if item is not None])


Place = tuple[int, int, int]
"""(round, solver, evaluation), the indices of an evaluation."""


def parallel(
    discussions: Sequence[OpenDiscussion], *, num_agents: int, rules: Interaction, rng: Random
) -> Talks:
    """The schedule of the released code: in each round every agent solves, from the same prompt.

    In each round, evaluators and scorers are dealt over the whole batch, equally many for every
    agent. From the second round on, the prompt shows kappa pairs (solution, evaluation) drawn from
    the previous round; evaluators see no history.
    """
    critics: list[dict[Place, Critics]] = [{} for _ in discussions]
    for round_index in range(rules.num_rounds):
        parts = list(product(critics, range(num_agents), range(rules.num_evaluations)))
        evaluators = deal(rng, num_agents=num_agents, num_parts=len(parts))
        scorers = deal(rng, num_agents=num_agents, num_parts=len(parts))
        for part, evaluator, scorer in zip(parts, evaluators, scorers, strict=True):
            critics_of_discussion, solver, index = part
            critics_of_discussion[round_index, solver, index] = Critics(evaluator, scorer)
    return [
        _discuss_at_once(discussion, assigned, num_agents=num_agents)
        for discussion, assigned in zip(discussions, critics, strict=True)
    ]


def deal(rng: Random, *, num_agents: int, num_parts: int) -> list[int]:
    """Assign agents to parts at random, with counts that differ by at most one.

    Example: 3 agents and 6 parts give a shuffle of ``[0, 0, 1, 1, 2, 2]``.
    """
    full_rounds, rest = divmod(num_parts, num_agents)
    agents = list(range(num_agents)) * full_rounds + rng.sample(range(num_agents), rest)
    rng.shuffle(agents)
    return agents


async def _discuss_at_once(
    discussion: OpenDiscussion, critics: dict[Place, Critics], *, num_agents: int
) -> None:
    rules = discussion.rules
    criticised: dict[Place, asyncio.Task[HistoryItem | None]] = {}

    async def criticise_at(place: Place, solving: asyncio.Task[Turn | None]) -> HistoryItem | None:
        solution = await solving
        if solution is None:
            return None
        return await criticise(Submission(discussion, solution, critics[place], place[2], ()))

    async with asyncio.TaskGroup() as tasks:
        for round_index in range(rules.num_rounds):
            before = [place for place in critics if place[0] == round_index - 1]
            drawn = discussion.rng.sample(before, min(rules.horizon, len(before)))
            # Waits only for these; the others may still be in progress.
            shown = [await criticised[place] for place in sorted(drawn)]
            solve = partial(
                discussion.ask,
                "solution",
                template=SOLUTION,
                round_index=round_index,
                history=[item for item in shown if item is not None],
            )
            for solver in range(num_agents):
                solving = tasks.create_task(solve(agent=solver, index=solver))
                for index in range(rules.num_evaluations):
                    place = (round_index, solver, index)
                    criticised[place] = tasks.create_task(criticise_at(place, solving))


SCHEDULES: Registry[Schedule] = Registry(
    {"sequential": sequential, "parallel": parallel, "debate": debate},
    group="comas.schedules",
    wanted="a function from open discussions to a coroutine for each (Schedule)",
    adapt=as_schedule,
)

UNCRITICISED_SCHEDULES = frozenset({"debate"})
"""Schedules without criticism, for which ``interaction.criticism`` must be none."""


def schedule_of(rules: Interaction) -> Schedule:
    """Return the schedule; that of ``interaction.program``, if it is set."""
    return SCHEDULES[rules.schedule] if rules.program is None else ByProgram(rules)


def roles_of(rules: Interaction) -> Roles:
    """Return the paper's roles and those that the schedule and the criticism declare."""
    of_schedule = getattr(schedule_of(rules), "roles", ())
    return {**ROLES, **{r.name: r for r in (*of_schedule, *CRITICISMS[rules.criticism].roles)}}


def run_discussions(
    questions: Sequence[Question],
    *,
    generate: Generate,
    num_agents: int,
    rules: Interaction,
    seed: int,
    step: int,
) -> list[Discussion]:
    """Run ``interaction.prompt_reuse`` independent discussions of every question; returns them in
    the order of ``questions``, the copies of a question side by side."""
    discussions = [
        OpenDiscussion(
            question,
            discussion_id=f"step{step}/{question.question_id}/copy{copy}",
            seed_text=f"{seed}/{step}/{question.question_id}/{copy}",
            rules=rules,
            generate=generate,
        )
        for question in questions
        for copy in range(rules.prompt_reuse)
    ]
    return run(hold(discussions, num_agents=num_agents, rules=rules, rng=Random(f"{seed}/{step}")))


async def hold(
    discussions: Sequence[OpenDiscussion], *, num_agents: int, rules: Interaction, rng: Random
) -> list[Discussion]:
    """Run all discussions concurrently and return them closed. The first error cancels the rest."""
    schedule, roles = schedule_of(rules), roles_of(rules)
    talks = schedule(discussions, num_agents=num_agents, rules=rules, rng=rng)
    check_talks(talks, schedule=rules.schedule, count=len(discussions))
    try:
        async with asyncio.TaskGroup() as tasks:
            for discussion in discussions:
                discussion.tasks, discussion.batch, discussion.roles = tasks, discussions, roles
            await run_all(talks)
    except BaseExceptionGroup as errors:
        raise first_error(errors) from errors
    return [discussion.close() for discussion in discussions]
