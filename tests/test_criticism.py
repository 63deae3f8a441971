"""What happens to a solution once it is given: who is asked, what they see, and what is trained."""

from collections import Counter

import builders
import pytest
from builders import speak
from tables import cases

from comas.interaction.prompts import APPROVALS, EVALUATION_WITH_JUDGMENT, SCORING_ALONE, fill
from comas.interaction.schedules import SCHEDULES, UNCRITICISED_SCHEDULES
from comas.policy_optimization.samples import collect_samples
from comas.reward_formulation import REWARD_SCHEMES
from comas.run.metrics.step import rollout_metrics
from comas.run.records import discussion_record
from comas.types import Discussion, Question, Turn

QUESTIONS = [
    Question("sum/1", "math", "What is 1 + 1?"),
    Question("sum/2", "math", "What is 2 + 2?"),
    Question("sum/3", "math", "What is 3 + 3?"),
    Question("code/1", "coding", "Write one()."),
]

CRITICISED = sorted(set(SCHEDULES) - UNCRITICISED_SCHEDULES)


def discuss(generate=speak, **rules) -> list[Discussion]:
    rules = {"num_agents": 2, "num_rounds": 2, "prompt_reuse": 2, "horizon": 1} | rules
    return builders.discuss(QUESTIONS, generate, **rules)


def turn(discussion: Discussion, turn_id: str) -> Turn:
    return next(turn for turn in discussion.turns if turn.turn_id == turn_id)


def of_question(discussions: list[Discussion], name: str) -> Discussion:
    return next(d for d in discussions if name in d.discussion_id)


@pytest.mark.parametrize("schedule", CRITICISED)
@cases("criticism, num_evaluations, turns")
def test_schedules_criticise_as_is_chosen(schedule, criticism, num_evaluations, turns):
    discussion = discuss(schedule=schedule, criticism=criticism, num_evaluations=num_evaluations)[0]
    of_first = [t.turn_id for t in discussion.turns if t.turn_id.startswith("r1.s0")]
    assert of_first == [f"r1.{turn_id}" for turn_id in turns]


def test_without_evaluation_a_judge_sees_the_solution_alone_and_so_do_later_rounds():
    discussion = discuss(criticism="no_evaluation")[0]
    solution, scoring = turn(discussion, "r0.s0"), turn(discussion, "r0.s0.t0")
    expected = fill(SCORING_ALONE, "math", question=QUESTIONS[0].text, solution=solution.text)
    assert scoring.prompt == expected
    later = turn(discussion, "r1.s0").prompt
    assert later.endswith(f"# Discussion so far\n## Earlier solution\n{solution.text}")
    assert discussion.scorings(solution) == [scoring]
    assert REWARD_SCHEMES["interaction"]([discussion], evidence={}).discussions[0].rewards == (
        *(1.0, 0.0),  # (3 - 1) / 2, and a score that could be read
        *(1.0, 0.0),
    )


def test_without_scoring_evaluators_are_asked_for_a_judgment():
    discussion = discuss(criticism="no_scoring", num_evaluations=2)[0]
    prompt = turn(discussion, "r0.s0.e1").prompt
    solution = turn(discussion, "r0.s0").text
    expected = fill(EVALUATION_WITH_JUDGMENT, "math", question=QUESTIONS[0].text, solution=solution)
    assert prompt == expected
    assert turn(discussion, "r0.s0.e0").text in turn(discussion, "r1.s0").prompt


def test_a_muted_evaluator_is_not_asked_and_approves_of_everything():
    asked: list[str] = []

    async def listen(request):
        asked.append(request.turn[1])
        return await speak(request)

    discussions = discuss(listen, criticism="muted")
    assert not [turn_id for turn_id in asked if turn_id.endswith(".e0")]
    for discussion in discussions:
        given = turn(discussion, "r0.s0.e0")
        assert given.text == APPROVALS[discussion.question.domain]
        assert given.text in turn(discussion, "r0.s0.e0.t0").prompt
        assert given.text in turn(discussion, "r1.s0").prompt


def test_exchanged_evaluations_come_from_the_same_place_of_a_discussion_of_the_domain():
    discussions = discuss(criticism="exchanged")
    own = of_question(discussions, "sum/3/copy1")
    given = turn(own, "r1.s0.e1")
    assert given.is_given and not turn(own, "r1.s0.e0").is_given
    assert given.text.startswith("step1/sum/1/copy1/r1.s0.e0 by")
    assert given.text in turn(own, "r1.s0.e1.t0").prompt
    assert turn(own, "r1.s0.e0").text not in turn(own, "r1.s0.e1.t0").prompt
    assert turn(own, "r0.s0.e1").text in turn(own, "r1.s0").prompt
    # The only program has nobody to exchange with: it is evaluated, and not scored.
    alone = of_question(discussions, "code/1/copy0")
    assert [t.turn_id for t in alone.turns] == ["r0.s0", "r0.s0.e0", "r1.s0", "r1.s0.e0"]


@pytest.mark.parametrize("schedule", CRITICISED)
@pytest.mark.parametrize("overlong", ["r0.s0", "r0.s1", "r0.s0.e0", "r1.s0", "r1.s0.e0"])
def test_discussions_that_exchange_never_wait_for_a_turn_that_never_comes(schedule, overlong):
    """Each of two discussions lacks a turn that the other would wait for."""

    async def refuse(request):
        name, turn_id = request.turn
        is_refused = turn_id == overlong or (turn_id == "r0.s1.e0" and "sum/2" in name)
        return None if is_refused else await speak(request)

    discussions = discuss(refuse, schedule=schedule, criticism="exchanged")
    scored = [t.turn_id for d in discussions[:6] for t in d.turns if t.role == "scoring"]
    assert scored and not any(turn_id.startswith(f"{overlong}.t") for turn_id in scored)


def test_an_error_ends_discussions_that_wait_for_each_other():
    async def break_down(request):
        if request.turn == ("step1/sum/2/copy0", "r1.s0.e0"):
            raise ConnectionError("engine 1 died")
        return await speak(request)

    with pytest.raises(ConnectionError, match="engine 1 died"):
        discuss(break_down, criticism="exchanged")


@pytest.mark.parametrize("criticism", ["muted", "exchanged"])
def test_an_evaluation_that_nobody_said_is_not_trained_and_seen_as_such(criticism):
    discussions = discuss(criticism=criticism)
    rewarded = REWARD_SCHEMES["interaction"](discussions, evidence={}).discussions
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
