"""Questions that agents propose: the schedule, what is paid, and who is not asked about them."""

from __future__ import annotations

import pytest
from builders import discuss, discussion, generation, turn

from comas.interaction.discussion import is_taken_up
from comas.interaction.proposed import PROPOSAL
from comas.reward_formulation import REWARD_SCHEMES
from comas.types import ALL_DOMAINS, Discussion, Generation, Question, Rewards, TurnKey
from comas.verification.pool import Verifier
from comas.verification.solutions import verify_solutions

QUESTIONS = [Question(f"q{i}", "math", f"What is {i} + {i}?") for i in range(4)]


def proposing(*texts: str):
    """Agents who propose ``texts``, in the order of the discussions, and solve with a box."""

    async def generate(agent: int, prompt: str, *, turn: TurnKey, seed: int) -> Generation:
        place = int(turn[0].partition("/q")[2].partition("/")[0])
        if turn[1] == "r0.p0":
            return generation(texts[place // 2])
        return generation(rf"\boxed{{{place}}} <score>3</score>")

    return generate


def held(*texts: str) -> list[Discussion]:
    rules = {"schedule": "proposed", "num_rounds": 1, "prompt_reuse": 1}
    return discuss(QUESTIONS, proposing(*texts), num_agents=2, **rules)


def test_every_other_discussion_is_about_a_proposal():
    proposed, anchor, other, last = held("What is 3 * 3?", "What is 4 * 4?")
    assert proposed.question == Question("step1/q0/copy0/proposed", "math", "What is 3 * 3?")
    assert proposed.turns[0].turn_id == "r0.p0"
    assert proposed.turns[0].prompt.endswith("# Math problem\nWhat is 0 + 0?")
    assert all("What is 3 * 3?" in later.prompt for later in proposed.turns[1:])
    assert [later.turn_id for later in proposed.turns[1:4]] == ["r0.s0", "r0.s0.e0", "r0.s0.e0.t0"]
    assert anchor.question == QUESTIONS[1] and last.question == QUESTIONS[3]
    assert not anchor.children(None, "proposal")
    assert [is_taken_up(d) for d in (proposed, anchor, other, last)] == [True, False, True, False]
    assert {d.turns[0].agent_index for d in (proposed, other)} <= {0, 1}


@pytest.mark.parametrize("text", ["", "  \n", " What is 0 + 0?\n"])
def test_a_proposal_that_is_none_leaves_the_question(text: str):
    first = held(text, "What is 4 * 4?")[0]
    assert first.question == QUESTIONS[0]
    assert first.children(None, "proposal")
    assert len(first.children(None, "solution")) == 2
    assert not is_taken_up(first)


def test_a_proposal_whose_prompt_is_too_long_leaves_the_question():
    async def generate(agent: int, prompt: str, *, turn: TurnKey, seed: int) -> Generation | None:
        return None if turn[1] == "r0.p0" else generation("<score>3</score>")

    rules = {"schedule": "proposed", "num_rounds": 1, "prompt_reuse": 1}
    first = discuss(QUESTIONS, generate, num_agents=2, **rules)[0]
    assert first.question == QUESTIONS[0]
    assert first.num_overlong_prompts == 1
    assert len(first.children(None, "solution")) == 2


def test_proposers_are_dealt_evenly():
    many = [Question(f"q{i}", "math", "?") for i in range(8)]
    rules = {"schedule": "proposed", "num_rounds": 1, "prompt_reuse": 2}
    found = discuss(many, num_agents=2, **rules)
    proposers = [d.turns[0].agent_index for d in found if d.turns[0].role == "proposal"]
    assert len(proposers) == 8
    assert 0 < sum(proposers) < 8


def test_there_is_a_prompt_for_every_domain():
    assert set(PROPOSAL) == set(ALL_DOMAINS)
    assert all(text.count("{question}") == 1 for text in PROPOSAL.values())


# ---------------------------------------------------------------- rewards


def proposed(*scores: int | None, is_new: bool = True) -> Discussion:
    """A proposal, and its solutions with their scores; None: nobody scored it."""
    said = [turn("r0.p0", "What is 3 * 3?")]
    for i, score in enumerate(scores):
        said += [turn(f"r0.s{i}"), turn(f"r0.s{i}.e0")]
        if score is not None:
            said.append(turn(f"r0.s{i}.e0.t0", f"<score>{score}</score>"))
    question_id = "d/proposed" if is_new else "q0"
    return discussion(*said, question=Question(question_id, "math", "?"))


def paid(*discussions: Discussion) -> Rewards:
    return REWARD_SCHEMES["frontier"](discussions, evidence={})


@pytest.mark.parametrize(
    ("scores", "reward"),
    [
        ((3, 1, 1, 1), 0.75),  # m = 1/4
        ((3, 1), 1.0),
        ((2, 2), 1.0),
        ((3, 3), 0.0),
        ((1, 1), 0.0),
        ((3, None, 1), 1.0),  # one that nobody scored says nothing
        ((None,), None),
    ],
)
def test_a_proposal_is_paid_for_dividing_its_solvers(scores, reward: float | None):
    rewards = paid(proposed(*scores)).discussions[0].rewards
    assert rewards[0] == reward
    if scores[0] == 3:
        assert rewards[1:4] == (1.0, 0.0, 0.0), "the paper's"


def test_a_proposal_that_was_not_taken_up_is_paid_nothing():
    rewards = paid(proposed(3, 1, is_new=False), proposed(3, 3, 1, 3))
    assert [item.rewards[0] for item in rewards.discussions] == [0.0, 0.75]
    assert rewards.metrics["proposal/taken_up_rate"] == 0.5
    assert rewards.metrics["proposal/difficulty"] == pytest.approx(0.25)


def test_where_nobody_proposes_the_rewards_are_the_papers():
    plain = discussion(turn("r0.s0"), turn("r0.s0.e0"), turn("r0.s0.e0.t0", "<score>2</score>"))
    rewards = paid(plain)
    assert rewards.discussions[0].rewards == (0.5, 0.5, 0.0)
    assert rewards.metrics["proposal/taken_up_rate"] is None


def test_the_verifier_is_not_asked_about_what_was_proposed():
    answers = {f"q{i}": str(i) for i in range(4)}
    with Verifier(num_workers=1) as verifier:
        found = held("What is 3 * 3?", "What is 4 * 4?")
        verdicts = verify_solutions(verifier, found, answers=answers)()
    assert {key[0] for key in verdicts} == {"step1/q1/copy0", "step1/q3/copy0"}
    assert set(verdicts.values()) == {"correct"}
