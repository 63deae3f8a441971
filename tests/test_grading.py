"""From inference.jsonl to evaluation.json, with accuracies counted by hand."""

import importlib.metadata
import importlib.util
import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import pytest
from small_runs import write_records
from tables import cases

from comas.verification import AnswerForm, Verifier
from evaluation import grading
from evaluation.grading import grade_folder
from evaluation.results import GRADERS, read_evaluation
from evaluation.types import Answer, BenchmarkTask, Call


class ExactVerifier:
    """Accepts the gold alone, fails at "?", and records its items."""

    def __init__(self) -> None:
        self.given: list[tuple[str, str]] = []

    def submit(self, items: Iterable[tuple[AnswerForm, str, str]], *, grader: str, on_verdict):
        items = list(items)
        for _ in set(items):
            on_verdict()
        self.given += [(grader, response) for _, response, _ in items]
        return Verdicts("failed" if r == "?" else _compare(r, gold) for _, r, gold in items)


class Verdicts(list):
    def result(self) -> list[str]:
        return list(self)


def _compare(response: str, gold: str) -> str:
    return "unanswered" if not response else "correct" if response == gold else "wrong"


def task(task_id: str, gold: str, form: AnswerForm = "math") -> BenchmarkTask:
    return BenchmarkTask(task_id, form, f"question {task_id}", f"query {task_id}", gold)


TASKS = [task("a", "1"), task("b", "2"), task("c", "3"), task("d", "4")]


def answer(task_id: str, response: str, *, seed: int = 0, num_calls: int = 1) -> Answer:
    messages = ({"role": "user", "content": "?"},)
    call = Call("answer", 0, messages, response, "stop", 10, 5)
    return Answer(task_id, seed, response, (call,) * num_calls)


@pytest.fixture
def folder(tmp_path) -> Path:
    path = tmp_path / "gsm8k" / "vanilla"
    path.mkdir(parents=True)
    return path


def answers_are(folder: Path, *answers: Answer) -> None:
    write_records(folder / "inference.jsonl", [asdict(item) for item in answers])


def grade(folder: Path, verifier, *, tasks=TASKS, seeds=(0,)):
    return grade_folder(folder, tasks, seeds=seeds, verifier=verifier)


def test_accuracy_divides_by_the_tasks_asked_under_all_seeds(folder):
    seed_0 = [answer("a", "1"), answer("b", "2"), answer("c", "3"), answer("d", "")]
    seed_1 = [answer("a", "1", seed=1), answer("b", "9", seed=1), answer("d", "?", seed=1)]
    # Tasks that were not asked count only in the cost.
    answers_are(folder, *seed_0, *seed_1, answer("a", "1", seed=2), answer("z", "1", num_calls=2))
    write_records(folder / "failures.jsonl", [{"task_id": "c", "seed": 1, "error": "status 500"}])
    evaluation = grade(folder, ExactVerifier(), seeds=(0, 1))
    assert (evaluation.benchmark, evaluation.setup) == ("gsm8k", "vanilla")
    assert (evaluation.num_asked, evaluation.num_done, evaluation.num_failures) == (8, 7, 1)
    strict = evaluation.graders["strict"]
    assert strict.accuracy_by_seed == (3 / 4, 1 / 4)  # and not 1 of the 3 that are there
    assert strict.accuracy == 4 / 8
    assert (strict.correct, strict.wrong, strict.unanswered, strict.failed) == (4, 1, 1, 1)
    cost = evaluation.cost
    assert (cost.calls, cost.prompt_tokens, cost.completion_tokens) == (10, 100, 50)
    assert read_evaluation(folder / "evaluation.json") == evaluation
    on_disk = json.loads((folder / "evaluation.json").read_text())
    assert on_disk["graders"]["strict"]["accuracy"] == 0.5
    assert on_disk["answers"][0].items() >= {"task_id": "a", "seed": 0, "strict": "correct"}.items()


EARLIER = (answer("a", "1"), answer("b", "9"), answer("d", "?"))


@cases(
    "later, tasks, seeds, judged, num_correct",
    (EARLIER, TASKS, (0,), "", 1),
    ([answer("b", "2"), answer("c", "3")], TASKS, (0,), "23", 3),
    ([], [task("a", "7"), *TASKS[1:]], (0,), "1", 0),  # another gold
    ([answer("a", "9", seed=1)], TASKS, (0, 1), "9", 1),
)
def test_only_what_is_new_or_failed_is_judged(folder, later, tasks, seeds, judged, num_correct):
    answers_are(folder, *EARLIER)
    first = grade(folder, ExactVerifier())
    answers_are(folder, *{(a.task_id, a.seed): a for a in [*EARLIER, *later]}.values())
    verifier = ExactVerifier()
    graded = grade(folder, verifier, tasks=tasks, seeds=seeds)
    expected = sorted(f"?{judged}")
    assert sorted(verifier.given) == [(g, r) for g in sorted(GRADERS) for r in expected]
    assert graded.graders["strict"].correct == num_correct
    assert (graded == first) == (later is EARLIER)


def _imported_grading():
    """``evaluation.grading`` as a new process would import it now."""
    spec = importlib.util.spec_from_file_location("new_grading", grading.__file__)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_graders_are_known_by_their_libraries(monkeypatch):
    real = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda n: "0" if n == "pint" else real(n))
    assert _imported_grading().GRADERS_FINGERPRINT != grading.GRADERS_FINGERPRINT


DOUBLE = "```python\ndef double(x):\n    return 2 * x\n```"
JUDGED = [  # form, gold, response; strict, published, math_verify
    ("choice", "A", r"\boxed{(A)}", ("correct", "unanswered", "correct")),
    ("math", "2", r"\boxed{3}", ("wrong",) * 3),
    ("math", r"\frac{1}{2}", r"It is $\frac{1}{2}$.", ("unanswered", "correct", "correct")),
    ("science", "2.5", r"\boxed{2.5}", ("correct",) * 3),
    ("coding", "assert double(2) == 4", DOUBLE, ("correct",) * 3),
]


def test_all_graders_judge_every_form(folder):
    tasks = [task(str(n), gold, form) for n, (form, gold, _, _) in enumerate(JUDGED)]
    answers_are(folder, *(answer(str(n), row[2]) for n, row in enumerate(JUDGED)))
    with Verifier(num_workers=2) as verifier:
        evaluation = grade(folder, verifier, tasks=tasks)
    verdicts = [(a.strict, a.published, a.math_verify) for a in evaluation.answers]
    assert verdicts == [expected for *_, expected in JUDGED]
    accuracies = {grader: tally.accuracy for grader, tally in evaluation.graders.items()}
    assert accuracies == {"strict": 3 / 5, "published": 3 / 5, "math_verify": 4 / 5}
