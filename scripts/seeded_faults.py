"""Make the faults of tests/seeded_faults.yaml, one after the other, and see whether tests notice.

    python scripts/seeded_faults.py [id ...]

Works in a copy of the checkout's tracked files. Ends with 1 if a fault is not caught, and with 2 if
one cannot be made, or the tests fail without any.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

CHECKOUT = Path(__file__).resolve().parents[1]
TABLE = CHECKOUT / "tests/seeded_faults.yaml"


@dataclass(frozen=True)
class SeededFault:
    """A change of one line, and the test files that should notice it."""

    id: str
    breaks: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    """``test_data``, for tests/test_data.py."""
    stack: bool = False
    """True if tests marked ``stack`` are needed."""

    def why_not(self) -> str | None:
        """Return why it cannot be made: ``old`` does not stand in the file exactly once."""
        path = CHECKOUT / self.file
        count = path.read_text(encoding="utf-8").count(self.old) if path.is_file() else 0
        return None if count == 1 else f"{self.id}: {self.old!r} is {count} times in {self.file}"


def main(ids: list[str]) -> int:
    """Return the exit status."""
    faults = [SeededFault(**entry) for entry in yaml.safe_load(TABLE.read_text(encoding="utf-8"))]
    if unknown := set(ids) - {fault.id for fault in faults}:
        return refuse(f"no such fault: {', '.join(sorted(unknown))}")
    faults = [fault for fault in faults if not ids or fault.id in ids]
    if unmade := [line for fault in faults if (line := fault.why_not())]:
        return refuse("\n".join(unmade))
    num_missed = 0
    with TemporaryDirectory(prefix="seeded-faults-") as folder:
        copy = copy_checkout(Path(folder))
        if not all(pass_tests(copy, [f for f in faults if f.stack == s]) for s in (False, True)):
            return refuse("the tests fail without any fault")
        for fault in faults:
            text = (copy / fault.file).read_text(encoding="utf-8")
            (copy / fault.file).write_text(text.replace(fault.old, fault.new), encoding="utf-8")
            is_missed = pass_tests(copy, [fault])
            (copy / fault.file).write_text(text, encoding="utf-8")
            num_missed += is_missed
            print(f"{'NOT CAUGHT' if is_missed else 'caught':<12}{fault.id}", flush=True)
    print(f"{len(faults) - num_missed} of {len(faults)} caught")
    return int(num_missed > 0)


def refuse(why: str) -> int:
    """Say why nothing can be found out; return 2."""
    print(why, file=sys.stderr)
    return 2


def copy_checkout(folder: Path) -> Path:
    """Copy the tracked files into ``folder``."""
    listed = subprocess.check_output(["git", "ls-files", "-z"], cwd=CHECKOUT, text=True)
    for name in filter(None, listed.split("\0")):
        if (CHECKOUT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(CHECKOUT / name, folder / name)
    return folder


def pass_tests(copy: Path, faults: Iterable[SeededFault]) -> bool:
    """Return True if the test files of ``faults`` pass in ``copy``."""
    paths = dict.fromkeys(f"tests/{name}.py" for fault in faults for name in fault.tests)
    tier = "not slow" if any(fault.stack for fault in faults) else "not stack and not slow"
    command = [sys.executable, "-m", "pytest", "-n0", "-q", "-x", "-m", tier, *paths]
    environment = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    return (
        not paths
        or not subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, check=False
        ).returncode
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
