"""The process of one environment of the ``verifiers`` library: ``PYTHON environment_host.py ENV``.

It runs in the Python of whoever has that library, whose pins are not ours, and so imports nothing
of ours. It says first what it is, or why it cannot be; then it answers a request a line, in JSON::

    {"tools": [...]}
    {"rows": "train"}                                  [{"prompt": "48 + 23?", "data": {...}}, ...]
    {"score": {...}, "response": "71"}                 {"reward": 1.0, "threshold": 0.5}
    {"call": "add", "arguments": {"a": 48, "b": 23}}   {"answer": "71", "failed": false}
"""

import asyncio
import importlib
import inspect
import itertools
import json
import os
import sys
from typing import Any

NUM_OF_ENDLESS = {"train": 200, "eval": 50}
"""Questions that are taken of a taskset without an end, the second after the first."""
PASS_THRESHOLD = 0.5
"""The library's own, where the environment says none: the least reward of a right answer."""


class RefusedError(Exception):
    """Why an environment cannot be used here."""


class EnvironmentOfRubric:
    """An environment of versions before 0.4: a dataset, a rubric, and functions as tools."""

    def __init__(self, module: Any) -> None:
        import verifiers as vf

        self._state, self._env = vf.State, module.load_environment()
        answers = {getattr(each, "env_response", None) for each in (vf.SingleTurnEnv, vf.ToolEnv)}
        kind = type(self._env)
        if not isinstance(self._env, vf.MultiTurnEnv) or kind.env_response not in answers:
            raise RefusedError(
                f"its {kind.__name__} answers turns by itself, and only SingleTurnEnv and ToolEnv "
                "can be held as discussions"
            )
        self._functions = getattr(self._env, "tool_map", {})
        self.tools = [
            {"name": each.name, "description": each.description, "parameters": each.parameters}
            for each in getattr(self._env, "tool_defs", None) or ()
        ]

    def rows(self, part: str) -> list[dict[str, Any]]:
        dataset = self._env.get_eval_dataset() if part == "eval" else self._env.get_dataset()
        return [{"prompt": _text_of(row["prompt"]), "data": row} for row in map(dict, dataset)]

    async def score(self, data: dict[str, Any], response: str) -> float:
        state = self._state(input=data)
        said = [{"role": "assistant", "content": response}]
        state.update(completion=said, trajectory=[], task=data.get("task", "default"))
        await self._env.rubric.score_rollout(state)
        return float(state["reward"])

    @property
    def threshold(self) -> float:
        return getattr(self._env, "pass_threshold", PASS_THRESHOLD)

    async def call(self, name: str, arguments: dict[str, Any]) -> object:
        found = self._functions[name](**arguments)
        return await found if inspect.isawaitable(found) else found


