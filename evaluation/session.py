"""An evaluation from its command to its summary: planned and checked first, then carried out."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from comas.concurrency import run_all
from comas.files import write_text
from comas.preflight.machine import choose_device
from comas.run_directory.provenance import describe_process
from comas.verification import Verifier
from evaluation.client import Endpoint, RequestSettings
from evaluation.grading import grade_folder
from evaluation.identity import (
    SAMPLING,
    TASKS,
    TITLE,
    Identity,
    check_identity,
    fingerprint,
    write_identity,
)
from evaluation.inference_log import ANSWERS, read_inference
from evaluation.models import LocalModel, RemoteModel, Target, find_remote, find_target
from evaluation.report import read_results, write_summary
from evaluation.runner import run_inference
from evaluation.server import Servers, ServerSettings, serve
from evaluation.settings import Command, Settings
from evaluation.setups import SETUPS
from evaluation.tasks import (
    DRAW_SEED,
    HELD_OUT,
    benchmark_tasks,
    choose_benchmarks,
    held_out_tasks,
)
from evaluation.types import BenchmarkTask, Message

log = logging.getLogger(__name__)

SERVER_LOG = "server.log"
SOCIETY = "society"


@dataclass(frozen=True)
class Cell:
    """A benchmark under a set-up: one column of one block of the table."""

    benchmark: str
    setup: str


@dataclass(frozen=True)
class Plan:
    """What is going to be done, checked as far as it can be without starting anything."""

    folder: Path
    """results/NAME"""
    target: Target
    tasks: Mapping[str, Sequence[BenchmarkTask]]
    """Of each benchmark."""
    cells: tuple[Cell, ...]
    seeds: tuple[int, ...]
    requests: RequestSettings
    identity: Identity
    baseline: Path | None
    notes: tuple[str, ...]
    """What is done in another way than the command says, and why."""

    def cells_of(self, subject: str) -> list[Cell]:
        """A society has no results where only one seat is played: its agents have them."""
        num_models = len(set(self.target.subjects[subject]))
        return [c for c in self.cells if num_models == 1 or SETUPS[c.setup].num_seats > 1]


def make_plan(command: Command) -> Plan:
    """Find all that the command names.

    Raises ValueError or OSError when something is missing or does not fit together, or when
    the results folder holds those of another model.
    """
    settings = command.settings
    if settings.base_url is not None:
        target = find_remote(settings.base_url, model=settings.model)
    else:
        assert command.path is not None
        target = find_target(command.path, weights=settings.weights)
    results = Path(settings.results)
    tasks = _all_tasks(settings, target)
    cells = [Cell(benchmark, setup) for setup in settings.setups or SETUPS for benchmark in tasks]
    notes = []
    max_tokens = target.max_tokens(settings.max_tokens)
    if max_tokens < settings.max_tokens:
        notes.append(
            f"replies have at most {max_tokens} tokens, not {settings.max_tokens}, because the "
            "context of the models is short"
        )
    plan = Plan(
        folder=results / command.name,
        target=target,
        tasks=tasks,
        cells=tuple(cells),
        seeds=tuple(range(settings.seeds)),
        requests=RequestSettings(
            temperature=settings.temperature,
            max_tokens=max_tokens,
            concurrency=settings.concurrency,
            timeout_s=settings.timeout_s,
        ),
        identity=_identity(target, tasks, settings=settings, max_tokens=max_tokens),
        baseline=None if settings.baseline is None else results / settings.baseline,
        notes=tuple(notes),
    )
    check_identity(plan.folder, plan.identity)
    if plan.baseline is not None:
        read_results(plan.baseline, name=str(settings.baseline))
    return plan


def describe(plan: Plan) -> str:
    """What the plan comes to, in a line for the terminal."""
    subjects = [name for name in plan.target.subjects if name != "."]
    what = f"{plan.target.title} ({', '.join(subjects)})" if subjects else plan.target.title
    sizes = ", ".join(f"{name} ({len(tasks)} tasks)" for name, tasks in plan.tasks.items())
    setups = ", ".join(dict.fromkeys(cell.setup for cell in plan.cells))
    num_answers, num_requests = 0, 0
    for subject, seats in plan.target.subjects.items():
        for cell in plan.cells_of(subject):
            tasks = plan.tasks[cell.benchmark]
            num_asked = len(tasks) * len(plan.seeds)
            num_answers += num_asked
            num_requests += num_asked * count_calls(cell.setup, tasks[0], num_models=len(seats))
    seeds = f"{len(plan.seeds)} seed{'s' * (len(plan.seeds) > 1)}"
    return (
        f"Evaluating {what} on {sizes} with {setups}; {seeds}: {num_answers} answers, at most "
        f"{num_requests} requests, into {plan.folder}"
    )


def count_calls(setup: str, task: BenchmarkTask, *, num_models: int) -> int:
    """Requests that a set-up makes for a task, at most: nobody ends a conversation early."""
    ask = _CountingAsk(num_models)
    asyncio.run(SETUPS[setup].flow(task, ask))
    return ask.num_calls


def evaluate(plan: Plan, *, settings: Settings) -> str:
    """Carry the plan out, going on where an earlier session stopped; returns the summary.

    Raises ServerError when a server cannot be started or dies, EndpointError when one gives no
    usable reply any more.
    """
    with ExitStack() as stack:
        verifier = stack.enter_context(Verifier())
        served = stack.enter_context(_served(plan, settings)) if _has_open_tasks(plan) else None
        write_identity(plan.folder, plan.identity)
        _note_versions(plan.folder)
        agents = [subject for subject in plan.target.subjects if subject != SOCIETY]
        society = [subject for subject in plan.target.subjects if subject == SOCIETY]
        # Agents have servers of their own, which the society uses all at once.
        for together in filter(None, (agents, society)):
            for cell in plan.cells_of(together[0]):
                if served is not None:
                    asyncio.run(_answer(plan, together, cell, served=served))
                for subject in together:
                    folder = _folder(plan, subject, cell)
                    tasks = plan.tasks[cell.benchmark]
                    grade_folder(folder, tasks, seeds=plan.seeds, verifier=verifier)
    return write_summary(plan.folder, baseline=plan.baseline)


def _has_open_tasks(plan: Plan) -> bool:
    """Whether anything is left to ask; if not, nothing need be served."""
    for subject in plan.target.subjects:
        for cell in plan.cells_of(subject):
            answers = read_inference(_folder(plan, subject, cell) / ANSWERS)
            done = {(answer.task_id, answer.seed) for answer in answers}
            tasks = plan.tasks[cell.benchmark]
            if any((task.task_id, seed) not in done for task in tasks for seed in plan.seeds):
                return True
    return False


# ---------------------------------------------------------------- planning


def _all_tasks(settings: Settings, target: Target) -> dict[str, list[BenchmarkTask]]:
    data = Path(settings.data)
    names = choose_benchmarks(
        settings.benchmarks,
        data=data,
        held_out=target.held_out,
        is_quickstart=target.is_quickstart,
    )
    tasks = {}
    for name in names:
        if name == HELD_OUT:
            assert target.held_out is not None
            tasks[name] = held_out_tasks(target.held_out, limit=settings.limit)
        else:
            tasks[name] = benchmark_tasks(name, data=data, limit=settings.limit)
    return tasks


def _identity(
    target: Target,
    tasks: Mapping[str, Sequence[BenchmarkTask]],
    *,
    settings: Settings,
    max_tokens: int,
) -> Identity:
    return {
        TITLE: target.title,
        "models": [model.identity for model in target.models],
        "subjects": dict(target.subjects),
        SAMPLING: {
            "temperature": settings.temperature,
            "generation_config": settings.generation_config if settings.base_url is None else None,
            "max_tokens": max_tokens,
        },
        "limit": settings.limit,
        "draw_seed": DRAW_SEED,
        TASKS: {name: fingerprint(of_benchmark) for name, of_benchmark in tasks.items()},
    }


class _CountingAsk:
    """Counts what it is asked, and has nothing to say."""

    def __init__(self, num_models: int) -> None:
        self.num_models = num_models
        self.num_calls = 0

    async def __call__(self, messages: Sequence[Message], *, label: str, seat: int = 0) -> str:
        self.num_calls += 1
        return ""


# ---------------------------------------------------------------- carrying out


@dataclass(frozen=True)
class _Served:
    """Where each model of the plan is asked, and the servers if they are ours."""

    endpoints: list[Endpoint]
    servers: Servers | None = None


@contextmanager
def _served(plan: Plan, settings: Settings) -> Iterator[_Served]:
    models = plan.target.models
    remote = [model.endpoint for model in models if isinstance(model, RemoteModel)]
    if remote:
        yield _Served(remote)
        return
    firsts = [
        next(name for name, seats in plan.target.subjects.items() if index in seats)
        for index in range(len(models))
    ]
    server_settings = ServerSettings(
        device=choose_device("auto"),
        port=settings.port,
        max_concurrent_requests=settings.concurrency,
        apply_generation_config=settings.generation_config == "model",
        start_timeout_s=settings.start_timeout_s,
        tensor_parallel=settings.tensor_parallel,
        gpu_memory_share=settings.gpu_memory_share,
        cpu_kv_cache_mib=settings.cpu_kv_cache_mib,
    )
    with serve(
        [model for model in models if isinstance(model, LocalModel)],
        logs=[plan.folder / first / SERVER_LOG for first in firsts],
        settings=server_settings,
    ) as servers:
        yield _Served(servers.endpoints, servers)


async def _answer(plan: Plan, subjects: Sequence[str], cell: Cell, *, served: _Served) -> None:
    """One cell of several subjects, side by side; ends early when a server dies."""
    work = run_all(
        run_inference(
            plan.tasks[cell.benchmark],
            setup=SETUPS[cell.setup],
            models=[served.endpoints[index] for index in plan.target.subjects[subject]],
            seeds=plan.seeds,
            settings=plan.requests,
            folder=_folder(plan, subject, cell),
        )
        for subject in subjects
    )
    await (work if served.servers is None else _watched(work, served.servers))


async def _watched(work: Coroutine[Any, Any, Any], servers: Servers) -> None:
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(servers.watch())
    try:
        done, _ = await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
        for future in done:
            future.result()
    finally:
        working.cancel()
        watching.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)


def _folder(plan: Plan, subject: str, cell: Cell) -> Path:
    return plan.folder / subject / cell.benchmark / cell.setup


def _note_versions(folder: Path) -> None:
    """Append to versions.json what this session runs with."""
    path = folder / "versions.json"
    sessions = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    write_text(path, json.dumps([*sessions, describe_process()], indent=1))
