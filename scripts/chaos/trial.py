"""A training run under faults: its processes, progress, end and leftovers."""

import filecmp
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from comas.utils.processes import command_line, is_alive
from scripts.golden_run import compare

HERE = Path(__file__).resolve().parents[2]
SHARED_MEMORY = Path("/dev/shm")
PATIENCE_S = 400.0
"""Limit for the next step, including a recovery and the start of all engines."""
CALL_TIMEOUT_S = 120.0
"""Of a run: how long an engine may give no answer."""
LASTING_S = 2.0
"""Time after which a process or shared memory counts as a leftover: other programs use shared
memory, too, and a resource tracker ends after its process."""


class TrialError(RuntimeError):
    """A run did not survive; the message says how."""


class Trial:
    """A disturbed quick-start run of ``num_steps`` steps, with its own temporary folder."""

    def __init__(self, temporary: Path, saves: Path, name: str, *, num_steps: int) -> None:
        self._temporary = temporary
        self._saves = saves
        self._name = name
        self.num_steps = num_steps
        self.num_resumes = -1
        self.log = temporary / "output.txt"
        self._seen: set[psutil.Process] = set()

    @property
    def folder(self) -> Path | None:
        """The run directory, once it exists."""
        return next(self._saves.glob(f"*-{self._name}"), None)

    def arguments(self) -> Sequence[str]:
        """Return the arguments of a new run, or of a resume once it has a folder."""
        if self.folder is not None:
            return [f"resume={self.folder}"]
        sizes = [f"training.num_steps={self.num_steps}", "training.validate_every=20"]
        named = [f"name={self._name}", f"saves={self._saves}", "training.save_every=2"]
        limit = f"cluster.call_timeout_s={CALL_TIMEOUT_S}"
        return ["configs/quickstart.yaml", limit, *sizes, *named]

    def step(self) -> int:
        """Return the last recorded step; -1 before the first."""
        metrics = self.folder / "metrics.jsonl" if self.folder else None
        if metrics is None or not metrics.is_file():
            return -1
        lines = metrics.read_bytes().split(b"\n")[:-1]  # drops a partial last line
        return json.loads(lines[-1])["step"] if lines else -1

    def differences(self, reference: Path) -> Iterator[str]:
        """Yield differences from the reference run in metrics (except times), discussions and
        models."""
        assert self.folder is not None
        yield from compare(reference, self.folder)
        yield from model_differences(reference / "models", self.folder / "models")

    def start(self) -> None:
        """Start or resume the run."""
        self.num_resumes += 1
        with self.log.open("ab") as output:
            self.driver = psutil.Popen(
                [sys.executable, "-m", "comas", *self.arguments()],
                cwd=HERE,
                env=os.environ | {"TMPDIR": str(self._temporary)},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def has_ended(self) -> bool:
        """True if the driver's process has ended."""
        return self.driver.poll() is not None

    def wait_until_beyond(self, step: int) -> bool:
        """Wait for a step after ``step``; return False if the driver ends first. Raises TrialError
        when neither happens for ``PATIENCE_S``."""
        deadline = time.monotonic() + PATIENCE_S
        while self.step() <= step:
            if self.has_ended():
                return False
            if time.monotonic() > deadline:
                raise TrialError(
                    f"no step after {step} for {PATIENCE_S:.0f} s\n{self.end_of_log()}"
                )
            time.sleep(0.1)
        return True

    def processes(self, name: str) -> list[psutil.Process]:
        """Return the run's processes whose command line contains ``name``."""
        return [
            process
            for process in self._all_processes()
            if (words := command_line(process))
            and (
                words[0].startswith(name)
                or name in (Path(words[0]).name, *words)
                or name in words[-1]
            )
        ]

    def finish(self) -> None:
        """Let the run finish, resuming it whenever it ends early."""
        while True:
            try:
                status = self.driver.wait(timeout=PATIENCE_S * 4)
            except psutil.TimeoutExpired:
                raise TrialError(f"the run does not end\n{self.end_of_log()}") from None
            if status == 0:
                return
            if self.num_resumes > 40:
                raise TrialError(f"the run ends again and again\n{self.end_of_log()}")
            self.start()

    def kill(self) -> None:
        """Kill all processes of the run."""
        for process in self._all_processes():
            process.kill()

    def end_of_log(self) -> str:
        """Return the end of the run's output."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])

    def leftovers(self, shared_before: set[Path]) -> Iterator[str]:
        """Yield processes and files that outlived the run."""
        found = unused_memory() - shared_before
        if found or self._all_processes():
            time.sleep(LASTING_S)
        for process in self._all_processes():
            yield f"process {process.pid}: {' '.join(command_line(process))[:100]}"
        for path in self._temporary.iterdir():
            if path != self.log:
                yield str(path)
        for path in found & unused_memory():
            yield str(path)

    def _all_processes(self) -> list[psutil.Process]:
        """Return processes with its temporary folder in their environment, their children, and
        living ones of earlier calls."""
        for process in psutil.process_iter(["environ"]):
            folder = (process.info["environ"] or {}).get("TMPDIR", "")
            if folder == str(self._temporary) or folder.startswith(f"{self._temporary}/"):
                with suppress(psutil.NoSuchProcess):
                    # A process title may overwrite the environment.
                    self._seen |= {process, *process.children(recursive=True)}
        self._seen = {process for process in self._seen if is_alive(process)}
        return sorted(self._seen, key=lambda process: process.pid)


@contextmanager
def started(make: Callable[[Path], Trial]) -> Iterator[Trial]:
    """Start a trial in a temporary folder; kill it after the block."""
    with tempfile.TemporaryDirectory(prefix="chaos-", dir="/tmp", ignore_cleanup_errors=True) as at:
        disturbed = make(Path(at))
        disturbed.start()
        try:
            yield disturbed
        finally:
            disturbed.kill()


def unused_memory() -> set[Path]:
    """Return shared memory that no process has mapped."""
    found = set(SHARED_MEMORY.iterdir())
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):  # ended, or another user's
            mapped = maps.read_text()
            found -= {path for path in found if str(path) in mapped}
    return found


def model_differences(before: Path, after: Path) -> Iterator[str]:
    """Yield files that differ or are missing, except model cards, which name their run."""
    paths = {p.relative_to(f) for f in (before, after) for p in f.rglob("*") if p.is_file()}
    names = [str(path) for path in sorted(paths) if path.name != "README.md"]
    _, different, missing = filecmp.cmpfiles(before, after, names, shallow=False)
    yield from (f"models/{name} differs" for name in sorted([*different, *missing]))
