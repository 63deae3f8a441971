"""``python -m evaluation.harness RUN LM_EVAL``: what scripts/harness.sh starts.

Lets lm-evaluation-harness ask a run's agents their held-out math questions through our servers, as
a task of its own with its own client and its own grading, and compares what it counts with what
we count, under the same prompts and greedy sampling.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from comas.types import Domain
from comas.utils.terminal import command, run_command
from comas.verification import Verifier
from evaluation.client import Endpoint, RequestOptions
from evaluation.config import EvaluationConfig
from evaluation.execution import served
from evaluation.grading import grade_folder
from evaluation.models import Target, find_target
from evaluation.runner import run_inference
from evaluation.setups import SETUPS
from evaluation.tasks import held_out_tasks
from evaluation.types import BenchmarkTask

TASK = "comas_held_out"
QUESTIONS = "questions.jsonl"
DOMAIN: Domain = "math"
"""The one whose answers both compare as texts; science allows for 5 %, coding runs programs."""
LAST_BOX = r"\\boxed\{([^{}]*)\}"


@command("evaluation", "comas", errors=(ValueError, OSError, RuntimeError))
def main(arguments: Sequence[str]) -> int:
    """Compare, and print one line for each agent; returns the process's exit status."""
    run, lm_eval = arguments
    for line in compare(find_target(run, weights="trained"), lm_eval=lm_eval):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    return 0


def compare(target: Target, *, lm_eval: str) -> Iterator[str]:
    """The accuracy of each agent by the harness and by us, in words.

    Raises ValueError when ``target`` is no run with held-out math questions, RuntimeError when
    the harness fails.
    """
    if target.held_out is None or target.system_prompt is not None:
        raise ValueError("the harness asks a run's agents without a system prompt: name such a run")
    if any(model.chat.template_kwargs for model in target.models):
        raise ValueError("the harness sets no variables of chat templates: name a run without any")
    tasks = held_out_tasks(
        target.held_out, target.held_out_rules, limit=None, prompts=target.prompts
    )
    tasks = [task for task in tasks if task.form == DOMAIN]
    if not tasks:
        raise ValueError(f"{target.held_out} holds no {DOMAIN} question")
    options = RequestOptions(temperature=0.0, max_tokens=target.max_tokens(2048))
    agents = {name: own[0] for name, own in target.subjects.items() if len(own) == 1}
    with (
        TemporaryDirectory(prefix="comas-harness-") as name,
        served(target, logs=Path(name), config=EvaluationConfig()) as servers,
    ):
        folder = Path(name)
        write_task(folder, tasks, max_tokens=options.max_tokens)
        for agent, index in agents.items():
            endpoint = servers.endpoints[index]
            theirs = by_harness(endpoint, folder, output=folder / agent, lm_eval=lm_eval)
            ours = by_us(endpoint, tasks, options=options, folder=folder / agent / "held_out/ours")
            yield (
                f"{agent}: {len(tasks)} {DOMAIN} questions, correct by lm-evaluation-harness "
                f"{100 * theirs:.1f} %, by us {100 * ours:.1f} %"
            )


def write_task(folder: Path, tasks: Sequence[BenchmarkTask], *, max_tokens: int) -> None:
    """Write the questions, and the harness's description of them as a task."""
    lines = (json.dumps({"query": task.query, "gold": task.gold}) for task in tasks)
    (folder / QUESTIONS).write_text("\n".join(lines) + "\n", encoding="utf-8")
    text = yaml.safe_dump(description(folder / QUESTIONS, max_tokens=max_tokens))
    (folder / f"{TASK}.yaml").write_text(text, encoding="utf-8")


def description(questions: Path, *, max_tokens: int) -> dict[str, Any]:
    """The task as lm-evaluation-harness describes its own: the last box has to hold the answer."""
    last_box = {"function": "regex", "regex_pattern": LAST_BOX, "group_select": -1}
    return {
        "task": TASK,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(questions)}},
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": "{{query}}",
        "doc_to_target": "{{gold}}",
        "generation_kwargs": {
            "until": [],
            "do_sample": False,
            "temperature": 0.0,
            "max_gen_toks": max_tokens,
        },
        "filter_list": [{"name": "boxed", "filter": [last_box, {"function": "take_first"}]}],
        "metric_list": [
            {"metric": "exact_match", "aggregation": "mean", "higher_is_better": True},
        ],
        "metadata": {"version": 1.0},
    }


def by_harness(endpoint: Endpoint, folder: Path, *, output: Path, lm_eval: str) -> float:
    """The share that the harness counts as correct. Raises RuntimeError when it fails."""
    model = {
        "model": endpoint.model,
        "base_url": f"{endpoint.base_url}/chat/completions",
        "num_concurrent": "8",
        "tokenized_requests": "False",
    }
    done = subprocess.run(
        [
            *(lm_eval, "--model", "local-chat-completions", "--apply_chat_template"),
            *("--model_args", ",".join(f"{key}={value}" for key, value in model.items())),
            *("--include_path", str(folder), "--tasks", TASK, "--output_path", str(output)),
        ],
        capture_output=True,
        text=True,
        check=False,
        # All that it needs is here.
        env=os.environ | {"HF_HUB_OFFLINE": "1", "OPENAI_API_KEY": endpoint.api_key},
    )
    results = sorted(output.rglob("results_*.json"))
    if done.returncode != 0 or not results:
        raise RuntimeError(f"lm-evaluation-harness failed:\n{done.stderr[-2000:]}")
    found = json.loads(results[-1].read_text(encoding="utf-8"))["results"][TASK]
    return float(found["exact_match,boxed"])


def by_us(
    endpoint: Endpoint, tasks: Sequence[BenchmarkTask], *, options: RequestOptions, folder: Path
) -> float:
    """The share that our strict grader counts as correct, asked as the setup vanilla asks."""
    asked = run_inference(
        tasks,
        setup=SETUPS["vanilla"],
        models=[endpoint],
        seeds=[0],
        options=options,
        folder=folder,
    )
    asyncio.run(asked)
    with Verifier() as verifier:
        evaluation = grade_folder(folder, tasks, seeds=[0], verifier=verifier)
    return evaluation.graders["strict"].accuracy


if __name__ == "__main__":
    run_command(main)
