"""Metrics computed by hand, and that each has exactly one meaning."""

import math
import re
from dataclasses import replace
from typing import Any

import page_runs
import pytest
from builders import discussion, generation, turn
from small_runs import QUICKSTART
from tables import case_file, cases

from comas.interaction.held import HeldDiscussion, Outcome
from comas.interaction.prompts import APPROVALS
from comas.policy_optimization.update_stats import UpdateStats
from comas.preflight.configuration import load_config
from comas.run.metrics.meanings import as_regex, meanings
from comas.run.metrics.reward_effectiveness import (
    agreement,
    auc,
    false_accusations,
    reward_effectiveness,
)
from comas.run.metrics.step import reward_spread, rollout_metrics, step_lines, step_metrics
from comas.types import Discussion, Question, RewardedDiscussion, Rewards


def test_the_numbers_of_a_step_are_those_counted_by_hand():
    said, expected = (case_file("metrics")[f"STEP_{name}"] for name in ("TURNS", "METRICS"))
    turns = [
        replace(turn(name, agent=agent), generation=generation(num_tokens=n, finish_reason=why))
        for name, agent, n, why, _ in said  # each after a prompt of one token
    ]
    item = RewardedDiscussion(discussion(*turns), tuple(row[-1] for row in said))
    found = rollout_metrics([item], num_agents=2)
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert (reward_spread([item]), reward_spread([])) == (0.25, None)  # 1 and 0.75 in round 0


VERDICTS = {"8": "correct", "9": "failed"}


@cases("answers, reliability, share, wrong")
def test_a_reward_is_reliable_where_it_depends_on_the_answer(answers, reliability, share, wrong):
    rewarded, verdicts = [], {}
    for name, given in answers.items():
        for answer, reward in given:  # each in a discussion of its own
            held = discussion(turn("r0.s0", rf"\boxed{{{answer}}}"), turn("r0.s0.e0"), name=name)
            held = replace(held, question=Question(name, "math", "?"))
            held = replace(held, discussion_id=f"{name}{len(rewarded)}")
            verdicts |= {(held.discussion_id, "r0.s0"): VERDICTS.get(answer, "wrong")}
            rewarded.append(RewardedDiscussion(held, (reward, 0.0)))
    found = {"instruments/reliability": reliability, "majority/share": share}
    found |= {"majority/wrong": wrong}
    assert agreement(rewarded, verdicts=verdicts) == pytest.approx(found, abs=1e-4)


SOLUTION = "r0.s0"


def criticised(name: str, *criticism: tuple[str, str | None]) -> Discussion:
    """A discussion of one solution with these (evaluation, score or None)."""
    turns = [turn(SOLUTION)]
    for i, (evaluation, score) in enumerate(criticism):
        turns.append(turn(f"{SOLUTION}.e{i}", evaluation))
        if score is not None:
            turns.append(turn(f"{SOLUTION}.e{i}.t0", f"<score>{score}</score>"))
    return discussion(*turns, name=name)


def scored(name: str, scores: str, *rewards: float | None) -> RewardedDiscussion:
    """A discussion of one solution with an evaluation for each score, a digit."""
    return RewardedDiscussion(criticised(name, *(("", score) for score in scores)), rewards)


def simple(name: str, reward: float) -> RewardedDiscussion:
    return scored(name, f"{round(1 + 2 * reward)}", reward, 1 - reward, 0.0)


def verdicts_on(**verdicts: str) -> dict[tuple[str, str], str]:
    return {(name, SOLUTION): verdict for name, verdict in verdicts.items()}


def qualities(metrics: dict[str, float | None], threshold: str) -> dict[str, float | None]:
    prefix = f"reward_effectiveness/{threshold}/"
    return {k.removeprefix(prefix): v for k, v in metrics.items() if k.startswith(prefix)}


@pytest.fixture(autouse=True)
def aucs_of_few(monkeypatch):
    monkeypatch.setattr("comas.run.metrics.reward_effectiveness.MIN_OF_EACH", 1)


def test_the_qualities_of_both_thresholds_are_those_counted_by_hand():
    rewards = (1.0, 0.5, 1.0, 0.0, 0.0, 0.5)
    rewarded = [simple(name, r) for name, r in zip("abcdef", rewards, strict=True)]
    verdicts = verdicts_on(**dict.fromkeys("abd", "correct"), c="wrong", e="unanswered", f="wrong")
    metrics = reward_effectiveness(rewarded, verdicts=verdicts)
    # Correct are a, b, d. From score 2 on, a, b, c, f are predicted: TP 2, FP 2, FN 1, TN 1.
    names = ("accuracy", "precision", "recall", "specificity", "balanced_accuracy", "f1")
    for threshold, expected in (
        ("from_score_2", (3 / 6, 2 / 4, 2 / 3, 1 / 3, (2 / 3 + 1 / 3) / 2, 4 / (4 + 2 + 1))),
        # From score 3 on, a and c: TP 1, FP 1, FN 2, TN 2.
        ("from_score_3", (3 / 6, 1 / 2, 1 / 3, 2 / 3, (1 / 3 + 2 / 3) / 2, 2 / (2 + 1 + 2))),
    ):
        found = qualities(metrics, threshold)
        assert found == pytest.approx(dict(zip(names, expected, strict=True)))
    # Pairs with c, e, f: of a 1/2, 1, 1; of b 0, 1, 1/2; of d 0, 1/2, 0.
    assert metrics["reward_effectiveness/auc"] == 4.5 / 9
    assert auc([(1, True)]) is auc([(0.5, False)]) is auc([]) is None


