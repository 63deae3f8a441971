"""An environment of the verifiers library since version 0.4: sums, with a tool that adds."""

import verifiers.v1 as vf


class SumData(vf.TaskData):
    answer: str


class Adding(vf.Toolset[vf.ToolsetConfig]):
    TOOL_PREFIX = None

    @vf.tool
    def add(self, a: int, b: int) -> int:
        """Add two numbers."""
        return a + b


class SumTask(vf.Task[SumData]):
    @vf.reward(weight=1.0)
    async def ends_with_answer(self, trace: vf.Trace) -> float:
        return float((trace.last_reply or "").endswith(self.data.answer))

    @classmethod
    def toolsets(cls, config):
        return [Adding(vf.ToolsetConfig())]


class SumTaskset(vf.Taskset[SumTask, vf.TasksetConfig]):
    def load(self):
        for i in range(3):
            data = SumData(prompt=f"{i} + {i}?", system_prompt="Add.", answer=str(2 * i))
            yield SumTask(data, self.config.task)


__all__ = ["SumTaskset"]
