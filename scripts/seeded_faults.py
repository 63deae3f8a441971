"""Injects the faults of tests/seeded_faults.yaml, one after another, and checks that tests fail.

    python scripts/seeded_faults.py [id ...]

Works in a copy of the checkout's tracked files. Exits with 1 if a fault is not caught or cannot be
injected, or if the tests fail without faults.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

CHECKOUT = Path(__file__).resolve().parents[1]
TABLE = CHECKOUT / "tests/seeded_faults.yaml"


@dataclass(frozen=True)
class SeededFault:
    """A change of one line, and the test files that should fail."""

    id: str
    breaks: str
    file: str
    old: str
    new: str
    tests: Sequence[str]
    stack: bool = False
    """True if tests marked ``stack`` are needed."""

    def why_not(self) -> str | None:
        """Return why it cannot be injected (``old`` is not in the file exactly once), or None."""
        path = CHECKOUT / self.file
        count = path.read_text(encoding="utf-8").count(self.old) if path.is_file() else 0
        return None if count == 1 else f"{self.id}: {self.old!r} is {count} times in {self.file}"


def main(ids: list[str]) -> int:
    """Return the exit status."""
    faults = [SeededFault(**entry) for entry in yaml.safe_load(TABLE.read_text(encoding="utf-8"))]
    if unknown := set(ids) - {fault.id for fault in faults}:
        sys.exit(f"no such fault: {', '.join(sorted(unknown))}")
    faults = [fault for fault in faults if not ids or fault.id in ids]
    if unmade := [line for fault in faults if (line := fault.why_not())]:
        sys.exit("\n".join(unmade))
    num_caught = 0
    with TemporaryDirectory(prefix="seeded-faults-") as folder:
        copy_checkout(copy := Path(folder))
        for stack in {fault.stack for fault in faults}:
            if failure := run_tests(copy, [fault for fault in faults if fault.stack == stack]):
                sys.exit(f"without any fault: {failure}")
        for fault in faults:
            text = (copy / fault.file).read_text(encoding="utf-8")
            (copy / fault.file).write_text(text.replace(fault.old, fault.new), encoding="utf-8")
            failure = run_tests(copy, [fault])
            (copy / fault.file).write_text(text, encoding="utf-8")
            num_caught += failure is not None
            print(f"{fault.id:<24}{failure or 'NOT CAUGHT'}", flush=True)
    print(f"{num_caught} of {len(faults)} caught")
    return int(num_caught < len(faults))


def copy_checkout(folder: Path) -> None:
    """Copy the tracked files into ``folder``, for everybody: tests also run as another user."""
    folder.chmod(0o755)
    listed = subprocess.check_output(["git", "ls-files", "-z"], cwd=CHECKOUT, text=True)
    for name in listed.split("\0")[:-1]:
        if (CHECKOUT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(CHECKOUT / name, folder / name)


def run_tests(copy: Path, faults: Sequence[SeededFault]) -> str | None:
    """Return what fails first in the test files of ``faults``; None if nothing does."""
    paths = dict.fromkeys(f"tests/{name}.py" for fault in faults for name in fault.tests)
    tier = "not slow" if faults[0].stack else "not stack and not slow"
    command = [sys.executable, "-m", "pytest", "-n0", "-x", "-m", tier, *paths]
    environment = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True)
    failures = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return " ".join(["caught:", *failures[-1:]])[:160] if done.returncode else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
