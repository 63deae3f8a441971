"""Questions that reasoning_gym generates: ``data.train: reasoning_gym``.

A process of its own imports the package (``python -m comas.data.reasoning_gym``), with a fixed hash
seed: some generators go through sets, and would make other questions in every process.
"""

import ast
import contextlib
import difflib
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from comas.config.schema import Data, ReasoningGym
from comas.data.rows import DataError
from comas.utils.invocation import program
from comas.verification.reasoning_gym import Gold

NAME = "reasoning_gym"
"""The value of ``data.train`` or ``data.validation``."""
HELD_OUT = 2**31
"""Added to seeds for ``data.validation``. Question i of seed s is question i - 1 of seed s + 1, so
that they have to be far apart."""
UNSOUND = {
    "coin_flip": "compares a first digit alone, so that 0 is nearly always right",
    "game_of_life_halting": "takes any text for any answer",
    "puzzle24": "does not compare the numbers, so that one answer is right for every question",
}
"""Tasks with a ``score_answer`` for which a constant answer is right; found by trying, on 25
questions of each task, the answers to all of them and some short texts."""
_KEY = "data.reasoning_gym"
VERSION = "0.1.25"
"""Of the package that has to be installed: others may make other questions."""
NUM_HELD_OUT = 50
"""Held-out questions of each task."""


def held_out_rules(rules: Data) -> Data:
    """How questions are generated to validate on: those of other seeds, and fewer."""
    tasks = {
        name: {option: value for option, value in options.items() if option != "size"}
        | {"seed": options.get("seed", 0) + HELD_OUT}
        for name, options in rules.reasoning_gym.tasks.items()
    }
    return replace(rules, reasoning_gym=ReasoningGym(tasks, NUM_HELD_OUT))


def endless_rules(rules: Data, *, num_questions: int | None) -> Data:
    """With as many questions as a run asks, where ``data.reasoning_gym.size`` is null."""
    tasks, size = rules.reasoning_gym.tasks, rules.reasoning_gym.size
    if size is not None or num_questions is None or not tasks:
        return rules
    return replace(rules, reasoning_gym=ReasoningGym(tasks, -(-num_questions // len(tasks))))


def generated_rows(rules: Data) -> list[tuple[str, dict[str, str]]]:
    """(location, row) of every question, the tasks in turn. Raises DataError where the package or a
    task is missing, or an option is wrong."""
    tasks = rules.reasoning_gym.tasks
    if rules.reasoning_gym.size is None:
        raise DataError(
            f"{_KEY}.size: null is for a run of training.num_steps steps; give a number"
        )
    if not tasks:
        raise DataError(f"{_KEY}.tasks names no task; write it like {_KEY}.tasks.chain_sum={{}}")
    if unsound := [f"{name}: its scorer {why}" for name, why in UNSOUND.items() if name in tasks]:
        raise DataError("\n  ".join([f"{_KEY}.tasks: leave these out:", *unsound]))
    _check_package()
    common = {"size": rules.reasoning_gym.size, "seed": 0}
    process = subprocess.run(
        [sys.executable, "-m", "comas.data.reasoning_gym"],
        input=json.dumps({name: common | options for name, options in tasks.items()}),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"},
    )
    if process.returncode != 0:
        raise DataError(f"{_KEY}: the generator failed:\n{process.stderr[-2000:]}")
    found = [json.loads(line) for line in process.stdout.splitlines()]
    if faults := [row["fault"] for row in found if "fault" in row]:
        raise DataError("\n  ".join([f"{_KEY}.tasks:", *faults]))
    return [(f"question {number}", row) for number, row in enumerate(found, start=1)]


def _check_package() -> None:
    try:
        found = version("reasoning-gym")
    except PackageNotFoundError:
        found = "none"
    if found != VERSION:
        raise DataError(
            f"{_KEY} needs version {VERSION} of reasoning-gym, as others may make other questions: "
            f"{found} is installed: {program('pip')} install reasoning-gym=={VERSION}"
        )


# ---------------------------------------------------------------- in the process of its own


def main() -> None:
    """Read task -> options as JSON, write a row or a fault a line."""
    wanted = json.load(sys.stdin)
    with contextlib.redirect_stdout(sys.stderr):  # some tasks print
        rows = list(_rows_or_faults(wanted))
    sys.stdout.writelines(f"{json.dumps(row)}\n" for row in rows)


def _rows_or_faults(wanted: Mapping[str, dict[str, Any]]) -> Iterator[dict[str, str]]:
    from reasoning_gym.factory import DATASETS, create_dataset

    random.seed(0)
    known = {name: declared for name, declared in DATASETS.items() if name != "composite"}
    faults = [fault for name, options in wanted.items() if (fault := _fault(name, options, known))]
    if faults:
        yield from ({"fault": fault} for fault in faults)
        return
    datasets = {name: create_dataset(name, **options) for name, options in wanted.items()}
    # Evenly spread, so that a batch holds every task by its share.
    order = sorted(
        ((index + 0.5) / len(dataset), number, name, index)
        for number, (name, dataset) in enumerate(datasets.items())
        for index in range(len(dataset))
    )
    for _, _, name, index in order:
        try:
            yield _row(name, index, wanted[name], datasets[name][index])
        except Exception as error:  # the package's code may raise anything
            what = f"{type(error).__name__}: {error}"
            yield {"fault": f"{name}: question {index} cannot be made: {what}"}


def _fault(name: str, options: Mapping[str, Any], known: Mapping[str, Any]) -> str | None:
    if name not in known:
        close = difflib.get_close_matches(name, known, n=3) or sorted(known)
        return f"{name}: there is no such task; {', '.join(close)} are some"
    config_class = known[name][1]
    allowed = [field.name for field in fields(config_class)]
    if unknown := sorted(options.keys() - set(allowed)):
        return f"{name}: it has no option {', '.join(unknown)}; it has {', '.join(allowed)}"
    try:
        known[name][0](config_class(**options))
    except Exception as error:  # the package asserts, and what it calls may raise anything
        given = {option: value for option, value in options.items() if option != "seed"}
        return f"{name}: {given} are no options of it: {error or type(error).__name__}"
    return None


def _row(name: str, index: int, options: dict[str, Any], entry: dict[str, Any]) -> dict[str, str]:
    """The record of a question; its id says how it was made."""
    text = repr(_plain(entry))
    ast.literal_eval(text)  # raises where an entry holds what cannot be written
    return {
        "id": f"{NAME}/{name}/seed{options['seed']}/{index}",
        "task": "reasoning",
        "prompt": entry["question"],
        "answer": Gold(name, options, text).write(),
        "source": f"{NAME}/{name}",
    }


def _plain(value: Any) -> Any:
    """Mappings, texts and NumPy's scalars of any kind as Python's own, which literals can be."""
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if type(value) in (list, tuple, set):
        return type(value)(map(_plain, value))
    return str(value) if isinstance(value, str) else getattr(value, "item", lambda: value)()


if __name__ == "__main__":
    main()
