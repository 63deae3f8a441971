"""What an evaluation is going to do: found and checked before anything is started."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from comas.preflight.machine import choose_device
from evaluation.client import RequestOptions
from evaluation.identity import SAMPLING, TASKS, TITLE, Identity, check_identity, fingerprint
from evaluation.models import CONTEXT_SHARE_OF_REPLY, Target, find_remote, find_target
from evaluation.report import read_results
from evaluation.results import Column
from evaluation.server import ServerOptions
from evaluation.settings import Command, Settings
from evaluation.setups import SETUPS
from evaluation.tasks import DRAW_SEED, HELD_OUT, benchmark_tasks, choose_benchmarks, held_out_tasks
from evaluation.types import BenchmarkTask, Message


@dataclass(frozen=True)
class Plan:
    """A whole evaluation, checked as far as possible without starting anything."""

    folder: Path
    """results/NAME"""
    target: Target
    tasks: Mapping[str, Sequence[BenchmarkTask]]
    """Of each benchmark."""
    columns: tuple[Column, ...]
    seeds: tuple[int, ...]
    requests: RequestOptions
    servers: ServerOptions
    """Unused where the target is an endpoint."""
    identity: Identity
    baseline: Path | None
    notes: tuple[str, ...]
    """What is done differently from what the command says, and why."""

    def columns_of(self, subject: str) -> list[Column]:
        """A society leaves out setups with one speaker: its agents have those results."""
        num_models = len(set(self.target.subjects[subject]))
        return [c for c in self.columns if num_models == 1 or SETUPS[c.setup].num_speakers > 1]

    def answers_folder(self, subject: str, column: Column) -> Path:
        """Where the answers of a subject in one column are kept."""
        return column.folder(self.folder / subject)


def make_plan(command: Command) -> Plan:
    """Find all that the command names.

    Raises ValueError or OSError when something is missing or does not fit together, or when
    the results folder holds the results of another model.
    """
    settings = command.settings
    if settings.base_url is not None:
        target = find_remote(settings.base_url, model=settings.model)
    else:
        assert command.path is not None
        target = find_target(command.path, weights=settings.weights)
    results = Path(settings.results)
    tasks = _all_tasks(settings, target)
    requests = _request_options(settings, target)
    columns = [Column(setup, name) for setup in settings.setups or SETUPS for name in tasks]
    plan = Plan(
        folder=results / command.name,
        target=target,
        tasks=tasks,
        columns=tuple(columns),
        seeds=tuple(range(settings.seeds)),
        requests=requests,
        servers=_server_options(settings),
        identity=_identity(target, tasks, settings=settings, requests=requests),
        baseline=None if settings.baseline is None else results / settings.baseline,
        notes=_notes(settings, requests),
    )
    check_identity(plan.folder, plan.identity)
    if plan.baseline is not None:
        read_results(plan.baseline, name=str(settings.baseline))
    return plan


def describe(plan: Plan) -> str:
    """The plan as one line for the terminal."""
    subjects = [name for name in plan.target.subjects if name != "."]
    what = f"{plan.target.title} ({', '.join(subjects)})" if subjects else plan.target.title
    sizes = ", ".join(f"{name} ({len(tasks)} tasks)" for name, tasks in plan.tasks.items())
    setups = ", ".join(dict.fromkeys(column.setup for column in plan.columns))
    num_answers, num_requests = 0, 0
    for subject, models in plan.target.subjects.items():
        for column in plan.columns_of(subject):
            tasks = plan.tasks[column.benchmark]
            num_asked = len(tasks) * len(plan.seeds)
            num_answers += num_asked
            num_requests += num_asked * count_calls(column.setup, tasks[0], num_models=len(models))
    seeds = f"{len(plan.seeds)} seed{'s' * (len(plan.seeds) > 1)}"
    return (
        f"Evaluating {what} on {sizes} with {setups}; {seeds}: {num_answers} answers, at most "
        f"{num_requests} requests, into {plan.folder}"
    )


def count_calls(setup: str, task: BenchmarkTask, *, num_models: int) -> int:
    """Requests that a setup makes per task, at most: nobody ends a conversation early."""
    ask = _CountingAsk(num_models)
    asyncio.run(SETUPS[setup].flow(task, ask))
    return ask.num_calls


class _CountingAsk:
    """Counts the calls, and answers each with an empty text."""

    def __init__(self, num_models: int) -> None:
        self.num_models = num_models
        self.num_calls = 0

    async def __call__(self, messages: Sequence[Message], *, label: str, speaker: int = 0) -> str:
        self.num_calls += 1
        return ""


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


def _request_options(settings: Settings, target: Target) -> RequestOptions:
    return RequestOptions(
        temperature=settings.temperature,
        max_tokens=target.max_tokens(settings.max_tokens),
        concurrency=settings.concurrency,
        timeout_s=settings.timeout_s,
    )


def _server_options(settings: Settings) -> ServerOptions:
    return ServerOptions(
        device=choose_device("auto"),
        port=settings.port,
        max_concurrent_requests=settings.concurrency,
        apply_generation_config=settings.generation_config == "model",
        start_timeout_s=settings.start_timeout_s,
        tensor_parallel=settings.tensor_parallel,
        gpu_memory_share=settings.gpu_memory_share,
        cpu_kv_cache_mib=settings.cpu_kv_cache_mib,
    )


def _notes(settings: Settings, requests: RequestOptions) -> tuple[str, ...]:
    if requests.max_tokens == settings.max_tokens:
        return ()
    return (
        f"replies are limited to {requests.max_tokens} tokens instead of {settings.max_tokens}: "
        f"a reply gets at most 1/{CONTEXT_SHARE_OF_REPLY} of the models' context",
    )


def _identity(
    target: Target,
    tasks: Mapping[str, Sequence[BenchmarkTask]],
    *,
    settings: Settings,
    requests: RequestOptions,
) -> Identity:
    return {
        TITLE: target.title,
        "models": [model.identity for model in target.models],
        "subjects": dict(target.subjects),
        SAMPLING: {
            "temperature": settings.temperature,
            "generation_config": settings.generation_config if settings.base_url is None else None,
            "max_tokens": requests.max_tokens,
        },
        "limit": settings.limit,
        "draw_seed": DRAW_SEED,
        TASKS: {name: fingerprint(of_benchmark) for name, of_benchmark in tasks.items()},
    }
