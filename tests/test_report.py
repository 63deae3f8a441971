"""From inference.jsonl to evaluation.json, summaries and differences, counted by hand."""

import importlib.metadata
import json
import runpy
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from evaluation_cases import evaluation, table_rows, write
from small_runs import write_records
from tables import cases

from comas.types import Domain
from comas.verification import Verifier
from evaluation import grading
from evaluation.accuracy import Difference, accuracy_of, paired_difference
from evaluation.grading import GRADERS_FINGERPRINT, grade_folder
from evaluation.report import compare, write_summary
from evaluation.results import GRADERS, Cost, read_evaluation, write_identity
from evaluation.types import Answer, BenchmarkTask, Call

# The intervals by hand, X being how many tasks that differ a resample of n tasks holds:
# strict, vanilla: 4 of 8 differ by 1. P(X = 0) = 0.004, P(X <= 1) = 0.035: 2.5 % lie at 1/8.
# debate: 1 of 4 differs by -1. P(X <= 2) = 0.949, P(X <= 3) = 0.996: 97.5 % lie at 3/4.


def test_the_summary_and_a_comparison_are_tables_as_the_papers(tmp_path):
    cost = Cost(calls=28, prompt_tokens=9000, completion_tokens=1200)
    write(tmp_path / "base", evaluation(["cwww" * 3]), evaluation(["cwcw"], setup="debate"))
    folder = write(
        tmp_path / "trained",
        evaluation(["cccw" * 3], published=["cwww" * 3]),
        evaluation(["cu"], name="mmlu"),
        evaluation(["cf-u"], setup="debate", cost=cost, num_failures=1),
    )
    screen = write_summary(folder)
    text = (folder / "summary.md").read_text()
    golden = Path(__file__).parent / "golden"
    assert text == (golden / "summary.md").read_text()
    assert screen == text.partition("\n## Cost")[0]
    # 6 of 12 tasks differ, all alike. P(X <= 2) = 0.019, P(X <= 3) = 0.073; 2 of 2^6 signs.
    assert compare(["base", "trained"], results=tmp_path) == (golden / "compared.md").read_text()


def test_a_run_shows_each_agent_their_mean_and_the_society(tmp_path):
    write(tmp_path / "run" / "society", evaluation(["cccc"]))
    for number, verdicts in ((10, "wwww"), (0, "cccw"), (2, "ccww")):
        others = evaluation(["c" * (number + 1)], name="mmlu")  # of which there is no mean
        write(tmp_path / "run" / f"agent_{number}", evaluation([verdicts]), others)
    screen = write_summary(tmp_path / "run")
    # Agents: 75, 50, 0: mean 41.67, deviations 33.33, 8.33, -41.67: sqrt(2916.67 / 2) = 38.19.
    assert table_rows(screen, title="Accuracy") == [
        ["vanilla", "run/agent_0", "75.00", "100.00"],
        ["", "run/agent_2", "50.00", "100.00"],
        ["", "run/agent_10", "0.00", "100.00"],
        ["", "run, mean of 3 agents", "41.67 ± 38.19", "-"],
        ["", "run/society", "100.00", "-"],
    ]
    assert "Accuracy by the published graders, with their faults: the same." in screen


def test_the_parts_of_two_runs_are_compared_each_with_its_like(tmp_path):
    for run, verdicts in (
        ("before", ("cwww", "wwww", "cwww")),
        ("after", ("ccww", "cccw", "cccc")),
    ):
        for part, text in zip(("agent_0", "agent_1", "society"), verdicts, strict=True):
            write(tmp_path / run / part, evaluation([text]))
    rows = table_rows(compare(["before", "after"], results=tmp_path), title="Differences")
    assert [(row[2], row[3], row[4].partition(" ")[0]) for row in rows] == [
        ("after/agent_0", "before/agent_0", "+25.00"),
        ("after/agent_1", "before/agent_1", "+75.00"),
        ("after, mean of 2 agents", "before, mean of 2 agents", "+50.00"),
        ("after/society", "before/society", "+75.00"),
    ]
    shutil.rmtree(tmp_path / "before/agent_1")  # equal to the first, which stands for both
    rows = table_rows(compare(["before", "after"], results=tmp_path), title="Differences")
    assert [row[3] for row in rows] == ["before/agent_0"] * 3 + ["before/society"]
    assert [row[4].partition(" ")[0] for row in rows] == ["+25.00", "+50.00", "+37.50", "+75.00"]


def difference(*, of: Sequence[str], to: Sequence[str]) -> Difference:
    ours, theirs = (accuracy_of(evaluation(each), "strict") for each in (of, to))
    found = paired_difference(ours, reference=theirs)
    assert found is not None
    return found


@cases("of, to, expected")
def test_a_difference_and_its_interval_are_those_counted_by_hand(of, to, expected):
    found = difference(of=of, to=to)
    # Nothing but 0 is about 0: no rounding may push a mean to one side of it.
    assert (found.value, found.low, found.high) == pytest.approx(expected, rel=1e-9, abs=0)
    assert difference(of=of, to=to) == found  # the same resamples every time


@cases("of, to, p_value")
def test_an_exact_test_decides_whether_a_difference_is_significant(of, to, p_value):
    found = difference(of=of, to=to)
    assert found.p_value == pytest.approx(p_value)
    assert found.is_significant == (p_value < 0.05)


