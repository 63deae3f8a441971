"""The tools of an environment of the ``verifiers`` library, for the solvers of its questions.

``interaction.schedule: comas.ideas.environments:ENV`` is the paper's schedule with them; they are
called in the environment's own process (``comas/verification/environments.py``).
"""

from functools import cache, partial
from typing import Any

from comas.ideas.tools import ScheduleWithTools, Tool, ToolError, with_tools
from comas.interaction.schedules import sequential
from comas.verification.environments import environment


@cache
def solvers_of(name: str) -> ScheduleWithTools:
    """Return the sequential schedule with the tools of an environment. Raises AttributeError where
    it has none."""
    described = environment(name).tools()
    if not described:
        raise AttributeError(f"the environment {name} has no tools: leave the schedule as it is")
    return with_tools(
        sequential,
        *(
            Tool({"type": "function", "function": one}, partial(_call, name, one["name"]), None)
            for one in described
        ),
    )


def _call(environment_name: str, tool_name: str, /, **arguments: Any) -> str:
    found = environment(environment_name).ask(call=tool_name, arguments=arguments)
    if found["failed"]:
        raise ToolError(found["answer"])
    return found["answer"]


def __getattr__(name: str) -> ScheduleWithTools:
    if name.startswith("__"):
        raise AttributeError(name)
    return solvers_of(name)
