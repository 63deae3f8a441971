"""Compare the size of the repository with .ci/budgets.yaml; exits with 1 beyond a budget.

python .ci/budgets.py
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import yaml

from comas.config.keys import keys_of
from comas.config.schema import Config

REPOSITORY = Path(__file__).parents[1]
NO_DOCUMENTS = ("tests/", "comas/run/model_card.md")


def main() -> int:
    budgets = yaml.safe_load((REPOSITORY / ".ci/budgets.yaml").read_text())
    essence = budgets["essence_of_a_step"]
    files = [file for path in essence["files"] for file in python_files(path)]
    rows = [
        (f"lines of {path}", lines_of(python_files(path)), most)
        for path, most in budgets["lines_of_python"].items()
    ]
    rows += [
        ("files that make a step", len(files), essence["max_files"]),
        ("lines that make a step", lines_of(files), essence["max_lines"]),
        ("imports of comas/train.py", len(imports_of_train()), budgets["imports_of_train"]),
        ("keys of a run", len(keys_of(Config())), budgets["keys_of_a_run"]),
        ("words of documents", words_of_documents(), budgets["words_of_documents"]),
    ]
    for name, count, most in rows:
        over = "" if count <= most else f"   {count - most:,} TOO MANY (.ci/budgets.yaml)"
        print(f"{name:28} {count:7,} of {most:7,}{over}")
    return int(any(count > most for _, count, most in rows))


def python_files(path: str) -> list[Path]:
    """The tracked Python files of a folder, or a single file."""
    return [file for file in tracked(path) if file.suffix == ".py"]


def tracked(*paths: str) -> list[Path]:
    command = ["git", "ls-files", "-z", *paths]
    listed = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    paths_found = [REPOSITORY / name for name in listed.stdout.split("\0") if name]
    return [path for path in paths_found if path.exists()]


def lines_of(files: list[Path]) -> int:
    return sum(len(file.read_text().splitlines()) for file in files)


def imports_of_train() -> set[str]:
    tree = ast.parse((REPOSITORY / "comas/train.py").read_text())
    modules = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    return {module for module in modules if module.partition(".")[0] == "comas"}


def words_of_documents() -> int:
    documents = [
        file
        for file in tracked("*.md")
        if not str(file.relative_to(REPOSITORY)).startswith(NO_DOCUMENTS)
    ]
    return sum(len(file.read_text().split()) for file in documents)


if __name__ == "__main__":
    sys.exit(main())
