"""A step of CoMAS against a step of TRL's GRPOTrainer on the same tiny agents, or a real model.

Both train the two quick-start agents on this machine's CPU: sampling, rewards, one update of each
agent on 144 samples by GRPO, with a KL penalty to its base model. TRL gets every second prompt of
CoMAS's discussions, and samples two responses to each (it needs groups), with one process of one
thread per agent.

With model=FOLDER both train one agent of it, in float32 and without a KL penalty: 8 answers to each
of 4 questions of configs/smollm2.yaml, one optimiser step, each with its default threads.

Loading is not timed. Generation ends when responses are rewarded (in TRL, after the reference
model's pass); the rest is the update. CoMAS's sync of weights counts in the whole step only. TRL is
installed in saves/benchmarks, and uses CoMAS's torch and transformers.
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
from itertools import chain
from pathlib import Path
from statistics import fmean, median
from typing import Any

from comas.config.schema import Config, PolicyGradient, for_agent
from comas.engines.cluster.agents import Agents
from comas.policy_optimization.samples import collect_samples
from comas.preflight.configuration import QUICKSTART_CONFIG, load_config
from comas.preflight.preparation import prepare
from comas.reward_formulation import REWARD_SCHEMES
from comas.run.prepared import Prepared
from comas.train import agents_of, discuss
from comas.types import Discussion, RewardedDiscussion, Rewards
from comas.utils.files import written_aside
from scripts.benchmarks._turns import Numbers, Repeated, Report
from scripts.command import read_arguments

TRL = "trl==1.16.0"
MARK = 2.0
"""Target with a real model: TRL's step takes at least twice as long."""
GROUP = 8
"""Answers to each question with a real model."""
REAL_CONFIG = Path("configs/smollm2.yaml")
ANSWERS_ALONE = (
    "society.num_agents=1",
    "society.cold_start=null",
    "interaction.criticism=none",
    "interaction.num_rounds=1",
    f"interaction.prompt_reuse={GROUP}",
    "reward.scheme=scripts.benchmarks.peers:by_length",  # needs no criticism
    "algorithm.mask_truncated=false",  # as TRL
    "optimization.learning_rate=1e-6",  # keeps lengths alike
)


@dataclass
class Arguments(Repeated):
    model: str | None = None
    """Folder of a real model, such as saves/models/smollm2; null: the quick-start agents."""
    steps: int = 4
    """Timed steps, after one that is not timed."""
    repeats: int = 3


def main(arguments: Arguments) -> int:
    """Measure, print the ratios, and return 1 if the target is missed."""
    trl = _install_trl(Path("saves/benchmarks"))
    prepared = prepare(_configure(arguments))
    config, threads = prepared.config, set[int]()
    turns: dict[str, list[Numbers]] = {"CoMAS": [], "TRL": []}
    with agents_of(prepared) as agents:
        agents.sync_weights()
        num_steps = arguments.steps + 1
        for first in range(1, arguments.repeats * num_steps, num_steps):
            steps = range(first, first + num_steps)
            measured, discussions = train(config, prepared, agents, steps)
            turns["CoMAS"].append(measured)
            results = _run_trl(_trl_jobs(config, prepared, discussions, arguments), trl)
            turns["TRL"].append(_slowest(results))
            threads |= {result["num_threads"] for result in results}
            assert len(threads) == 1
    report = Report()
    report.add(
        f"steps, median of {arguments.steps} in each turn; threads of an agent: "
        f"CoMAS {config.cluster.cpu_threads}, TRL {threads.pop()}",
        turns,
    )
    report.add_ratio(turns, "TRL", "CoMAS", at_least=0.0 if arguments.model is None else MARK)
    report.add_ratio(turns, "TRL", "CoMAS", "generation")
    report.add_ratio(turns, "TRL", "CoMAS", "update")
    return report.end()


def _configure(arguments: Arguments) -> Config:
    overrides = ["algorithm.name=grpo"]  # as TRL's, with the same KL penalty
    if arguments.model is None:
        return load_config(QUICKSTART_CONFIG, overrides)
    overrides += [f"society.models=[{arguments.model}]", "cluster.device=cpu", *ANSWERS_ALONE]
    return load_config(REAL_CONFIG, overrides)


