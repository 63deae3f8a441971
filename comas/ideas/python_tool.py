"""Python as a tool: a solver may run programs on the way, and goes on after what they print.

Source: ToRA (arXiv 2309.17452), where a solution is made of text, programs and their outputs, and
ReTool (arXiv 2504.11536), which trains that by reinforcement. ``configs/ideas/python_tool.yaml``
has an example. Found (November 2026): a tiny agent of the quick-start to which a cold start had
shown 3,000 solutions with a call answered 100 of 100 held-out sums greedily; the one that it began
as, without the tool, 13. SmolLM2, after 48 such solutions: 98, without 8. What training adds has
not been studied.
"""

from comas.ideas.tools import ToolError, as_tool, with_tools
from comas.interaction.schedules import parallel, sequential
from comas.verification.coding import process_sandbox
from comas.verification.sandbox import ProgramError


def python(program: str) -> str:
    """Run a Python program and return what it prints.

    Args:
        program: The program.
    """
    try:
        return process_sandbox().output_of(program) or "(nothing was printed)"
    except ProgramError as error:
        raise ToolError(str(error)) from error


PYTHON = as_tool(python, timeout_s=None)  # the sandbox has limits, and one program at a time
sequential_with_python = with_tools(sequential, PYTHON)
parallel_with_python = with_tools(parallel, PYTHON)
