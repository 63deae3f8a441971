"""A fixed probe of the judges: at every validation they judge the same planted solutions.

Rewards without reference answers show how much solvers and judges agree, not who is right. The
probe does: its mistakes are known, and its prompts and seeds never change. No reward uses it.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from typing import NamedTuple

from comas.config.schema import Config
from comas.data.probe import ProbeItem
from comas.interaction.prompts import APPROVALS, EVALUATION, SCORING, Wording, fill
from comas.interaction.wording import wording_of
from comas.reward_formulation.interaction_reward import parse_score
from comas.types import Generate, Metrics, Request
from comas.utils.concurrency import run_all
from comas.utils.interrupts import run
from comas.utils.seeds import sampling_seed

FATAL = 1
"""Score with which a scorer accepts an accusation."""


class Query(NamedTuple):
    item: ProbeItem
    name: str
    """``evaluation``, or ``scoring`` and the evaluation shown: ``scoringtrue_accusation``."""
    prompt: str


def ask_probe(items: Sequence[ProbeItem], config: Config, *, generate: Generate) -> Metrics:
    """Ask every agent, as an evaluator and as a scorer, about every planted solution.

    Returns the shares that metrics.md describes, for each agent and over all. The answer to a
    prompt over the limit is "", and scorings without a score are left out.
    """

    async def answer(agent: int, query: Query) -> str:
        request = Request(
            agent,
            query.prompt,
            turn=(f"probe/{query.item.id}", f"{query.name}/agent_{agent}"),
            role="probe",
            seed=sampling_seed(config.seed, "probe", query.item.id, query.name, agent),
        )
        generation = await generate(request)
        return "" if generation is None else generation.response_text

    queries = _queries_about(items, wording_of(config.interaction.prompts))
    asked = list(product(range(config.society.num_agents), queries))
    texts = run(run_all(answer(agent, query) for agent, query in asked))
    found: dict[str, list[bool]] = defaultdict(list)
    for (agent, query), text in zip(asked, texts, strict=True):
        for measure, holds in _read(query, text).items():
            found[f"probe/{measure}"].append(holds)
            found[f"agent_{agent}/probe/{measure}"].append(holds)
    return {name: sum(values) / len(values) for name, values in found.items()}


def _queries_about(items: Sequence[ProbeItem], wording: Wording) -> Iterator[Query]:
    for item in items:
        about = partial(fill, domain=item.task, question=item.prompt, wording=wording)
        yield Query(item, "evaluation", about(EVALUATION, solution=item.solution))
        shown = {"false_accusation": item.false_accusation}
        if item.true_accusation is not None:
            shown = {"true_accusation": item.true_accusation, "approval": APPROVALS[item.task]}
        for kind, evaluation in shown.items():
            prompt = about(SCORING, solution=item.solution, evaluation=evaluation)
            yield Query(item, f"scoring{kind}", prompt)


def _read(query: Query, text: str) -> dict[str, bool]:
    """Return each measure that the response counts for, and whether it holds."""
    item, score = query.item, parse_score(text)
    kind = f"{item.task}/{item.mistake}"
    if query.name == "evaluation":
        approves = APPROVALS[item.task] in text
        if item.true_accusation is None:
            return {"accuses": not approves}
        names_it = item.true_accusation in text
        return {"names": names_it, f"names/{kind}": names_it, "overlooks": approves}
    if score is None:
        return {}
    if query.name == "scoringapproval":
        return {"accepts_approval": score != FATAL}
    if query.name == "scoringfalse_accusation":
        return {"accepts_false": score == FATAL}
    return {"accepts_true": score == FATAL, f"accepts_true/{kind}": score == FATAL}
