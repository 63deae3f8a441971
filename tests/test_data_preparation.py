"""Training rows become records or stated reasons; copies are read or refused with the remedy."""

from unittest.mock import Mock, call

import datasets
import pytest
from local_copies import kodcode_row, math_row, webinstruct_row, write_card, write_parquet
from small_runs import write_records
from tables import cases, pairs, texts

from comas.data import DataError
from comas.data.preparation import Item, LeftOut, Source
from comas.data.preparation.kodcode import KODCODE, checker_from_pytest
from comas.data.preparation.loading import load_rows, missing_copies
from comas.data.preparation.math_train import MATH
from comas.data.preparation.record_set import convert_rows, is_decimal_number
from comas.data.preparation.webinstruct import WEBINSTRUCT, split_unit


def test_a_math_row_takes_what_its_solution_boxes_last():
    row = math_row(1)
    assert MATH.convert(row) == Item(row["problem"], r"\frac{6}{7}")


@cases(
    "record_set, row, change, reason",
    (MATH, math_row(1), {"level": "Level 3"}, "it is of another level than 4 and 5"),
    (MATH, math_row(1), {"solution": r"It is \boxed{7"}, "its solution boxes no answer"),
    (WEBINSTRUCT, webinstruct_row(0), {"category": "Economics"}, "another category"),
    (WEBINSTRUCT, webinstruct_row(0), {"answer_type": "Multiple Choice"}, "not numeric"),
    (WEBINSTRUCT, webinstruct_row(0), {"answer": "5 or 6"}, "not one number"),
    (KODCODE, kodcode_row(1), {"gpt_difficulty": "easy"}, "it is easy"),
)
def test_a_row_that_does_not_fit_is_left_out(record_set, row, change, reason):
    assert isinstance(record_set.convert(row), Item)
    result = record_set.convert(row | change)
    assert isinstance(result, LeftOut) and reason in result.reason


@pytest.mark.parametrize(("answer", "split"), pairs("units", "one number"))
def test_an_answer_is_split_into_its_number_and_its_unit(answer, split):
    number, _, unit = split.partition(" ")
    assert split_unit(answer) == (number, unit)
    assert is_decimal_number(number)


@pytest.mark.parametrize("answer", [*texts("units", "not one number"), ""])
def test_an_answer_that_is_more_or_less_than_one_number_is_left_out(answer):
    assert split_unit(answer) is None


def test_a_science_question_ends_with_the_unit_expected():
    row = webinstruct_row(0) | {"question": "How fast is it? ", "answer": "16.8 m/s"}
    item = WEBINSTRUCT.convert(row)
    assert item.prompt == 'How fast is it?\n\nGive the answer in the unit "m/s".'
    assert item.answer == "16.8"
    bare = row | {"answer": "7", "answer_type": "Integer", "category": "Biology"}
    assert WEBINSTRUCT.convert(bare).prompt == "How fast is it?\n\nThe answer has no unit."


def test_a_coding_prompt_ends_with_its_unit_tests_and_their_calls():
    row = kodcode_row(1)
    checker = (
        "def test_of_zero():\n    assert add_1(0) == 1\n\n"
        "def test_of_ten():\n    # with a comment\n    assert add_1(10) == 11\n\n"
        "test_of_zero()\ntest_of_ten()"
    )
    item = KODCODE.convert(row)
    assert item.answer == checker
    assert item.prompt == (
        f"{row['question']}\n\nThe code must pass these unit tests:\n```python\n{checker}\n```"
    )
    assert item.solution == row["solution"]


@cases(
    "tests, kept",
    ("from solution import *", ""),
    ("from solution import (\n    f,\n    g,\n)", ""),
    ("import pytest", ""),
    ("from solution import f as h", "from solution import f as h"),
    ("import solution", "import solution"),
    ("import math\nfrom solution import f", "import math"),
    ("import math; from solution import f", "import math"),
    ("if __name__ == '__main__':\n    import pytest\n    pytest.main()", ""),
)
def test_imports_of_the_program_go_and_others_stay(tests, kept):
    checker = checker_from_pytest(f"{tests}\r\ndef test_f():\r\n    assert f(2) == 4\r\n")
    assert [line for line in checker.split("\n") if line] == [
        *([kept] if kept else []),
        *("def test_f():", "    assert f(2) == 4", "test_f()"),
    ]


