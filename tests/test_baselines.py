"""The paper's baselines, by hand: debates (MAPoRL), and agents that rate themselves (SRLM)."""

from collections import Counter
from random import Random

import builders
import pytest
import torch
from builders import QUESTION, discuss, discussion, speak, turn
from tables import cases

from comas.interaction.comparisons import draw_seen
from comas.policy_optimization.batching import StepTotals
from comas.policy_optimization.openrlhf_import import openrlhf_module
from comas.policy_optimization.preferences import dpo_loss, preference_pairs
from comas.reward_formulation import REWARD_SCHEMES
from comas.types import Discussion, Generation, Question, Request, TrainingSample

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


def test_others_are_drawn_evenly_and_missed_where_they_could_not_speak():
    rng = Random(0)
    draws = [draw_seen(rng, 1, num_agents=4, num_others=2) for _ in range(3000)]
    assert all(draw[-1] == 1 and len(draw) == 3 for draw in draws)
    counts = Counter(other for draw in draws for other in draw[:-1])
    # Each of 3 others in 2 of 3 draws: Binomial(3000, 2/3), standard deviation 26.
    assert set(counts) == {0, 2, 3} and all(abs(n - 2000) < 130 for n in counts.values())
    assert draw_seen(rng, 0, num_agents=1, num_others=2) == [0]

    async def refuse(request):
        return None if request.turn[1] in ("r0.s0", "r0.s1") else await speak(request)

    ids = [t.turn_id for t in debate(refuse, num_agents=3)[0].turns]
    assert ids == ["r0.s2", "r1.s0", "r1.s1", "r1.s2"]


def rewards(name: str, **verdicts: str) -> tuple[float | None, ...]:
    """Of a debate of 2 agents; ``r0_s1="correct"`` is the verdict on turn r0.s1."""
    turn_ids = [name.replace("_", ".") for name in verdicts]
    answers = [turn(turn_id, agent=int(turn_id[-1])) for turn_id in turn_ids]
    of_turns = {("d", t): v for t, v in zip(turn_ids, verdicts.values(), strict=True)}
    held = [discussion(*answers)]
    return REWARD_SCHEMES[name](held, lambda: of_turns, seed=0, step=0).discussions[0].rewards


VERDICTS = {"r0_s0": "correct", "r0_s1": "wrong", "r1_s0": "unanswered", "r1_s1": "correct"}


@cases("name, expected")
def test_what_maporl_pays(name, expected):
    assert rewards(name, **VERDICTS) == tuple(expected)


def test_quality_is_of_all_earlier_answers():
    # Q = (1 + 1 + 0) / 3 = 2/3 before round 1. r = 1: 1 + 0.5 * 2/3; r = 0: 0 - 0.5 * 1/3.
    first = {"r0_s0": "correct", "r0_s1": "correct", "r0_s2": "wrong"}
    paid = rewards("maporl_quality", **first, r1_s0="correct", r1_s1="wrong")
    assert paid == pytest.approx((1.0, 1.0, 0.0, 1 + 1 / 3, -1 / 6))
    second = first | {"r1_s0": "wrong", "r2_s0": "correct"}  # Q = 2/4 before round 2
    assert rewards("maporl_quality", **second)[-1] == 1 + 0.5 * 0.5


def test_what_the_verifier_failed_on_is_not_trained_and_counts_in_no_mean():
    # Q = 1 of the one that is known: 0 + 0.5 (0 - 0 * 1) = 0 and 1 + 0.5 * 1 = 1.5
    assert rewards("maporl_quality", **VERDICTS | {"r0_s1": "failed"}) == (1.0, None, 0.0, 1.5)


def rate(closings: list[str], *, num_agents: int = 1, **rules) -> tuple[list[Discussion], list]:
    """Discussions of one question in which the ratings end with ``closings``, one after another,
    and who was asked what."""
    asked = []
    texts = iter(closings)

    async def speak(request: Request) -> Generation:
        agent = request.agent_index
        asked.append((agent, request.turn[1], request.prompt))
        text = next(texts) if request.role == "evaluation" else f"solution of {agent}"
        return Generation((1, agent), (3, 4), text, (-0.5,) * 2, "stop", policy_version=1)

    settings = {"criticism": "self_rated", "num_rounds": 1, "prompt_reuse": 1} | rules
    return discuss([QUESTION], speak, num_agents=num_agents, **settings), asked


