"""The last call of Consistency and Debate: one final answer from several solutions."""

from collections.abc import Sequence

from evaluation.types import BenchmarkTask, Message

PROMPT = (
    "{query}\n\n"
    "Here are {count} solutions of this task.\n\n"
    "{solutions}\n\n"
    "Reason carefully about all of them, then give a final answer to the task."
)


def aggregation(task: BenchmarkTask, solutions: Sequence[str]) -> list[Message]:
    """The request to reason about the solutions; it asks for no more, and nothing is counted."""
    listed = number_texts("Solution", solutions)
    prompt = PROMPT.format(query=task.query, count=len(solutions), solutions=listed)
    return [{"role": "user", "content": prompt}]


def number_texts(title: str, texts: Sequence[str]) -> str:
    r"""Put texts one below the other: ``("Solution", ["a", "b"]) -> "# Solution 1\na\n\n..."``."""
    return "\n\n".join(f"# {title} {number}\n{text}" for number, text in enumerate(texts, start=1))
