"""A schedule in which agents also propose what is discussed: questions like those of the data.

Sources: Multi-Agent Evolve (arXiv 2510.23595) and SPICE (arXiv 2510.24684), whose proposers make
questions out of nothing or of a text; here out of another question. Half of a batch stays with the
data's own questions, as anchors against a drift of what is asked (arXiv 2512.02472).
"""

from collections.abc import Coroutine, Sequence
from random import Random

from comas.config.schema import Interaction
from comas.interaction import parallel
from comas.interaction.discussion import OpenDiscussion
from comas.interaction.prompts import Template
from comas.types import Domain

ANCHOR_EVERY = 2
"""Of so many discussions one is about the data's question (our choice)."""

_KINDS: dict[Domain, str] = {
    "math": "math problem",
    "science": "science problem",
    "coding": "programming problem",
    "choice": "multiple-choice question",
    "reasoning": "reasoning task",
}
PROPOSAL: Template = {
    domain: f"You write {kind}s that other experts will discuss. Read this {kind}, and write "
    "another one of its kind: complete, with exactly one right answer, and such that the experts "
    "sometimes get it right and sometimes wrong. Answer with its text alone, in the form of the "
    f"one below, and without a solution.\n\n# {kind.capitalize()}\n{{question}}"
    for domain, kind in _KINDS.items()
}
"""What a proposer is told."""


def schedule(
    discussions: Sequence[OpenDiscussion], *, num_agents: int, rules: Interaction, rng: Random
) -> list[Coroutine[None, None, None]]:
    """``parallel``, but of every ``ANCHOR_EVERY`` discussions all but the last begin with an
    agent's proposal, and are about that. Proposers are dealt like critics."""
    talks = parallel.schedule(discussions, num_agents=num_agents, rules=rules, rng=rng)
    proposers = parallel.deal(rng, num_agents=num_agents, num_parts=len(discussions))
    return [
        talk if place % ANCHOR_EVERY == ANCHOR_EVERY - 1 else _propose(discussion, proposer, talk)
        for place, (discussion, proposer, talk) in enumerate(
            zip(discussions, proposers, talks, strict=True)
        )
    ]


async def _propose(
    discussion: OpenDiscussion, proposer: int, talk: Coroutine[None, None, None]
) -> None:
    try:
        proposal = await discussion.ask("proposal", proposer, PROPOSAL)
        if proposal is not None:
            discussion.take_up(proposal)
        await talk
    finally:
        talk.close()