@cases(
    "tests, part",
    ("def test_f(:", "not Python"),
    ("", "no test function"),
    ("from pytest import approx\ndef test_f(): assert f(1) == approx(2)", "need pytest"),
    ("def test_f(tmp_path): assert f(tmp_path)", "need pytest"),
    ("@decorated\ndef test_f(): assert f(1)", "need pytest"),
    ("def setup_function(): pass\ndef test_f(): assert f(1)", "need pytest"),
    ("class TestF:\n    def test_f(self): assert f(1)", "a class, or coroutines"),
    ("async def test_f(): assert f(1)", "a class, or coroutines"),
    ("import numpy as np\ndef test_f(): assert f(1)", "more than the standard library"),
    ("from .solution import f\ndef test_f(): assert f(1)", "more than the standard library"),
)
def test_tests_that_the_sandbox_cannot_run_are_left_out(tests, part):
    result = checker_from_pytest(tests)
    assert isinstance(result, LeftOut) and part in result.reason


SOURCE = Source(
    hub_name="owner/name",
    configs=("main",),
    split="test",
    revision="0" * 40,
    licence=None,
    columns={"question": str, "answer": str | int},
    num_rows=2,
)
ROWS = [{"question": "One?", "answer": "a"}, {"question": "2?", "answer": "b"}]
OTHER = [{"question": "wrong config or split", "answer": "a"}] * 3


def test_a_copy_is_read_as_a_download_leaves_it(tmp_path):
    root = tmp_path / SOURCE.hub_name
    assert len(missing_copies([SOURCE], tmp_path)) == 1
    for config, rows in (("main", ROWS), ("other", OTHER)):
        write_parquet(root / config / "test-00000-of-00001.parquet", rows)
        write_parquet(root / config / "train-00000-of-00001.parquet", OTHER)
    files = {"test": "{}/test-*", "train": "{}/train-*"}
    configs = ("main", "other")
    write_card(root, {c: {s: f.format(c) for s, f in files.items()} for c in configs})
    (root / ".cache/huggingface/download").mkdir(parents=True)
    (root / ".cache/huggingface/download/test.parquet.metadata").write_text("x")
    assert missing_copies([SOURCE], tmp_path) == []
    assert list(load_rows(SOURCE, local_copies=tmp_path)) == ROWS


def test_two_copies_with_the_same_card_are_not_taken_for_each_other(tmp_path):
    """The library's own cache takes them for the same, and gives the rows of the first."""
    for number in (1, 2):
        root = tmp_path / f"{number}" / SOURCE.hub_name
        write_parquet(root / "main/test-0.parquet", [{"question": f"{number}", "answer": "x"}])
        write_card(root, {"main": {"test": "main/test-*"}})
    found = [next(load_rows(SOURCE, local_copies=tmp_path / name))["question"] for name in "12"]
    assert found == ["1", "2"]


def test_a_missing_column_and_a_value_of_another_type_are_named():
    row = {"query": "How fast?", "answer": "1", "category": "Physics"}
    missing = r"WebInstruct-verified, row 0: no column 'question'; it has query, answer, category"
    with pytest.raises(DataError, match=missing):
        convert_rows(WEBINSTRUCT, [row])
    rows = [webinstruct_row(0), webinstruct_row(1) | {"answer": 16.8}]
    with pytest.raises(DataError, match=r"row 1: column 'answer' holds float '16.8'"):
        convert_rows(WEBINSTRUCT, rows)


@cases(
    "name, content",
    ("test.parquet", b"version https://git-lfs"),
    ("test.jsonl", b'{"question": "One?", "answer": "1"}\n{"question": "Tw'),
    ("test.csv", b'question,answer\n"One?,1\n'),
    ("train.jsonl", b'{"question": "of another split", "answer": "1"}'),
)
def test_a_damaged_copy_is_named_with_the_remedy(tmp_path, name, content):
    root = tmp_path / SOURCE.hub_name
    root.mkdir(parents=True)
    (root / name).write_bytes(content)
    write_card(root, {"main": {name.partition(".")[0]: name}})
    with pytest.raises(DataError) as caught:
        list(load_rows(SOURCE, local_copies=tmp_path))
    said = f"owner/name: the local copy {root} cannot be read as config 'main', split 'test'"
    assert said in str(caught.value)
    assert "Get it again: hf download owner/name --repo-type dataset" in str(caught.value)


def test_a_copy_of_another_length_than_the_hubs_is_warned_about(tmp_path, caplog):
    write_records(tmp_path / "owner/name/test.jsonl", ROWS[:1])
    write_card(tmp_path / "owner/name", {"main": {"test": "test.jsonl"}})
    list(load_rows(SOURCE, local_copies=tmp_path))
    assert caplog.messages == ["owner/name: 1 rows, but the hub's copy has 2"]


def test_the_hub_is_asked_for_the_pinned_commit_of_every_config(monkeypatch):
    load = Mock(return_value=[math_row(1)])
    monkeypatch.setattr(datasets, "load_dataset", load)
    assert len(list(load_rows(MATH.source, local_copies=None))) == 7
    assert load.call_args_list == [
        call(MATH.source.hub_name, name=name, split="train", revision=MATH.source.revision)
        for name in MATH.source.configs
    ]