class EnvironmentOfTaskset:
    """An environment of version 0.4: a taskset, whose tasks score a trace, and tool servers."""

    threshold = PASS_THRESHOLD

    def __init__(self, name: str) -> None:
        import verifiers.v1 as vf
        from mcp.server.mcpserver import MCPServer
        from verifiers.v1.utils import loaders

        self._vf = vf
        config = loaders.taskset_config_type(name)(id=name)
        self._taskset = loaders.load_taskset(config)
        self._kind = self._taskset.task_type()
        self._task_config = config.task
        hooks = [hook for hook in ("setup", "finalize") if _is_changed(self._kind, vf.Task, hook)]
        if loaders.environment_class(name) is not vf.SingleAgentEnv:
            raise RefusedError("it plays its episodes itself, which cannot be held as discussions")
        if self._kind.NEEDS_CONTAINER or hooks:
            raise RefusedError(
                "its tasks need a runtime, a container or files that an agent works on"
            )
        self._server = MCPServer(name)
        kinds = [*self._taskset.toolsets(config), *self._kind.toolsets(config.task)]
        for toolset in kinds:
            asyncio.run(toolset.setup())
            toolset.register(self._server)
        listed = asyncio.run(self._server.list_tools()) if kinds else ()
        self.tools = [
            {"name": t.name, "description": t.description or "", "parameters": t.input_schema}
            for t in listed
        ]

    def rows(self, part: str) -> list[dict[str, Any]]:
        start = NUM_OF_ENDLESS["train"] if part == "eval" else 0
        if self._taskset.bounded:
            if part == "eval":
                raise RefusedError("its taskset has no part to evaluate on: name other questions")
            tasks = list(self._taskset)
        else:
            tasks = list(itertools.islice(self._taskset, start, start + NUM_OF_ENDLESS[part]))
        return [self._row(task) for task in tasks]

    def _row(self, task: Any) -> dict[str, Any]:
        data = task.data
        texts = [text for text in (data.system_prompt, data.prompt_text) if text]
        return {"prompt": "\n\n".join(texts), "data": data.model_dump(mode="json")}

    async def score(self, data: dict[str, Any], response: str) -> float:
        vf = self._vf
        task = self._kind(self._kind.data_type().model_validate(data), self._task_config)
        trace = vf.Trace(
            task=vf.TraceTask(type=self._kind.__name__, data=task.data),
            agent=vf.AgentInfo(config=vf.AgentConfig()),
            root_reply=response,
            nodes=[
                vf.MessageNode(message=vf.UserMessage(content=task.data.prompt_text)),
                vf.MessageNode(
                    parent=0, message=vf.AssistantMessage(content=response), sampled=True
                ),
            ],
            ok=True,
            is_completed=True,
        )
        await task.score(trace)
        return float(trace.reward)

    async def call(self, name: str, arguments: dict[str, Any]) -> object:
        found: Any = await self._server.call_tool(name, arguments)
        content = getattr(found, "content", found)
        texts = [part.text for part in content if getattr(part, "text", None) is not None]
        if getattr(found, "is_error", False):
            raise RuntimeError(" ".join(texts))
        return "\n".join(texts)


def load(name: str) -> EnvironmentOfRubric | EnvironmentOfTaskset:
    """Return the environment of an installed package, by its name or that of a module in it."""
    module = importlib.import_module(name.replace("-", "_"))
    if hasattr(module, "load_environment"):
        return EnvironmentOfRubric(module)
    return EnvironmentOfTaskset(name)


async def answer(environment: Any, request: dict[str, Any]) -> object:
    """Return what a request asks for."""
    if "rows" in request:
        return environment.rows(request["rows"])
    if "score" in request:
        reward = await environment.score(request["score"], request["response"])
        return {"reward": reward, "threshold": environment.threshold}
    try:
        said = await environment.call(request["call"], request["arguments"])
    except Exception as error:  # whatever a tool may raise
        return {"answer": f"error: {type(error).__name__}: {error}", "failed": True}
    return {"answer": str(said), "failed": False}


def main() -> None:
    """Serve one environment until the input ends."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace")
    os.dup2(2, 1)  # whatever else is printed is no reply

    def reply(value: object) -> None:
        replies.write(f"{json.dumps(value, default=str, ensure_ascii=False)}\n")
        replies.flush()

    try:
        environment = load(sys.argv[1])
    except Exception as error:  # whatever an environment may raise
        missing = error.name if isinstance(error, ImportError) else None
        reply({"fault": _in_words(error), "missing": missing})
        return
    reply({"tools": environment.tools})
    with asyncio.Runner() as runner:
        for line in sys.stdin:
            try:
                reply(runner.run(answer(environment, json.loads(line))))
            except Exception as error:  # likewise
                reply({"fault": _in_words(error)})


def _text_of(prompt: Any) -> str:
    """The texts of a prompt's messages, one after another."""
    texts = [prompt] if isinstance(prompt, str) else [each["content"] for each in prompt]
    if not all(isinstance(text, str) for text in texts):
        raise RefusedError("its prompts hold more than text")
    return "\n\n".join(texts)


def _in_words(error: Exception) -> str:
    return str(error) if isinstance(error, RefusedError) else f"{type(error).__name__}: {error}"


def _is_changed(kind: type, base: type, name: str) -> bool:
    return getattr(kind, name) is not getattr(base, name)


if __name__ == "__main__":
    main()
