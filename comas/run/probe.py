"""What the judges make of planted solutions: a fixed probe, asked at every validation.

The rewards of a society that sees no answer say how much solvers and judges agree, not who is
right. The probe says it: the same solutions with known mistakes, the same seeds, whatever the
society has learnt. Nothing here reaches a reward.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from comas.data.probe import ProbeItem
from comas.interaction.criticism import approval_of
from comas.interaction.prompts import EVALUATION, SCORING, SHIPPED, fill
from comas.interaction.wording import Wording
from comas.reward_formulation.interaction_reward import parse_score
from comas.types import Domain, Generate, Metrics
from comas.utils.concurrency import run_all
from comas.utils.seeds import sampling_seed

PREFIX = "probe"
FATAL = 1
"""The score by which a scorer accepts an accusation."""


class Query(NamedTuple):
    """A prompt about a planted solution, and what its response tells."""

    item: ProbeItem
    role: str
    prompt: str
    shown: str
    """The evaluation that a scorer is shown: approval, true_accusation or false_accusation."""


class Finding(NamedTuple):
    """Whether a judge did what ``measure`` counts, faced with a mistake of that kind."""

    measure: str
    domain: Domain
    mistake: str | None
    holds: bool


def ask_probe(
    items: Sequence[ProbeItem],
    *,
    generate: Generate,
    num_agents: int,
    seed: int,
    wording: Wording = SHIPPED,
) -> Metrics:
    """Ask every agent, as an evaluator and as a scorer, about every planted solution.

    Shares of what each agent (``agent_0/probe/...``) and all of them (``probe/...``) said::

        names                  of wrong solutions, the evaluation names the mistake
        overlooks              of wrong solutions, the evaluation is an approval
        accuses                of right solutions, the evaluation is none
        accepts_true           of wrong solutions with the true accusation, the score is 1
        accepts_false          of right solutions with a false accusation, the score is 1
        accepts_approval       of wrong solutions with an approval, the score is not 1

    ``names`` and ``accepts_true`` also by kind of mistake (``probe/names/math/carry lost``).
    """
    queries = list(queries_about(items, wording))
    answers = asyncio.run(_ask(queries, generate=generate, num_agents=num_agents, seed=seed))
    found = [
        [finding for query, text in zip(queries, own, strict=True) for finding in read(query, text)]
        for own in answers
    ]
    metrics = _shares(PREFIX, [finding for own in found for finding in own])
    for agent, own in enumerate(found):
        metrics |= _shares(f"agent_{agent}/{PREFIX}", own)
    return metrics


def queries_about(items: Sequence[ProbeItem], wording: Wording = SHIPPED) -> Iterator[Query]:
    """What a judge is asked about each item."""
    for item in items:
        about = partial(fill, domain=item.task, question=item.prompt, wording=wording)
        prompt = about(EVALUATION, solution=item.solution)
        yield Query(item, "evaluation", prompt, "")
        shown = {"false_accusation": item.false_accusation}
        if item.true_accusation is not None:
            shown = {"true_accusation": item.true_accusation, "approval": approval_of(item.task)}
        for kind, evaluation in shown.items():
            prompt = about(SCORING, solution=item.solution, evaluation=evaluation)
            yield Query(item, "scoring", prompt, kind)


def read(query: Query, text: str) -> Iterator[Finding]:
    """What a response tells; a scoring without a score tells nothing."""
    item = query.item
    if query.role == "evaluation":
        approves = approval_of(item.task) in text
        if item.true_accusation is None:
            yield Finding("accuses", item.task, None, not approves)
        else:
            yield Finding("names", item.task, item.mistake, item.true_accusation in text)
            yield Finding("overlooks", item.task, item.mistake, approves)
    elif (score := parse_score(text)) is not None:
        measure = f"accepts_{query.shown.removesuffix('_accusation')}"
        accepts = score != FATAL if query.shown == "approval" else score == FATAL
        yield Finding(measure, item.task, item.mistake, accepts)


async def _ask(
    queries: Sequence[Query], *, generate: Generate, num_agents: int, seed: int
) -> list[list[str]]:
    """Response texts as [agent][query]; "" where a prompt is over the limit."""

    async def answer(agent: int, query: Query) -> str:
        name = f"{query.role}{query.shown}"
        generation = await generate(
            agent,
            query.prompt,
            turn=(f"{PREFIX}/{query.item.id}", f"{name}/agent_{agent}"),
            seed=sampling_seed(seed, PREFIX, query.item.id, name, agent),
        )
        return "" if generation is None else generation.response_text

    async def answer_all(agent: int) -> list[str]:
        return await run_all(answer(agent, query) for query in queries)

    return await run_all(answer_all(agent) for agent in range(num_agents))


def _shares(prefix: str, findings: Sequence[Finding]) -> Metrics:
    found: dict[str, list[bool]] = defaultdict(list)
    for measure, domain, mistake, holds in findings:
        found[f"{prefix}/{measure}"].append(holds)
        if mistake is not None and measure in ("names", "accepts_true"):
            found[f"{prefix}/{measure}/{domain}/{mistake}"].append(holds)
    return {name: sum(values) / len(values) for name, values in found.items()}
