"""AutoGen: an assistant and a user proxy talk until one says TERMINATE (1 to 5 calls per task).

The proxy opens with the task; it is a model too. What the assistant is told follows the published
runs: also for programming tasks, it is to write no code.
"""

from comas.interaction.setup_prompts import TERMINATE, assistant, to_assistant, to_user_proxy, user
from evaluation.types import Ask, BenchmarkTask, Setup

MAX_TURNS = 3
ASSISTANT, USER_PROXY = range(2)


async def answer(task: BenchmarkTask, ask: Ask) -> str:
    """Talk; the assistant's last message is the answer.

    As in the published runs, a last message that is only ``TERMINATE`` holds no answer.
    """
    dialogue = [user(task.query)]
    for turn in range(MAX_TURNS):
        label = f"turn {turn}, assistant"
        answer = await ask(to_assistant(dialogue), label=label, speaker=ASSISTANT)
        if TERMINATE in answer or turn == MAX_TURNS - 1:
            break
        dialogue.append(assistant(answer))
        label = f"turn {turn}, user proxy"
        reply = await ask(to_user_proxy(dialogue), label=label, speaker=USER_PROXY)
        if TERMINATE in reply:
            break
        dialogue.append(user(reply))
    return answer


AUTOGEN = Setup(answer, num_speakers=2)
