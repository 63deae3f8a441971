"""Barrier-free discussions against phase-by-phase ones, on one engine, in one run.

The sequential schedule runs once for real on a tiny random model whose responses have
heavy-tailed lengths (log-normal). Then exactly the same requests are timed three ways:

  barrier-free    as ``run_discussions`` sends them: each as soon as what it needs is there
  phase-by-phase  all solutions of a round, then all evaluations, then all scorings
  all at once     as if every prompt had been known beforehand: the raw engine
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from comas.config.schema import Interaction, Rollout
from comas.engines.rollout.vllm_options import engine_arguments, engine_environment
from comas.interaction import run_discussions
from comas.types import Generation, Question, TurnKey
from scripts.benchmarks._barriers import rehearse
from scripts.benchmarks._turns import Numbers, Ratio, Repeated, Report, Way, timed
from scripts.command import read_arguments
from scripts.random_models import qwen2_config, save_random_model

if TYPE_CHECKING:
    from vllm import RequestOutput, SamplingParams
    from vllm.inputs import TokensInput
    from vllm.v1.engine.llm_engine import LLMEngine

MEDIAN_TOKENS = 48
SIGMA = 1.0
MAX_TOKENS = 1024
PROMPT_TOKENS = 64
VOCABULARY = 512


class Requests:
    """An engine in a thread, asked for one response at a time."""

    def __init__(self, build: Callable[[], LLMEngine]) -> None:
        from comas.engines.rollout.engine_thread import EngineThread

        self._names = map(str, itertools.count())
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self.thread = EngineThread(
            build, name="The engine", on_finished=self._finish, on_failure=self._fail
        )

    async def answer(self, prompt: TokensInput, params: SamplingParams) -> None:
        name = next(self._names)
        self._waiting[name] = asyncio.get_running_loop().create_future()
        self.thread.add({name: (prompt, params)})
        await self._waiting[name]

    def _finish(self, outputs: Sequence[RequestOutput]) -> None:
        for output in outputs:
            self._waiting.pop(output.request_id).set_result(None)

    def _fail(self, error: Exception) -> None:
        for waiting in self._waiting.values():
            waiting.set_exception(error)


def response_length(seed: int) -> int:
    """Tokens of the response with this seed: log-normal, cut off at ``MAX_TOKENS``."""
    drawn = random.Random(seed).lognormvariate(0.0, SIGMA) * MEDIAN_TOKENS
    return min(MAX_TOKENS, max(4, round(drawn)))


@dataclass
class Arguments(Repeated):
    discussions: int = 64
    rounds: int = 2
    capacity: int = 32
    """Sequences decoded at once."""
    repeats: int = 3


def main(arguments: Arguments) -> None:
    """Measure, and print the ratios."""
    report, counter = Report(arguments), itertools.count()
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner() as loop:
        _save_model(Path(folder))
        engine = Requests(partial(_load, folder, arguments.capacity, counter))
        loop.run(engine.thread.start())
        gc.freeze()  # as engines and driver of a run do
        hold = partial(
            run_discussions,
            [Question(f"q{i}", "math", f"Question {i}") for i in range(arguments.discussions)],
            num_agents=4,
            rules=Interaction(schedule="sequential", num_rounds=arguments.rounds, prompt_reuse=1),
            seed=0,
            step=0,
        )
        lengths, ways = loop.run(rehearse(hold, partial(_generate, engine)))
        num_tokens = sum(lengths)

        def measured(way: Way) -> Numbers:
            loop.run(engine.thread.call(lambda inner: inner.reset_prefix_cache()))
            first = next(counter)
            seconds = timed(lambda: loop.run(way()))["seconds"]
            num_steps = next(counter) - first - 1
            return {"seconds": seconds, "tokens/s": num_tokens / seconds, "steps": num_steps}

        report.compare(
            f"{arguments.discussions} discussions x {arguments.rounds} rounds (sequential), "
            f"{len(lengths)} responses, {num_tokens} tokens (log-normal: median "
            f"{MEDIAN_TOKENS}, sigma {SIGMA:g}, at most {MAX_TOKENS}), {arguments.capacity} "
            "sequences decoded at once",
            ways,
            ratios=[
                Ratio("phase-by-phase", "barrier-free"),
                Ratio("phase-by-phase", "barrier-free", "steps"),
                Ratio("barrier-free", "all at once", "tokens/s"),
            ],
            num_warm_ups=0,
            measure=measured,
        )
        loop.run(engine.thread.close())
    report.end()


async def _generate(
    engine: Requests, agent_index: int, prompt: str, *, turn: TurnKey, seed: int
) -> Generation:
    """One response of the length that belongs to ``seed``, to a prompt that belongs to it."""
    from vllm import SamplingParams
    from vllm.inputs import tokens_input
    from vllm.sampling_params import RequestOutputKind

    num_tokens = response_length(seed)
    draw = random.Random(seed)
    await engine.answer(
        tokens_input([draw.randrange(VOCABULARY) for _ in range(PROMPT_TOKENS)]),
        SamplingParams(
            seed=seed,
            max_tokens=num_tokens,
            min_tokens=num_tokens,
            ignore_eos=True,
            detokenize=False,
            logprobs=0,
            flat_logprobs=True,
            output_kind=RequestOutputKind.FINAL_ONLY,
        ),
    )
    return Generation((0,), (0,) * num_tokens, "", (0.0,) * num_tokens, "stop", 0)


def _load(folder: str, capacity: int, counter: Iterator[int]) -> LLMEngine:
    """A vLLM engine whose steps are counted."""
    from vllm import EngineArgs
    from vllm.v1.engine.llm_engine import LLMEngine

    rollout = Rollout(
        dtype="float32",
        max_prompt_tokens=PROMPT_TOKENS,
        max_response_tokens=MAX_TOKENS,
        max_num_seqs=capacity,
        cpu_kv_cache_mib=512,
    )
    arguments = engine_arguments(
        folder, rollout=rollout, device="cpu", weight_transfer="shared_memory", seed=0
    )
    arguments |= {"skip_tokenizer_init": True, "weight_transfer_config": None}
    engine = LLMEngine.from_engine_args(EngineArgs(**arguments))
    step = engine.step

    def counted_step() -> object:
        next(counter)
        return step()

    engine.step = counted_step
    return engine


def _save_model(folder: Path) -> None:
    """A random model of about 1 M parameters."""
    config = qwen2_config(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=352,
        num_layers=4,
        num_heads=4,
        num_kv_heads=2,
        max_tokens=PROMPT_TOKENS + MAX_TOKENS,
    )
    save_random_model(folder, config, has_tokenizer=False)


if __name__ == "__main__":
    arguments = read_arguments(Arguments, about=__doc__)
    # The engine's environment must be there before its libraries are loaded.
    environment = engine_environment("cpu")
    if any(os.environ.get(name) != value for name, value in environment.items()):
        os.environ.update(environment)
        os.execv(sys.executable, sys.orig_argv)
    main(arguments)
