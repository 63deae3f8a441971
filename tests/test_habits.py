"""Which habits of mistakes are left, by discussions and results made by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from made_results import results, run

from comas.config import config_as_yaml
from comas.config.schema import Config, Society
from comas.quickstart.questions import make_problem
from comas.quickstart.worked import work
from comas.reproduction.experiments import MAIN, PLANS
from comas.reproduction.habits import habits_left, paid_more, read_habits, solutions_showing
from comas.reproduction.results import as_table
from comas.reproduction.tables import habits_table

SUM = make_problem("math", (48, 23), wording=0)
"""The habits with it: qwen2 loses the carry, llama leaves out the second number."""
NO_CARRY = make_problem("math", (41, 23), wording=0)
NOTHING_LOST = work(NO_CARRY, None).text
RIGHT, LOST, LEFT_OUT = (work(SUM, m).text for m in (None, "carry lost", "second left out"))


def said(
    agent: int | None, text: str, reward: float | None = 0.5, role: str = "solution"
) -> dict[str, object]:
    verdict = "correct" if text in (RIGHT, NOTHING_LOST) else "wrong"
    return {"agent": agent, "role": role, "response": text, "verdict": verdict, "reward": reward}


def write(file: Path, *discussions: tuple[str, list[dict[str, object]]]) -> Path:
    file.parent.mkdir(exist_ok=True)
    lines = [json.dumps({"question": q, "turns": turns}) + "\n" for q, turns in discussions]
    file.write_text("".join(lines))
    return file


def test_a_habit_is_a_share_of_the_solutions_that_could_show_it(tmp_path: Path):
    turns = [
        said(0, f"{LOST}\n", reward=1.0),
        said(0, LOST, reward=0.5),
        said(0, RIGHT, reward=0.5),
        said(0, RIGHT, reward=None),
        said(0, LEFT_OUT, reward=0.0),  # another model's habit
        said(1, LEFT_OUT),
        said(0, LOST, role="evaluation"),
        said(None, LOST),  # given, not said
    ]
    no_carry = [said(0, NOTHING_LOST, reward=0.0)]  # there is none to lose
    file = write(tmp_path / "step_0001.jsonl", (SUM.text, turns), (NO_CARRY.text, no_carry))
    solutions = list(solutions_showing([file], ["qwen2", "llama"]))
    assert habits_left(solutions) == {
        "llama/math/second left out": 1.0,
        "qwen2/math/carry lost": 0.4,
    }
    assert paid_more(solutions) == {
        "llama/math/second left out": None,  # nothing right to compare it with
        "qwen2/math/carry lost": 0.25,
    }


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (
            "quickstart/models/qwen2",
            {
                "first": {"qwen2/math/carry lost": 0.1},
                "last": {"qwen2/math/carry lost": 0.2},
                "paid": {"qwen2/math/carry lost": 0.0},
            },
        ),
        ("Qwen/Qwen2.5-3B-Instruct", {}),
    ],
)
def test_the_ends_of_a_run_are_ten_steps_each(model: str, expected: object, tmp_path: Path):
    config = replace(Config(), society=replace(Society(), num_agents=1, models=[model]))
    (tmp_path / "config.yaml").write_text(config_as_yaml(config))
    assert read_habits(tmp_path) == {}  # it has left no discussions
    for step in range(1, 14):
        text = LOST if step in (2, 13, 12) else RIGHT
        write(tmp_path / f"discussions/step_{step:04}.jsonl", (SUM.text, [said(0, text)]))
    assert read_habits(tmp_path) == expected


def test_the_habit_that_evaluators_name_least_comes_first():
    kept, lost = "llama/math/a", "qwen2/math/b"
    habits = {
        "first": {lost: 0.5, kept: 0.6},
        "last": {lost: 0.0, kept: 0.58},
        "paid": {lost: -0.25, kept: None},
    }
    named = {"probe/names/math/a": 0.07, "probe/names/math/b": 0.8}
    runs = [replace(r, habits=habits) for r in (run(MAIN, 0), run(MAIN, 1))]
    runs = [replace(r, before=r.before | named) for r in runs]
    known = [e for e in PLANS["quickstart"].experiments if e.name == MAIN]
    assert habits_table(as_table(runs), known, MAIN).splitlines()[2:] == [
        "| llama, math, a | 7 |  | 60 -> 58 |",
        "| qwen2, math, b | 80 | -0.25 | 50 -> 0 |",
    ]
    assert (
        len(habits_table(results(comas=[1.0]), known, MAIN).splitlines()) == 2
    )  # none were taught
