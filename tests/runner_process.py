"""The runner in a separate process that a test can kill, started in milliseconds."""

import asyncio
import multiprocessing
import os
from multiprocessing.process import BaseProcess
from typing import NamedTuple

from scripted_server import ScriptedServer

from comas.utils.client import Endpoint, RequestOptions
from evaluation.results import read_failures, read_inference
from evaluation.runner import run_inference
from evaluation.setups import SETUPS
from evaluation.types import BenchmarkTask

# Children are forked from a server that has imported everything and has no threads.
_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["evaluation.runner", "aiohttp.web", "pytest"])


class Inference(NamedTuple):
    """Numbers of answers in a folder, and of failures in the last session."""

    num_done: int
    num_failed: int


def run(base_url, folder, num_tasks=4, *, setup_name="vanilla", seeds=(0,), reverse=False, **more):
    """Run a setup in this process; the others are options of its requests, and an ``api_key``."""
    endpoint = Endpoint(base_url, "m", more.pop("api_key", "none"))
    tasks = [
        BenchmarkTask(f"gsm8k/{i}", "math", f"What is {i} + 1?", f"What is {i} + 1? Box it.", "1")
        for i in range(num_tasks)
    ]
    asyncio.run(
        run_inference(
            tasks[:: -1 if reverse else 1],
            setup=SETUPS[setup_name],
            models=[endpoint],
            seeds=seeds,
            options=RequestOptions(**more),
            folder=folder,
        )
    )
    return Inference(len(read_inference(folder)), len(read_failures(folder)))


def start(target, *arguments, **options) -> BaseProcess:
    process = _PROCESSES.Process(target=target, args=arguments, kwargs=options)
    process.start()
    return process


def kill_after(process: BaseProcess, server: ScriptedServer, num_requests: int, number: int) -> int:
    """Send the signal ``number`` after ``num_requests`` more; returns the exit status."""
    server.wait_for_requests(len(server.requests) + num_requests)
    assert process.pid is not None
    os.kill(process.pid, number)
    process.join(timeout=300)
    assert process.exitcode is not None
    return process.exitcode
