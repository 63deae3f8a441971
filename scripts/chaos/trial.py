"""A run that is disturbed: its processes, its progress, and what it leaves behind."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from scripts.golden_run import compare

HERE = Path(__file__).resolve().parents[2]
SHARED_MEMORY = Path("/dev/shm")
PATIENCE_S = 240.0
"""For a run to make its next step, with a recovery and the start of all engines in between."""
UNDISTURBED_ONLY = ("time/", "recovery/")
"""Prefixes of metrics in which a disturbed run may differ."""


class TrialError(RuntimeError):
    """A run did not survive as it should have; the message says what was seen."""


class Trial:
    """One run of the quick-start society, in a temporary folder of its own."""

    def __init__(self, temporary: Path, saves: Path, name: str, overrides: Sequence[str]) -> None:
        self._temporary = temporary
        self._saves = saves
        self._name = name
        self._overrides = [*overrides, f"name={name}", f"saves={saves}"]
        self.num_resumes = 0
        self.log = temporary / "output.txt"

    def start(self) -> None:
        """Start the run; once it has a folder, resume it."""
        is_new = self.folder is None
        arguments = self._overrides if is_new else [f"resume={self.folder}"]
        self.num_resumes += not is_new
        with self.log.open("ab") as output:
            self.driver = psutil.Popen(
                [sys.executable, "-m", "comas", *arguments],
                cwd=HERE,
                env=os.environ | {"TMPDIR": str(self._temporary)},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def folder(self) -> Path | None:
        """The run directory, as soon as there is one."""
        return next(self._saves.glob(f"*-{self._name}"), None)

    def step(self) -> int:
        """The last step on record; -1 before there is any."""
        metrics = self.folder / "metrics.jsonl" if self.folder else None
        if metrics is None or not metrics.is_file():
            return -1
        lines = metrics.read_text().splitlines()
        return json.loads(lines[-1])["step"] if lines else -1

    def has_ended(self) -> bool:
        """Whether the driver's process has."""
        return self.driver.poll() is not None

    def wait_until_beyond(self, step: int) -> bool:
        """Wait for a step after ``step``; False when the driver ended before it.

        Raises TrialError when neither happens for ``PATIENCE_S``.
        """
        deadline = time.monotonic() + PATIENCE_S
        while self.step() <= step:
            if self.has_ended():
                return False
            if time.monotonic() > deadline:
                raise TrialError(
                    f"no step after {step} for {PATIENCE_S:.0f} s\n{self.last_words()}"
                )
            time.sleep(0.1)
        return True

    def processes(self, name: str) -> list[psutil.Process]:
        """Those of the run whose command line begins with ``name``, or has it as a file."""
        return [
            process
            for process in self._all_processes()
            if process.cmdline() and _is_named(process.cmdline(), name)
        ]

    def finish(self) -> None:
        """Let the run come to its end, resuming it whenever it ends before."""
        while True:
            try:
                status = self.driver.wait(timeout=PATIENCE_S * 4)
            except psutil.TimeoutExpired:
                raise TrialError(f"the run does not end\n{self.last_words()}") from None
            if status == 0:
                return
            if self.num_resumes > 40:
                raise TrialError(f"the run ends again and again\n{self.last_words()}")
            self.start()

    def kill(self) -> None:
        """End everything at once, whatever state it is in."""
        for process in self._all_processes():
            process.kill()

    def last_words(self) -> str:
        """The end of what the run printed."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])

    def differences(self, reference: Path) -> Iterator[str]:
        """What is not as in the run directory of a run that nobody disturbed."""
        assert self.folder is not None
        yield from compare(reference, self.folder, ignored=UNDISTURBED_ONLY)
        expected, found = hashes(reference / "models"), hashes(self.folder / "models")
        for name in sorted(expected.keys() | found.keys()):
            if expected.get(name) != found.get(name):
                yield f"models/{name} differs"

    def leftovers(self, shared_before: set[Path]) -> Iterator[str]:
        """Processes and files that outlived the run."""
        for process in self._all_processes():
            yield f"process {process.pid}: {' '.join(process.cmdline())[:100]}"
        for path in self._temporary.iterdir():
            if path != self.log:
                yield str(path)
        for path in unused_memory() - shared_before:
            yield str(path)

    def _all_processes(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter(["environ", "status"]):
            folder = (process.info["environ"] or {}).get("TMPDIR", "")
            is_ours = folder == str(self._temporary) or folder.startswith(f"{self._temporary}/")
            if is_ours and process.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(process)
        return found


@contextmanager
def trial(saves: Path, name: str, overrides: Sequence[str]) -> Iterator[Trial]:
    """A run that has been started, and of which nothing goes on after the block."""
    with tempfile.TemporaryDirectory(prefix="chaos-", dir="/tmp", ignore_cleanup_errors=True) as at:
        disturbed = Trial(Path(at), saves, name, overrides)
        disturbed.start()
        try:
            yield disturbed
        finally:
            disturbed.kill()


def unused_memory() -> set[Path]:
    """Shared memory that no process has mapped, so that it is there for nobody."""
    found = set(SHARED_MEMORY.iterdir())
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):  # ended meanwhile, or somebody else's
            mapped = maps.read_text()
            found -= {path for path in found if str(path) in mapped}
    return found


def hashes(folder: Path) -> dict[str, str]:
    """SHA-256 of every file below ``folder``, by its relative path."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def freeze(process: psutil.Process, *, for_s: float) -> None:
    """Stop a process, and let it go on after a while."""
    process.send_signal(signal.SIGSTOP)
    time.sleep(for_s)
    process.send_signal(signal.SIGCONT)


def _is_named(command_line: Sequence[str], name: str) -> bool:
    title = command_line[0]
    return title.startswith(name) or Path(title).name == name or name in command_line[-1]
