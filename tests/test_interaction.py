"""The two schedules: who speaks, what they see, and that nothing waits without need."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from itertools import product

import pytest

from comas.config.schema import Interaction
from comas.interaction import SCHEDULES, run_discussions
from comas.interaction.discussion import OpenDiscussion, Opening
from comas.interaction.parallel import deal
from comas.interaction.prompts import EVALUATION, SCORING, SOLUTION
from comas.interaction.sequential import draw_speakers
from comas.types import Discussion, Generation, Question, Turn, TurnKey

QUESTIONS = [Question(f"q{i}", "math", f"What is {i} + {i}?") for i in range(4)]


class ScriptedAgents:
    """Answers every prompt with a text that names the call; records when calls began."""

    def __init__(
        self, *, delay: Callable[[int, str], float] = lambda agent, prompt: 0.0, limit: int = 10**9
    ) -> None:
        self.delay = delay
        self.limit = limit
        self.calls: list[tuple[int, str, int]] = []
        self.overlong: list[str] = []

    async def __call__(
        self, agent_index: int, prompt: str, *, turn: TurnKey, seed: int
    ) -> Generation | None:
        if len(prompt) > self.limit:
            self.overlong.append(prompt)
            return None
        self.calls.append((agent_index, prompt, seed))
        await asyncio.sleep(self.delay(agent_index, prompt))
        text = f"agent {agent_index} says {seed} " + "at length " * 30
        return Generation((1,), (2,), text, (-0.5,), "stop", policy_version=0)


def discuss(agents: ScriptedAgents, *, num_agents: int = 4, seed: int = 0, **rules: object):
    settings = {"schedule": "sequential", "num_rounds": 3, "prompt_reuse": 2, **rules}
    return asyncio.run(
        run_discussions(
            QUESTIONS,
            generate=agents,
            num_agents=num_agents,
            rules=Interaction(**settings),  # type: ignore[arg-type]
            seed=seed,
            step=5,
        )
    )


def roles(discussion: Discussion) -> Counter[str]:
    return Counter(turn.role for turn in discussion.turns)


def turn(discussion: Discussion, turn_id: str) -> Turn:
    return next(t for t in discussion.turns if t.turn_id == turn_id)


@pytest.mark.parametrize(("num_rounds", "num_evaluations"), [(1, 1), (8, 1), (3, 2)])
def test_sequential_has_m_solutions_and_mn_evaluations_and_scorings(num_rounds, num_evaluations):
    discussions = discuss(ScriptedAgents(), num_rounds=num_rounds, num_evaluations=num_evaluations)
    assert len(discussions) == len(QUESTIONS) * 2
    for discussion in discussions:
        assert roles(discussion) == {
            "solution": num_rounds,
            "evaluation": num_rounds * num_evaluations,
            "scoring": num_rounds * num_evaluations,
        }


@pytest.mark.parametrize(("num_agents", "num_rounds"), [(1, 2), (4, 2), (3, 3)])
def test_parallel_has_one_solution_of_every_agent_a_round(num_agents, num_rounds):
    discussions = discuss(
        ScriptedAgents(), num_agents=num_agents, schedule="parallel", num_rounds=num_rounds
    )
    for discussion in discussions:
        solvers = Counter(t.agent_index for t in discussion.turns if t.role == "solution")
        assert solvers == {agent: num_rounds for agent in range(num_agents)}


def test_parallel_deals_every_agent_as_many_evaluations_and_scorings_in_each_round():
    discussions = discuss(ScriptedAgents(), schedule="parallel", num_rounds=3, num_evaluations=2)
    turns = [t for d in discussions for t in d.turns]
    for role, round_index in product(("evaluation", "scoring"), range(3)):
        parts = Counter(
            t.agent_index for t in turns if (t.role, t.round_index) == (role, round_index)
        )
        # 8 discussions x 4 solvers x 2 evaluations = 64 parts of a round for 4 agents.
        assert parts == {agent: 16 for agent in range(4)}


def test_a_deal_that_does_not_divide_differs_by_at_most_one():
    import random

    counts = Counter(deal(random.Random(0), num_agents=3, num_parts=8))
    assert sorted(counts.values()) == [2, 3, 3]


def test_sequential_draws_every_agent_about_equally_often():
    import random

    speakers = draw_speakers(random.Random(1), num_agents=4, num_rounds=4000, num_evaluations=1)
    solvers = Counter(s.solver for s in speakers)
    # Binomial(4000, 1/4): mean 1000, standard deviation 27; 5 of them is 137.
    assert all(abs(count - 1000) < 137 for count in solvers.values())


@pytest.mark.parametrize("schedule", sorted(SCHEDULES))
def test_the_order_of_completion_changes_nothing(schedule):
    fast = discuss(ScriptedAgents(), schedule=schedule)
    shuffled = discuss(
        ScriptedAgents(delay=lambda agent, prompt: (hash((agent, prompt)) % 7) / 1000),
        schedule=schedule,
    )
    assert fast == shuffled


@pytest.mark.parametrize("schedule", sorted(SCHEDULES))
def test_another_seed_draws_other_speakers_and_sampling_seeds(schedule):
    first, second = (discuss(ScriptedAgents(), schedule=schedule, seed=seed) for seed in (0, 1))
    assert first != second


@pytest.mark.parametrize("schedule", sorted(SCHEDULES))
def test_every_turn_has_its_own_sampling_seed(schedule):
    agents = ScriptedAgents()
    discuss(agents, schedule=schedule)
    seeds = [seed for _, _, seed in agents.calls]
    assert len(set(seeds)) == len(seeds)


def test_sequential_shows_the_last_kappa_rounds_to_solver_and_evaluator():
    discussion = discuss(ScriptedAgents(), num_rounds=4, horizon=2)[0]
    texts = [turn(discussion, f"r{i}.s0").generation.response_text for i in range(4)]
    critiques = [turn(discussion, f"r{i}.s0.e0").generation.response_text for i in range(4)]
    for turn_id in ("r3.s0", "r3.s0.e0"):
        prompt = turn(discussion, turn_id).prompt
        assert [text in prompt for text in texts[:3]] == [False, True, True]
        assert [text in prompt for text in critiques[:3]] == [False, True, True]
    assert "(empty)" in turn(discussion, "r0.s0").prompt


def test_a_horizon_beyond_the_rounds_shows_all_of_them():
    discussion = discuss(ScriptedAgents(), num_rounds=4, horizon=7)[0]
    prompt = turn(discussion, "r3.s0").prompt
    assert all(turn(discussion, f"r{i}.s0").generation.response_text in prompt for i in range(3))


def test_parallel_shows_kappa_pairs_of_the_round_before_to_solvers_and_nothing_to_evaluators():
    discussion = discuss(ScriptedAgents(), schedule="parallel", num_rounds=2, horizon=2)[0]
    pairs = [
        (
            turn(discussion, f"r0.s{i}").generation.response_text,
            turn(discussion, f"r0.s{i}.e0").generation.response_text,
        )
        for i in range(4)
    ]
    prompts = {turn(discussion, f"r1.s{i}").prompt for i in range(4)}
    assert len(prompts) == 1
    prompt = prompts.pop()
    assert sum(solution in prompt and critique in prompt for solution, critique in pairs) == 2
    assert "(empty)" in turn(discussion, "r1.s0.e0").prompt


@pytest.mark.parametrize("schedule", sorted(SCHEDULES))
def test_a_scoring_never_enters_a_later_prompt(schedule):
    for discussion in discuss(ScriptedAgents(), schedule=schedule, num_rounds=3):
        scorings = [t.generation.response_text for t in discussion.turns if t.role == "scoring"]
        assert not any(text in t.prompt for t in discussion.turns for text in scorings)


def test_a_turn_hangs_from_its_parent():
    discussion = discuss(ScriptedAgents(), num_rounds=1)[0]
    assert [(t.turn_id, t.parent_turn_id) for t in discussion.turns] == [
        ("r0.s0", None),
        ("r0.s0.e0", "r0.s0"),
        ("r0.s0.e0.t0", "r0.s0.e0"),
    ]


def test_no_role_waits_for_the_slowest_discussion():
    """With q0's first solution held back, every other discussion still ends."""
    release = asyncio.Event()
    finished: list[str] = []

    class HeldBack(ScriptedAgents):
        async def __call__(self, agent_index, prompt, *, turn, seed):
            if "What is 0 + 0?" in prompt:
                await release.wait()
            generation = await super().__call__(agent_index, prompt, turn=turn, seed=seed)
            if turn[1] == "r2.s0.e0.t0":  # the last of its discussion
                finished.append("held" if release.is_set() else "free")
                if len(finished) == 3:
                    release.set()
            return generation

    async def run() -> None:
        await asyncio.wait_for(
            run_discussions(
                QUESTIONS,
                generate=HeldBack(),
                num_agents=2,
                rules=Interaction(prompt_reuse=1, num_rounds=3),
                seed=0,
                step=0,
            ),
            timeout=20,
        )

    asyncio.run(run())
    assert finished.count("free") >= 2
    assert len(finished) == 4


