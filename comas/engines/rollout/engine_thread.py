"""A vLLM engine in a thread of its own, controlled from an event loop."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from vllm import RequestOutput
    from vllm.v1.engine.llm_engine import LLMEngine

logger = logging.getLogger(__name__)

Result = TypeVar("Result")


class RolloutEngineError(RuntimeError):
    """The engine did not start, or it broke."""


class EngineThread:
    """Runs commands from the event loop, in order, and steps the engine in between.

    Any exception in the thread ends the engine, whose state is then unknown: all waiting and later
    calls fail with RolloutEngineError.
    """

    def __init__(
        self,
        build: Callable[[], LLMEngine],
        *,
        name: str,
        on_result: Callable[[list[RequestOutput] | RolloutEngineError], None],
    ) -> None:
        """``build`` loads the engine in the thread; ``name`` begins error messages. ``on_result``
        is called in the loop with the requests finished by a step, or the error that broke the
        engine."""
        self._build = build
        self._name = name
        self._on_result = on_result
        self._commands: SimpleQueue[Callable[[LLMEngine], object]] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def check(self) -> None:
        """Raise RolloutEngineError if the engine has failed."""
        if self._broken.done():
            self._broken.result()

    async def start(self) -> None:
        """Load the engine. Raises RolloutEngineError when it does not load."""
        self._loop = asyncio.get_running_loop()
        self._broken: asyncio.Future[None] = self._loop.create_future()
        self._thread.start()
        await self.call(lambda engine: None)

    def add(self, requests: Mapping[str, Mapping[str, Any]]) -> None:
        """Start requests: request id -> further arguments of vLLM's ``add_request``."""
        self.check()
        self._commands.put(
            lambda engine: [engine.add_request(name, **asked) for name, asked in requests.items()]
        )

    def abort(self, names: Sequence[str]) -> None:
        """Abort requests; those that have finished meanwhile are still returned."""
        self._commands.put(lambda engine: engine.abort_request(list(names)))

    async def call(self, function: Callable[[LLMEngine], Result]) -> Result:
        """Return the result of ``function``, run between two steps."""
        self.check()
        future: asyncio.Future[Result] = self._loop.create_future()
        self._commands.put(lambda engine: self._post(future.set_result, function(engine)))
        await asyncio.wait((future, self._broken), return_when=asyncio.FIRST_COMPLETED)
        if not future.done():
            self.check()
        return future.result()

    def _fail(self, reason: str) -> None:
        error = RolloutEngineError(f"{self._name} cannot serve: {reason}")
        self._broken.set_exception(error)
        self._on_result(error)

    # ---- in the thread ----

    def _run(self) -> None:
        try:
            engine = self._build()
            while True:
                while not (self._commands.empty() and engine.has_unfinished_requests()):
                    command = self._commands.get()  # blocks
                    command(engine)
                finished = [output for output in engine.step() if output.finished]
                if finished:  # together, so that the loop wakes once per step
                    self._post(self._on_result, finished)
        except BaseException as error:  # the thread's outermost frame
            logger.error("%s stopped", self._name, exc_info=error)
            self._post(self._fail, f"{type(error).__name__}: {error}")

    def _post(self, function: Callable[..., None], *arguments: Any) -> None:
        self._loop.call_soon_threadsafe(function, *arguments)
