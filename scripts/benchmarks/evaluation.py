"""The runner of the evaluation against vLLM's serving benchmark client, on one server.

Both send the same requests (messages, seeds, sampling), with the same number in flight, in
turns. The runner does all it does in an evaluation: whole transcripts, each answer on the disk.
vLLM's client streams its replies, which the runner does not.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from comas.engines.rollout.vllm_options import QUIET_VLLM
from comas.preflight.machine import choose_device, read_gpus
from comas.quickstart.build import build_society
from evaluation.client import Endpoint, RequestOptions
from evaluation.config import EvaluationConfig
from evaluation.inference_log import read_inference
from evaluation.models import read_model
from evaluation.runner import request_seed, run_inference
from evaluation.server import serve
from evaluation.setups import SETUPS
from evaluation.tasks import held_out_tasks
from evaluation.types import BenchmarkTask
from scripts.benchmarks._turns import Numbers, Ratio, Repeated, Report
from scripts.command import read_arguments

MARK = 0.9
"""Share of the client's throughput that the runner is to reach."""


@dataclass
class Arguments(Repeated):
    model: str | None = None
    """A model folder; without it, a tiny model of the quick-start."""
    tasks: int = 768
    max_tokens: int = 128
    """Tokens of a reply, at most."""
    concurrency: int = 32
    """Requests in flight."""


def main(arguments: Arguments) -> int:
    """Measure, print, and return 1 if the runner is below the mark."""
    society = build_society(Path("saves"), seed=0)
    model = read_model(Path(arguments.model or society / "models" / "qwen2"))
    tasks = held_out_tasks(society / "train.jsonl", limit=arguments.tasks)
    options = RequestOptions(concurrency=arguments.concurrency, max_tokens=arguments.max_tokens)
    report, turn = Report(arguments), count()
    with tempfile.TemporaryDirectory() as folder:
        config = EvaluationConfig(concurrency=arguments.concurrency, generation_config="none")
        log_path, device = Path(folder) / "server.log", choose_device("auto", read_gpus())
        with serve([model], logs=[log_path], config=config, device=device) as servers:
            [endpoint] = servers.endpoints
            report.compare(
                f"{len(tasks)} requests, {options.concurrency} in flight",
                {
                    "runner": lambda: _runner(
                        tasks, endpoint, options, Path(folder) / f"turn_{next(turn)}"
                    ),
                    "vLLM's client": lambda: _vllm_client(tasks, endpoint, options),
                },
                ratios=[Ratio("runner", "vLLM's client", "tokens/s", at_least=MARK)],
            )  # the warm-up is the server's and its prefix cache's
    return report.end()


def _runner(
    tasks: Sequence[BenchmarkTask], endpoint: Endpoint, options: RequestOptions, folder: Path
) -> Numbers:
    inference = asyncio.run(
        run_inference(
            tasks,
            setup=SETUPS["vanilla"],
            models=[endpoint],
            seeds=[0],
            options=options,
            folder=folder,
        )
    )
    assert inference.num_done == len(tasks)
    answers = read_inference(folder / "inference.jsonl")
    num_tokens = sum(call.completion_tokens for answer in answers for call in answer.calls)
    return throughput(inference.wall_s, num_tokens)


def throughput(seconds: float, num_tokens: int) -> Numbers:
    """All requests, once, with the tokens of all replies."""
    return {"seconds": seconds, "tokens": num_tokens, "tokens/s": num_tokens / seconds}


def _vllm_client(
    tasks: Sequence[BenchmarkTask], endpoint: Endpoint, options: RequestOptions
) -> Numbers:
    with contextlib.redirect_stdout(io.StringIO()):
        result = asyncio.run(_vllm_benchmark(tasks, endpoint, options))
    assert result["completed"] == len(tasks)
    return throughput(result["duration"], result["total_output_tokens"])


async def _vllm_benchmark(
    tasks: Sequence[BenchmarkTask], endpoint: Endpoint, options: RequestOptions
) -> dict[str, Any]:
    """Do what ``vllm bench serve`` does, with a seed of its own for every request."""
    from vllm.benchmarks.datasets import SampleRequest
    from vllm.benchmarks.serve import TaskType, benchmark

    requests = [
        SampleRequest(
            prompt=task.query,
            prompt_len=0,
            expected_output_len=options.max_tokens,
            chat_messages=[{"role": "user", "content": task.query}],
            request_overrides={
                "seed": request_seed(0, task_id=task.task_id, label="answer"),
                "temperature": options.temperature,
            },
        )
        for task in tasks
    ]
    return await benchmark(
        task_type=TaskType.GENERATION,
        endpoint_type="openai-chat",
        api_url=f"{endpoint.base_url}/chat/completions",
        base_url=endpoint.base_url.removesuffix("/v1"),
        model_id=endpoint.model,
        model_name=endpoint.model,
        tokenizer=None,
        input_requests=requests,
        logprobs=None,
        request_rate=float("inf"),
        burstiness=1.0,
        disable_tqdm=True,
        num_warmups=0,
        profile=False,
        selected_percentile_metrics=[],
        selected_percentiles=[],
        ignore_eos=False,
        goodput_config_dict={},
        max_concurrency=options.concurrency,
        lora_modules=None,
        extra_headers={"Authorization": f"Bearer {endpoint.api_key}"},
        extra_body=None,
        ready_check_timeout_sec=0,
    )


if __name__ == "__main__":
    arguments = read_arguments(Arguments, about=__doc__)
    os.environ.update(QUIET_VLLM)
    logging.basicConfig(level=logging.WARNING)
    sys.exit(main(arguments))
