"""What a step waits for at the end of its rollout, and what would save how much of it: simulated.

The paper's run (configs/comas.yaml, Qwen2.5-3B on 8 GPUs): its schedule is the real one, in virtual
time; a token takes what comas/preflight/hours.py says, prompts too. Lengths of responses are
log-normal with the means of that arithmetic, cut off at rollout.max_response_tokens; of the
variance of their logarithm a part is the discussion's, as hard questions make all turns long.

Each way is a whole step, in seconds and against the same placement without it:

  colocated       the paper's placement: all GPUs sample, then all train
  early           there, the update of a policy begins when every discussion it speaks in has ended
  cap             there, interaction.max_chain_tokens of so many times the mean of a whole chain
  divided         half of the GPUs sample, the others train (cluster.placement=disaggregated)
  early log-probs there, ranks compute log-probs before the update for discussions that have ended
  staleness 1     there, the next rollout runs meanwhile (training.max_staleness)

The verifier needs no way of its own: it already works beside the update. Rewards take no time.
"""

from __future__ import annotations

import asyncio
import math
import random
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from comas.config.schema import Config
from comas.interaction import run_discussions
from comas.preflight.configuration import PAPER_CONFIG, load_config
from comas.preflight.hours import (
    Assumptions,
    chain_tokens,
    decode_step_seconds,
    one_step,
    prompt_tokens,
    response_tokens,
    rollout_seconds,
)
from comas.preflight.sizes import derive_sizes
from comas.run.prepared import Sizes
from comas.types import Generation, Question, TurnKey
from scripts.benchmarks._virtual import VirtualEngine, VirtualLoop
from scripts.benchmarks.estimate import NUM_QUESTIONS, QWEN_3B
from scripts.command import read_arguments, say

DIVIDED = (
    "cluster.placement=disaggregated",
    "policy.ranks_per_policy=1",
    "rollout.engines_per_policy=1",
)
LOGPROB_SHARE = 2 / 8
"""Of the operations of an update, those of the log-probs before it."""


@dataclass
class Arguments:
    sigmas: str = "0.4,0.8,1.2"
    """Spread of the logarithm of a response's length."""
    shared: str = "0,0.5"
    """The share of its variance that all turns of a discussion have in common."""
    caps: str = "1.5,1.2"
    steps: int = 3
    """Rollouts to take the mean over."""


@dataclass(frozen=True)
class Lengths:
    """Log-normal lengths of responses."""

    sigma: float
    shared: float
    given: Assumptions
    most: int

    def draw(self, turn: TurnKey, seed: int) -> int:
        """Tokens of a turn: the role decides the mean."""
        discussion_id, turn_id = turn
        means = {
            "s": self.given.solution_tokens,
            "e": self.given.evaluation_tokens,
            "t": self.given.scoring_tokens,
        }
        common = random.Random(discussion_id).gauss(0.0, math.sqrt(self.shared))
        own = random.Random(seed).gauss(0.0, math.sqrt(1 - self.shared))
        mean = means[turn_id.rpartition(".")[2][0]]
        factor = math.exp(self.sigma * (common + own) - self.sigma**2 / 2)
        return min(self.most, max(1, round(mean * factor)))


@dataclass(frozen=True)
class Rollout:
    """How a simulated rollout went, in seconds from its start."""

    seconds: float
    ended: Sequence[float]
    """When each discussion ended, first one first."""
    policies_ended: Sequence[float]
    """When the last discussion ended that a policy spoke in."""
    num_turns: int

    @property
    def tail(self) -> float:
        """Share of the time in which fewer than a tenth of the discussions still go on."""
        return 1 - self.ended[int(0.9 * len(self.ended))] / self.seconds


def main(arguments: Arguments) -> int:
    """Simulate, and print a table."""
    config = load_config(PAPER_CONFIG, [])
    divided = load_config(PAPER_CONFIG, DIVIDED)
    caps = [float(cap) for cap in arguments.caps.split(",")]
    heads = ["sigma", "shared", "slowest", "tail", "colocated", "early"]
    heads += [f"cap {cap:g}" for cap in caps]
    heads += ["turns lost", "divided", "early log-probs", "staleness 1"]
    say("  ".join(f"{head:>13}" for head in heads))
    for sigma in map(float, arguments.sigmas.split(",")):
        for shared in map(float, arguments.shared.split(",")):
            row = [f"{sigma:g}", f"{shared:g}"]
            row += _row(config, divided, sigma, shared, caps, arguments.steps)
            say("  ".join(f"{cell:>13}" for cell in row))
    return 0


