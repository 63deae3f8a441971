"""AutoGen: an assistant and a user proxy talk until one says TERMINATE (1 to 5 calls per task).

The proxy opens with the task. It is a model too, and sees the conversation with the roles
flipped: its own messages as the assistant's, the assistant's as the user's.
"""

from evaluation.types import Ask, BenchmarkTask, Message, Setup

MAX_TURNS = 3
TERMINATE = "TERMINATE"
ASSISTANT, USER_PROXY = range(2)

SYSTEM_PROMPT = (
    "You are an assistant that solves tasks by reasoning in language, step by step. No code is "
    "executed in this conversation, so do not rely on the output of any program. Give the "
    "complete answer in the form that the task asks for. When the task is solved, end the "
    f"message that holds the complete answer with the word {TERMINATE}."
)

SYSTEM_MESSAGE: Message = {"role": "system", "content": SYSTEM_PROMPT}


async def answer(task: BenchmarkTask, ask: Ask) -> str:
    """Talk; the assistant's last message, ``TERMINATE`` included, is the answer."""
    dialogue: list[Message] = [{"role": "user", "content": task.query}]
    for turn in range(MAX_TURNS):
        label = f"turn {turn}, assistant"
        answer = await ask([SYSTEM_MESSAGE, *dialogue], label=label, speaker=ASSISTANT)
        if TERMINATE in answer or turn == MAX_TURNS - 1:
            break
        dialogue.append({"role": "assistant", "content": answer})
        label = f"turn {turn}, user proxy"
        reply = await ask(flip_roles(dialogue), label=label, speaker=USER_PROXY)
        if TERMINATE in reply:
            break
        dialogue.append({"role": "user", "content": reply})
    return answer


def flip_roles(dialogue: list[Message]) -> list[Message]:
    """The conversation as the other side sees it: user and assistant exchanged."""
    flipped = {"user": "assistant", "assistant": "user"}
    return [{**message, "role": flipped[message["role"]]} for message in dialogue]


AUTOGEN = Setup(answer, num_speakers=2)
