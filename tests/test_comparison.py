"""Differences of two subjects on the same tasks, and their intervals."""

from dataclasses import replace
from pathlib import Path

import pytest
from evaluation_cases import evaluation, table_rows, write
from tables import cases

from evaluation.accuracy import accuracy_of, bootstrap_interval, paired_difference
from evaluation.grading import GRADERS_FINGERPRINT
from evaluation.report import compare
from evaluation.results import write_identity


def accuracy(*by_seed: str, questions: str = "q"):
    return accuracy_of(evaluation(by_seed, questions=questions), "strict")


def difference(*, of: tuple[str, ...], to: tuple[str, ...]):
    found = paired_difference(accuracy(*of), reference=accuracy(*to))
    assert found is not None
    return found


@cases(
    "of, to, expected",
    (["cccc"], ["wwww"], (1, 1, 1)),
    (["cwcu", "ccw-"], ["cwcu", "ccw-"], (0, 0, 0)),  # a subject and itself
    # Resamples of {0, 1}: mean 0 with probability 1/4, 1/2 with 1/2, 1 with 1/4.
    (["cc"], ["cw"], (0.5, 0, 1)),
    # Two tasks, solved in 4 of 5 seeds against 1 of 5: each differs by 3/5, so no spread.
    (["cc", "cc", "cc", "cc", "ww"], ["cc", "ww", "ww", "ww", "ww"], (0.6, 0.6, 0.6)),
    # An answer that is not there is not correct.
    (["c-"], ["cc"], (-0.5, -1, 0)),
)
def test_a_difference_and_its_interval_are_those_counted_by_hand(of, to, expected):
    found = difference(of=of, to=to)
    assert (found.value, found.low, found.high) == expected
    assert difference(of=of, to=to) == found  # the same resamples every time
    assert not found.excludes_zero  # of so few tasks


def test_the_interval_is_that_of_the_binomial_distribution():
    # X of Binomial(10, 1/2): P(X <= 1) = 0.011, P(X <= 2) = 0.055; the same above.
    assert bootstrap_interval([0.0, 1.0] * 5) == (0.2, 0.8)


@pytest.mark.parametrize(("num_tasks", "excludes_zero"), [(1, False), (5, False), (6, True)])
def test_a_few_tasks_that_differ_alike_tell_nothing_from_chance(num_tasks, excludes_zero):
    found = difference(of=("c" * num_tasks,), to=("w" * num_tasks,))
    assert (found.low, found.high) == (1, 1)
    assert found.excludes_zero is excludes_zero


def test_subjects_may_have_different_numbers_of_seeds():
    assert difference(of=("cw", "cw", "cc"), to=("cw",)).value == pytest.approx(1 / 3 / 2)


def test_thirds_that_cancel_leave_exactly_zero():
    # Per task +1/3, +1/3, -2/3: no rounding may push the mean to one side of 0.
    found = difference(of=("ccw", "www", "www"), to=("wwc", "wwc", "www"))
    assert found.value == 0
    assert not found.excludes_zero


def test_only_common_tasks_are_compared_and_their_number_is_said(tmp_path):
    write(tmp_path / "a", evaluation(["ccww"]))
    write(tmp_path / "b", evaluation(["cccwcc"]))
    text = compare(["a", "b"], results=tmp_path)
    # b solves 5 of its 6 tasks; of the four that a had too, 3, where a solves 2.
    assert table_rows(text, title="Accuracy")[1] == ["", "b", "83.33 (+25.00)"]
    assert table_rows(text, title="Differences")[0][-1] == "4"


def test_equal_names_of_different_questions_are_not_the_same_task(tmp_path):
    write(tmp_path / "a", evaluation(["cc"]), evaluation(["cw"], name="mmlu"))
    write(tmp_path / "b", evaluation(["ww"], questions="x"), evaluation(["cc"], name="mmlu"))
    text = compare(["a", "b"], results=tmp_path)
    assert table_rows(text, title="Accuracy")[1] == ["", "b", "0.00", "100.00 (+50.00)"]
    gsm8k, mmlu = table_rows(text, title="Differences")
    assert gsm8k[-3:] == ["-", "-", "0"]
    assert mmlu[-1] == "2"


