"""As much of the verifiers library (0.1.14) as an environment of sums uses, where there is none:
tests/test_environments.py says how they are run with it."""

import asyncio
from dataclasses import dataclass


class State(dict):
    """What a rollout came to; the row is within it."""

    def __init__(self, *, input):
        super().__init__(input)


class Rubric:
    def __init__(self, funcs):
        self.funcs = funcs

    async def score_rollout(self, state):
        await asyncio.sleep(0)
        given = {"completion": state["completion"], "answer": state["answer"]}
        state["reward"] = sum(function(**given) for function in self.funcs)


@dataclass
class Definition:
    name: str
    description: str
    parameters: dict


class Environment:
    def __init__(self, *, dataset, eval_dataset=None, system_prompt, rubric, tools=()):
        self.rubric, self.pass_threshold = rubric, 0.5
        self._rows = [
            [self._asked(row, system_prompt) for row in rows]
            for rows in (dataset, eval_dataset or dataset)
        ]
        self.tool_map = {tool.__name__: tool for tool in tools}
        self.tool_defs = [
            Definition(name, tool.__doc__, {}) for name, tool in self.tool_map.items()
        ]

    @staticmethod
    def _asked(row, system_prompt):
        said = (("system", system_prompt), ("user", row["question"]))
        return {**row, "prompt": [{"role": role, "content": text} for role, text in said]}

    def get_dataset(self):
        return self._rows[0]

    def get_eval_dataset(self):
        return self._rows[1]


class MultiTurnEnv(Environment):
    async def env_response(self, messages, state): ...


class SingleTurnEnv(MultiTurnEnv):
    async def env_response(self, messages, state): ...


class ToolEnv(MultiTurnEnv):
    async def env_response(self, messages, state): ...