@pytest.mark.parametrize("schedule", ["sequential", "parallel"])
def test_every_agent_rates_its_own_solution_as_often_as_configured(schedule):
    [discussion], asked = rate(
        ["<rating>4</rating>"] * 9, num_agents=3, schedule=schedule, num_evaluations=3
    )
    speakers = {turn_id: agent for agent, turn_id, _ in asked}
    ratings = [turn_id for turn_id in speakers if ".e" in turn_id]
    assert len(ratings) == (9 if schedule == "parallel" else 3)
    for turn_id in ratings:
        assert speakers[turn_id] == speakers[turn_id.rpartition(".")[0]]
    assert {turn.role for turn in discussion.turns} == {"solution", "evaluation"}


@cases(
    "closings, reward, invalid_rate",
    # (4 / 5 + 5 / 5) / 2
    (["<rating>4</rating>", "no idea", "<rating>5</rating>"], 0.9, 1 / 3),
    (["no idea", "<rating>9</rating>"], None, 1.0),  # no candidate
)
def test_a_solution_alone_is_rewarded_with_its_mean_valid_rating(closings, reward, invalid_rate):
    discussions, _ = rate(closings, num_evaluations=len(closings))
    rewards = REWARD_SCHEMES["mean_rating"](discussions, dict, seed=0, step=0)
    assert rewards.discussions[0].rewards == (
        reward and pytest.approx(reward),
        *[None] * len(closings),
    )
    assert rewards.metrics == {"rating/invalid_rate": pytest.approx(invalid_rate)}


def sample(reward: float, response: int = 3, **fields: object) -> TrainingSample:
    return builders.sample(reward=reward, response_token_ids=(response,), **fields)


def test_the_best_and_the_worst_answer_to_a_prompt_are_a_pair_unless_they_tie():
    candidates = [sample(reward, i) for i, reward in enumerate((0.4, 0.8, 0.2, 0.8))]
    assert preference_pairs(candidates) == [(candidates[1], candidates[2])]
    for rewards in ((), (0.5,), (0.5, 0.5, 0.5)):
        assert preference_pairs([sample(reward) for reward in rewards]) == []


@pytest.mark.parametrize("other", [{"prompt_token_ids": (1, 3)}, {"agent_index": 1}])
def test_answers_to_other_prompts_or_of_other_agents_are_not_compared(other):
    mine, others = [sample(1.0), sample(0.0)], [sample(0.9, **other), sample(0.1, **other)]
    interleaved = [mine[0], others[0], others[1], mine[1]]
    assert preference_pairs(interleaved) == [tuple(mine), tuple(others)]


def test_the_loss_is_openrlhfs_and_does_not_depend_on_micro_batches_or_ranks():
    logprobs, reference = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(0)).unbind()
    mask = torch.arange(4) < torch.tensor([4, 2, 1, 3, 4, 4])[:, None]
    chosen, rejected, of_reference = ((x * mask).sum(1) for x in (logprobs, logprobs, reference))
    theirs, *_ = openrlhf_module("loss").DPOLoss(beta=0.3)(
        chosen[0::2], rejected[1::2], of_reference[0::2], of_reference[1::2]
    )

    def ours(rows: slice, num_ranks: int = 1) -> float:
        return dpo_loss(
            logprobs[rows],
            reference_logprobs=reference[rows],
            mask=mask[rows],
            beta=0.3,
            totals=StepTotals(99, 2 * 3, 99, num_ranks),
        ).item()

    assert ours(slice(0, 6)) == pytest.approx(theirs.item())
    assert ours(slice(0, 2)) + ours(slice(2, 6)) == pytest.approx(theirs.item())
    # DeepSpeed averages the ranks' gradients.
    assert (ours(slice(0, 2), 2) + ours(slice(2, 6), 2)) / 2 == pytest.approx(theirs.item())
