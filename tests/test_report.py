"""Summaries of results folders, with every number counted by hand."""

import json
from pathlib import Path

import pytest
from evaluation_cases import evaluation, table_rows, write
from tables import cases

from evaluation.report import write_summary
from evaluation.results import GRADERS, Cost


def rows_of(folder: Path) -> dict[tuple[str, ...], dict]:
    """The rows of summary.json by (model, setup, benchmark, grader)."""
    rows = json.loads((folder / "summary.json").read_text())["rows"]
    return {(r["model"], r["setup"], r["benchmark"], r["grader"]): r for r in rows}


GOLDEN = Path(__file__).parent / "golden" / "summary.md"
# The intervals by hand, X being how many tasks that differ a resample of n tasks holds:
# strict, vanilla: 4 of 8 differ by 1. P(X = 0) = 0.004, P(X <= 1) = 0.035: 2.5 % lie at 1/8.
# debate: 1 of 4 differs by -1. P(X <= 2) = 0.949, P(X <= 3) = 0.996: 97.5 % lie at 3/4.


def small_results(results: Path) -> None:
    cost = Cost(calls=28, prompt_tokens=9000, completion_tokens=1200)
    write(results / "base", evaluation(["cwww" * 2]), evaluation(["cwcw"], setup="debate"))
    write(
        results / "trained",
        evaluation(["cccw" * 2], published=["cwww" * 2]),
        evaluation(["cu"], name="mmlu"),
        evaluation(["cf-u"], setup="debate", cost=cost, num_failures=1),
    )


def test_the_summary_is_a_table_as_the_papers(tmp_path):
    small_results(tmp_path)
    screen = write_summary(tmp_path / "trained", baseline=tmp_path / "base")
    text = (tmp_path / "trained" / "summary.md").read_text()
    assert text == GOLDEN.read_text()
    assert screen == text.partition("\n## Differences")[0]


def test_the_rows_of_the_json_hold_the_differences_and_their_intervals(tmp_path):
    small_results(tmp_path)
    folder = tmp_path / "trained"
    write_summary(folder, baseline=tmp_path / "base")
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["name"], summary["baseline"]) == ("trained", "base")
    row = rows_of(folder)["trained", "vanilla", "gsm8k", "strict"]
    assert row["accuracy_percent"] == 75
    assert row["standard_deviation_percent"] is None  # of a single seed
    assert (row["reference"], row["difference_points"], row["num_common_tasks"]) == ("base", 50, 8)
    assert (row["difference_low"], row["difference_high"]) == (12.5, 87.5)
    assert {(c["setup"], c["benchmark"]): c["calls"] for c in summary["cost"]} == {
        ("vanilla", "gsm8k"): 10,
        ("vanilla", "mmlu"): 10,
        ("debate", "gsm8k"): 28,
    }


def test_several_seeds_give_mean_and_sample_standard_deviation(tmp_path):
    # Accuracies 100, 50, 75: mean 75, deviations 25, -25, 0, variance (625 + 625) / 2 = 625.
    write(tmp_path / "base", evaluation(["cccc", "ccww", "ccwc"]))
    assert "| 75.00 ± 25.00 |" in write_summary(tmp_path / "base")
    row = rows_of(tmp_path / "base")["base", "vanilla", "gsm8k", "strict"]
    assert (row["accuracy_percent"], row["standard_deviation_percent"]) == (75, 25)
    assert (row["deviation_over"], row["num_repeats"]) == ("seeds", 3)


def test_a_run_shows_each_agent_their_mean_and_the_society(tmp_path):
    write(tmp_path / "run" / "society", evaluation(["cccc"]))
    for number, verdicts in ((10, "wwww"), (0, "cccw"), (2, "ccww")):
        write(tmp_path / "run" / f"agent_{number}", evaluation([verdicts]))
    screen = write_summary(tmp_path / "run")
    # Agents: 75, 50, 0: mean 41.67, deviations 33.33, 8.33, -41.67: sqrt(2916.67 / 2) = 38.19.
    assert table_rows(screen, title="Accuracy") == [
        ["vanilla", "run/agent_0", "75.00"],
        ["", "run/agent_2", "50.00"],
        ["", "run/agent_10", "0.00"],
        ["", "run, mean of 3 agents", "41.67 ± 38.19"],
        ["", "run/society", "100.00"],
    ]
    assert "Accuracy by the published graders, with their faults: the same." in screen
    text = (tmp_path / "run" / "summary.md").read_text()
    mean = rows_of(tmp_path / "run")["run, mean of 3 agents", "vanilla", "gsm8k", "strict"]
    assert (mean["deviation_over"], mean["num_repeats"], mean["num_asked"]) == ("agents", 3, 12)
    assert [row[1] for row in table_rows(text, title="Cost")] == [
        "run/agent_0",
        "run/agent_2",
        "run/agent_10",
        "run/society",
    ]