def _row(
    config: Config,
    divided: Config,
    sigma: float,
    shared: float,
    caps: Sequence[float],
    num_steps: int,
) -> list[str]:
    given = Assumptions()
    lengths = Lengths(sigma, shared, given, config.rollout.max_response_tokens)
    sizes = derive_sizes(config, num_questions=NUM_QUESTIONS)
    every = [simulate(config, sizes, lengths, step) for step in range(num_steps)]
    rollout, rest = fmean(own.seconds for own in every), _others(config, sizes)
    step = rollout + rest
    # All policies share GPUs with their own engines alone.
    early = fmean(
        max(end + rest for end in own.policies_ended) - own.seconds - rest for own in every
    )
    cells = [
        f"{fmean(own.seconds / fmean(own.ended) for own in every):.2f} x",
        f"{fmean(own.tail for own in every):.0%}",
        f"{step:.0f} s",
        _against(step + early, step),
    ]
    lost = []
    for cap in caps:
        capped = [simulate(config, sizes, lengths, step, cap=cap) for step in range(num_steps)]
        share = sum(own.num_turns for own in capped) / sum(own.num_turns for own in every)
        lost.append(f"{1 - share:.1%}")
        # What is not said is not trained on.
        seconds = fmean(own.seconds for own in capped) + share * rest
        cells.append(_against(seconds, step))
    cells.append(", ".join(lost))
    apart = [simulate(divided, sizes, lengths, step) for step in range(num_steps)]
    rollout, rest = fmean(own.seconds for own in apart), _others(divided, sizes)
    whole = rollout + rest
    logprobs = LOGPROB_SHARE * rest
    ready = fmean(max(_left(own, logprobs), 0.0) for own in apart)
    return [
        *cells,
        f"{whole:.0f} s",
        _against(whole - (logprobs - ready), whole),
        _against(max(rollout, rest), whole),
    ]


def _left(rollout: Rollout, logprobs: float) -> float:
    """Of so many seconds of log-probs, those left when the last discussion ends: ranks take the
    discussions as they end, each an equal part."""
    part, free_at = logprobs / len(rollout.ended), 0.0
    for ended in rollout.ended:
        free_at = max(free_at, ended) + part
    return free_at - rollout.seconds


def _others(config: Config, sizes: Sizes) -> float:
    """Seconds of a step beside its rollout, in the middle of the assumptions."""
    given = Assumptions()
    parts = [one_step(config, sizes, QWEN_3B, case) for case in (given, given.worst)]
    return fmean(part.update + part.transfers + part.phases for part in parts)


def _against(seconds: float, base: float) -> str:
    return f"{seconds / base - 1:+.1%}"


def simulate(
    config: Config, sizes: Sizes, lengths: Lengths, step: int, *, cap: float | None = None
) -> Rollout:
    """One rollout of the schedule, with a ``cap`` in mean lengths of a discussion."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(_simulate(config, sizes, lengths, step, cap))


async def _simulate(
    config: Config, sizes: Sizes, lengths: Lengths, step: int, cap: float | None
) -> Rollout:
    given, loop = lengths.given, asyncio.get_running_loop()
    context = prompt_tokens(config, given) + response_tokens(given) / 2
    engines = [
        [
            VirtualEngine(lambda n: decode_step_seconds(n, context, QWEN_3B, given))
            for _ in range(config.rollout.engines_per_policy)
        ]
        for _ in range(config.num_policies)
    ]
    asked = [0] * config.num_policies
    ended: defaultdict[str, float] = defaultdict(float)
    spoke: defaultdict[int, set[str]] = defaultdict(set)
    mean_chain = chain_tokens(config, given) - given.scoring_tokens
    most = None if cap is None else round(cap * mean_chain)

    async def generate(
        agent_index: int, prompt: str, *, turn: TurnKey, seed: int
    ) -> Generation | None:
        own = engines[agent_index]
        asked[agent_index] += 1
        num_tokens = lengths.draw(turn, seed)
        await own[asked[agent_index] % len(own)].decode(num_tokens)
        ended[turn[0]] = loop.time()
        spoke[agent_index].add(turn[0])
        return Generation((), (0,) * num_tokens, "said", (), "stop", 0)

    questions = [
        Question(f"q{number}", "math", "What?") for number in range(config.rollout.batch_size)
    ]
    discussions = await run_discussions(
        questions,
        generate=generate,
        num_agents=config.society.num_agents,
        rules=replace(config.interaction, max_chain_tokens=most),
        seed=0,
        step=step,
    )
    # Prompts hold engines up by equal parts.
    decoding = loop.time()
    factor = 1 + _prompt_seconds(config, sizes, given) / decoding
    return Rollout(
        decoding * factor,
        sorted(end * factor for end in ended.values()),
        [factor * max(ended[own] for own in spoke[agent]) for agent in spoke],
        sum(len(own.turns) for own in discussions),
    )


def _prompt_seconds(config: Config, sizes: Sizes, given: Assumptions) -> float:
    """What prompts take of a rollout, by the same arithmetic."""
    no_prompts = replace(given, prefix_hits=1.0)
    cases = (given, no_prompts)
    with_prompts, without = (rollout_seconds(config, sizes, QWEN_3B, case) for case in cases)
    return with_prompts - without


if __name__ == "__main__":
    sys.exit(main(read_arguments(Arguments, about=__doc__ or "")))
