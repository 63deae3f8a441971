"""What the worst of servers does: it ignores SIGTERM, has a child that outlives it, and shared
memory that only Python's resource tracker removes.

Run as a module; it prints its own process id, its child's, and the name of the memory.
"""

import multiprocessing
import os
import signal
import sys
import time

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    lock = multiprocessing.get_context("spawn").Lock()
    child = os.fork()
    if child:
        name = lock._semlock.name.removeprefix("/")  # type: ignore[attr-defined]
        sys.stdout.write(f"{os.getpid()} {child} {name}\n")
        sys.stdout.flush()
    time.sleep(600)
