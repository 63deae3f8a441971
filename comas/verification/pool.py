"""A pool of limited worker processes that verify answers while training runs."""

import logging
import multiprocessing
import os
import resource
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager
from functools import cache, partial
from multiprocessing import forkserver
from threading import Lock
from types import MappingProxyType
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
"""(form, response text, gold answer: for coding, checker code)."""

MAX_WORKERS = 16
WORKER_MEMORY_MIB = 2048
WALL_LIMIT_S = 120.0
"""Limit for items that wait without computing, as if a worker hangs. The CPU limit is reached
before this one, so that a verdict does not depend on how busy the machine is."""
WORKER_FAULTS = (TimeoutError, ProcessExpired, BrokenProcessPool, SandboxError)
NICENESS = 10


class Verifier(AbstractContextManager["Verifier"]):
    """A pool of verifying processes, which starts with the first items.

    A worker over its CPU limit for one item (``CPU_LIMIT_S``) is killed and replaced, and the item
    is "failed". If a worker dies or reaches the wall limit, or the sandbox fails, perhaps through
    the machine's fault, the item is judged once more. (A program that exceeds its own, shorter
    limits is "wrong".)

    Processes come from Python's forkserver, which ends with this process: a script that uses this
    needs the guard ``if __name__ == "__main__"``. Methods may be called from any thread.

    Example: ``Verifier().submit([("math", r"\\boxed{71}", "71")]).result() == ["correct"]``
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
        """``num_workers``: by default one per usable core, at most 16.

        ``cpu_limit_s``: replaces all of ``CPU_LIMIT_S``.
        ``isolation``: of programs, from ``comas.preflight.machine.settle_isolation``; None warns
        at the first program if it is incomplete.
        ``chosen``: form -> name of the strict verifier that replaces its default.
        """
        self._cpu_limit_s = cpu_limit_s
        self._wall_limit_s = wall_limit_s
        self._num_workers = num_workers or min(len(os.sched_getaffinity(0)), MAX_WORKERS)
        self._chosen = chosen
        self._isolation = isolation
        self._pools = [self._new_pool()]
        self._is_closed = False
        self._renewing = Lock()
        self._asked: WeakSet[Future[Verdict]] = WeakSet()
        self._waiting = ThreadPoolExecutor(thread_name_prefix="verdicts")

    def verify_batch(self, items: Iterable[Item], *, grader: Grader = "strict") -> list[Verdict]:
        return self.submit(items, grader=grader).result()

    def submit(
        self,
        items: Iterable[Item],
        *,
        grader: Grader = "strict",
        on_verdict: Callable[[], object] = lambda: None,
    ) -> Future[list[Verdict]]:
        """Start judging ``items``, equal ones once; the future holds the verdicts in order.
        Failures are logged with their reasons. ``on_verdict`` is called after each distinct item,
        from another thread."""
        items = list(items)
        if self._isolation is None and any(form in SANDBOXED for form, _, _ in items):
            _warn_unless_isolated()
        asked = {item: self._schedule(grader, item) for item in dict.fromkeys(items)}
        return self._waiting.submit(self._collect, items, asked, grader, on_verdict)

    def close(self) -> None:
        """Stop the workers for good; unfinished items are "failed", without a warning."""
        with self._renewing:
            self._is_closed = True
        for pool in self._pools:
            pool.stop()
            pool.join()
        for answer in list(self._asked):
            answer.cancel()  # the pool never completes an item that a worker had begun
        self._waiting.shutdown()

    def __exit__(self, *error: object) -> None:
        self.close()

    def _collect(
        self,
        items: Sequence[Item],
        asked: Mapping[Item, Future[Verdict]],
        grader: Grader,
        on_verdict: Callable[[], object],
    ) -> list[Verdict]:
        """Wait, in a thread, for the verdicts on a batch."""
        verdicts: dict[Item, Verdict] = {}
        faults: dict[Item, str] = {}
        for item, answer in asked.items():
            try:
                try:
                    verdicts[item] = answer.result()
                except WORKER_FAULTS as error:
                    if _is_over_limit(error):
                        raise
                    verdicts[item] = self._schedule(grader, item).result()
            except Exception as error:  # a verifier may raise anything
                reason = f"{type(error).__name__}: {error}"[:200]
                faults[item] = "over the limit of CPU time" if _is_over_limit(error) else reason
                verdicts[item] = "failed"
            on_verdict()
        counts = Counter(faults[item] for item in items if item in faults)
        if counts and not self._is_closed:
            reasons = "; ".join(f"{count} x {fault}" for fault, count in counts.most_common(5))
            failed = f"{counts.total()} of {len(items)}"
            log.warning("the verifier failed on %s items: %s", failed, reasons)
        return [verdicts[item] for item in items]

    def _schedule(self, grader: Grader, item: Item) -> Future[Verdict]:
        cpu_limit_s = self._cpu_limit_s or CPU_LIMIT_S[grader]
        if grader == "strict":
            item = (self._chosen.get(item[0], item[0]), *item[1:])
        judge = partial(_judge, item, grader, cpu_limit_s=cpu_limit_s)
        with self._renewing:
            try:
                answer = self._pools[-1].schedule(judge, timeout=self._wall_limit_s)
            except RuntimeError:
                if self._is_closed:
                    raise
                # A pool breaks if it loses an idle worker. It is stopped in close(), since this
                # may be its own thread.
                self._pools.append(self._new_pool())
                answer = self._pools[-1].schedule(judge, timeout=self._wall_limit_s)
            self._asked.add(answer)
            return answer

    def _new_pool(self) -> ProcessPool:
        context = multiprocessing.get_context("forkserver")
        # Workers are forked from a process that has imported sympy already.
        context.set_forkserver_preload([verify.__module__])
        return ProcessPool(
            max_workers=self._num_workers,
            initializer=_prepare_worker,
            initargs=(self._isolation or "allow_degraded", texts_read()),
            context=context,
        )


def _is_over_limit(error: Exception) -> bool:
    return isinstance(error, ProcessExpired) and error.exitcode == -signal.SIGPROF


@cache
def _warn_unless_isolated() -> None:
    """Start a sandbox once in this process for its warning, which workers suppress."""
    with Sandbox() as sandbox:
        sandbox.start()


def _judge(item: Item, grader: Grader, *, cpu_limit_s: float) -> Verdict:
    """Judge in a worker, which SIGPROF ends after ``cpu_limit_s``, even in native code."""
    signal.setitimer(signal.ITIMER_PROF, cpu_limit_s)
    try:
        with blaming_plugins():
            return verify(*item, grader)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _prepare_worker(isolation: Isolation, plugin_texts: Mapping[str, str]) -> None:
    """Set low priority, limited memory and fewer warnings, and end with the pool's owner."""
    # Trap: this worker's copy of the pipe by which the pool's owner keeps the forkserver alive.
    os.close(forkserver._forkserver._forkserver_alive_fd)  # type: ignore[attr-defined]
    end_with_parent()  # even within an item
    adopt_texts(plugin_texts)
    os.nice(NICENESS)
    coding.isolation.set(isolation)
    resource.setrlimit(resource.RLIMIT_AS, (WORKER_MEMORY_MIB << 20, WORKER_MEMORY_MIB << 20))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in ("math_verify", "comas.verification.sandbox"):
        logging.getLogger(name).setLevel(logging.ERROR)
