"""Held-out accuracy: each agent answers alone, the verifier judges; never a reward."""

import asyncio
from collections.abc import Sequence

from comas.concurrency import run_all
from comas.data import QuestionSet
from comas.interaction.prompts import SOLUTION, fill
from comas.metrics.step import accuracy_metrics, share_correct
from comas.seeds import sampling_seed
from comas.types import Generate, Metrics, Question
from comas.verification import Verifier


def validate(
    held_out: QuestionSet,
    *,
    generate: Generate,
    num_agents: int,
    seed: int,
    verifier: Verifier,
) -> Metrics:
    """The agents' accuracy on ``held_out``: their mean, in all and by domain, and each one's."""
    questions = held_out.questions
    answers = asyncio.run(
        answer_alone(questions, generate=generate, num_agents=num_agents, seed=seed)
    )
    asked = [
        (question, text) for own in answers for question, text in zip(questions, own, strict=True)
    ]
    verdicts = verifier.submit(
        (question.domain, text, held_out.answers[question.question_id]) for question, text in asked
    ).result()
    domains = [question.domain for question, _ in asked]
    metrics = accuracy_metrics("validation", list(zip(domains, verdicts, strict=True)))
    for agent in range(num_agents):
        own_verdicts = verdicts[agent * len(questions) : (agent + 1) * len(questions)]
        metrics[f"agent_{agent}/validation/accuracy"] = share_correct(own_verdicts)
    return metrics


async def answer_alone(
    questions: Sequence[Question], *, generate: Generate, num_agents: int, seed: int
) -> list[list[str]]:
    """Ask every agent every question once; returns the response texts as [agent][question].

    The sampling seeds do not depend on the step, so two validations differ by the weights
    alone. A question over the prompt limit is answered by "" (and so counts as unanswered).
    """

    async def answer(agent: int, question: Question) -> str:
        generation = await generate(
            agent,
            fill(SOLUTION, question.domain, question=question.text),
            turn=(f"validation/{question.question_id}", f"agent_{agent}"),
            seed=sampling_seed(seed, "validation", question.question_id, agent),
        )
        return "" if generation is None else generation.response_text

    async def answer_all(agent: int) -> list[str]:
        return await run_all(answer(agent, question) for question in questions)

    return await run_all(answer_all(agent) for agent in range(num_agents))