def test_agents_that_were_asked_different_tasks_have_no_mean(tmp_path):
    write(tmp_path / "run" / "agent_0", evaluation(["cc"]), evaluation(["cc"], name="mmlu"))
    write(tmp_path / "run" / "agent_1", evaluation(["ww"]), evaluation(["wwww"], name="mmlu"))
    write_summary(tmp_path / "run")
    rows = rows_of(tmp_path / "run")
    assert rows["run, mean of 2 agents", "vanilla", "gsm8k", "strict"]["accuracy_percent"] == 50
    assert ("run, mean of 2 agents", "vanilla", "mmlu", "strict") not in rows


def test_the_parts_of_two_runs_are_compared_each_with_its_like(tmp_path):
    for run, verdicts in (
        ("before", ("cwww", "wwww", "cwww")),
        ("after", ("ccww", "cccw", "cccc")),
    ):
        for part, text in zip(("agent_0", "agent_1", "society"), verdicts, strict=True):
            write(tmp_path / run / part, evaluation([text]))
    write_summary(tmp_path / "after", baseline=tmp_path / "before")
    rows = rows_of(tmp_path / "after")
    found = {
        key[0]: (row["reference"], row["difference_points"])
        for key, row in rows.items()
        if key[3] == "strict" and row["reference"]
    }
    assert found == {
        "after/agent_0": ("before/agent_0", 25),
        "after/agent_1": ("before/agent_1", 75),
        "after, mean of 2 agents": ("before, mean of 2 agents", 50),
        "after/society": ("before/society", 75),
    }
    # One subject can be the baseline of all.
    write_summary(tmp_path / "after", baseline=tmp_path / "before" / "agent_0")
    rows = rows_of(tmp_path / "after")
    for part, difference in (("agent_1", 50 + 0), ("society", 75)):
        row = rows[f"after/{part}", "vanilla", "gsm8k", "strict"]
        assert (row["reference"], row["difference_points"]) == ("before/agent_0", difference)


@cases(
    "verdicts, num_failures, reasons",
    ("cw--", 1, "2/4 answered, 1 failed (failures.jsonl), 1 not asked yet"),
    ("cw--", 0, "2/4 answered, 2 not asked yet"),
    ("cwfu", 0, ", ".join(f"the {grader} grader failed on 1" for grader in GRADERS)),
)
def test_what_is_missing_is_said(tmp_path, verdicts, num_failures, reasons):
    write(tmp_path / "base", evaluation(["cwuw"], setup="complete"))
    assert "## Missing\n\nNothing: every answer" in write_summary(tmp_path / "base")
    write(tmp_path / "base", evaluation([verdicts], num_failures=num_failures))
    text = write_summary(tmp_path / "base")
    assert f"- base, vanilla, gsm8k: {reasons}\n" in text
    assert "| 25.00 [" in text


def test_a_folder_without_results_is_an_error_that_names_those_there_are(tmp_path):
    write(tmp_path / "base", evaluation(["cw"]))
    with pytest.raises(ValueError, match=r"missing holds no graded results; .* has: base\."):
        write_summary(tmp_path / "missing")
    with pytest.raises(ValueError, match=r"missing holds no graded results; .* has: base\."):
        write_summary(tmp_path / "base", baseline=tmp_path / "missing")


def test_a_damaged_evaluation_is_an_error_and_no_summary_is_written(tmp_path):
    write(tmp_path / "base", evaluation(["cw"]), evaluation(["cw"], setup="debate"))
    path = tmp_path / "base" / "gsm8k" / "debate" / "evaluation.json"
    path.write_text(path.read_text()[:-40])
    with pytest.raises(ValueError, match=r"debate/evaluation\.json is damaged: .*line \d+"):
        write_summary(tmp_path / "base")
    assert not (tmp_path / "base" / "summary.md").exists()
