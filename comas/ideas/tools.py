"""Solvers with tools: functions that they may call while they answer.

Source: ReTool (arXiv 2504.11536), where reinforcement learning teaches when to call tools, with
their outputs masked in the loss. A tool is a function with types and a Google-style docstring::

    def area(radius: float) -> float:
        '''Return the area of a circle.

        Args:
            radius: In metres.
        '''
        return 3.14159 * radius**2

    solvers = with_tools(sequential, area)   # interaction.schedule: path/to/file.py:solvers

Trap: it runs in the driver's process with arguments that a model wrote, and must not execute them
(``comas/ideas/python_tool.py`` uses the sandbox).
"""

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pydantic import ValidationError, validate_call
from transformers.utils import get_json_schema

from comas.interaction.discussion import OpenDiscussion
from comas.interaction.schedules import Schedule, Talks
from comas.interaction.tool_calls import Call, first_call, name_and_arguments
from comas.types import Continuation, Generate, Generation, Request, ToolDescription

MAX_CALLS = 3
"""Maximum number of answered calls in one response."""
MAX_ANSWER_CHARS = 1000
"""Longer answers are cut in the middle."""
TIMEOUT_S = 30.0
"""Time limit of a call, by the clock."""
NO_ROOM = "error: the answer is too long for what is left of the response"


class ToolError(Exception):
    """Its message is the answer of a tool that failed."""


@dataclass(frozen=True)
class Tool:
    """A function that solvers may call, with its description."""

    description: ToolDescription
    call: Callable[..., Any]
    """Called with keyword arguments; may be a coroutine function."""
    timeout_s: float | None = TIMEOUT_S
    """None if it limits itself."""

    @property
    def name(self) -> str:
        """The name by which models call it."""
        return self.description["function"]["name"]


def as_tool(function: Callable[..., Any], *, timeout_s: float | None = TIMEOUT_S) -> Tool:
    """Make a tool of a function, described by its types and docstring. Raises TypeError, or
    transformers' DocstringParsingException, if these are incomplete."""
    return Tool(get_json_schema(function), validate_call(function), timeout_s)


def with_tools(
    schedule: Schedule, *tools: Callable[..., Any] | Tool, max_calls: int = MAX_CALLS
) -> "ScheduleWithTools":
    """Return ``schedule`` with tools for solvers, who may call them ``max_calls`` times in a
    response."""
    made = [tool if isinstance(tool, Tool) else as_tool(tool) for tool in tools]
    return ScheduleWithTools(schedule, {tool.name: tool for tool in made}, max_calls)


@dataclass(frozen=True)
class ScheduleWithTools:
    """A schedule whose solvers may call tools (``comas.interaction.schedules.Schedule``)."""

    schedule: Schedule
    by_name: Mapping[str, Tool]
    max_calls: int

    @property
    def tools(self) -> Sequence[ToolDescription]:
        """Descriptions for solvers."""
        return [tool.description for tool in self.by_name.values()]

    def __call__(self, discussions: Sequence[OpenDiscussion], **named: Any) -> Talks:
        """Discuss as the schedule without tools does."""
        return self.schedule(discussions, **named)

    def equip(self, generate: Generate) -> Generate:
        r"""Wrap ``generate`` so that solvers can call tools.

        The engine stops after a call; the response then continues after the answer, which is masked
        in the loss. All of it is one response, truncated if an answer does not fit. Errors are
        answers, too.

        Example: ``<tool_call>{"name": "python", "arguments": {"program": "print(48 + 23)"}}
        </tool_call>``, then ``<tool_response>71</tool_response>``, then ``So \boxed{71}``.
        """

        async def solve(request: Request) -> Generation | None:
            if request.role != "solution":
                return await generate(request)
            request = request._replace(tools=self.tools)
            response = await generate(request)
            num_read = 0
            for number in range(1, self.max_calls + 1):
                if response is None or response.finish_reason != "stop":
                    break
                call = first_call(response.response_text, self.by_name, start=num_read)
                if call is None or response.response_text[call.end :].strip():
                    break
                go_on = partial(request._replace, seed=request.seed ^ number)
                answer, failed = await self.answer(call)
                longer = await generate(
                    go_on(after=Continuation(response, answer, call.start, failed))
                )
                if longer is None:  # the answer does not fit
                    longer = await generate(
                        go_on(after=Continuation(response, NO_ROOM, call.start, True))
                    )
                if longer is None:
                    return replace(response, finish_reason="length")
                assert longer.calls
                response, num_read = longer, longer.calls[-1].end
            return response

        return solve

    async def answer(self, call: Call) -> tuple[str, bool]:
        """Make a call; returns the agent's answer, and True if the call failed."""
        try:
            tool, arguments = self._read(call.text)
        except ValueError as error:
            return shortened(f"error: {error}"), True
        said, failed = await _make(tool, arguments)
        return shortened(said.strip()) or "(it says nothing)", failed

    def _read(self, text: str) -> tuple[Tool, Mapping[str, Any]]:
        """Return the called tool and its arguments. Raises ValueError."""
        name, arguments = name_and_arguments(text)
        if name not in self.by_name:
            raise ValueError(f"there is no tool {name!r}, but {', '.join(self.by_name)}")
        return self.by_name[name], arguments


def shortened(text: str) -> str:
    """Cut a text to ``MAX_ANSWER_CHARS`` characters, half from each end."""
    if len(text) <= MAX_ANSWER_CHARS:
        return text
    half = MAX_ANSWER_CHARS // 2
    left_out = len(text) - 2 * half
    return f"{text[:half]}\n({left_out} characters are left out)\n{text[-half:]}"


async def _make(tool: Tool, arguments: Mapping[str, Any]) -> tuple[str, bool]:
    """Return a tool's answer, and True if it failed. It runs in a daemon thread, as it may hang."""
    answered = Future[tuple[str, bool]]()

    def run() -> None:
        try:
            value = tool.call(**arguments)
            said = asyncio.run(value) if inspect.iscoroutine(value) else value
            answered.set_result((str(said), False))
        except ToolError as error:
            answered.set_result((str(error), True))
        except ValidationError as error:
            faults = (f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
            answered.set_result((f"error: {'; '.join(faults)}", True))
        except BaseException as error:  # tools may raise anything, also SystemExit
            answered.set_result((f"error: {type(error).__name__}: {error}", True))

    answered.set_running_or_notify_cancel()
    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=[run], daemon=True).start()
    try:
        return await asyncio.wait_for(asyncio.wrap_future(answered), tool.timeout_s)
    except TimeoutError:
        return f"error: {tool.name} took longer than {tool.timeout_s:g} s", True
