"""Every hostile program in three modes of the sandbox, with targets outside of it.

    python tests/test_hostile_suite.py namespaces | root | user

namespaces  as the machine allows
root        root of a container: with Docker's capabilities, and so without CAP_SYS_ADMIN
user        a user without rights, whom a seccomp filter refuses namespaces, as most containers do

Prints JSON: how many programs ran, the faults of each that was not contained, and separately
the faults of programs that only a protection contains which is missing in this mode
(``unpromised``). ``command`` enters the other modes from root.
"""

import errno
import json
import logging
import os
import shlex
import signal
import site
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue

import psutil
import pyseccomp
import pytest
from hostile_programs import CHECKER, HONEST, HOSTILE, OUTSIDE, Hostile, passes
from outside import Outside, outside

from comas.verification.sandbox import Limits, Sandbox, SandboxError
from comas.verification.sandbox.inside import bare
from comas.verification.sandbox.system_call_filter import compile_filter

LIMITS = Limits(cpu_s=1, wall_s=3.0)
MODES = ("namespaces", "root", "user")
CAPABILITIES = (
    "chown dac_override fowner fsetid kill setgid setuid setpcap net_bind_service net_raw "
    "sys_chroot mknod audit_write setfcap"
)
USER = 12345
NOBODY = 65534
NUM_AT_ONCE = 6
NUM_TRIES_ALONE = 5
LEFT_BEHIND = [
    Path(place) / name
    for place in ("/", "/usr", "/var/tmp", "/dev/shm", "/run", "/mnt", "/tmp", os.getcwd())
    for name in ("hostile", "hostile_folder")
]
_OTHERS_END_WITHIN_S = 30.0
_SLOW = "over its time"
SHARED_MEMORY_KEY = 0x5EED
"""The key hostile/escapes.txt uses."""
_NEW_USER_NAMESPACE = 0x10000000
_REPOSITORY = Path(__file__).parents[1]


