"""Debate: three agents answer, see each other's answers, answer again; one call aggregates
(7 calls per task). The second round repeats the task."""

from comas.interaction.setup_prompts import DEBATE_AGENTS, aggregation, debate_opening, debate_reply
from comas.utils.concurrency import run_all
from evaluation.types import Ask, BenchmarkTask, Setup

NUM_ROUNDS = 2


async def answer(task: BenchmarkTask, ask: Ask) -> str:
    """Debate, then aggregate the answers of the last round."""
    dialogues = [debate_opening(task.query) for _ in range(DEBATE_AGENTS)]
    answers: list[str] = []
    for round_index in range(NUM_ROUNDS):
        for agent, own in enumerate(answers):
            others = [*answers[:agent], *answers[agent + 1 :]]
            dialogues[agent] += debate_reply(task.query, own, others=others)
        answers = await run_all(
            ask(dialogue, label=f"round {round_index}, agent {agent}", speaker=agent)
            for agent, dialogue in enumerate(dialogues)
        )
    return await ask(aggregation(task.query, answers), label="summary", speaker=DEBATE_AGENTS)


DEBATE = Setup(answer, num_speakers=DEBATE_AGENTS + 1)
