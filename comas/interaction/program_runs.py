"""How programs run (``interaction.program``), and what they return.

A function has the rights of any plug-in: it runs in a thread of this process. A command runs as the
same user in a process of its own, without the run's environment. Neither is told the gold answer.
"""

import asyncio
import json
import logging
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from inspect import isawaitable
from math import isfinite
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

from comas.config.paths import find
from comas.config.plugins import Registry, blaming_plugins, function_of
from comas.config.schema import Program
from comas.interaction.door import the_door
from comas.types import Question
from comas.utils.interrupts import run
from comas.utils.terminal import excerpt

log = logging.getLogger(__name__)

Solve = Callable[[Question, str], Any]
"""Answers a question by asking the agents at an address; may be a coroutine function. Returns the
final answer (None: the last completion is it; whatever was said is rewarded as it is, also answers
that were not chosen), or rewards: one number for all turns, or numbers by the names of turns (the
ids of completions), agents (``agent_0``) or ``*``, and perhaps an ``answer``."""

GRACE_S = 2.0
"""Seconds that a function has to end after its deadline."""
KEPT_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TZ")
"""Variables of this process's environment that a command gets."""
MARK_VARIABLE = "COMAS_PROGRAM"
"""Marks the processes that the commands of a batch have started."""
MAX_OUTPUT = 2**20
"""Bytes that a command may print."""
POLL_S = 0.02


PROGRAMS: Registry[Solve] = Registry(
    {},
    group="comas.programs",
    wanted="a function of a question and a base URL",
    adapt=function_of("question", "base_url"),
)


class ProgramError(Exception):
    """An error of a program, which fails its own discussion only."""


def files_of(program: Program) -> list[Path]:
    """Return the files that a command names; words without a slash are looked up in PATH."""
    words = [word for word in program.command or () if "/" in word]
    return [found for word in words if (found := find(word)) is not None and found.is_file()]


async def run_program(program: Program, question: Question, key: str, *, mark: str = "") -> Any:
    """Return a program's result; ``mark`` marks its command's processes. Raises ProgramError."""
    question = replace(question, columns={})  # labels among them
    try:
        if program.command is not None:
            return await _execute(
                program.command, question, key, timeout_s=program.timeout_s, mark=mark
            )
        assert program.function is not None
        url = f"{the_door().url}/{key}/v1"
        return await _call(PROGRAMS[program.function], question, url, timeout_s=program.timeout_s)
    except TimeoutError as error:
        raise ProgramError(f"it did not end within {program.timeout_s:g} s") from error


async def _call(solve: Solve, question: Question, url: str, *, timeout_s: float) -> Any:
    """Call a function in a thread, which is abandoned if it does not end in time."""
    answered = Future[Any]()
    answered.set_running_or_notify_cancel()  # from now on, it cannot be cancelled

    async def within() -> None:
        limit = asyncio.timeout(timeout_s)
        try:
            with blaming_plugins():
                async with limit:
                    found = solve(question, url)
                    value = await found if isawaitable(found) else found
        except BaseException as error:  # whatever a program may raise, sys.exit() too
            where = getattr(error, "constraint", None)  # of a PluginError
            told = ProgramError(where or f"{type(error).__name__}: {error}")
            answered.set_exception(TimeoutError() if limit.expired() else told)
        else:
            answered.set_result(value)

    threading.Thread(target=lambda: run(within()), daemon=True, name="program").start()
    try:
        return await asyncio.wait_for(asyncio.wrap_future(answered), timeout_s + GRACE_S)
    except TimeoutError:
        if not answered.done():
            log.warning(
                "a call of interaction.program goes on beyond its deadline, in a thread that "
                "cannot be ended; run it as a command, which can"
            )
        raise


async def _execute(
    command: Sequence[str], question: Question, key: str, *, timeout_s: float, mark: str
) -> Any:
    """Run a command, and kill its process group at the end. The last line of its output may be a
    JSON object with rewards; else all of the output is the answer."""
    environment = {name: value for name, value in os.environ.items() if name in KEPT_VARIABLES} | {
        "OPENAI_BASE_URL": f"{the_door().url}/v1",
        "OPENAI_API_KEY": key,
        "COMAS_QUESTION_ID": question.question_id,
        MARK_VARIABLE: mark,
    }
    # Files, as a pipe ends only when all that inherited it have ended.
    with TemporaryFile() as asked, TemporaryFile() as output, TemporaryFile() as errors:
        asked.write(question.text.encode(errors="replace"))
        asked.seek(0)
        try:
            process = subprocess.Popen(
                [str(find(word) or word) if "/" in word else word for word in command],
                stdin=asked,
                stdout=output,
                stderr=errors,
                env=environment,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:  # ValueError: NUL in an argument
            reason = getattr(error, "strerror", error)
            raise ProgramError(f"{command[0]} cannot be started: {reason}") from error
        try:
            async with asyncio.timeout(timeout_s):
                has_ended = False
                while not has_ended:
                    has_ended = process.poll() is not None
                    if max(os.fstat(f.fileno()).st_size for f in (output, errors)) > MAX_OUTPUT:
                        raise ProgramError(f"it printed more than {MAX_OUTPUT} bytes")
                    await asyncio.sleep(0 if has_ended else POLL_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        said, complaint = map(_text_in, (output, errors))
    if process.returncode != 0:
        last = (complaint.splitlines() or ["it says nothing"])[-1]
        raise ProgramError(f"it ended with status {process.returncode}: {last}")
    *before, last = said.split("\n")  # not splitlines(): JSON may hold U+2028 as it is
    with suppress(ValueError, RecursionError):
        if isinstance(found := json.loads(last), dict):
            return {"answer": "\n".join(before), **found} if before else found
    return said or None


def _text_in(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(MAX_OUTPUT).decode(errors="replace").strip()


def read_result(returned: Any) -> tuple[str | None, dict[str, float]]:
    """Return the answer and the rewards that a program returned. Raises ProgramError.

    Example: ``{"agent_0": 1, "answer": "71"}`` is ``("71", {"agent_0": 1.0})``, and ``0.5`` is
    ``(None, {"*": 0.5})``.
    """
    if returned is None or isinstance(returned, str):
        return returned, {}
    rewards = dict(returned) if isinstance(returned, Mapping) else {"*": returned}
    answer = rewards.pop("answer", None)
    try:
        paid = {str(name): float(value) for name, value in rewards.items()}
    except (TypeError, ValueError, OverflowError) as error:
        wanted = "a number, or numbers by agent_0, ..., completions' ids or *"
        raise ProgramError(f"it returned {excerpt(str(returned))}, not {wanted}") from error
    if not all(map(isfinite, paid.values())):
        raise ProgramError(f"it returned rewards that are not finite: {excerpt(str(rewards))}")
    return None if answer is None else str(answer), paid
