"""Environments of the ``verifiers`` library: ``data.train: verifiers:ENV`` takes its questions, and
its rubric judges the answers.

The library needs other versions of packages than we do, so an environment runs in a process of its
own (``environment_host.py``), by the Python that COMAS_VERIFIERS_PYTHON names.
"""

import atexit
import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from comas.verification.forms import Verdict

PREFIX = "verifiers:"
"""How the name of an environment begins, in ``data.train``; /eval at its end: what it has to
evaluate on."""
PYTHON = "COMAS_VERIFIERS_PYTHON"
_HOST = Path(__file__).with_name("environment_host.py")
_TIMEOUT_S = 100.0
"""By the clock, of one answer: a verifier's worker waits for 120 s."""
_MAKING_S = 900.0
"""Of its start, and of all questions, which may have to be generated."""

_INSTALL = (
    "; install the library and the package of {name} apart from ours, as versions differ: "
    "python3 -m venv ~/verifiers && ~/verifiers/bin/pip install verifiers PACKAGE && "
    f"export {PYTHON}=~/verifiers/bin/python"
)


class EnvironmentUseError(ValueError):
    """An environment cannot be used, or did not answer."""


class Environment:
    """An environment in a process of its own, which starts with the first request. Methods may be
    called from any thread; requests are answered one after the other."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()

    def tools(self) -> list[dict[str, Any]]:
        """Return the name, description and parameters of each of its tools."""
        with self._lock:
            self._start()
            return self._tools

    def ask(self, *, timeout_s: float = _TIMEOUT_S, **request: Any) -> Any:
        """Return the answer to a request (``environment_host.py`` says which there are).

        Raises EnvironmentUseError.
        """
        with self._lock:
            process = self._start()
            assert process.stdin is not None
            try:
                process.stdin.write(f"{json.dumps(request)}\n")
                process.stdin.flush()
            except BrokenPipeError:
                pass  # it is gone, as its silence says
            return self._hear(timeout_s)

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _start(self) -> subprocess.Popen[str]:
        if self._process is None:
            python = os.environ.get(PYTHON, sys.executable)
            try:
                self._process = subprocess.Popen(
                    [python, "-P", "-u", str(_HOST), self.name],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    encoding="utf-8",
                )
            except OSError as error:
                raise EnvironmentUseError(f"{PYTHON}={python}: {error.strerror}") from error
            try:
                self._tools = self._hear(_MAKING_S)["tools"]
            except EnvironmentUseError:
                self.close()
                raise
        return self._process

    def _hear(self, timeout_s: float = _TIMEOUT_S) -> Any:
        assert self._process is not None and self._process.stdout is not None
        is_there, _, _ = select.select([self._process.stdout], [], [], timeout_s)
        line = self._process.stdout.readline() if is_there else ""
        if not line:
            self.close()
            why = "ended" if is_there else f"did not answer within {timeout_s:g} s"
            raise EnvironmentUseError(f"{PREFIX}{self.name}: its process {why}")
        said = json.loads(line)
        if isinstance(said, dict) and "fault" in said:
            remedy = _INSTALL.format(name=self.name) if said.get("missing") else ""
            raise EnvironmentUseError(f"{PREFIX}{self.name}: {said['fault']}{remedy}")
        return said


@cache
def environment(name: str) -> Environment:
    """Return this process's environment of a name."""
    found = Environment(name)
    atexit.register(found.close)
    return found


@cache
def questions_of(name: str) -> list[tuple[str, dict[str, Any]]]:
    """Return (location, row) of each question of ``verifiers:ENV``, or ``verifiers:ENV/eval``.

    Raises EnvironmentUseError.
    """
    env, _, part = name.removeprefix(PREFIX).partition("/")
    if part not in ("", "eval"):
        raise EnvironmentUseError(f"{name}: /{part} is no part of it; write {PREFIX}{env}/eval")
    rows = environment(env).ask(rows=part or "train", timeout_s=_MAKING_S)
    return [
        (
            f"question {number}",
            {
                "id": f"{name}/{number}",
                "task": "reasoning",
                "prompt": row["prompt"],
                "answer": str(row["data"].get("answer") or "(the rubric knows)"),
                "source": f"{PREFIX}{env}",
                "columns": {"environment": env, "row": row["data"]},
            },
        )
        for number, row in enumerate(rows, start=1)
    ]


def verify_by_rubric(response: str, gold: str, *, columns: Mapping[str, Any]) -> Verdict:
    """Judge by the rubric of the environment that a question is of: correct where its reward is at
    least what the environment calls passed.

    Raises EnvironmentUseError.
    """
    asked = environment(columns["environment"])
    found = asked.ask(score=columns["row"], response=response)
    return "correct" if found["reward"] >= found["threshold"] else "wrong"