def test_an_overlong_prompt_loses_its_oldest_history_first():
    full = discuss(ScriptedAgents(), num_rounds=3, horizon=2, prompt_reuse=1)[0]
    agents = ScriptedAgents(limit=len(turn(full, "r2.s0.e0").prompt) - 1)
    discussion = discuss(agents, num_rounds=3, horizon=2, prompt_reuse=1)[0]
    assert len(agents.overlong) == discussion.num_overlong_prompts == 1
    assert roles(discussion) == roles(full)
    last = turn(discussion, "r2.s0.e0").prompt
    assert turn(discussion, "r0.s0").generation.response_text not in last
    assert turn(discussion, "r1.s0").generation.response_text in last


def test_a_skipped_prompt_leaves_out_what_would_build_on_it():
    full = discuss(ScriptedAgents(), num_rounds=2, prompt_reuse=1)[0]
    agents = ScriptedAgents(limit=len(turn(full, "r1.s0.e0").prompt) - 1)
    discussion = discuss(agents, num_rounds=2, prompt_reuse=1, overlong_prompts="skip")[0]
    expected = ["r0.s0", "r0.s0.e0", "r0.s0.e0.t0", "r1.s0"]
    assert [t.turn_id for t in discussion.turns] == expected
    assert discussion.num_overlong_prompts == 1


def test_an_error_of_an_engine_ends_the_batch():
    class Broken(ScriptedAgents):
        async def __call__(self, agent_index, prompt, *, turn, seed):
            raise ConnectionError("engine 1 died")

    with pytest.raises(ConnectionError, match="engine 1 died"):
        discuss(Broken())


def test_a_turn_quotes_the_nearest_of_each_role_above_it():
    async def discuss_evaluations() -> list[str]:
        opening = Opening("d", QUESTIONS[0], "seed")
        talk = OpenDiscussion(opening, generate=ScriptedAgents(), rules=Interaction())
        turn = await talk.ask("solution", 0, SOLUTION)
        for agent in range(1, 4):  # an evaluation of an evaluation of an evaluation
            turn = await talk.ask(
                "evaluation", agent, SCORING if agent > 1 else EVALUATION, parent=turn
            )
        return [turn.prompt.rpartition("# Evaluation\n")[2] for turn in talk.close().turns]

    *_, quoted_by_second, quoted_by_third = asyncio.run(discuss_evaluations())
    assert quoted_by_second.startswith("agent 1 says")
    assert quoted_by_third.startswith("agent 2 says")
