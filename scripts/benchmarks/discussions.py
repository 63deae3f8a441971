"""Barrier-free discussions against phase-by-phase ones, on one engine, in one run.

The sequential schedule runs once for real on a tiny random model whose responses have
heavy-tailed lengths (log-normal). Then exactly the same requests are timed three ways:

  barrier-free    as ``run_discussions`` sends them: each as soon as what it needs is there
  phase-by-phase  all solutions of a round, then all evaluations, then all scorings
  raw engine      all at once, as if every prompt had been known beforehand

Beside the engine's steps stand those that it would take if nothing between a response and the
next request took any time: what is more is lost by us, what is not lies in who waits for whom.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import random
import sys
import tempfile
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from comas.config.schema import Interaction, Rollout
from comas.engines.rollout.vllm_options import engine_arguments, engine_environment
from comas.interaction import run_discussions
from comas.types import ROLES, Discussion, Generation, Question, TurnKey
from scripts.benchmarks import read_arguments

if TYPE_CHECKING:
    from vllm import RequestOutput, SamplingParams
    from vllm.inputs import TokensInput
    from vllm.v1.engine.llm_engine import LLMEngine

MEDIAN_TOKENS = 48
SIGMA = 1.0
MAX_TOKENS = 1024
PROMPT_TOKENS = 64
VOCABULARY = 512


@dataclass(frozen=True)
class Request:
    """One turn of a discussion, as it is asked again: same prompt, same length."""

    phase: tuple[int, int]
    """(round, role): what phase-by-phase waits for."""
    seed: int


def undelayed_steps(chains: Sequence[Sequence[int]], *, capacity: int) -> int:
    """Steps of an engine that answers ``capacity`` requests at once, first come, first served.

    ``chains`` holds the lengths of requests in tokens; each comes when the one before it in its
    chain is answered, at once. Example: ``undelayed_steps([[2, 1], [4]], capacity=2)`` is 4.
    """
    waiting = deque(iter(chain) for chain in chains)
    running: list[tuple[int, Iterator[int]]] = []
    num_steps = 0
    while True:
        while waiting and len(running) < capacity:
            chain = waiting.popleft()
            if (length := next(chain, None)) is not None:
                running.append((length, chain))
        if not running:
            return num_steps
        num_steps += 1
        waiting += [chain for left, chain in running if left == 1]
        running = [(left - 1, chain) for left, chain in running if left > 1]


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


@dataclass(frozen=True)
class Measurement:
    """One way to send all requests, once."""

    seconds: float
    num_engine_steps: int


def response_length(seed: int) -> int:
    """Tokens of the response with this seed: log-normal, cut off at ``MAX_TOKENS``."""
    drawn = random.Random(seed).lognormvariate(0.0, SIGMA) * MEDIAN_TOKENS
    return min(MAX_TOKENS, max(4, round(drawn)))


@dataclass
class Arguments:
    discussions: int = 64
    rounds: int = 2
    capacity: int = 32
    """Sequences decoded at once."""
    repeats: int = 3


def main(arguments: Arguments) -> None:
    """Measure, and print the ratios."""
    sys.stdout.write(asyncio.run(_benchmark(arguments)) + "\n")


async def _benchmark(arguments: Arguments) -> str:
    counter = itertools.count()
    with tempfile.TemporaryDirectory() as folder:
        _save_model(Path(folder))
        engine = Requests(partial(_load, folder, arguments.capacity, counter))
        await engine.thread.start()
        gc.freeze()  # as engines and driver of a run do
        discussions = await _discuss(engine, arguments)  # also warms the engine up
        requests = list(_requests(discussions))
        ways: dict[str, Callable[[], Awaitable[object]]] = {
            "barrier-free": lambda: _discuss(engine, arguments),
            "phase-by-phase": lambda: _phase_by_phase(engine, requests),
            "raw engine": lambda: asyncio.gather(*(_ask(engine, r.seed) for r in requests)),
        }
        results: dict[str, list[Measurement]] = {name: [] for name in ways}
        for _ in range(arguments.repeats):
            for name, way in ways.items():
                results[name].append(await _measure(engine, way, counter))
        await engine.thread.close()
    chains = [[response_length(r.seed) for r in _requests([d])] for d in discussions]
    singles = [[length] for chain in chains for length in chain]
    undelayed = {
        "barrier-free": undelayed_steps(chains, capacity=arguments.capacity),
        "raw engine": undelayed_steps(singles, capacity=arguments.capacity),
    }
    return _report(arguments, requests, results, undelayed=undelayed)


async def _discuss(engine: Requests, arguments: Arguments) -> list[Discussion]:
    async def generate(agent_index: int, prompt: str, *, turn: TurnKey, seed: int) -> Generation:
        await _ask(engine, seed)
        return Generation((0,), (0,), str(seed), (0.0,), "stop", 0)

    return await run_discussions(
        [Question(f"q{i}", "math", f"Question {i}") for i in range(arguments.discussions)],
        generate=generate,
        num_agents=4,
        rules=Interaction(schedule="sequential", num_rounds=arguments.rounds, prompt_reuse=1),
        seed=0,
        step=0,
    )


async def _phase_by_phase(engine: Requests, requests: Sequence[Request]) -> None:
    for phase in sorted({request.phase for request in requests}):
        await asyncio.gather(*(_ask(engine, r.seed) for r in requests if r.phase == phase))


async def _ask(engine: Requests, seed: int) -> None:
    """One response of the length that belongs to ``seed``, to a prompt that belongs to it."""
    from vllm import SamplingParams
    from vllm.inputs import tokens_input
    from vllm.sampling_params import RequestOutputKind

    num_tokens = response_length(seed)
    draw = random.Random(seed)
    prompt = [draw.randrange(VOCABULARY) for _ in range(PROMPT_TOKENS)]
    await engine.answer(
        tokens_input(prompt),
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


def _requests(discussions: Sequence[Discussion]) -> Iterator[Request]:
    for discussion in discussions:
        for turn in discussion.turns:
            phase = (turn.round_index, ROLES.index(turn.role))
            yield Request(phase, seed=int(turn.generation.response_text))


async def _measure(
    engine: Requests, way: Callable[[], Awaitable[object]], counter: Iterator[int]
) -> Measurement:
    await engine.thread.call(lambda inner: inner.reset_prefix_cache())
    first = next(counter)
    started = time.perf_counter()
    await way()
    return Measurement(time.perf_counter() - started, next(counter) - first - 1)


def _report(
    arguments: Arguments,
    requests: Sequence[Request],
    results: dict[str, list[Measurement]],
    *,
    undelayed: Mapping[str, int],
) -> str:
    num_tokens = sum(response_length(request.seed) for request in requests)
    lines = [
        f"{arguments.discussions} discussions x {arguments.rounds} rounds (sequential schedule), "
        f"{len(requests)} responses, {num_tokens} tokens (log-normal: median {MEDIAN_TOKENS}, "
        f"sigma {SIGMA:g}, at most {MAX_TOKENS}), {arguments.capacity} sequences decoded at once; "
        f"median of {arguments.repeats}",
        f"{'':16} {'seconds':>8} {'tokens/s':>9} {'engine steps':>13} {'with no delay':>14}",
    ]
    seconds, steps = {}, {}
    for name, measured in results.items():
        seconds[name] = median(m.seconds for m in measured)
        steps[name] = median(m.num_engine_steps for m in measured)
        lines.append(
            f"{name:16} {seconds[name]:8.2f} {num_tokens / seconds[name]:9.0f} {steps[name]:13.0f} "
            f"{undelayed.get(name, ''):>14}"
        )
    ratios = [
        p.seconds / f.seconds
        for p, f in zip(results["phase-by-phase"], results["barrier-free"], strict=True)
    ]
    lines += [
        f"barrier-free against phase-by-phase: {median(ratios):.2f} x in wall time "
        f"({min(ratios):.2f} to {max(ratios):.2f}), "
        f"{steps['phase-by-phase'] / steps['barrier-free']:.2f} x in sequential engine steps",
        f"share of the raw engine's throughput: "
        f"{100 * seconds['raw engine'] / seconds['barrier-free']:.0f} %",
    ]
    return "\n".join(lines)


def _load(folder: str, capacity: int, counter: Iterator[int]) -> LLMEngine:
    """A vLLM engine whose steps are counted."""
    from vllm import EngineArgs
    from vllm.v1.engine.llm_engine import LLMEngine

    from comas.engines.rollout.cpu.matmul import use_few_heights

    use_few_heights()
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
    """A random Qwen2-style model of about 1 M parameters."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=352,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=PROMPT_TOKENS + MAX_TOKENS,
        tie_word_embeddings=True,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)


if __name__ == "__main__":
    arguments = read_arguments(Arguments, about=__doc__)
    # The engine's environment must be there before its libraries are loaded.
    environment = engine_environment("cpu")
    if any(os.environ.get(name) != value for name, value in environment.items()):
        os.environ.update(environment)
        os.execv(sys.executable, sys.orig_argv)
    main(arguments)