def test_the_confusion_table_counts_every_scoring_of_a_solution():
    # (1 + 0 + 0) / 3 for the solution, whose third score cannot be read.
    right = scored("a", "31x", 1 / 3, 0.0, 0.0, 1.0, 0.0, 0.0, -1.0)
    wrong = scored("b", "2", 0.5, 0.5, 0.0)
    metrics = reward_effectiveness([right, wrong], verdicts=verdicts_on(a="correct", b="wrong"))
    cells = {key[18:] for key, n in metrics.items() if key.startswith("scoring/confusion/") and n}
    assert cells == {"score_3/correct", "score_1/correct", "invalid/correct", "score_2/incorrect"}
    assert {metrics[f"scoring/confusion/{cell}"] for cell in cells} == {1}
    assert metrics["reward_effectiveness/auc"] == 0
    assert metrics["scoring/entropy"] == pytest.approx(math.log(3))  # 3, 1 and 2


def test_what_is_no_prediction_counts_neither_way():
    metrics = reward_effectiveness([simple("a", 1.0)], verdicts=verdicts_on(a="failed"))
    assert {metrics["reward_effectiveness/auc"], *qualities(metrics, "from_score_2").values()} == {
        None
    }
    assert not any(v for k, v in metrics.items() if k.startswith("scoring/confusion"))
    verdicts = verdicts_on(a="correct")
    metrics = reward_effectiveness([simple("a", 1.0)], verdicts=verdicts, sees_verdicts=True)
    assert set(qualities(metrics, "from_score_2").values()) == {None}
    assert metrics["scoring/confusion/score_3/correct"] == 1
    metrics = reward_effectiveness([scored("a", "", None)], verdicts=verdicts_on(a="correct"))
    assert set(qualities(metrics, "from_score_3").values()) == {None}


def test_only_accusations_of_correct_solutions_count():
    lost, approval = "Mistake: a carry is lost.", (APPROVALS["math"], "1")
    discussions = [
        criticised("a", (lost, "1"), approval),
        criticised("b", (lost, "3"), (lost, "2"), approval),
        criticised("c", (lost, "4"), ("Never scored.", None)),
        criticised("wrong", (lost, "1")),
        criticised("failed", (lost, "1")),
    ]
    verdicts = {(name, "r0.s0"): "correct" for name in "abc"}
    verdicts |= {("wrong", "r0.s0"): "wrong", ("failed", "r0.s0"): "failed"}
    # Of six scored evaluations two approve. Of four accusations one is accepted; the score of
    # one cannot be read.
    assert false_accusations(discussions, verdicts=verdicts) == {
        "evaluation/false_accusation_rate": 4 / 6,
        "scoring/false_accusations_accepted": 1 / 4,
    }


def meanings_of(name: str) -> list[str]:
    return [each.text for each in meanings() if re.fullmatch(as_regex(each.pattern), name)]


@cases("name, begins")
def test_a_metric_is_found_by_the_pattern_that_its_name_fits(name, begins):
    assert [text[:42] for text in meanings_of(name)] == [text[:42] for text in begins]


def test_every_metric_of_a_step_has_exactly_one_meaning():
    item, other = page_runs.discussion(1), simple("b", 1.0)
    nothing = vars(other.discussion) | {"turns": (), "outcome": Outcome(None, error="it died")}
    rows: dict[str, Any] = step_metrics(
        Rewards(
            [item, RewardedDiscussion(HeldDiscussion(**nothing), ())], {"scoring/invalid_rate": 0.0}
        ),
        {policy: UpdateStats(learning_rate=0.1) for policy in (0, 1)},
        page_runs.verdicts_of(item),
        config=load_config(QUICKSTART, []),
    )
    assert len(rows) > 70
    assert [name for name in rows if len(meanings_of(name)) != 1] == []
    assert rows["train/accuracy"] == rows["train/unanswered_rate"] == 1 / 2
    assert rows["agent_0/policy/kl"] is rows["agent_1/rollout_mismatch/max"] is None
    assert (rows["agent_0/policy/num_samples"], rows["agent_0/policy/learning_rate"]) == (0, 0.1)


def test_the_line_of_a_step_names_the_reward_of_every_role_but_scorings():
    metrics = {"train/accuracy": 0.5, "reward/scoring": 0.0, "reward/spread": 2.0}
    [line] = step_lines(1, 20, metrics)
    assert "reward" not in line
    metrics |= {"reward/solution": 0.25, "reward/first_player": -1.0}
    [line] = step_lines(1, 20, metrics)
    assert line == "step 1/20  acc 0.50  reward sol 0.25 first_player -1.00  - tok  -s"
