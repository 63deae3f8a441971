"""scripts/check_data.sh: every fault of one's own questions, at once, with its location."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_runs import write_records
from tables import cases

from comas.data import RECORDS
from comas.data.preparation.check import check_questions, main
from comas.verification import Verifier

GOOD = [
    {"id": "m", "task": "math", "prompt": "?", "answer": r"\frac{1}{2}", "source": "mine"},
    {"id": "s", "task": "science", "prompt": "?", "answer": "-1.5e-3", "source": "mine"},
    {"id": "c", "task": "coding", "prompt": "?", "answer": "assert f(1) == 2", "source": "other"},
]


@pytest.fixture(scope="module")
def verifier() -> Iterator[Verifier]:
    with Verifier(num_workers=2) as one:
        yield one


def reasons(path: Path, verifier: Verifier) -> dict[str, str]:
    return check_questions(str(path), RECORDS, verifier=verifier).faults


def test_a_good_file_is_counted_and_gives_the_command_that_trains_on_it(tmp_path, capsys):
    path = write_records(tmp_path / "own.jsonl", GOOD)
    assert main([str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == [
        f"{path}: 3 records, 0 of them faulty",
        "        1 coding, source other",
        "        1 math, source mine",
        "        1 science, source mine",
    ]
    assert lines[-2:] == [
        "to train on it:",
        f"  bash scripts/train_comas.sh configs/comas.yaml data.train={path}",
    ]


def test_the_first_questions_are_shown_as_they_will_be_asked(tmp_path, capsys):
    rows = ["question,answer", "What is 48 + 23?,The sum #### 71", "1 + 1?,#### 2", "2 + 2?,#### 4"]
    path = tmp_path / "own.csv"
    path.write_text("\n".join(rows))
    settings = [
        *("data.columns.prompt=question", "data.domain=math", "data.answer_after='####'"),
        "rollout.system_prompt=You are careful.",
    ]
    assert main([str(path), *settings]) == 0
    output = capsys.readouterr().out
    shown = """own/1, as the first agent will read it:
  system:
    You are careful.
  user:
    You and other experts discuss a math problem."""
    assert shown in output
    assert "    # Problem\n    What is 48 + 23?\n" in output
    assert "  and its answer, for the verifier alone:\n    71\n" in output
    assert "own/2, as" in output and "own/3, as" not in output
    command = output.splitlines()[-1]
    assert shlex.split(command)[-4:] == settings


def test_a_wrong_setting_is_told_before_anything_is_read(tmp_path, capsys):
    assert main([str(tmp_path / "nowhere.csv"), "data.columns.promt=question"]) == 1
    assert "must be one of prompt, answer, task, choices, labels" in capsys.readouterr().out


@cases(
    "task, answer, part",
    ("math", r"\boxed{2}", "without it"),
    ("science", "9.81 m", "is not a decimal number"),
    ("math", "nan", "is how a missing value is written"),
    ("coding", "assert f(1) ==", "not Python"),
    ("coding", "import torch\nassert f(1) == 2", "imports torch"),
    ("coding", "def test_f():\n    assert f(1) == 2", "does it call its tests?"),
    ("coding", "hello", "no assert"),
    ("math", r"\heartsuit \& 13", "nothing but the same letters would be correct"),
)
def test_an_answer_that_cannot_judge_is_a_fault(tmp_path, verifier, task, answer, part):
    record = {"id": "x", "task": task, "prompt": "?", "answer": answer, "source": "mine"}
    found = reasons(write_records(tmp_path / "own.jsonl", [*GOOD, record]), verifier)
    assert list(found) == ["line 4"]
    assert part in found["line 4"]


def test_every_faulty_line_is_listed_and_not_the_first_twenty_alone(tmp_path, verifier):
    poems = [{"id": f"{n}", "task": "poetry", "prompt": "?", "answer": "-"} for n in range(40)]
    path = write_records(tmp_path / "own.jsonl", ['{"id": ', *GOOD, *GOOD, *poems])
    report = check_questions(str(path), RECORDS, verifier=verifier)
    assert len(report.faults) == 44  # the cut line, the 3 repeated ids, the 40 poems
    assert list(report.faults)[:4] == ["line 1", "line 5", "line 6", "line 7"]
    assert report.faults["line 5"] == "id 'm' is already that of line 2"
    assert "task: Input should be" in report.faults["line 47"]
    assert len(report.sound) == 3


@pytest.mark.parametrize("content", [None, "[1,"])
def test_a_file_that_cannot_be_used_at_all_is_a_fault_and_the_next_is_checked(
    tmp_path, capsys, content
):
    bad = tmp_path / "bad.json"
    if content is not None:
        bad.write_text(content)
    good = tmp_path / "good.json"
    good.write_text(json.dumps([*GOOD, 7]))
    assert main([str(bad), str(good)]) == 1
    output = capsys.readouterr().out
    assert str(bad) in output.splitlines()[0]
    assert f"{good}: 4 records, 1 of them faulty" in output and "record 4: " in output
