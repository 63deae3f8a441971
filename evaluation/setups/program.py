"""Programs that ask by OpenAI's protocol, as setups: ``program`` is the one that a run has trained,
``program:my_team.py:solve`` a function."""

from functools import partial
from pathlib import Path
from typing import Any

from comas.config import Config, load
from comas.config.plugins import check_call
from comas.config.schema import Interaction
from comas.interaction.program_runs import PROGRAMS, Solve, files_of
from comas.run import seals
from comas.utils.files import from_here
from evaluation.results import fingerprint
from evaluation.setups.discussion import answer
from evaluation.types import Setup

PROGRAM = "program"
"""The name of a run's own program as a setup."""
NUM_AGENTS = 16
"""Agents that a single model plays for a function, whose number of agents is unknown."""


def setup_of(solve: Solve) -> Setup:
    """Return the setup in which a function asks the models."""
    check_call(solve, "question", "base_url")
    called = getattr(solve, "__qualname__", type(solve).__qualname__)
    name = f"{called} {id(solve)}"  # a factory's functions have the same name
    PROGRAMS[name] = solve
    program = {"function": name, "roles": None}
    return _setup(program, num_agents=NUM_AGENTS, digest=called)


def program_of(run: Path) -> Setup | None:
    """Return the setup in which a run's program asks its agents; None if it has no program.

    A function of a file is the run's copy of it. Raises ValueError if another user wrote the run,
    or what it would execute was edited since.
    """
    config = load(Config, run / seals.CONFIG, [])
    program = config.interaction.chosen_program
    if program is None:
        return None
    found, why = seals.read_origin(run, seals.user_key())
    origin = found or seals.Origin("")
    path, _, attribute = (program.function or "").rpartition(":")
    sealed = {name: origin.files.get(name) for name in (path, *map(str, files_of(program)))}
    edited = {n: c for n, c in seals.edits(run, origin).items() if n in (seals.CONFIG, *sealed)}
    kept = seals.kept_source(run, Path(path))
    if kept is not None:
        program = program.model_copy(update={"function": f"{kept}:{attribute}"})
        edited.pop(path, None)
    elif program.function is not None and not (why or edited):  # a module, to be imported
        source = PROGRAMS.source_of(program.function)
        sealed[path] = None if source is None else source.digest
        if source is not None and source.digest not in origin.files.values():
            edited[str(source.path)] = ("the run's own", f"sha256 {source.digest[:12]}")
    if why is not None or edited:
        raise ValueError(
            f"the program of {from_here(run)} is not run: {why or seals.in_words(edited)}. Restore "
            f"what was edited ({seals.SOURCES}/ there has copies), or evaluate a function that you "
            f"trust: setups=[{PROGRAM}:my_team.py:solve]"
        )
    digest = fingerprint([program.model_dump(exclude={"function"}), attribute, *sealed.values()])
    return _setup(program.model_dump(), num_agents=config.society.num_agents, digest=digest)


def _setup(program: dict[str, Any], *, num_agents: int, digest: str) -> Setup:
    # Nobody criticises, as the program's own answer counts.
    rules = Interaction(program=program, criticism="none")
    flow = partial(answer, rules=rules, num_agents=num_agents)
    return Setup(flow, num_speakers=num_agents, program=digest, at_once=program.get("concurrency"))
