"""AutoGen: an assistant and a user proxy talk until one says TERMINATE (1 to 5 calls per task).

The proxy opens with the task. It is a model too, and sees the conversation with the roles
flipped: its own messages as the assistant's, the assistant's as the user's. What the assistant is
told follows the published runs: also for programming tasks, it is to write no code.
"""

from evaluation.types import Ask, BenchmarkTask, Message, Setup

MAX_TURNS = 3
TERMINATE = "TERMINATE"
ASSISTANT, USER_PROXY = range(2)

SYSTEM_PROMPT = (
    "You are a helpful assistant that solves tasks by its language skills alone. Do not write any "
    "code. Explain your plan, then work step by step. When you have found an answer, verify it "
    "carefully, and show what supports it. Conclude every response with the current final answer "
    "in the box, as in: The final answer is \\boxed{...}. So there is an answer even if the "
    "conversation is interrupted. When everything is done, reply with the word "
    f"{TERMINATE} alone."
)

SYSTEM_MESSAGE: Message = {"role": "system", "content": SYSTEM_PROMPT}


async def answer(task: BenchmarkTask, ask: Ask) -> str:
    """Talk; the assistant's last message is the answer.

    As in the published runs, a last message that is only ``TERMINATE`` holds no answer.
    """
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