def numbers(steps: Sequence[Sequence[float]], mean_tokens: float) -> Numbers:
    """Return medians over steps (seconds in total, of generation, of the update), and tokens."""
    seconds, generation, update = map(median, zip(*steps, strict=True))
    return {"seconds": seconds, "generation": generation, "update": update, "tokens": mean_tokens}


def by_length(discussions: Sequence[Discussion]) -> Rewards:
    """Reward solutions by their length, which nearly always differs."""
    lengths = [{t.turn_id: float(len(t.text)) for t in d.solutions()} for d in discussions]
    return Rewards([*map(RewardedDiscussion.by_turn, discussions, lengths)])


def train(
    config: Config, prepared: Prepared, agents: Agents, steps: range
) -> tuple[Numbers, list[list[Discussion]]]:
    """Train as the driver does; the first of ``steps`` is not timed."""
    times, discussions = [], []
    for step in steps:
        started = time.perf_counter()
        discussions.append(discuss(prepared, agents, step=step))
        generated = time.perf_counter()
        rewards = REWARD_SCHEMES[config.reward.scheme](discussions[-1], evidence={})
        buffers = collect_samples(
            rewards.discussions,
            policy_of_agent=config.policy_of_agent,
            mask_truncated=config.algorithm.mask_truncated,
        )
        agents.begin_update(dict(enumerate(buffers)), step=step)()
        updated = time.perf_counter()
        agents.sync_weights()
        seconds = time.perf_counter() - started
        times.append((seconds, generated - started, updated - generated))
    turns = [turn for held in discussions[1:] for d in held for turn in d.turns]
    mean_tokens = fmean(len(turn.generation.response_token_ids) for turn in turns)
    return numbers(times[1:], mean_tokens), discussions


# ---------------------------------------------------------------- TRL


def _install_trl(root: Path) -> Path:
    """Install TRL without its dependencies; return its folder."""
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
    """Return a job for each agent (see ``scripts/benchmarks/_trl.py``)."""
    assert isinstance(config.algorithm, PolicyGradient)
    group, micro_batch = (2, 48) if arguments.model is None else (GROUP, 8)
    return [
        {
            "model": model,
            "prompts": list(
                chain.from_iterable(_some_prompts(d, agent, group) for d in discussions)
            ),
            "num_steps": len(discussions),
            "num_generations": group,
            "micro_batch": micro_batch,
            "max_tokens": for_agent(config.rollout.max_response_tokens, agent),
            "temperature": for_agent(config.rollout.temperature, agent),
            "learning_rate": config.optimization.learning_rate,
            "kl_coef": config.algorithm.kl_coef,
        }
        for agent, model in enumerate(prepared.models)
    ]


def _some_prompts(discussions: Sequence[Discussion], agent: int, group: int) -> Iterator[str]:
    """Yield every ``group``-th prompt of an agent: ``group`` responses each equal its responses."""
    turns = (turn for discussion in discussions for turn in discussion.turns)
    prompts = [turn.prompt for turn in turns if turn.agent_index == agent]
    yield from prompts[: len(prompts) // group * group : group]


def _run_trl(jobs: Sequence[dict[str, object]], trl: Path) -> list[dict[str, Any]]:
    """Train all agents at once (several on one thread each); return their results."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(trl), str(Path.cwd())]),
        "TOKENIZERS_PARALLELISM": "false",
    }
    if len(jobs) > 1:
        environment["OMP_NUM_THREADS"] = "1"

    def train_with_trl(job: dict[str, object]) -> dict[str, Any]:
        command = [sys.executable, "-m", "scripts.benchmarks._trl"]
        options: dict[str, Any] = {"capture_output": True, "text": True, "env": environment}
        done = subprocess.run(command, input=json.dumps(job), check=False, **options)
        if done.returncode != 0:
            raise RuntimeError(f"TRL ended with status {done.returncode}:\n{done.stderr[-2000:]}")
        return json.loads(done.stdout.splitlines()[-1])

    with ThreadPoolExecutor(len(jobs)) as pool:
        return list(pool.map(train_with_trl, jobs))


def _slowest(results: Sequence[dict[str, Any]]) -> Numbers:
    """Return the times of the slowest agent in each step."""
    steps = zip(*(result["steps"][1:] for result in results), strict=True)
    times = [list(map(max, zip(*agents, strict=True))) for agents in steps]
    return numbers(times, fmean(result["mean_tokens"] for result in results))


if __name__ == "__main__":
    sys.exit(main(read_arguments(Arguments, about=__doc__)))
