"""Python as a tool: a solver may run programs on the way, and goes on after what they print.

Source: ToRA (arXiv 2309.17452), where a solution is made of text, programs and their outputs.
ReTool (arXiv 2504.11536) trains that by reinforcement and leaves outputs out of the loss. Found:
nothing yet, no run was made with it. ``interaction.prompts`` has to tell agents that they may::

    interaction: {schedule: comas.ideas.python_tool:sequential_with_python}
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from comas.interaction.discussion import OpenDiscussion
from comas.interaction.schedules import Talks, sequential
from comas.types import Continuation, Generate, Generation, Request
from comas.verification.boxed import last_boxed
from comas.verification.coding import last_python_block, process_sandbox

MAX_PROGRAMS = 3
"""How many programs of one solution are run."""


def sequential_with_python(discussions: Sequence[OpenDiscussion], **named: Any) -> Talks:
    """The paper's schedule, in which solvers have Python wherever a program is not the answer."""
    for discussion in discussions:
        if discussion.question.domain != "coding":
            discussion.generate = with_python(discussion.generate)
    return sequential(discussions, **named)


def with_python(generate: Generate) -> Generate:
    r"""Return ``generate`` for solvers who may run programs in the sandbox.

    A solution that ends with a program instead of an answer goes on after the program's output, of
    which the loss knows nothing. All of it is one response.

    Example: "```python\nprint(48 + 23)\n```", then "```output\n71\n```", then "So \boxed{71}".
    """

    async def solve(request: Request) -> Generation | None:
        response = await generate(request)
        num_read = 0
        for number in range(1, MAX_PROGRAMS + 1):
            if response is None or response.finish_reason != "stop" or request.role != "solution":
                break
            latest = response.response_text[num_read:]
            program = last_python_block(latest)
            if program is None or last_boxed(latest) is not None:
                break
            answer = await asyncio.to_thread(run, program)
            after = Continuation(response, answer)
            longer = await generate(request._replace(seed=request.seed ^ number, after=after))
            if longer is None:  # there is no room for more
                break
            num_read = len(f"{response.response_text}\n{answer}\n")
            response = longer
        return response

    return solve


def run(program: str) -> str:
    """Return what an agent reads of a program that it has run."""
    output = process_sandbox().output_of(program)
    return f"```output\n{'over its limits' if output is None else output.rstrip()}\n```"
