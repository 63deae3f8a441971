"""Debate: three agents answer, see each other's answers, answer again; one call aggregates
(7 calls per task). The second round repeats the task."""

from collections.abc import Sequence

from comas.concurrency import run_all
from evaluation.setups.aggregation import aggregation, number_texts
from evaluation.types import Ask, BenchmarkTask, Message, Setup

NUM_AGENTS = 3
NUM_ROUNDS = 2

OPENING = "{query}\n\nState your answer at the end of your response."

REPLY = (
    "The other agents answered the same task as follows.\n\n"
    "{answers}\n\n"
    "Take them as advice, weigh them carefully against your own reasoning, and answer again. State "
    "your updated answer at the end of your response. The task was:\n\n{query}"
)


async def answer(task: BenchmarkTask, ask: Ask) -> str:
    """Debate, then aggregate the answers of the last round."""
    opening: Message = {"role": "user", "content": OPENING.format(query=task.query)}
    dialogues = [[opening] for _ in range(NUM_AGENTS)]
    answers: list[str] = []
    for round_index in range(NUM_ROUNDS):
        if round_index > 0:
            dialogues = [
                [*dialogue, *_next_messages(task, answers, agent)]
                for agent, dialogue in enumerate(dialogues)
            ]
        answers = await run_all(
            ask(dialogue, label=f"round {round_index}, agent {agent}", speaker=agent)
            for agent, dialogue in enumerate(dialogues)
        )
    return await ask(aggregation(task, answers), label="summary", speaker=NUM_AGENTS)


def _next_messages(task: BenchmarkTask, answers: Sequence[str], agent: int) -> list[Message]:
    """The agent's own answer, and a message with those of the others."""
    others = [*answers[:agent], *answers[agent + 1 :]]
    reply = REPLY.format(answers=number_texts("Another answer", others), query=task.query)
    return [
        {"role": "assistant", "content": answers[agent]},
        {"role": "user", "content": reply},
    ]


DEBATE = Setup(answer, num_speakers=NUM_AGENTS + 1)
