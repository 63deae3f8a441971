"""Evaluations that hold tests: what running them pays, computed by hand and run in the sandbox."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from builders import discussion, turn

from comas.config import ConfigError
from comas.preflight.configuration import load_config
from comas.reward_formulation import REWARD_SCHEMES
from comas.types import Discussion, Question, Rewards, Turn
from comas.verification import Verdict, Verifier
from comas.verification.coding import verify_test
from comas.verification.solutions import run_tests

CODING = Question("q", "coding", "Write double(n).")
RIGHT, WRONG = "```python\ndef double(n):\n    return 2 * n\n```", "```python\ndouble = abs\n```"
GOOD_TEST = "It is abs:\n```python\nassert double(3) == 6\n```"
BAD_TEST = "```python\nassert double(3) == 3\n```"


def solution(index: int, agent: int, text: str = "") -> list[Turn]:
    """With an evaluation by the other agent, scored 2."""
    name = f"r{index}.s0"
    return [
        turn(name, text, agent=agent),
        turn(f"{name}.e0", f"test {index}", agent=1 - agent),
        turn(f"{name}.e0.t0", "<score>2</score>", agent=agent),
    ]


def paid(
    held: Discussion, table: Mapping[tuple[str, str], Verdict]
) -> tuple[Rewards, dict[str, float | None]]:
    """By which solution passes which test, by their texts; and the rewards by turn id."""

    def look_up(pairs: Sequence[tuple[str, str]]) -> list[Verdict]:
        return [table[pair] for pair in pairs]

    rewards = REWARD_SCHEMES["executable"]([held], evidence={"run_tests": lambda: look_up})
    [item] = rewards.discussions
    of_turns = {t.turn_id: r for t, r in zip(held.turns, item.rewards, strict=True)}
    return rewards, of_turns


def test_a_test_is_paid_for_telling_what_other_tests_tell():
    # Agent 0 solves in rounds 0 and 1, agent 1 in 2; tests 0 and 1 are agent 1's, test 2 agent 0's.
    turns = [*solution(0, 0, "a"), *solution(1, 0, "b"), *solution(2, 1, "c")]
    table: dict[tuple[str, str], Verdict] = {
        ("a", "test 0"): "correct",
        ("a", "test 1"): "correct",
        ("b", "test 0"): "wrong",
        ("b", "test 1"): "wrong",
        ("c", "test 2"): "wrong",
    }
    rewards, of_turns = paid(discussion(*turns, question=CODING), table)
    assert (of_turns["r0.s0"], of_turns["r1.s0"], of_turns["r2.s0"]) == (1.0, 0.0, 0.0)
    # Test 0: a passes, worth 1 by test 1; b fails, worth 0. So test 1, the other way round.
    assert (of_turns["r0.s0.e0"], of_turns["r1.s0.e0"]) == (1.0, 1.0)
    assert of_turns["r2.s0.e0"] == 0.0  # it tells nothing apart
    assert of_turns["r0.s0.e0.t0"] == 0.0
    assert rewards.metrics["tests/run_rate"] == 1.0
    assert rewards.metrics["tests/pass_rate"] == 2 / 5


def test_a_test_that_contradicts_the_others_loses_and_one_that_cannot_run_loses_all():
    turns = [*solution(0, 0, "a"), *solution(1, 0, "b"), *solution(2, 0, "c"), *solution(3, 0, "d")]
    by_test = {"test 0": "ab", "test 1": "ab", "test 2": "cd"}
    table: dict[tuple[str, str], Verdict] = {
        (s, test): "correct" if s in passing else "wrong"
        for test, passing in by_test.items()
        for s in "abcd"
    }
    table |= {(s, "test 3"): "unanswered" for s in "abcd"}
    rewards, of_turns = paid(discussion(*turns, question=CODING), table)
    assert [of_turns[f"r{i}.s0"] for i in range(4)] == pytest.approx([2 / 3, 2 / 3, 1 / 3, 1 / 3])
    # Test 0: a, b are worth (1 + 0) / 2 by tests 1 and 2, c and d likewise. Test 2: c, d worth 0.
    assert [of_turns[f"r{i}.s0.e0"] for i in range(4)] == [0.0, 0.0, -1.0, -1.0]
    assert rewards.metrics["tests/run_rate"] == 3 / 4


def test_what_the_sandbox_could_not_run_is_paid_as_in_the_paper():
    _, of_turns = paid(
        discussion(*solution(0, 0, "a"), question=CODING), {("a", "test 0"): "failed"}
    )
    assert tuple(of_turns.values()) == (0.5, 0.5, 0.0)


def test_what_nobody_else_tested_and_other_domains_are_paid_as_in_the_paper():
    alone = discussion(
        turn("r0.s0"), turn("r0.s0.e0"), turn("r0.s0.e0.t0", "<score>3</score>"), question=CODING
    )
    math = discussion(*solution(0, 0, "a"))
    for held, expected in ((alone, (1.0, 0.0, 0.0)), (math, (0.5, 0.5, 0.0))):
        rewards, of_turns = paid(held, {})
        assert tuple(of_turns.values()) == expected
        assert rewards.metrics["tests/run_rate"] is None


@pytest.mark.parametrize(
    "evaluation",
    [
        "I see no mistake.",
        "```python\nassert double(3 == 6\n```",
        "```python\nimport numpy\nassert double(3) == 6\n```",
        "```python\ndouble(3)\n```",
        f"```python\nassert f{'()' * 900}\n```",
        f"```python\nassert {'-' * 9000}1\n```",
    ],
    ids=lambda text: text[:40],
)
def test_what_is_no_test_is_told_without_running_anything(evaluation):
    assert verify_test(RIGHT, evaluation) == "unanswered"


@pytest.mark.stack
def test_programs_are_run_with_the_tests_of_others_in_the_sandbox():
    leaves = "```python\nimport os\nassert double\nos._exit(0)\n```"
    pairs = [(RIGHT, GOOD_TEST), (WRONG, GOOD_TEST), (RIGHT, BAD_TEST), ("?", GOOD_TEST)]
    with Verifier(num_workers=1, chosen={"coding": "math"}) as verifier:
        verdicts = run_tests(verifier, [*pairs, (RIGHT, leaves)])
    assert verdicts == ["correct", "wrong", "wrong", "wrong", "wrong"]


def test_it_wants_prompts_that_ask_for_tests():
    chosen = ["reward.scheme=executable"]
    with pytest.raises(
        ConfigError, match=r"set interaction.prompts to comas/interaction/prompts_for_tests.yaml"
    ):
        load_config(None, chosen)
    load_config(None, [*chosen, "interaction.prompts=comas/interaction/prompts_for_tests.yaml"])
