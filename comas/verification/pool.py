"""Verification beside training: worker processes with limits from outside."""

import logging
import multiprocessing
import os
import resource
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from functools import cache, partial
from multiprocessing import forkserver
from threading import Lock
from types import MappingProxyType
from typing import Self
from weakref import WeakSet

from pebble import ProcessExpired, ProcessPool

from comas.config.plugins import adopt_texts, blaming_plugins, texts_read
from comas.utils.processes import end_with_parent
from comas.verification import coding
from comas.verification.forms import Grader, Verdict
from comas.verification.sandbox import Isolation, Sandbox, SandboxError
from comas.verification.verifiers import CPU_LIMIT_S, SANDBOXED, verify

log = logging.getLogger(__name__)

Item = tuple[str, str, str]
"""(form, response text, gold answer); for coding the gold is checker code."""

MAX_WORKERS = 16
WORKER_MEMORY_MIB = 2048
WALL_LIMIT_S = 120.0
"""For an item that waits and does not compute, as where its worker hangs. The limit of CPU time
decides before this one does, so that a verdict does not depend on how busy the machine is."""
WORKER_FAULTS = (TimeoutError, ProcessExpired, BrokenProcessPool, SandboxError)
NICENESS = 10


class Verifier:
    """A bounded pool of verifying processes, which starts with the first items.

    A worker that spends more CPU time on one item than its limit (``CPU_LIMIT_S``) is killed and
    replaced, and the item is "failed". An item whose worker died or was over the wall
    limit, or whose program could not be started in time, is judged a second time before that: it
    may have been the machine's fault. (A program has its
    own, shorter limits: over them it is "wrong".) The workers have a low priority, 2 GiB of
    memory each, and end with the pool or its process.

    Processes come from Python's forkserver: a script that uses this needs the guard
    ``if __name__ == "__main__"``. Methods may be called from any thread. The forkserver itself, one
    per process and idle after ``close``, ends with it.

    Example::

        with Verifier() as verifier:
            pending = verifier.submit([("math", r"\\boxed{71}", "71")])
            ...                      # train meanwhile
            assert pending.result() == ["correct"]
    """

    def __init__(
        self,
        *,
        num_workers: int | None = None,
        cpu_limit_s: float | None = None,
        wall_limit_s: float = WALL_LIMIT_S,
        isolation: Isolation | None = None,
        chosen: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """``num_workers``: by default one a core that this process may use, at most 16.

        ``cpu_limit_s``: one limit in place of both of ``CPU_LIMIT_S``.
        ``wall_limit_s``: by the clock, for workers that hang.
        ``isolation``: of programs, as ``comas.preflight.machine.settle_isolation`` has settled it;
        None warns with the first program where it is not whole.
        ``chosen``: form -> the name of its strict verifier, where that is another one; it may be a
        plug-in, which the workers take as this process has read it.
        """
        self._cpu_limit_s = cpu_limit_s
        self._wall_limit_s = wall_limit_s
        self._num_workers = num_workers or min(len(os.sched_getaffinity(0)), MAX_WORKERS)
        self._chosen = chosen
        self._isolation: Isolation = isolation or "allow_degraded"
        self._is_settled = isolation is not None
        self._pools = [self._new_pool()]
        self._is_closed = False
        self._renewing = Lock()
        self._batches: WeakSet[_Batch] = WeakSet()

    def verify_batch(self, items: Iterable[Item], *, grader: Grader = "strict") -> list[Verdict]:
        """The verdict on each item, in order."""
        return self.submit(items, grader=grader).result()

    def submit(
        self,
        items: Iterable[Item],
        *,
        grader: Grader = "strict",
        on_verdict: Callable[[], object] = lambda: None,
    ) -> Future[list[Verdict]]:
        """Start judging ``items`` and return at once; equal items are judged once.

        The future's ``result()`` waits for all verdicts, in the order of the items. What failed is
        "failed", and logged with its reasons. ``on_verdict`` is called after each item, from
        another thread.
        """
        items = list(items)
        if not self._is_settled and any(form in SANDBOXED for form, _, _ in items):
            _warn_unless_isolated()
        batch = _Batch(items, schedule=partial(self._schedule, grader), on_verdict=on_verdict)
        self._batches.add(batch)
        batch.start()
        return batch.future

    def close(self) -> None:
        """Stop the workers; what they still had to do is "failed", of which nothing is said. It
        cannot be used again."""
        with self._renewing:
            self._is_closed = True
        for batch in list(self._batches):
            batch.is_wanted = False
        for pool in self._pools:
            pool.stop()
            pool.join()
        for batch in list(self._batches):
            batch.abandon("the verifier was closed")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _schedule(self, grader: Grader, item: Item) -> Future[Verdict]:
        cpu_limit_s = self._cpu_limit_s or CPU_LIMIT_S[grader]
        if grader == "strict":
            item = (self._chosen.get(item[0], item[0]), *item[1:])
        judge = partial(_judge, item, grader, cpu_limit_s=cpu_limit_s)
        with self._renewing:
            try:
                return self._pools[-1].schedule(judge, timeout=self._wall_limit_s)
            except RuntimeError:
                if self._is_closed:
                    raise
                # A pool breaks when a worker is lost that was idle. It is stopped at the end:
                # this may be its own thread.
                self._pools.append(self._new_pool())
                return self._pools[-1].schedule(judge, timeout=self._wall_limit_s)

    def _new_pool(self) -> ProcessPool:
        context = multiprocessing.get_context("forkserver")
        # Every worker is forked from a process that has sympy already.
        context.set_forkserver_preload([verify.__module__])
        return ProcessPool(
            max_workers=self._num_workers,
            initializer=_prepare_worker,
            initargs=(self._isolation, texts_read()),
            context=context,
        )


class _Batch:
    """The items of one call, with the verdicts that there are on them."""

    def __init__(
        self,
        items: list[Item],
        *,
        schedule: Callable[[Item], Future[Verdict]],
        on_verdict: Callable[[], object],
    ) -> None:
        self.future: Future[list[Verdict]] = Future()
        self._items = items
        self._different = dict.fromkeys(items)
        self._schedule = schedule
        self._on_verdict = on_verdict
        self.is_wanted = True
        """True if somebody waits for the verdicts; nobody does when the verifier is closed."""
        self._verdicts: dict[Item, Verdict] = {}
        self._faults: dict[Item, str] = {}
        self._tried_again: set[Item] = set()
        self._lock = Lock()

    def start(self) -> None:
        """Schedule all items. Raises RuntimeError when the pool is closed."""
        for item in self._different:
            self._try(item)
        if not self._items:
            self._finish()

    def abandon(self, reason: str) -> None:
        """Give up what has no verdict yet."""
        for item in self._different:
            self._record(item, "failed", fault=reason)

    def _try(self, item: Item) -> None:
        self._schedule(item).add_done_callback(partial(self._on_ended, item))

    def _on_ended(self, item: Item, ended: Future[Verdict]) -> None:
        fault = ended.exception()
        if fault is None:
            self._record(item, ended.result())
            return
        is_over_limit = isinstance(fault, ProcessExpired) and fault.exitcode == -signal.SIGPROF
        may_be_the_machines = isinstance(fault, WORKER_FAULTS) and not is_over_limit
        if may_be_the_machines and item not in self._tried_again:
            self._tried_again.add(item)
            try:
                self._try(item)
            except RuntimeError as error:  # the pool was closed meanwhile
                self.abandon(str(error))
            return
        reason = f"{type(fault).__name__}: {fault}"[:200]
        reason = "over the limit of CPU time" if is_over_limit else reason
        self._record(item, "failed", fault=reason)

    def _record(self, item: Item, verdict: Verdict, *, fault: str | None = None) -> None:
        with self._lock:
            if item in self._verdicts:
                return
            self._verdicts[item] = verdict
            if fault is not None:
                self._faults[item] = fault
            is_last = len(self._verdicts) == len(self._different)
        self._on_verdict()
        if is_last:
            self._finish()

    def _finish(self) -> None:
        faults = Counter(self._faults[item] for item in self._items if item in self._faults)
        if faults and self.is_wanted:
            reasons = "; ".join(f"{count} x {fault}" for fault, count in faults.most_common(5))
            num_failed, num_items = faults.total(), len(self._items)
            log.warning("the verifier failed on %d of %d items: %s", num_failed, num_items, reasons)
        self.future.set_result([self._verdicts[item] for item in self._items])


@cache
def _warn_unless_isolated() -> None:
    """Start a sandbox once in this process, for its warning: the workers keep theirs back."""
    with Sandbox() as sandbox:
        sandbox.start()


def _judge(item: Item, grader: Grader, *, cpu_limit_s: float) -> Verdict:
    """The verdict, in a worker, or the worker's end by SIGPROF after so many CPU seconds.

    A signal that is not caught ends native code as well, and a caught one could be held back.
    """
    signal.setitimer(signal.ITIMER_PROF, cpu_limit_s)
    try:
        with blaming_plugins():
            return verify(*item, grader)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _prepare_worker(isolation: Isolation, plugin_texts: Mapping[str, str]) -> None:
    """Low priority, bounded memory, no chatter, and death with the owner of the pool."""
    _die_with_forkserver()
    adopt_texts(plugin_texts)
    os.nice(NICENESS)
    coding.isolation.set(isolation)
    resource.setrlimit(resource.RLIMIT_AS, (WORKER_MEMORY_MIB << 20, WORKER_MEMORY_MIB << 20))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in ("math_verify", "comas.verification.sandbox"):
        logging.getLogger(name).setLevel(logging.ERROR)


def _die_with_forkserver() -> None:
    """End with the forkserver, in the middle of an item too; it ends with the pool's owner.

    The forkserver ends when nobody holds its alive pipe. Python hands that to every worker as
    well, so that a busy one would keep the forkserver, and so itself, alive for ever.
    """
    os.close(forkserver._forkserver._forkserver_alive_fd)  # type: ignore[attr-defined]
    end_with_parent()