def test_only_common_tasks_are_compared_and_their_number_is_said(tmp_path):
    """Equal names of other questions are other tasks."""
    write(tmp_path / "a", evaluation(["cc"]), evaluation(["ccww"], name="mmlu"))
    write(tmp_path / "b", evaluation(["ww"], questions="x"), evaluation(["cccwcc"], name="mmlu"))
    text = compare(["a", "b"], results=tmp_path)
    # b solves 5 of its 6 tasks of mmlu; of the four that a had too, 3, where a solves 2.
    assert table_rows(text, title="Accuracy")[1] == ["", "b", "0.00", "83.33 (+25.00)"]
    gsm8k, mmlu = table_rows(text, title="Differences")
    assert gsm8k[-3:] == ["-", "-", "0"]
    assert mmlu[-1] == "4"


def three_results(results: Path) -> None:
    write(results / "base", evaluation(["cccccwwwww"]), evaluation(["cw"], setup="debate"))
    write(results / "run" / "agent_0", evaluation(["c" * 10], published=["cccccccccw"]))
    write(results / "run" / "agent_1", evaluation(["cccccwwwwf"]))


def test_results_that_were_asked_differently_are_marked(tmp_path):
    three_results(tmp_path)
    common = {"max_tokens": 2048, "generation_config": "model"}
    for name, temperature in (("base", 0.7), ("run", 1.0)):
        sampling = {"temperature": temperature, **common}
        write_identity(tmp_path / name, {"sampling": sampling, "tasks": {}, "setup_files": {}})
    text = compare(["base", "run"], results=tmp_path)
    assert "## Asked differently\n\n- temperature: base 0.7, run 1.0\n\n##" in text
    # A part of a run was asked as its run was.
    text = compare(["base", "run/agent_0"], results=tmp_path)
    assert "- temperature: base 0.7, run/agent_0 1.0" in text
    assert "Asked differently" not in compare(["run/agent_0", "run/agent_1"], results=tmp_path)


def test_results_of_different_graders_are_marked(tmp_path):
    write(tmp_path / "old", evaluation(["cw"]))
    write(tmp_path / "new", replace(evaluation(["cc"]), graded_by=GRADERS_FINGERPRINT))
    text = compare(["old", "new"], results=tmp_path)
    assert "## Graded differently\n\n- old: judged by other graders" in text
    assert "- new: judged" not in text
    write(tmp_path / "older", evaluation(["cc"]))
    text = compare(["old", "older"], results=tmp_path)
    assert "Graded differently" not in text


@cases("names, said")
def test_what_cannot_be_compared_is_told_with_what_there_is(tmp_path, names, said):
    three_results(tmp_path)
    write(tmp_path / "mmlu", evaluation(["cc"], name="mmlu", setup="debate"))
    write(tmp_path / "x", evaluation(["cc"], questions="x"))
    with pytest.raises(ValueError, match=said):
        compare(names, results=tmp_path)


def test_pass_at_k_of_several_seeds_stands_in_the_summary_with_intervals(tmp_path):
    # Of two tasks, the first is solved in 1 of 3 seeds, the second in all: pass@1 = (1/3 + 1) / 2,
    # pass@2 = (2/3 + 1) / 2. A resample of two holds the first twice, or never, each with 1/4.
    write(tmp_path / "run/agent_0", evaluation(["cc", "wc", "-c"]))
    write(tmp_path / "run/agent_1", evaluation(["ww", "ww", "ww"]))
    screen = write_summary(tmp_path / "run")
    text = (tmp_path / "run/summary.md").read_text()
    assert "pass@k" not in screen
    agents, zero = ["vanilla", "gsm8k"], "0.00 [0.00, 0.00]"
    halves = ["33.33 [16.67, 50.00]", "41.67 [33.33, 50.00]", "50.00 [50.00, 50.00]"]
    wholes = ["66.67 [33.33, 100.00]", "83.33 [66.67, 100.00]", "100.00 [100.00, 100.00]"]
    assert table_rows(text, title="pass@k") == [
        [*agents, "run/agent_0", *wholes],
        [*agents, "run/agent_1", *[zero] * 3],
        [*agents, "run, mean of 2 agents", *halves],
    ]
    write(tmp_path / "once", evaluation(["cw"]))
    assert "pass@k" not in compare(["once", "once"], results=tmp_path)
    assert "pass@3" in compare(["once", "run"], results=tmp_path)


class ExactVerifier:
    """Accepts the gold alone, fails at "?", and records its items."""

    def __init__(self) -> None:
        self.given: list[tuple[str, str]] = []

    def submit(self, items: Iterable[tuple[Domain, str, str]], *, grader: str, on_verdict):
        items = list(items)
        for _ in set(items):
            on_verdict()
        self.given += [(grader, response) for _, response, _ in items]
        known = {"": "unanswered", "?": "failed"}
        verdicts = [known.get(r, "correct" if r == gold else "wrong") for _, r, gold in items]
        return Mock(**{"result.return_value": verdicts})


def task(task_id: str, gold: str, form: Domain = "math") -> BenchmarkTask:
    return BenchmarkTask(task_id, form, f"question {task_id}", f"query {task_id}", gold)


TASKS = [task("a", "1"), task("b", "2"), task("c", "3"), task("d", "4")]


def answer(task_id: str, response: str, *, seed: int = 0, num_calls: int = 1) -> Answer:
    call = Call("answer", 0, ({"role": "user", "content": "?"},), response, "stop", 10, 5)
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
    assert sorted(verifier.given) == [(g, r) for g in sorted(GRADERS) for r in sorted(f"?{judged}")]
    assert graded.graders["strict"].correct == num_correct
    assert (graded == first) == (later is EARLIER)


def test_graders_are_known_by_their_libraries(monkeypatch):
    others = [each for each in importlib.metadata.distributions() if each.name.lower() != "pint"]
    monkeypatch.setattr(importlib.metadata, "distributions", lambda: others)
    now = runpy.run_path(grading.__file__)  # as a new process would import it
    assert now["GRADERS_FINGERPRINT"] != grading.GRADERS_FINGERPRINT


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
