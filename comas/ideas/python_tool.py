"""Python as a tool: solvers may run programs, and continue after their output.

Source: ToRA (arXiv 2309.17452), whose solutions consist of text, programs and outputs, and ReTool
(arXiv 2504.11536), which trains them by reinforcement learning. See
``configs/ideas/python_tool.yaml``. Found (November 2026): after a cold start with 3,000 solutions
that call the tool, a quick-start agent answered 100 of 100 held-out sums greedily (13 before,
without it); SmolLM2, after 48 such solutions, 98 (8 without). The effect of training has not been
studied.
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


PYTHON = as_tool(python, timeout_s=None)  # the sandbox has limits, and runs one at a time
sequential_with_python = with_tools(sequential, PYTHON)
parallel_with_python = with_tools(parallel, PYTHON)
