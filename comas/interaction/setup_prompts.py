"""Prompts of the evaluation's setups Consistency, Debate and AutoGen.

They are here, below the evaluation, since the quick-start's agents are taught to answer them. The
wording is ours; what each asks for follows the published runs.
"""

from collections.abc import Sequence

from comas.types import Message

CONSISTENCY_SAMPLES = 5
DEBATE_AGENTS = 3

AGGREGATION = (
    "{query}\n\n"
    "Here are {count} solutions of this task.\n\n"
    "{solutions}\n\n"
    "Reason carefully about all of them, then give a final answer to the task."
)

DEBATE_OPENING = "{query}\n\nState your answer at the end of your response."

DEBATE_REPLY = (
    "The other agents answered the same task as follows.\n\n"
    "{answers}\n\n"
    "Take them as advice, weigh them carefully against your own reasoning, and answer again. State "
    "your updated answer at the end of your response. The task was:\n\n{query}"
)

TERMINATE = "TERMINATE"

ASSISTANT_SYSTEM_PROMPT = (
    "You are a helpful assistant that solves tasks by its language skills alone. Do not write any "
    "code. Explain your plan, then work step by step. When you have found an answer, verify it "
    "carefully, and show what supports it. Conclude every response with the current final answer "
    "in the box, as in: The final answer is \\boxed{...}. So there is an answer even if the "
    "conversation is interrupted. When everything is done, reply with the word "
    f"{TERMINATE} alone."
)


def user(content: str) -> Message:
    """Return a user's message."""
    return {"role": "user", "content": content}


def assistant(content: str) -> Message:
    """Return a model's message."""
    return {"role": "assistant", "content": content}


def aggregation(query: str, solutions: Sequence[str]) -> list[Message]:
    """Return the last call of Consistency and Debate, which asks to reason about several solutions
    and give a final answer, without counting votes."""
    listed = _numbered("Solution", solutions)
    return [user(AGGREGATION.format(query=query, count=len(solutions), solutions=listed))]


def debate_opening(query: str) -> list[Message]:
    """Return the first call of a debate."""
    return [user(DEBATE_OPENING.format(query=query))]


def debate_reply(query: str, answer: str, *, others: Sequence[str]) -> list[Message]:
    """Return what follows: the agent's own answer, and a message with the others' and the task."""
    listed = _numbered("Another answer", others)
    return [assistant(answer), user(DEBATE_REPLY.format(answers=listed, query=query))]


def to_assistant(dialogue: Sequence[Message]) -> list[Message]:
    """Return the dialogue for AutoGen's assistant, after its system prompt."""
    return [{"role": "system", "content": ASSISTANT_SYSTEM_PROMPT}, *dialogue]


def to_user_proxy(dialogue: Sequence[Message]) -> list[Message]:
    """Return the dialogue for AutoGen's user proxy, also a model, with the roles flipped."""
    flipped = {"user": "assistant", "assistant": "user"}
    return [{**message, "role": flipped[message["role"]]} for message in dialogue]


def _numbered(title: str, texts: Sequence[str]) -> str:
    r"""Number texts: ``("Solution", ["a", "b"]) -> "# Solution 1\na\n\n# Solution 2\nb"``."""
    return "\n\n".join(f"# {title} {number}\n{text}" for number, text in enumerate(texts, start=1))
