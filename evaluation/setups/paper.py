"""The setups of the paper: Vanilla, Consistency, Debate and AutoGen."""

from comas.interaction.setup_prompts import (
    CONSISTENCY_SAMPLES,
    DEBATE_AGENTS,
    TERMINATE,
    aggregation,
    assistant,
    debate_opening,
    debate_reply,
    to_assistant,
    to_user_proxy,
    user,
)
from comas.utils.concurrency import run_all
from evaluation.types import Ask, BenchmarkTask, Setup

DEBATE_ROUNDS = 2
AUTOGEN_TURNS = 3
ASSISTANT, USER_PROXY = range(2)


async def vanilla(task: BenchmarkTask, ask: Ask) -> str:
    """Return the reply to the task (1 call)."""
    return await ask([user(task.query)], label="answer")


async def consistency(task: BenchmarkTask, ask: Ask) -> str:
    """Summarise five independent samples by another call (6 calls)."""
    messages = [user(task.query)]
    samples = await run_all(
        ask(messages, label=f"sample {speaker}", speaker=speaker)
        for speaker in range(CONSISTENCY_SAMPLES)
    )
    return await ask(aggregation(task.query, samples), label="summary", speaker=CONSISTENCY_SAMPLES)


async def debate(task: BenchmarkTask, ask: Ask) -> str:
    """Have three agents answer, see each other's answers and answer again; summarise the last
    round's answers by another call (7 calls)."""
    dialogues = [debate_opening(task.query) for _ in range(DEBATE_AGENTS)]
    answers: list[str] = []
    for round_index in range(DEBATE_ROUNDS):
        for agent, answer in enumerate(answers):
            others = [*answers[:agent], *answers[agent + 1 :]]
            dialogues[agent] += debate_reply(task.query, answer, others=others)
        answers = await run_all(
            ask(dialogue, label=f"round {round_index}, agent {agent}", speaker=agent)
            for agent, dialogue in enumerate(dialogues)
        )
    return await ask(aggregation(task.query, answers), label="summary", speaker=DEBATE_AGENTS)


async def autogen(task: BenchmarkTask, ask: Ask) -> str:
    """Have an assistant and a user proxy (also a model, which opens with the task) talk until one
    says TERMINATE (1 to 5 calls); return the assistant's last message.

    As in the published runs, the assistant is told to write no code, even for programming tasks,
    and a last message of only ``TERMINATE`` holds no answer.
    """
    dialogue = [user(task.query)]
    for turn in range(AUTOGEN_TURNS):
        label = f"turn {turn}, assistant"
        answer = await ask(to_assistant(dialogue), label=label, speaker=ASSISTANT)
        if TERMINATE in answer or turn == AUTOGEN_TURNS - 1:
            break
        dialogue.append(assistant(answer))
        label = f"turn {turn}, user proxy"
        reply = await ask(to_user_proxy(dialogue), label=label, speaker=USER_PROXY)
        if TERMINATE in reply:
            break
        dialogue.append(user(reply))
    return answer


VANILLA = Setup(vanilla, num_speakers=1)
CONSISTENCY = Setup(consistency, num_speakers=CONSISTENCY_SAMPLES + 1)
DEBATE = Setup(debate, num_speakers=DEBATE_AGENTS + 1)
AUTOGEN = Setup(autogen, num_speakers=2)
