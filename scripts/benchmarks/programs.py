"""Programs of configs/programs on real engines: does training receive what was sampled?

Three quick-start agents under Ray, vLLM and DeepSpeed hold discussions by each program until its
requests are answered. Every answer is recorded where the driver receives it from its engine, and
compared with the sample that training collects: token ids and log-probs must be equal. Then the
first samples of each agent make an update, in which the policy computes their log-probs again
("policy" is the largest difference). Tiny agents answer most of these prompts with nonsense, which
does not matter here; their context is stretched to 32,768 tokens.

Each framework is installed, with pinned versions, in a virtual environment under "environments".
"rewritten" counts chats whose last answer the program changed, "concurrent" those begun while the
same agent was answering another, "too long" prompts that were refused.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from shutil import copytree
from statistics import fmean

from comas.config.loading import load
from comas.config.schema import Config
from comas.data import draw_batch, load_questions
from comas.engines.cluster.agents import Agents
from comas.interaction.held import HeldDiscussion
from comas.interaction.schedules import run_discussions
from comas.policy_optimization.samples import collect_samples
from comas.preflight.configuration import QUICKSTART_CONFIG, load_config
from comas.preflight.preparation import prepare
from comas.quickstart.build import build_society
from comas.reward_formulation import REWARD_SCHEMES
from comas.train import agents_of
from comas.types import Generate, Generation, Question, Request, TrainingSample, TurnKey
from comas.utils.files import written_aside
from scripts.command import read_arguments, say

UPDATED = 8
"""Samples of each agent in an update."""
LIMITS = (
    "rollout.max_prompt_tokens=30720",
    "rollout.cpu_kv_cache_mib=512",
    "algorithm.mask_truncated=false",  # nonsense seldom ends
)
PAID = ("reward.scheme=program", "interaction.criticism=none")
VERIFIERS = "verifiers==0.1.14"
DEBATE = {
    "debater": "openai:agent_0",
    "judge": "openai:agent_1",
    "quality_json": "{packages}/sophistry_bench/data/quality_dev.json",  # or it asks a hub
}


@dataclass(frozen=True)
class Program:
    """A program of configs/programs; a command if it needs packages."""

    config: str = "quickstart.yaml"
    packages: tuple[str, ...] = ()
    file: str = ""
    arguments: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    batch: int = 24
    """Discussions of a step."""


PROGRAMS = {
    "team": Program("programs/team.yaml"),
    "counting": Program("programs/counting_game.yaml"),
    "autogen": Program(
        packages=("autogen-agentchat==0.7.5", "autogen-ext[openai]==0.7.5"), file="autogen_chat.py"
    ),
    "langgraph": Program(
        packages=("langgraph==1.2.24", "langchain-openai==1.7.4"), file="langgraph_agents.py"
    ),
    "smolagents": Program(packages=("smolagents[openai]==1.26.0",), file="smolagents_code.py"),
    "taxi": Program(
        packages=(VERIFIERS, "gymnasium==1.2.2"),
        file="verifiers_env.py",
        arguments=("taxi",),
        settings=PAID,
    ),
    "debate": Program(
        packages=("verifiers==0.1.12", "sophistry-bench==0.1.18"),
        file="verifiers_env.py",
        arguments=("sophistry_bench", json.dumps(DEBATE)),
        settings=PAID,
        batch=4,  # of 31 requests with a whole article
    ),
}


@dataclass
class Arguments:
    requests: int = 500
    """Of each program, at least; those of judges come on top."""
    programs: str = ",".join(PROGRAMS)
    environments: str = "saves/programs"
    at_once: int = 4
    """Processes of programs that run at a time."""


@dataclass
class Row:
    """What is counted of a program, a column each."""

    requests: int = 0
    discussions: int = 0
    failed: int = 0
    rewritten: int = 0
    concurrent: int = 0
    too_long: int = 0
    continued: int = 0
    prompt_tokens: float = 0.0
    samples: int = 0
    differing: int = 0
    policy: float = 0.0
    seconds: float = 0.0


@dataclass
class Recorder:
    """Wraps ``generate``, and keeps what an engine is asked and answers."""

    generate: Generate
    answers: dict[TurnKey, Generation] = field(default_factory=dict)
    num_requests: int = 0
    """Those of the program, without the society's judges."""
    num_continued: int = 0
    """Those whose prompt begins with the ids of an earlier prompt and its answer."""

    async def __call__(self, request: Request) -> Generation | None:
        generation = await self.generate(request)
        if generation is not None:
            assert request.turn not in self.answers, f"{request.turn} is asked for twice"
            self.answers[request.turn] = generation
            self.num_requests += request.role not in ("evaluation", "scoring")
            follows = [] if request.chat is None else [*request.chat.follows]
            starts = [*generation.prompt_token_ids[: len(follows)]]
            self.num_continued += follows != [] and starts == follows
        return generation


def differing(
    answers: Mapping[TurnKey, Generation], samples: Sequence[TrainingSample]
) -> list[TurnKey]:
    """Return the turns of ``samples`` that nobody answered so, token by token."""

    def told(item: Generation | TrainingSample | None) -> object:
        return item and (
            [*item.prompt_token_ids],
            [*item.response_token_ids],
            [*item.rollout_logprobs],
        )

    keys = [(sample.discussion_id, sample.turn_id) for sample in samples]
    told_of = zip(keys, samples, strict=True)
    return [key for key, sample in told_of if told(answers.get(key)) != told(sample)]


