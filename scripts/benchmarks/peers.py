"""A step of CoMAS against a step of TRL's GRPOTrainer on the same tiny agents.

Both train the two quick-start agents on this machine's CPU, step by step: sampling, rewards,
one update of each agent on 144 samples by GRPO, with a KL penalty to the agent's base model.
CoMAS holds its discussions; TRL gets the prompts of the same discussions, every second one, and
samples two responses to each (it needs groups). Neither is timed while it loads. TRL trains the
agents side by side: one process per agent, one thread each.

TRL is installed in saves/benchmarks, beside the very torch and transformers that CoMAS runs on.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import fmean, median
from typing import Any

from comas.config.schema import Config, PolicyGradient
from comas.engines.cluster.agents import Agents
from comas.engines.cluster.supervision import Recoveries
from comas.policy_optimization.samples import collect_samples
from comas.preflight.configuration import QUICKSTART_CONFIG, load_config
from comas.preflight.survey import prepare
from comas.reward_formulation import REWARD_SCHEMES
from comas.run.prepared import Prepared
from comas.train import agents_of, discuss
from comas.types import Discussion
from comas.utils.files import written_aside
from scripts.benchmarks._turns import Numbers, Ratio, Repeated, Report
from scripts.command import read_arguments

TRL = "trl==1.16.0"


@dataclass
class Arguments(Repeated):
    steps: int = 4
    """Timed one by one, after one that is not."""
    repeats: int = 3
    trl_micro_batch: int = 48
    """Samples of a micro batch of TRL, of 144; smaller ones pad less."""
    estimator: str = "grpo"
    """Estimator of CoMAS's advantages. TRL's are GRPO's, with the same KL penalty."""


def main(arguments: Arguments) -> None:
    """Measure, and print the ratios."""
    trl = _install_trl(Path("saves/benchmarks"))
    overrides = [f"algorithm.name={arguments.estimator}"]
    prepared = prepare(load_config(QUICKSTART_CONFIG, overrides))
    config = prepared.config
    turns: dict[str, list[Numbers]] = {"CoMAS": [], "TRL": []}
    with agents_of(prepared, Recoveries(0)) as agents:
        agents.sync_weights()
        num_steps = arguments.steps + 1
        for first in range(1, arguments.repeats * num_steps, num_steps):
            steps = range(first, first + num_steps)
            measured, discussions = train(config, prepared, agents, steps)
            turns["CoMAS"].append(measured)
            turns["TRL"].append(_run_trl(_trl_jobs(config, prepared, discussions, arguments), trl))
    report = Report()
    report.add(
        f"steps of both agents, median of {arguments.steps} in each turn",
        turns,
        ratios=[Ratio("TRL", "CoMAS")],
    )
    report.end()


def numbers(seconds: Sequence[float], mean_tokens: float) -> Numbers:
    """The median of some steps, and the tokens of a response."""
    return {"seconds": median(seconds), "tokens": mean_tokens}


def train(
    config: Config, prepared: Prepared, agents: Agents, steps: range
) -> tuple[Numbers, list[list[Discussion]]]:
    """Train as the driver does, and return the discussions; the first of ``steps`` is not timed."""
    seconds, discussions = [], []
    for step in steps:
        started = time.perf_counter()
        discussions.append(discuss(prepared, agents, step=step))
        rewards = REWARD_SCHEMES[config.reward.scheme](discussions[-1], evidence={})
        buffers = collect_samples(
            rewards.discussions,
            policy_of_agent=config.policy_of_agent,
            mask_truncated=config.algorithm.mask_truncated,
        )
        agents.begin_update(dict(enumerate(buffers)), step=step)()
        agents.sync_weights()
        seconds.append(time.perf_counter() - started)
    turns = [turn for held in discussions[1:] for d in held for turn in d.turns]
    mean_tokens = fmean(len(turn.generation.response_token_ids) for turn in turns)
    return numbers(seconds[1:], mean_tokens), discussions


# ---------------------------------------------------------------- TRL


def _install_trl(root: Path) -> Path:
    """The folder that holds TRL alone; what it needs is in the environment already."""
    folder = root / TRL
    if not folder.is_dir():
        with written_aside(folder) as aside:
            pip = [sys.executable, "-m", "pip", "install", "-qq", "--no-deps"]
            subprocess.run([*pip, "--target", str(aside), TRL], check=True)
    return folder.resolve()


def _trl_jobs(
    config: Config,
    prepared: Prepared,
    discussions: Sequence[Sequence[Discussion]],
    arguments: Arguments,
) -> list[dict[str, object]]:
    """A job for each agent, on prompts of its own (see ``scripts/benchmarks/_trl.py``)."""
    assert isinstance(config.algorithm, PolicyGradient)
    return [
        {
            "model": model,
            "prompts": list(chain.from_iterable(_half_of_prompts(d, agent) for d in discussions)),
            "num_steps": len(discussions),
            "micro_batch": arguments.trl_micro_batch,
            "max_tokens": config.rollout.max_response_tokens,
            "learning_rate": config.optimization.learning_rate,
            "kl_coef": config.algorithm.kl_coef,
        }
        for agent, model in enumerate(prepared.models)
    ]


def _half_of_prompts(discussions: Sequence[Discussion], agent: int) -> Iterator[str]:
    turns = (turn for discussion in discussions for turn in discussion.turns)
    prompts = [turn.prompt for turn in turns if turn.agent_index == agent]
    yield from prompts[: len(prompts) // 2 * 2 : 2]


def _run_trl(jobs: Sequence[dict[str, object]], trl: Path) -> Numbers:
    """All agents' steps: the slowest agent decides."""
    with ThreadPoolExecutor(len(jobs)) as pool:
        results = list(pool.map(partial(_train_with_trl, trl=trl), jobs))
    seconds = map(max, zip(*(result["seconds"][1:] for result in results), strict=True))
    return numbers(list(seconds), fmean(result["mean_tokens"] for result in results))


def _train_with_trl(job: dict[str, object], *, trl: Path) -> dict[str, Any]:
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(trl), str(Path.cwd())]),
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    process = subprocess.run(
        [sys.executable, "-m", "scripts.benchmarks._trl"],
        input=json.dumps(job),
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    if process.returncode != 0:
        raise RuntimeError(f"TRL ended with status {process.returncode}:\n{process.stderr[-2000:]}")
    return json.loads(process.stdout.splitlines()[-1])


if __name__ == "__main__":
    main(read_arguments(Arguments, about=__doc__))
