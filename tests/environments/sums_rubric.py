"""An environment of the verifiers library before version 0.4: sums, with a tool that adds."""

import verifiers as vf
from datasets import Dataset


def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: One.
        b: The other.
    """
    return a + b


def ends_with_answer(completion, answer) -> float:
    return float(completion[-1]["content"].endswith(answer))


def load_environment() -> vf.Environment:
    rows = [
        {"question": f"{i} + {i}?", "answer": str(2 * i), "info": {"level": i}} for i in range(4)
    ]
    print("what an environment prints is no reply")
    return vf.ToolEnv(
        dataset=Dataset.from_list(rows[:3]),
        eval_dataset=Dataset.from_list(rows[3:]),
        system_prompt="Add.",
        tools=[add],
        rubric=vf.Rubric(funcs=[ends_with_answer]),
    )