@pytest.mark.stack
@pytest.mark.parametrize("mode", MODES)
def test_no_hostile_program_touches_what_is_outside_passes_or_stays(mode):
    if os.geteuid() != 0 and mode == "root":
        pytest.skip("only root can give up the rights that root of a container lacks")
    if mode == "namespaces":
        with Sandbox() as sandbox:
            if not sandbox.start():
                pytest.skip("this kernel or container allows no namespaces")
    with tempfile.TemporaryDirectory(prefix="comas-modes-") as place:
        os.chmod(place, 0o755)
        run = subprocess.run(command(mode, place), capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    report = json.loads(run.stdout)
    assert report["faults"] == {}
    assert set(report["not promised here"]) == unpromised(mode)
    assert report["programs"] >= 195


def command(mode: str, place: str) -> list[str]:
    """The command that runs this script in ``mode``; ``place`` is empty and world-readable."""
    script = [__file__, mode]
    if mode == "namespaces" or os.geteuid() != 0:
        return [sys.executable, *script]
    if mode == "root":
        rights = ",".join(["-all", *(f"+{name}" for name in CAPABILITIES.split())])
        return ["setpriv", f"--bounding-set={rights}", "--inh-caps=-all", sys.executable, *script]
    # Others cannot read a Python in root's home, so it is mounted elsewhere.
    folders = [sys.base_prefix, site.getsitepackages()[0], str(_REPOSITORY)]
    places = [f"{place}/{number}" for number in range(len(folders))]
    for folder in places:
        os.mkdir(folder)
    python = f"{places[0]}/bin/python{sys.version_info[0]}.{sys.version_info[1]}"
    mounts = [f"mount --bind {shlex.quote(a)} {b}" for a, b in zip(folders, places, strict=True)]
    become = f"exec setpriv --reuid={USER} --regid={USER} --clear-groups"
    start = f"{become} env PYTHONPATH={places[1]}:{places[2]} {python} -B {places[2]}/tests/"
    shell = " && ".join([*mounts, f"{start}{Path(__file__).name} {mode}"])
    return ["unshare", "--mount", "sh", "-c", shell]


def run_all(mode: str) -> dict[str, object]:
    """Run all programs."""
    if mode == "user":
        _refuse_user_namespaces()
    user = NOBODY if os.geteuid() == 0 else os.geteuid()
    chosen = [*HOSTILE, *OUTSIDE]
    started, folders = time.time(), set(Path("/tmp").glob("comas-sandbox-*"))
    with outside(user) as things:
        sandboxes: SimpleQueue[Sandbox] = SimpleQueue()
        for _ in range(NUM_AT_ONCE):
            sandbox = Sandbox(LIMITS)
            assert sandbox.start() == (mode == "namespaces"), f"this is not the mode {mode}"
            sandboxes.put(sandbox)

        def examine(hostile: Hostile) -> list[str]:
            sandbox = sandboxes.get()
            try:
                return _faults(sandbox, hostile, things)
            finally:
                sandboxes.put(sandbox)

        before = things.state()
        with ThreadPoolExecutor(NUM_AT_ONCE) as pool:
            faults = dict(zip((h.name for h in chosen), pool.map(examine, chosen), strict=True))
        for hostile in chosen:  # a fault only if also slow alone, every time
            for _ in range(NUM_TRIES_ALONE):
                if any(fault.startswith(_SLOW) for fault in faults[hostile.name]):
                    faults[hostile.name] = examine(hostile)
        faults["all"] = _differences(before, things.state())
        while not sandboxes.empty():
            sandbox = sandboxes.get()
            if not _serves(sandbox):
                faults["all"].append("a server no longer serves")
            sandbox.close()
    faults["all"] += [f"left {path}" for path in _left_folders(folders)]
    faults["all"] += [f"left {path}" for path in LEFT_BEHIND if path.exists()]
    faults["all"] += [f"{process} has escaped" for process in _escaped(since=started)]
    if str(SHARED_MEMORY_KEY) in Path("/proc/sysvipc/shm").read_text().split():
        faults["all"].append("left shared memory")
    expected = unpromised(mode)
    return {
        "programs": len(chosen),
        "faults": {name: f for name, f in faults.items() if f and name not in expected},
        "not promised here": {name: f for name, f in faults.items() if f and name in expected},
    }


def unpromised(mode: str) -> set[str]:
    """The programs whose containment needs a protection that ``mode`` lacks on this machine."""
    found = protections() | ({"namespaces", "landlock"} if mode == "namespaces" else set())
    return {program.name for program in [*HOSTILE, *OUTSIDE] if not program.needs <= found}


def _left_folders(before: set[Path]) -> set[Path]:
    """New folders of sandboxes that stay; those of other sandboxes disappear."""
    deadline = time.monotonic() + _OTHERS_END_WITHIN_S
    left = set(Path("/tmp").glob("comas-sandbox-*")) - before
    while left and time.monotonic() < deadline:
        time.sleep(0.1)
        left = {path for path in left if path.exists()}
    return left


def protections() -> set[str]:
    """The protections of this machine besides namespaces."""
    found = set()
    with suppress(RuntimeError):
        compile_filter(has_namespaces=False)
        found.add("seccomp")
    with suppress(OSError):
        bare.version()
        found.add("landlock")
    return found


def _escaped(*, since: float) -> list[psutil.Process]:
    """Processes of these programs that left their server's process tree."""
    return [
        process
        for process in psutil.process_iter(["cmdline", "ppid", "create_time"])
        if process.info["ppid"] == 1
        and (process.info["cmdline"] or [""])[0] == sys.executable
        and "inside" in process.info["cmdline"]
        and process.info["create_time"] >= since
    ]


def _faults(sandbox: Sandbox, hostile: Hostile, things: Outside) -> list[str]:
    before = things.state()
    started = time.monotonic()
    try:
        has_passed = passes(sandbox, things.names() + hostile.program, CHECKER)
    except SandboxError as error:
        return [f"{_SLOW} before it began: {error}"]
    seconds = time.monotonic() - started
    assert sandbox._server is not None
    left = psutil.Process(sandbox._server.process.pid).children(recursive=True)
    faults = _differences(before, things.state())
    if has_passed:
        faults.append("passes")
    if seconds > LIMITS.wall_s + 1:
        faults.append(f"{_SLOW}: {seconds:.1f} s")
    return faults + [f"leaves {process}" for process in left]


def _serves(sandbox: Sandbox) -> bool:
    """True if an honest program passes, which may take several tries on a busy machine."""
    for _ in range(9):
        with suppress(SandboxError):
            if sandbox.run(HONEST, checker=CHECKER):
                return True
    return False


def _differences(before: dict[str, object], after: dict[str, object]) -> list[str]:
    """Names every program that ran meanwhile, when one of several touches something."""
    touched = [name for name in before if before[name] != after[name]]
    return [f"touches {name}: {before[name]} is {after[name]}" for name in touched]


def _refuse_user_namespaces() -> None:
    filtering = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    for call in ("unshare", "clone"):
        flag = pyseccomp.Arg(0, pyseccomp.MASKED_EQ, _NEW_USER_NAMESPACE, _NEW_USER_NAMESPACE)
        filtering.add_rule(pyseccomp.ERRNO(errno.EPERM), call, flag)
    filtering.add_rule(pyseccomp.ERRNO(errno.ENOSYS), "clone3")
    filtering.load()


if __name__ == "__main__":
    logging.getLogger("comas").setLevel(logging.ERROR)
    signal.alarm(300)
    sys.stdout.write(json.dumps(run_all(sys.argv[1])) + "\n")
