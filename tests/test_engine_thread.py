"""When the one thread of a rollout engine is taken for alive."""

import asyncio
import threading

import pytest

from comas.engines.rollout.engine_thread import EngineThread


class SlowEngine:
    """Has a request that never ends, and a step that takes until it is let go."""

    def __init__(self) -> None:
        self.goes_on, self.is_at_it = threading.Event(), threading.Event()

    def has_unfinished_requests(self) -> bool:
        return self.is_at_it.is_set()

    def add_request(self, name: str) -> None:
        self.is_at_it.set()

    def step(self) -> list[object]:
        self.goes_on.wait()
        self.goes_on.clear()
        return []


@pytest.mark.parametrize("longest_step_s, expected", [(0.0, [True, False]), (60.0, [True, True])])
def test_a_step_may_take_its_time_on_a_device_where_some_do(longest_step_s, expected):
    engine = SlowEngine()
    thread = EngineThread(
        lambda: engine,  # type: ignore[arg-type,return-value]
        name="engine",
        on_result=lambda result: None,
        longest_step_s=longest_step_s,
    )

    async def look() -> list[bool]:
        await thread.start()
        while not thread.has_moved():  # until it has nothing to do
            await asyncio.sleep(0.01)
        thread.add({"a": {}})
        assert await asyncio.to_thread(engine.is_at_it.wait, 10)
        while thread._num_moves == 0:
            await asyncio.sleep(0.01)
        found = [thread.has_moved(), thread.has_moved()]
        engine.goes_on.set()
        return found

    assert asyncio.run(look()) == expected
