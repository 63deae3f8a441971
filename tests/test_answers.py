"""What answers are made of, and how many tries find the right one."""

from __future__ import annotations

import pytest

from comas.interaction.prompts import SOLUTION, fill
from comas.quickstart.questions import make_problem
from comas.quickstart.worked import work
from comas.reproduction.answers import KINDS, kind_of, pass_at_all
from evaluation.results import Cost, Evaluation, GradedAnswer


@pytest.mark.parametrize(
    ("mistake", "kind"),
    [
        ("carry lost", "its own habit"),  # of qwen2, with this wording
        ("second left out", "another that judges know"),  # llama's
        ("twice", "the one no judge knows"),
    ],
)
def test_a_wrong_answer_is_of_the_kind_that_was_made(mistake: str, kind: str):
    problem = make_problem("math", (48, 23), wording=0)
    question = fill(SOLUTION, "math", question=problem.text)
    text = work(problem, mistake).text
    assert kind in KINDS
    assert kind_of(question, f"{text}\n", model="qwen2", is_right=False) == kind
    assert kind_of(question, text, model="qwen2", is_right=True) == "right"
    assert kind_of(question, text.replace("8", "9"), model="qwen2", is_right=False) == "else"


def test_pass_at_k_asks_whether_any_try_is_right():
    verdicts = {"a": ("wrong", "correct"), "b": ("wrong", "unanswered"), "c": ("correct", None)}
    answers = tuple(
        GradedAnswer(task, seed, None, verdict, None)  # type: ignore[arg-type]
        for task, of_task in verdicts.items()
        for seed, verdict in enumerate(of_task)
    )
    cost = Cost.of(calls=0, prompt_tokens=0, completion_tokens=0, wall_s=0.0)
    evaluation = Evaluation("held_out", "vanilla", (0, 1), 3, 6, 5, 0, {}, cost, {}, answers)
    assert pass_at_all(evaluation) == pytest.approx(2 / 3)
