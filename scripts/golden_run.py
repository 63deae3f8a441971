"""Compares runs of two versions of the code digit by digit; see scripts/golden_run.sh."""

import argparse
import json
import operator
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
SAVES = HERE / "saves/golden"
SCHEDULES = ("parallel", "sequential")
NUM_STEPS = 3
MAX_SHOWN = 20
NO_ROW: dict[str, Any] = {}


def main(arguments: Sequence[str]) -> int:
    """Run both versions under every schedule; return the exit status."""
    parser = argparse.ArgumentParser(prog="bash scripts/golden_run.sh", allow_abbrev=False)
    parser.add_argument("commit")
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    given = parser.parse_args(arguments)
    differences = []
    with checked_out(given.commit) as code:
        for schedule in SCHEDULES:
            keys = (f"interaction.schedule={schedule}", f"training.num_steps={NUM_STEPS}")
            before = train(code, f"base-{schedule}", *keys, *given.overrides)
            after = train(HERE, f"here-{schedule}", *keys, *given.overrides)
            differences += [f"{schedule}: {line}" for line in compare(before, after, may_add=True)]
    shown = differences[:MAX_SHOWN] or [f"no difference to {given.commit} in {NUM_STEPS} steps"]
    sys.stdout.write("\n".join([*shown, f"{len(differences)} differences", ""]))
    return bool(differences)


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """Provide a working tree of ``commit`` during the block."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "base"
        make = ["git", "worktree", "add", "--quiet", "--detach", str(tree), commit]
        if subprocess.run(make, cwd=HERE).returncode:
            sys.exit(f"{commit} is no commit of this repository, or it cannot be checked out")
        try:
            yield tree
        finally:
            subprocess.run(["git", "-C", HERE, "worktree", "remove", "--force", tree], check=True)


def train(code: Path, name: str, *overrides: str) -> Path:
    """Train the quick-start with the code in ``code``; return the run directory."""
    command = [sys.executable, "-m", "comas", "configs/quickstart.yaml", *overrides]
    subprocess.run(
        [*command, f"name={name}", f"saves={SAVES}"],
        cwd=code,
        env=os.environ | {"PYTHONPATH": str(code)},
        check=True,
    )
    return (SAVES / "latest").resolve()


def compare(before: Path, after: Path, *, may_add: bool = False) -> Iterator[str]:
    """Yield a line for each value that differs, except times and, with ``may_add``, additional
    values in ``after``."""
    is_same = holds if may_add else operator.eq
    files = ["metrics.jsonl"]
    files += [f"discussions/{path.name}" for path in sorted((before / "discussions").iterdir())]
    for name in files:
        old_rows, new_rows = read_lines(before / name), read_lines(after / name)
        rows = zip_longest(old_rows, new_rows, fillvalue=NO_ROW)
        for number, (old, new) in enumerate(rows, start=1):
            for key in sorted(old if may_add and old else {*old, *new}):
                is_shared = key in old and key in new
                if not key.startswith("time/") and not (is_shared and is_same(new[key], old[key])):
                    yield f"{name}, line {number}, {key}: {shown(old, key)} -> {shown(new, key)}"


def holds(new: Any, old: Any) -> bool:
    """True if ``new`` has all values of ``old``, perhaps among others."""
    if isinstance(old, dict) and isinstance(new, dict):
        return all(key in new and holds(new[key], value) for key, value in old.items())
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(holds, new, old))
    return bool(new == old)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read the objects of a JSONL file."""
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def shown(row: Mapping[str, Any], key: str) -> str:
    """Return a value, shortened to fit into a line."""
    return json.dumps(row[key])[:60] if key in row else "nothing"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
