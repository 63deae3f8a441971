"""The schedules: who speaks, what they see, and that nothing waits without need."""

import asyncio
from collections import Counter
from itertools import product
from random import Random

import builders
import pytest
from builders import speak

from comas.config.schema import Interaction
from comas.interaction.schedules import SCHEDULES, deal, draw_speakers
from comas.types import Discussion, Generate, Generation, Question, Request

QUESTIONS = [Question(f"q{i}", "math", f"What is {i} + {i}?") for i in range(4)]
ALL_SCHEDULES = pytest.mark.parametrize("schedule", sorted(SCHEDULES))


def discuss(generate: Generate = speak, **rules: object) -> list[Discussion]:
    return builders.discuss(QUESTIONS, generate, **{"num_rounds": 3, "prompt_reuse": 2} | rules)


def reading(limit: int) -> Generate:
    """Agents whose prompts may have so many characters."""

    async def generate(request: Request) -> Generation | None:
        return None if len(request.prompt) > limit else await speak(request)

    return generate


def roles(discussion: Discussion) -> Counter[str]:
    return Counter(turn.role for turn in discussion.turns)


def texts(discussion: Discussion) -> dict[str, str]:
    return {turn.turn_id: turn.text for turn in discussion.turns}


def prompts(discussion: Discussion) -> dict[str, str]:
    return {turn.turn_id: turn.prompt for turn in discussion.turns}


def test_parallel_deals_evaluations_and_scorings_evenly_in_each_round():
    discussions = discuss(schedule="parallel", num_rounds=3, num_evaluations=2)
    turns = [t for d in discussions for t in d.turns]
    for role, round_index in product(("evaluation", "scoring"), range(3)):
        parts = Counter(
            t.agent_index for t in turns if (t.role, t.round_index) == (role, round_index)
        )
        # 8 discussions x 4 solvers x 2 evaluations = 64 parts of a round for 4 agents.
        assert parts == {agent: 16 for agent in range(4)}
    counts = Counter(deal(Random(0), num_agents=3, num_parts=8))
    assert sorted(counts.values()) == [2, 3, 3]


def test_each_role_may_have_an_agent_of_its_own():
    schedule = "comas.ideas.role_policies:one_for_each_role"
    for discussion in discuss(schedule=schedule, num_evaluations=2):
        speakers = {(turn.role, turn.agent_index) for turn in discussion.turns}
        assert speakers == {("solution", 0), ("evaluation", 1), ("scoring", 2)}
        assert roles(discussion) == {"solution": 3, "evaluation": 6, "scoring": 6}


def test_sequential_draws_every_agent_about_equally_often_for_every_role():
    speakers = draw_speakers(Random(1), num_agents=4, rules=Interaction(num_rounds=4000))
    critics = [critic for _, critics_of_round in speakers for critic in critics_of_round]
    solvers = Counter(solver for solver, _ in speakers)
    # Binomial(4000, 1/4): mean 1000, standard deviation 27; 5 of them is 137.
    for drawn in (solvers, *map(Counter, zip(*critics, strict=True))):
        assert drawn.keys() == set(range(4))
        assert all(abs(count - 1000) < 137 for count in drawn.values())


@ALL_SCHEDULES
def test_the_order_of_completion_changes_nothing(schedule):
    async def slow(request: Request) -> Generation:
        await asyncio.sleep(hash(request.prompt) % 7 / 1000)
        return await speak(request)

    assert discuss(slow, schedule=schedule) == discuss(schedule=schedule)


@pytest.mark.parametrize(("horizon", "shown"), [(2, [False, True, True]), (7, [True] * 3)])
def test_sequential_shows_the_last_kappa_rounds_to_solver_and_evaluator(horizon, shown):
    discussion = discuss(num_rounds=4, horizon=horizon)[0]
    said, asked = texts(discussion), prompts(discussion)
    for prompt in (asked["r3.s0"], asked["r3.s0.e0"]):
        assert [said[f"r{i}.s0"] in prompt for i in range(3)] == shown
        assert [said[f"r{i}.s0.e0"] in prompt for i in range(3)] == shown
    assert "(empty)" in asked["r0.s0"]


def test_parallel_shows_kappa_pairs_of_the_round_before_to_solvers_and_nothing_to_evaluators():
    discussion = discuss(schedule="parallel", num_rounds=2, horizon=2)[0]
    said, asked = texts(discussion), prompts(discussion)
    [prompt] = {asked[f"r1.s{i}"] for i in range(4)}
    pairs = [(said[f"r0.s{i}"], said[f"r0.s{i}.e0"]) for i in range(4)]
    assert sum(solution in prompt and critique in prompt for solution, critique in pairs) == 2
    assert "(empty)" in asked["r1.s0.e0"]


@ALL_SCHEDULES
def test_a_scoring_never_enters_a_later_prompt(schedule):
    for discussion in discuss(schedule=schedule):
        scorings = [t.text for t in discussion.turns if t.role == "scoring"]
        assert not any(text in t.prompt for t in discussion.turns for text in scorings)


def test_no_role_waits_for_the_slowest_discussion():
    """With q0's first solution held back, every other discussion still ends."""
    release = asyncio.Event()
    finished: list[str] = []

    async def hold_back(request: Request) -> Generation:
        if "What is 0 + 0?" in request.prompt:
            await release.wait()
        if request.turn[1] == "r2.s0.e0.t0":  # the last of its discussion
            finished.append("held" if release.is_set() else "free")
            if len(finished) == 3:
                release.set()
        return await speak(request)

    discuss(hold_back, num_agents=2, prompt_reuse=1)
    assert finished.count("free") >= 2
    assert len(finished) == 4


def test_an_overlong_prompt_loses_its_oldest_history_first():
    settings = {"num_rounds": 3, "horizon": 2, "prompt_reuse": 1}
    full = discuss(**settings)[0]
    limit = len(prompts(full)["r2.s0.e0"]) - 1
    discussion = discuss(reading(limit), **settings)[0]
    assert discussion.num_overlong_prompts == 1
    assert roles(discussion) == roles(full)
    last = prompts(discussion)["r2.s0.e0"]
    said = texts(discussion)
    assert said["r0.s0"] not in last and said["r1.s0"] in last


def test_a_skipped_prompt_leaves_out_what_would_build_on_it():
    settings = {"num_rounds": 1, "prompt_reuse": 1}  # without a history that could be left out
    limit = len(prompts(discuss(**settings)[0])["r0.s0.e0"]) - 1
    discussion = discuss(reading(limit), **settings)[0]
    assert [*texts(discussion)] == ["r0.s0"]
    assert discussion.num_overlong_prompts == 1