def show(
    config: Config,
    agents: Agents,
    questions: Sequence[Question],
    *,
    num_requests: int,
    size: int,
    step: int,
) -> Row:
    """Hold discussions, ``size`` at a time, until the requests are answered, compare, and make
    update ``step``."""
    row, recorder, started = Row(), Recorder(agents.generate), time.perf_counter()
    buffers: list[list[TrainingSample]] = [[] for _ in range(config.society.num_agents)]
    while recorder.num_requests < num_requests:
        before, batch = recorder.num_requests, row.discussions // size
        held = run_discussions(
            draw_batch(questions, step=batch, batch_size=size, seed=0),
            generate=recorder,
            num_agents=config.society.num_agents,
            rules=config.interaction,
            seed=0,
            step=batch + 1,
        )
        outcomes = [each.outcome for each in held if isinstance(each, HeldDiscussion)]
        if recorder.num_requests == before:
            raise RuntimeError(f"no request was answered; {outcomes[0].error}")
        row.discussions += size
        row.failed += sum(outcome.error != "" for outcome in outcomes)
        row.rewritten += sum(outcome.num_rewritten for outcome in outcomes)
        row.concurrent += sum(outcome.num_concurrent for outcome in outcomes)
        row.too_long += sum(each.num_overlong_prompts for each in held)
        rewarded = REWARD_SCHEMES[config.reward.scheme](held, dict, seed=0, step=0).discussions
        new = collect_samples(
            rewarded, policy_of_agent=[*range(config.society.num_agents)], mask_truncated=False
        )
        paid = sum(reward is not None for each in rewarded for reward in each.rewards)
        row.differing += paid - sum(map(len, new))
        for buffer, samples in zip(buffers, new, strict=True):
            buffer += samples
            row.differing += len(differing(recorder.answers, samples))
    row.seconds = time.perf_counter() - started
    row.requests, row.continued = recorder.num_requests, recorder.num_continued
    row.prompt_tokens = fmean(len(each.prompt_token_ids) for each in recorder.answers.values())
    row.samples = sum(map(len, buffers))
    first = {policy: buffer[:UPDATED] for policy, buffer in enumerate(buffers) if buffer}
    stats = agents.begin_update(first, step=step)()
    row.policy = max((each.mismatch_max for each in stats.values()), default=0.0)
    agents.sync_weights(stats)
    return row


def _install(name: str, program: Program, folder: Path) -> Path:
    """Make the program's virtual environment, and return its Python."""
    environment = folder / name
    if program.packages and not environment.is_dir():
        with written_aside(environment) as aside:
            subprocess.run([sys.executable, "-m", "venv", aside], check=True)
            pip = [f"{aside}/bin/python", "-m", "pip", "install", "-qq"]
            subprocess.run([*pip, *program.packages], check=True)
    return environment / "bin/python"


def _configure(name: str, program: Program, arguments: Arguments) -> tuple[Config, Path | None]:
    """Return the program's configuration, and its own questions if it has some."""
    settings = [*LIMITS, "interaction.prompt_reuse=1", *program.settings]
    questions = None
    if program.packages:
        python = _install(name, program, Path(arguments.environments))
        packages = python.parents[1] / f"lib/python{sys.version_info[0]}.{sys.version_info[1]}"
        options = [
            each.replace("{packages}", f"{packages}/site-packages") for each in program.arguments
        ]
        command = [str(python), f"configs/programs/{program.file}", *options]
        rules = {"command": command, "timeout_s": 300, "concurrency": arguments.at_once}
        settings.append(f"interaction.program={json.dumps(rules)}")
        if program.file == "verifiers_env.py":
            questions = python.parents[1] / "questions.jsonl"
            said = subprocess.run([*command, "--questions"], check=True, stdout=subprocess.PIPE)
            questions.write_bytes(said.stdout)
    return load(Config, Path("configs") / program.config, settings), questions


def _stretched(models: Path, folder: Path) -> list[str]:
    """Copy the tiny agents with room for long prompts, and return their folders."""
    paths = []
    for name in ("qwen2", "llama", "qwen2"):
        path = folder / "models" / models.parent.name / name
        if not path.is_dir():
            with written_aside(path) as aside:
                copytree(models / name, aside, dirs_exist_ok=True)
                shape = json.loads((aside / "config.json").read_text())
                shape["max_position_embeddings"] = 32768
                (aside / "config.json").write_text(json.dumps(shape))
        paths.append(str(path.resolve()))
    return paths


def main(arguments: Arguments) -> int:
    """Show each program, print a table, and return 1 if a sample differs."""
    names, columns = arguments.programs.split(","), [each.name for each in fields(Row)]
    shown = {name: _configure(name, PROGRAMS[name], arguments) for name in names}
    society = build_society(Path("saves"), seed=0)
    models = _stretched(society / "models", Path(arguments.environments))
    settings = [*LIMITS, "society.num_agents=3", f"society.models=[{','.join(models)}]"]
    wrong = []
    say(" ".join([f"{'program':10}", *(f"{column:>13}" for column in columns)]))
    with agents_of(prepare(load_config(QUICKSTART_CONFIG, settings))) as agents:
        agents.sync_weights()
        for step, (name, (rules, own)) in enumerate(shown.items(), start=1):
            rules.society.num_agents = len(models)
            row = show(
                rules,
                agents,
                load_questions(own or society / "train.jsonl").questions,
                num_requests=arguments.requests,
                size=PROGRAMS[name].batch,
                step=step,
            )
            cells = (f"{getattr(row, column):13.4g}" for column in columns)
            say(" ".join([f"{name:10}", *cells]))
            wrong += [name] if row.differing or not row.samples else []
    say(f"samples differ, or there are none: {', '.join(wrong)}" if wrong else "all equal")
    return int(bool(wrong))


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    sys.exit(main(read_arguments(Arguments)))
