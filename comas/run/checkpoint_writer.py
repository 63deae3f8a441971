"""Checkpoints that are written beside the next step."""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from comas.run.directory import RunDirectory
from comas.utils.progress import progress_bar

logger = logging.getLogger(__name__)

Begin = Callable[[Path], Sequence[Future[None]]]
"""Copies the states that belong into a folder, and begins to write them there; the futures end as
their parts of it are on the disk."""

GRACE_S = 120.0
"""How long a run that failed still waits for its last checkpoint, in seconds."""


class CheckpointWriter:
    """Finishes the checkpoints of a run in a thread, one at a time; a context manager.

    Leaving it waits for the one under way, also after an error or Ctrl-C; a second Ctrl-C gives
    it up. What was written before is never touched until the next is whole.
    """

    def __init__(self, run: RunDirectory, begin: Begin, *, timeout_s: float) -> None:
        """``timeout_s`` limits the time until a checkpoint is written."""
        self._run = run
        self._begin = begin
        self._timeout_s = timeout_s
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._parts: Sequence[Future[None]] = ()
        self._under_way: Future[None] | None = None

    def save(self, step: int) -> None:
        """Take the states as they are after ``step``; ``wait`` tells when they are written."""
        assert self._under_way is None, "wait for the one before"
        with ExitStack() as stack:
            folder = stack.enter_context(self._run.checkpoint_folder(step))
            self._parts = self._begin(folder)
            publishing = stack.pop_all()
        self._under_way = self._thread.submit(self._finish, publishing, step)

    def wait(self) -> None:
        """Wait for the checkpoint under way, if there is one, and raise what its writing raised."""
        if self._under_way is not None:
            with progress_bar("writing the checkpoint"):
                self._under_way.result()
            self._under_way = None

    def settle(self, *, within_s: float | None = GRACE_S) -> None:
        """End the checkpoint under way after a failure: as a whole one, or as none at all.

        Waits ``within_s`` for it (None: until it is written), and says why it is given up.
        """
        try:
            if self._under_way is not None:
                self._under_way.result(timeout=within_s)
        except (RuntimeError, OSError, ValueError) as error:
            logger.warning("a checkpoint is given up: %s", str(error) or "it takes too long")
        finally:
            self._give_up()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._thread:
            try:
                if error is None:
                    self.wait()
                elif isinstance(error, KeyboardInterrupt):
                    if self._under_way is not None and not self._under_way.done():
                        logger.info("finishing a checkpoint; Ctrl-C again stops without it")
                    self.settle(within_s=None)
                else:
                    self.settle()
            finally:
                self._give_up()

    def _give_up(self) -> None:
        """See to it that nothing is under way: what is not written by now will not be."""
        for part in self._parts:
            part.cancel()
        if self._under_way is not None:
            self._under_way.exception()
            self._under_way = None

    def _finish(self, publishing: ExitStack, step: int) -> None:
        with publishing:
            for part in self._parts:  # All end before a failure is told: the next may begin then.
                try:
                    part.exception(timeout=self._timeout_s)
                except TimeoutError:
                    raise TimeoutError(
                        f"the checkpoint of step {step} was not written within "
                        f"{self._timeout_s:.0f} s (cluster.call_timeout_s)"
                    ) from None
            for part in self._parts:
                part.result()