def test_nothing_in_common_is_an_error_that_says_what_each_has(tmp_path):
    write(tmp_path / "a", evaluation(["cc"]))
    write(tmp_path / "b", evaluation(["cc"], name="mmlu", setup="debate"))
    write(tmp_path / "c", evaluation(["cc"], questions="x"))
    expected = "b and a have no task in common: debate on mmlu against vanilla on gsm8k"
    with pytest.raises(ValueError, match=expected):
        compare(["a", "b"], results=tmp_path)
    with pytest.raises(ValueError, match="c and a have no task in common"):
        compare(["a", "c"], results=tmp_path)


def three_results(results: Path) -> None:
    write(results / "base", evaluation(["cccccwwwww"]), evaluation(["cw"], setup="debate"))
    write(results / "run" / "agent_0", evaluation(["c" * 10], published=["cccccccccw"]))
    write(results / "run" / "agent_1", evaluation(["cccccwwwwf"]))


def test_several_are_compared_with_the_first(tmp_path):
    three_results(tmp_path)
    text = compare(["base", "run/agent_0", "run/agent_1"], results=tmp_path)
    assert text.startswith("# run/agent_0, run/agent_1 compared with base\n")
    assert table_rows(text, title="Accuracy") == [
        ["vanilla", "base", "50.00"],
        ["", "run/agent_0", "100.00 (+50.00*)"],
        ["", "run/agent_1", "50.00 [9/10] (+0.00)"],
        ["debate", "base", "50.00"],
    ]
    agent_0, agent_1 = table_rows(text, title="Differences")
    # 5 of 10 tasks differ by 1, under the published grader 4 of 10: P(X = 0) = 0.006,
    # P(X <= 1) = 0.046, P(X <= 6) = 0.945, P(X <= 7) = 0.988.
    strict, published = "+50.00 [+20.00, +80.00]*", "+40.00 [+10.00, +70.00]*"
    assert agent_0 == ["vanilla", "gsm8k", "run/agent_0", "base", strict, published, strict, "10"]
    assert agent_1[2:5] == ["run/agent_1", "base", "+0.00 [+0.00, +0.00]"]
    assert "- run/agent_1, vanilla, gsm8k: the strict grader failed on 1" in text


def test_a_run_is_compared_by_its_parts_and_a_shell_may_complete_its_name(tmp_path):
    three_results(tmp_path)
    text = compare([f"{tmp_path}/base/", "run/"], results=tmp_path)
    labels = ("run/agent_0", "run/agent_1", "run, mean of 2 agents")
    assert all(f"{label} " in text for label in labels)
    assert text.startswith("# run compared with base\n")


def test_a_run_is_no_reference_for_a_single_model(tmp_path):
    three_results(tmp_path)
    with pytest.raises(ValueError, match=r"cannot compare base with run/agent_0, run/agent_1"):
        compare(["run", "base"], results=tmp_path)


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
    text = compare(["run/agent_0", "run/agent_1"], results=tmp_path)
    assert "Asked differently" not in text


def test_results_of_different_graders_are_marked(tmp_path):
    write(tmp_path / "old", evaluation(["cw"]))
    write(tmp_path / "new", replace(evaluation(["cc"]), graded_by=GRADERS_FINGERPRINT))
    text = compare(["old", "new"], results=tmp_path)
    assert "## Graded differently\n\n- old: judged by other graders" in text
    assert "- new: judged" not in text
    write(tmp_path / "older", evaluation(["cc"]))
    text = compare(["old", "older"], results=tmp_path)
    assert "Graded differently" not in text


def test_bad_names_are_errors_that_name_what_there_is(tmp_path):
    three_results(tmp_path)
    with pytest.raises(ValueError, match="at least two results, not 1"):
        compare(["base"], results=tmp_path)
    with pytest.raises(ValueError, match=r"bse holds no graded results; .* has: base, run\."):
        compare(["base", "bse"], results=tmp_path)
