"""Discussions: who speaks, what they see, and what happens to a solution once it is given."""

import asyncio
from collections import Counter
from itertools import product
from random import Random

import builders
import pytest
from builders import paid, speak
from tables import cases

from comas.config.schema import Interaction
from comas.interaction.prompts import APPROVALS, EVALUATION_WITH_JUDGMENT, SCORING_ALONE, fill
from comas.interaction.schedules import SCHEDULES, UNCRITICISED_SCHEDULES, deal, draw_speakers
from comas.policy_optimization.samples import collect_samples
from comas.reward_formulation import REWARD_SCHEMES
from comas.run.metrics.step import rollout_metrics
from comas.run.records import discussion_record
from comas.types import Discussion, Generate, Generation, Question, Request, Turn

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


def by_id(discussion: Discussion) -> dict[str, Turn]:
    return {turn.turn_id: turn for turn in discussion.turns}


def test_parallel_deals_evaluations_and_scorings_evenly_in_each_round():
    discussions = discuss(schedule="parallel", num_rounds=3, num_evaluations=2)
    turns = [t for d in discussions for t in d.turns]
    for role, round_index in product(("evaluation", "scoring"), range(3)):
        chosen = [t for t in turns if (t.role, t.round_index) == (role, round_index)]
        # 8 discussions x 4 solvers x 2 evaluations = 64 parts of a round for 4 agents.
        assert Counter(t.agent_index for t in chosen) == {agent: 16 for agent in range(4)}
    assert sorted(Counter(deal(Random(0), num_agents=3, num_parts=8)).values()) == [2, 3, 3]


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


@pytest.mark.parametrize(
    ("horizon", "shown"), [(0, [False] * 3), (2, [False, True, True]), (7, [True] * 3)]
)
def test_sequential_shows_the_last_kappa_rounds_to_solver_and_evaluator(horizon, shown):
    turns = by_id(discuss(num_rounds=4, horizon=horizon)[0])
    for prompt in (turns["r3.s0"].prompt, turns["r3.s0.e0"].prompt):
        assert [turns[f"r{i}.s0"].text in prompt for i in range(3)] == shown
        assert [turns[f"r{i}.s0.e0"].text in prompt for i in range(3)] == shown
    assert "(empty)" in turns["r0.s0"].prompt


def test_parallel_shows_kappa_pairs_of_the_round_before_to_solvers_and_nothing_to_evaluators():
    turns = by_id(discuss(schedule="parallel", num_rounds=2, horizon=2)[0])
    [prompt] = {turns[f"r1.s{i}"].prompt for i in range(4)}
    pairs = [(turns[f"r0.s{i}"].text, turns[f"r0.s{i}.e0"].text) for i in range(4)]
    assert sum(solution in prompt and critique in prompt for solution, critique in pairs) == 2
    assert "(empty)" in turns["r1.s0.e0"].prompt


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
    discussion = discuss(reading(len(by_id(full)["r2.s0.e0"].prompt) - 1), **settings)[0]
    assert discussion.num_overlong_prompts == 1
    assert roles(discussion) == roles(full)
    turns = by_id(discussion)
    last = turns["r2.s0.e0"].prompt
    assert turns["r0.s0"].text not in last and turns["r1.s0"].text in last

    async def forgets(request: Request) -> Generation | None:
        has_history = request.role != "scoring" and "(empty)" not in request.prompt
        return None if has_history else await speak(request)

    discussion = discuss(forgets, **settings)[0]
    assert (len(discussion.turns), discussion.num_overlong_prompts) == (9, 4)  # a prompt once


def test_a_skipped_prompt_leaves_out_what_would_build_on_it():
    settings = {"num_rounds": 1, "prompt_reuse": 1}  # without a history that could be left out
    limit = len(by_id(discuss(**settings)[0])["r0.s0.e0"].prompt) - 1
    discussion = discuss(reading(limit), **settings)[0]
    assert [*by_id(discussion)] == ["r0.s0"]
    assert discussion.num_overlong_prompts == 1


ASKED = [
    Question("sum/1", "math", "What is 1 + 1?"),
    Question("sum/2", "math", "What is 2 + 2?"),
    Question("sum/3", "math", "What is 3 + 3?"),
    Question("code/1", "coding", "Write one()."),
]

CRITICISED = sorted(set(SCHEDULES) - UNCRITICISED_SCHEDULES)


def criticise(generate=speak, **rules) -> list[Discussion]:
    """Two agents discuss three sums and a program, for two rounds in two copies."""
    rules = {"num_agents": 2, "num_rounds": 2, "prompt_reuse": 2, "horizon": 1} | rules
    return builders.discuss(ASKED, generate, **rules)


@pytest.mark.parametrize("schedule", CRITICISED)
@cases("criticism, num_evaluations, turns")
def test_schedules_criticise_as_is_chosen(schedule, criticism, num_evaluations, turns):
    rules = {"criticism": criticism, "num_evaluations": num_evaluations}
    discussion = criticise(schedule=schedule, **rules)[0]
    of_first = [t.turn_id for t in discussion.turns if t.turn_id.startswith("r1.s0")]
    assert of_first == [f"r1.{turn_id}" for turn_id in turns]


