"""The reward as a prediction of correctness, counted by hand; and its figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from comas.metrics.plots import draw_plots, main, points, smoothed
from comas.metrics.reward_effectiveness import reward_effectiveness
from comas.types import Discussion, Generation, Question, RewardedDiscussion, Turn

PREFIX = "reward_effectiveness"


def turn(turn_id: str, role: str, parent: str | None, text: str = "") -> Turn:
    generation = Generation((1,), (2,), text, (-1.0,), "stop", 0)
    return Turn(turn_id, parent, 0, role, 0, "prompt", generation)  # type: ignore[arg-type]


def discussion(name: str, *, scores: list[str], rewards: tuple[float | None, ...]):
    """One solution, and for each score an evaluation with its scoring."""
    turns = [turn("s", "solution", None)]
    for i, text in enumerate(scores):
        turns.append(turn(f"e{i}", "evaluation", "s"))
        turns.append(turn(f"t{i}", "scoring", f"e{i}", text))
    return RewardedDiscussion(Discussion(name, Question("q", "math", "?"), tuple(turns)), rewards)


def simple(name: str, reward: float) -> RewardedDiscussion:
    score = f"<score>{round(1 + 2 * reward)}</score>"
    return discussion(name, scores=[score], rewards=(reward, 1 - reward, 0.0))


def test_precision_recall_and_f1_are_those_counted_by_hand():
    rewarded = [simple(name, r) for name, r in zip("abcde", (1.0, 0.5, 1.0, 0.0, 0.0), strict=True)]
    verdicts = dict.fromkeys([("a", "s"), ("b", "s"), ("d", "s")], "correct")
    verdicts |= {("c", "s"): "wrong", ("e", "s"): "unanswered"}
    metrics = reward_effectiveness(rewarded, verdicts=verdicts)
    # Predicted correct: a, b, c; truly correct: a, b, d. TP 2, FP 1, FN 1, TN 1.
    assert metrics[f"{PREFIX}/accuracy"] == pytest.approx(3 / 5)
    assert metrics[f"{PREFIX}/precision"] == pytest.approx(2 / 3)
    assert metrics[f"{PREFIX}/recall"] == pytest.approx(2 / 3)
    assert metrics[f"{PREFIX}/f1"] == pytest.approx(2 * 2 / (2 * 2 + 1 + 1))


def test_precision_and_recall_are_told_apart():
    rewarded = [simple("a", 1.0), simple("b", 0.0), simple("c", 0.0)]
    verdicts = dict.fromkeys([("a", "s"), ("b", "s"), ("c", "s")], "correct")
    metrics = reward_effectiveness(rewarded, verdicts=verdicts)
    assert metrics[f"{PREFIX}/precision"] == 1.0  # the one predicted correct is
    assert metrics[f"{PREFIX}/recall"] == pytest.approx(1 / 3)


def test_the_confusion_table_counts_every_scoring_of_a_solution():
    scores = ["<score>3</score>", "<score>1</score>", "no score"]
    rewards = (1 / 3, 0.0, 0.0, 1.0, 0.0, 0.0, -1.0)  # (1 + 0 + 0) / 3 for the solution
    right = discussion("a", scores=scores, rewards=rewards)
    wrong = discussion("b", scores=["<score>2</score>"], rewards=(0.5, 0.5, 0.0))
    verdicts = {("a", "s"): "correct", ("b", "s"): "wrong"}
    metrics = reward_effectiveness([right, wrong], verdicts=verdicts)
    table = {
        key.removeprefix("scoring/confusion/"): value
        for key, value in metrics.items()
        if key.startswith("scoring/confusion/") and value
    }
    assert table == {
        "score_3/correct": 1,
        "score_1/correct": 1,
        "invalid/correct": 1,
        "score_2/incorrect": 1,
    }


def test_what_the_verifier_failed_on_counts_neither_way():
    metrics = reward_effectiveness([simple("a", 1.0)], verdicts={("a", "s"): "failed"})
    assert all(metrics[f"{PREFIX}/{name}"] is None for name in ("accuracy", "precision", "recall"))
    assert not any(v for k, v in metrics.items() if k.startswith("scoring/confusion"))


def test_a_solution_without_a_reward_is_no_prediction():
    unscored = discussion("a", scores=[], rewards=(None,))
    metrics = reward_effectiveness([unscored], verdicts={("a", "s"): "correct"})
    assert metrics[f"{PREFIX}/accuracy"] is None and metrics[f"{PREFIX}/recall"] is None


# ---------------------------------------------------------------- figures


def test_smoothing_is_the_mean_of_the_last_five():
    steps = list(enumerate((0.0, 1.0, 0.5, 0.5, 0.5, 1.0), start=1))
    assert [value for _, value in smoothed(steps)] == pytest.approx(
        [0, 1 / 2, 1.5 / 3, 2 / 4, 2.5 / 5, 3.5 / 5]
    )


def test_points_are_only_where_there_is_a_value():
    rows = [{"step": 0, "a": 1.0}, {"step": 1, "a": None}, {"step": 2}]
    assert points(rows, "a") == [(0, 1.0)]


def test_figures_are_drawn_from_a_run_that_has_just_begun(tmp_path, capsys):
    row = {"step": 0, "validation/accuracy": 0.4, "validation/accuracy/math": 0.4}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(row) + "\n" + '{"step": 1, "val')
    assert main([str(tmp_path)]) == 0
    paths = capsys.readouterr().out.split()
    assert [p.rpartition("/")[2] for p in paths] == [
        "training_dynamics.png",
        "reward_effectiveness.png",
    ]
    assert all(Path(path).read_bytes().startswith(b"\x89PNG\r\n\x1a\n") for path in paths)


def test_a_folder_that_is_no_run_is_named(tmp_path, capsys):
    assert main([str(tmp_path)]) == 1
    assert str(tmp_path) in capsys.readouterr().err
    (tmp_path / "metrics.jsonl").touch()
    with pytest.raises(ValueError, match="holds no step yet"):
        draw_plots(tmp_path)
