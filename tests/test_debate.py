"""Debates and what MAPoRL makes of them: who sees whose answers, and rewards computed by hand."""

from collections import Counter
from random import Random

import pytest
from builders import discuss, discussion, speak, turn
from tables import cases

from comas.interaction.debate import draw_seen
from comas.reward_formulation import REWARD_SCHEMES, offer_evidence
from comas.run.metrics.reward_effectiveness import reward_effectiveness
from comas.run.metrics.step import rollout_metrics, step_lines
from comas.types import Discussion, Question

QUESTIONS = [Question("q0", "math", "What is 1 + 1?"), Question("q1", "coding", "Write one().")]


def debate(generate=speak, **rules) -> list[Discussion]:
    settings = {"schedule": "debate", "criticism": "none", "num_rounds": 2, "prompt_reuse": 2}
    return discuss(QUESTIONS, generate, **settings | rules)


def test_every_agent_answers_in_every_round_and_nobody_criticises():
    for held in debate(num_rounds=3):
        expected = [(f"r{r}.s{agent}", agent) for r in range(3) for agent in range(4)]
        assert [(t.turn_id, t.agent_index) for t in held.turns] == expected
        assert {t.role for t in held.turns} == {"solution"}


def test_an_agent_sees_its_own_answer_and_two_others_of_the_round_before():
    held = debate(num_rounds=3)[0]
    texts = {t.turn_id: t.text for t in held.turns}
    assert all("# Discussion so far\n(empty)" in t.prompt for t in held.turns[:4])
    for later in held.turns[4:]:
        shown = {turn_id for turn_id, text in texts.items() if text in later.prompt}
        own = f"r{later.round_index - 1}.s{later.agent_index}"
        assert own in shown and len(shown) == 3
        assert all(turn_id.startswith(f"r{later.round_index - 1}.") for turn_id in shown)
        assert later.prompt.endswith(f"## Your own earlier solution\n{texts[own]}")
        assert later.prompt.count("## Earlier solution\n") == 2


def test_others_are_drawn_evenly_and_never_the_agent_itself():
    rng = Random(0)
    draws = [draw_seen(rng, 1, num_agents=4, num_others=2) for _ in range(3000)]
    assert all(draw[-1] == 1 and len(draw) == 3 for draw in draws)
    counts = Counter(other for draw in draws for other in draw[:-1])
    # Each of 3 others in 2 of 3 draws: Binomial(3000, 2/3), standard deviation 26.
    assert set(counts) == {0, 2, 3} and all(abs(n - 2000) < 130 for n in counts.values())
    assert draw_seen(rng, 0, num_agents=1, num_others=2) == [0]


def test_an_agent_argues_on_without_what_another_could_not_say():
    async def refuse(request):
        return None if request.turn[1] in ("r0.s0", "r0.s1") else await speak(request)

    ids = [t.turn_id for t in debate(refuse, num_agents=3)[0].turns]
    assert ids == ["r0.s2", "r1.s0", "r1.s1", "r1.s2"]


def rewards(name: str, **verdicts: str) -> tuple[float | None, ...]:
    """Of a debate of 2 agents; ``r0_s1="correct"`` is the verdict on turn r0.s1."""
    turn_ids = [name.replace("_", ".") for name in verdicts]
    answers = [turn(turn_id, agent=int(turn_id[-1])) for turn_id in turn_ids]
    of_turns = {("d", t): v for t, v in zip(turn_ids, verdicts.values(), strict=True)}
    evidence = offer_evidence(lambda: of_turns, seed=0, step=0)
    return REWARD_SCHEMES[name]([discussion(*answers)], evidence=evidence).discussions[0].rewards


VERDICTS = {"r0_s0": "correct", "r0_s1": "wrong", "r1_s0": "unanswered", "r1_s1": "correct"}


@cases(
    "name, expected",
    ("maporl", (1.0, 0.0, 0.0, 1.0)),
    # In round 1, Q = (1 + 0) / 2. r = 0: 0 + 0.5 (0 - 0.5 * 1) = -0.25;
    # r = 1: 1 + 0.5 (0.5 * 1 - 0.5 * 0) = 1.25.
    ("maporl_quality", (1.0, 0.0, -0.25, 1.25)),
    # 0 + 0.5 (0 - 0.5) = -0.25; 1 + 0.5 (1 - 0.5) = 1.25
    ("maporl_margin", (1.0, 0.0, -0.25, 1.25)),
    # Agent 0 ends with 0, agent 1 with 1: 1 + 0, 0 + 0.5, 0 + 0, 1 + 0.5.
    ("maporl_outcome", (1.0, 0.5, 0.0, 1.5)),
)
def test_what_maporl_pays(name, expected):
    assert rewards(name, **VERDICTS) == expected


@cases(
    "name, expected",
    # Q = (1 + 1 + 0) / 3 = 2/3 before round 1. r = 1: 1 + 0.5 * 2/3; r = 0: 0 - 0.5 * 1/3.
    ("maporl_quality", (1 + 1 / 3, -1 / 6)),
    # 1 + 0.5 (1 - 2/3) = 1 + 1/6; 0 + 0.5 (0 - 2/3) = -1/3
    ("maporl_margin", (1 + 1 / 6, -1 / 3)),
)
def test_quality_and_margin_differ_where_earlier_answers_are_not_half_right(name, expected):
    first = {"r0_s0": "correct", "r0_s1": "correct", "r0_s2": "wrong"}
    paid = rewards(name, **first, r1_s0="correct", r1_s1="wrong")
    assert paid == pytest.approx((1.0, 1.0, 0.0, *expected))


def test_what_the_verifier_failed_on_is_not_trained_and_counts_in_no_mean():
    verdicts = VERDICTS | {"r0_s1": "failed"}
    # Q = 1 of the one that is known: 0 + 0.5 (0 - 0 * 1) = 0 and 1 + 0.5 * 1 = 1.5
    assert rewards("maporl_quality", **verdicts) == (1.0, None, 0.0, 1.5)
    # Without its last answer, no outcome is known of agent 1.
    assert rewards("maporl_outcome", **VERDICTS | {"r1_s1": "failed"}) == (1.0, None, 0.0, None)


def test_a_debates_metrics_show_no_zero_of_what_nobody_said():
    discussions = debate()
    verdicts = {(d.discussion_id, t.turn_id): "correct" for d in discussions for t in d.turns}
    scheme = REWARD_SCHEMES["maporl"]
    rewarded = scheme(discussions, evidence=offer_evidence(lambda: verdicts, seed=0, step=1))
    metrics = rollout_metrics(rewarded.discussions, num_agents=4)
    assert metrics["reward/solution"] == 1.0
    assert not metrics.keys() & {"reward/evaluation", "reward/scoring"}
    effectiveness = reward_effectiveness(
        rewarded.discussions, verdicts=verdicts, sees_verdicts=scheme.sees_verdicts
    )
    assert set(effectiveness.values()) == {None}
    [line] = step_lines(1, 2, metrics | {"train/accuracy": 1.0})
    assert "  reward sol 1.00  3 tok  " in line