def test_without_evaluation_a_judge_sees_the_solution_alone_and_so_do_later_rounds():
    discussion = criticise(criticism="no_evaluation")[0]
    turns = by_id(discussion)
    solution, scoring = turns["r0.s0"], turns["r0.s0.t0"]
    expected = fill(SCORING_ALONE, "math", question=ASKED[0].text, solution=solution.text)
    assert scoring.prompt == expected
    later = turns["r1.s0"].prompt
    assert later.endswith(f"# Discussion so far\n## Earlier solution\n{solution.text}")
    assert discussion.scorings(solution) == [scoring]
    # (3 - 1) / 2, and a score that could be read; in both rounds
    assert paid("interaction", discussion) == [(1.0, 0.0) * 2]


def test_without_scoring_evaluators_are_asked_for_a_judgment():
    turns = by_id(criticise(criticism="no_scoring", num_evaluations=2)[0])
    solution = turns["r0.s0"].text
    expected = fill(EVALUATION_WITH_JUDGMENT, "math", question=ASKED[0].text, solution=solution)
    assert turns["r0.s0.e1"].prompt == expected
    assert turns["r0.s0.e0"].text in turns["r1.s0"].prompt


def test_a_muted_evaluator_is_not_asked_and_approves_of_everything():
    asked: list[str] = []

    async def listen(request):
        asked.append(request.turn[1])
        return await speak(request)

    discussions = criticise(listen, criticism="muted")
    assert not [turn_id for turn_id in asked if turn_id.endswith(".e0")]
    for discussion in discussions:
        turns = by_id(discussion)
        given = turns["r0.s0.e0"]
        assert given.text == APPROVALS[discussion.question.domain]
        assert given.text in turns["r0.s0.e0.t0"].prompt
        assert given.text in turns["r1.s0"].prompt


def test_exchanged_evaluations_come_from_the_same_place_of_a_discussion_of_the_domain():
    discussions = criticise(criticism="exchanged")
    by_name = {each.discussion_id.removeprefix("step1/"): each for each in discussions}
    own = by_id(by_name["sum/3/copy1"])
    given = own["r1.s0.e1"]
    assert given.is_given and not own["r1.s0.e0"].is_given
    assert given.text.startswith("step1/sum/1/copy1/r1.s0.e0 by")
    assert given.text in own["r1.s0.e1.t0"].prompt
    assert own["r1.s0.e0"].text not in own["r1.s0.e1.t0"].prompt
    assert own["r0.s0.e1"].text in own["r1.s0"].prompt
    # The only program has nobody to exchange with: it is evaluated, and not scored.
    alone = by_name["code/1/copy0"]
    assert [t.turn_id for t in alone.turns] == ["r0.s0", "r0.s0.e0", "r1.s0", "r1.s0.e0"]


@pytest.mark.parametrize("schedule", CRITICISED)
@pytest.mark.parametrize("overlong", ["r0.s0", "r0.s1", "r0.s0.e0", "r1.s0", "r1.s0.e0"])
def test_discussions_that_exchange_never_wait_for_a_turn_that_never_comes(schedule, overlong):
    """Each of two discussions lacks a turn that the other would wait for."""

    async def refuse(request):
        name, turn_id = request.turn
        is_refused = turn_id == overlong or (turn_id == "r0.s1.e0" and "sum/2" in name)
        return None if is_refused else await speak(request)

    discussions = criticise(refuse, schedule=schedule, criticism="exchanged")
    scored = [t.turn_id for d in discussions[:6] for t in d.turns if t.role == "scoring"]
    assert scored and not any(turn_id.startswith(f"{overlong}.t") for turn_id in scored)


def test_an_error_ends_discussions_that_wait_for_each_other():
    async def break_down(request):
        if request.turn == ("step1/sum/2/copy0", "r1.s0.e0"):
            raise ConnectionError("engine 1 died")
        return await speak(request)

    with pytest.raises(ConnectionError, match="engine 1 died"):
        criticise(break_down, criticism="exchanged")


@pytest.mark.parametrize("criticism", ["muted", "exchanged"])
def test_an_evaluation_that_nobody_said_is_not_trained_and_seen_as_such(criticism):
    discussions = criticise(criticism=criticism)
    rewarded = REWARD_SCHEMES["interaction"](discussions, dict, seed=0, step=0).discussions
    [buffer] = collect_samples(rewarded, policy_of_agent=[0, 0], mask_truncated=True)
    # Of 6 discussions of sums and 2 rounds each; programs are scored where nothing is exchanged.
    num_scored = 12 if criticism == "exchanged" else 16
    assert Counter(s.role for s in buffer) == {"solution": num_scored, "scoring": num_scored}

    metrics = rollout_metrics(rewarded, num_agents=2)
    assert metrics.get("reward/evaluation") is None
    assert metrics["response_length"] == 3  # a given turn of no tokens would lower the mean

    place = "r0.s0.e0" if criticism == "muted" else "r0.s0.e1"
    rows = discussion_record(rewarded[0], verdicts={})["turns"]
    [record] = [row for row in rows if row["turn_id"] == place]
    assert record["agent"] is None and record["finish_reason"] == "given"
    assert record["reward"] is None
