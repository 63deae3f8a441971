"""Carries out a plan: starts servers, asks every task, grades the answers, writes the summary."""

import asyncio
import logging
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from comas.config.plugins import blaming_plugins
from comas.preflight.machine import choose_device, count_gpus, why_on_cpu
from comas.run.provenance import note_process
from comas.utils.concurrency import first_error, run_all
from comas.utils.files import locked
from comas.utils.interrupts import run
from comas.verification import Verifier
from evaluation.config import EvaluationConfig
from evaluation.grading import grade_folder
from evaluation.models import LocalModel, RemoteModel, Target
from evaluation.plan import EvaluationPlan
from evaluation.report import write_summary
from evaluation.results import FAILURES, Column, check_identity, read_inference, write_identity
from evaluation.runner import open_tasks, run_inference
from evaluation.server import Servers, serve

log = logging.getLogger(__name__)

T = TypeVar("T")

SERVER_LOG = "server.log"
SOCIETY = "society"
IN_USE = "wait for it, stop it, or choose another name for the results"


def evaluate(plan: EvaluationPlan) -> str:
    """Carry out or resume the plan, with its folder locked; return the summary.

    Raises:
        ValueError: another evaluation is using the folder, or has changed it.
        RuntimeError: a server cannot be started, has died or gives no usable replies any more, or
            every task failed.
    """
    with ExitStack() as stack:
        stack.enter_context(locked(plan.folder, remedy=IN_USE))
        check_identity(plan.folder, plan.identity)
        verifier = stack.enter_context(Verifier(isolation=plan.isolation))
        servers = None
        if any(
            open_tasks(plan.tasks[column.benchmark], plan.seeds, plan.answers_folder(name, column))
            for name, column in plan.cells
        ):
            servers = stack.enter_context(served(plan.target, logs=plan.folder, config=plan.config))
        write_identity(plan.folder, plan.identity)
        note_process(plan.folder)
        agents = [subject for subject in plan.target.subjects if subject != SOCIETY]
        society = [subject for subject in plan.target.subjects if subject == SOCIETY]
        # Agents run side by side, each on its own server; the society uses all servers.
        for together in filter(None, (agents, society)):
            for column in plan.columns_of(together[0]):
                if servers is not None:
                    run(_answer(plan, together, column, servers=servers))
                for subject in together:
                    folder = plan.answers_folder(subject, column)
                    tasks = plan.tasks[column.benchmark]
                    grade_folder(folder, tasks, seeds=plan.seeds, verifier=verifier)
    summary = write_summary(plan.folder)
    if not any(read_inference(plan.answers_folder(*cell)) for cell in plan.cells):
        failures = plan.folder / "**" / FAILURES
        raise RuntimeError(f"every task failed; the reasons are in {failures}")
    return summary


@contextmanager
def served(target: Target, *, logs: Path, config: EvaluationConfig) -> Iterator[Servers]:
    """Provide the servers of the target's models: remote endpoints, or our own during the block.

    Our own log to ``logs/SUBJECT``, for the first subject with the model. Raises RuntimeError when
    one cannot be started.
    """
    remote = [model.endpoint for model in target.models if isinstance(model, RemoteModel)]
    if remote:
        yield Servers(remote)
        return
    firsts = [
        next(name for name, indices in target.subjects.items() if index in indices)
        for index in range(len(target.models))
    ]
    num_gpus = count_gpus()
    if (reason := why_on_cpu("auto", num_gpus=num_gpus)) is not None:
        log.warning(reason)
    with serve(
        [model for model in target.models if isinstance(model, LocalModel)],
        logs=[logs / first / SERVER_LOG for first in firsts],
        config=config,
        device=choose_device("auto", num_gpus=num_gpus),
    ) as servers:
        yield servers


async def _answer(
    plan: EvaluationPlan, subjects: Sequence[str], column: Column, *, servers: Servers
) -> None:
    """Ask one column of several subjects, side by side."""
    work = run_all(
        run_inference(
            plan.tasks[column.benchmark],
            setup=plan.setups[column.setup],
            models=[servers.endpoints[index] for index in plan.target.subjects[subject]],
            seeds=plan.seeds,
            options=plan.requests,
            folder=plan.answers_folder(subject, column),
        )
        for subject in subjects
    )
    with blaming_plugins():
        await watched(work, servers)


async def watched(work: Coroutine[Any, Any, T], servers: Servers) -> T:
    """Return the result of ``work``. Raises RuntimeError when one of our servers dies."""
    try:
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(servers.watch())
            result = await work
            watching.cancel()
    except BaseExceptionGroup as errors:
        raise first_error(errors) from errors
    return result
