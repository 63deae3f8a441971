"""Training rows become records or are omitted with a reason; copies are read; files are checked."""

import json
import shlex
from collections.abc import Iterator
from unittest.mock import Mock, call

import datasets
import pytest
from local_copies import kodcode_row, math_row, webinstruct_row, write_card, write_parquet
from small_runs import write_records, written
from tables import case_file, cases, pairs, texts

from comas.data import RECORDS, DataError
from comas.data.preparation import Item, LeftOut, Source
from comas.data.preparation.build import load_rows, missing_copies
from comas.data.preparation.check import check_questions, main
from comas.data.preparation.kodcode import KODCODE, checker_from_pytest
from comas.data.preparation.math_train import MATH
from comas.data.preparation.overlap import OverlapIndex, words_of
from comas.data.preparation.record_set import convert_rows, is_decimal_number
from comas.data.preparation.webinstruct import WEBINSTRUCT, split_unit
from comas.verification import Verifier


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


def test_a_math_answer_is_boxed_last_and_a_science_question_ends_with_its_unit():
    row = math_row(1)
    assert MATH.convert(row) == Item(row["problem"], r"\frac{6}{7}")
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


@cases("tests, kept")
def test_imports_of_the_program_go_and_others_stay(tests, kept):
    checker = checker_from_pytest(f"{tests}\r\ndef test_f():\r\n    assert f(2) == 4\r\n")
    assert [line for line in checker.split("\n") if line] == [
        *([kept] if kept else []),
        *("def test_f():", "    assert f(2) == 4", "test_f()"),
    ]


@cases("tests, part")
def test_tests_that_the_sandbox_cannot_run_are_left_out(tests, part):
    result = checker_from_pytest(tests)
    assert isinstance(result, LeftOut) and part in result.reason


COLUMNS = {"question": str, "answer": str | int}
SOURCE = Source("owner/name", ("main",), "test", "0" * 40, None, COLUMNS)
ROWS = [{"question": "One?", "answer": "a"}, {"question": "2?", "answer": "b"}]
OTHER = [{"question": "wrong config or split", "answer": "a"}] * 3


def test_a_copy_is_read_as_a_download_leaves_it(tmp_path):
    root = tmp_path / SOURCE.hub_name
    assert len(missing_copies([SOURCE], tmp_path)) == 1
    for config, rows in (("main", ROWS), ("other", OTHER)):
        write_parquet(root / config / "test-00000-of-00001.parquet", rows)
        write_parquet(root / config / "train-00000-of-00001.parquet", OTHER)
    files = {"test": "{}/test-*", "train": "{}/train-*"}
    write_card(root, {c: {s: f.format(c) for s, f in files.items()} for c in ("main", "other")})
    (root / ".cache/huggingface/download").mkdir(parents=True)
    (root / ".cache/huggingface/download/test.parquet.metadata").write_text("x")
    assert missing_copies([SOURCE], tmp_path) == []
    assert list(load_rows(SOURCE, local_copies=tmp_path)) == ROWS


def test_no_type_is_taken_from_the_first_rows_or_the_first_split_of_a_copy(tmp_path):
    root = tmp_path / SOURCE.hub_name
    first = [{"question": "One?", "answer": "007", "hints": []}] * 3
    rows = [*first, {"question": "2?", "answer": 2, "hints": ["x"]}]
    write_records(root / "train.jsonl", first)
    write_records(root / "test.jsonl", rows)
    write_card(root, {"main": {"train": "train.jsonl", "test": "test.jsonl"}})
    assert list(load_rows(SOURCE, local_copies=tmp_path)) == rows


def test_a_missing_column_and_a_value_of_another_type_are_named():
    row = {"query": "How fast?", "answer": "1", "category": "Physics"}
    missing = r"WebInstruct-verified, row 0: no column 'question'; it has query, answer, category"
    with pytest.raises(DataError, match=missing):
        convert_rows(WEBINSTRUCT, [row])
    rows = [webinstruct_row(0), webinstruct_row(1) | {"answer": type("Json", (float,), {})(16.8)}]
    with pytest.raises(DataError, match=r"column 'answer' holds float '16.8', not str, as Source"):
        convert_rows(WEBINSTRUCT, rows)


def test_the_hub_is_asked_for_the_pinned_commit_of_every_config(monkeypatch):
    load = Mock(return_value=[math_row(1)])
    monkeypatch.setattr(datasets, "load_dataset", load)
    assert len(list(load_rows(MATH.source, local_copies=None))) == 7
    assert load.call_args_list == [
        call(MATH.source.hub_name, name=name, split="train", revision=MATH.source.revision)
        for name in MATH.source.configs
    ]


LONG = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
WORDS = LONG.split()


def index_of(*texts: str) -> OverlapIndex:
    index = OverlapIndex()
    for text in texts:
        index.add(text)
    return index


def test_the_same_words_overlap_however_short_and_written():
    words = words_of(r"Find $\frac{1}{2}+x_1$ [asy]draw(A--B);[/asy]!")
    assert words == ["find", "frac", "1", "2", "x", "1"]
    assert index_of("Find x!").has_same("find  X")
    assert index_of("Find x!").overlaps("find  X")
    assert not index_of("Find x!").overlaps("find x now")
    assert not index_of("a b c d e", "f g h i j").overlaps("c d e f g h i j")  # across two others


def test_thirteen_words_in_a_row_overlap_or_the_eight_of_a_whole_short_question():
    for shared in (12, 13):
        words = " ".join(WORDS[:shared])
        index = index_of("apples", f"Before: {words}, after")
        other = f"quite another start, {words.upper()} and another end of the question"
        assert index.overlaps(other) == (shared == 13) and not index.has_same(other)
    index = index_of("apples", f"Say: {LONG}", "pears")
    assert [index.overlaps(" ".join(WORDS[1 : 1 + n])) for n in (7, 8, 12)] == [False, True, True]
    for shared in (7, 8, 12):  # the indexed one is short
        assert index_of(" ".join(WORDS[1 : 1 + shared])).overlaps(f"Say: {LONG}") == (shared > 7)


GOOD = case_file("data_preparation")["GOOD"]


@pytest.fixture(scope="module")
def verifier() -> Iterator[Verifier]:
    with Verifier(num_workers=2) as one:
        yield one


def test_a_good_file_is_counted_and_gives_the_command_that_trains_on_it(tmp_path, capsys):
    path = write_records(tmp_path / "own.jsonl", GOOD)
    assert main([str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == [
        f"{path}: 3 records, 0 of them invalid",
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
    path = written(tmp_path / "own.csv", "\n".join(rows))
    settings = [
        *("data.columns.prompt=question", "data.domain=math", "data.answer_after='####'"),
        "rollout.system_prompt=You are careful.",
    ]
    assert main([str(path), *settings]) == 0
    output = capsys.readouterr().out
    shown = "own/1, as the first agent will read it:\n  system:\n    You are careful.\n  user:\n"
    assert shown in output
    assert "    # Problem\n    What is 48 + 23?\n" in output
    assert "  and its answer, which no agent sees:\n    71\n" in output
    assert "own/2, as" in output and "own/3, as" not in output
    assert shlex.split(output.splitlines()[-1])[-5:] == ["data.validation=HELD_OUT", *settings]


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@cases("task, answer, part")
def test_an_answer_that_cannot_judge_is_a_fault(tmp_path, verifier, task, answer, part):
    record = {"id": "x", "task": task, "prompt": "?", "answer": answer, "source": "mine"}
    path = write_records(tmp_path / "own.jsonl", [*GOOD, record])
    [(line, found)] = check_questions(str(path), RECORDS, verifier=verifier).errors.items()
    assert line == "line 4" and part in found


@pytest.mark.parametrize("content", [None, "[1,", "", "[]"])
def test_a_file_that_cannot_be_used_is_a_fault_and_the_next_is_checked(tmp_path, capsys, content):
    bad = tmp_path / "bad.json"
    if content is not None:
        bad.write_text(content)
    good = written(tmp_path / "good.json", json.dumps([*GOOD, 7]))
    assert main([str(bad), str(good)]) == 1
    output = capsys.readouterr().out
    assert str(bad) in output.splitlines()[0] and f"{bad}: 0 records" not in output
    assert f"{good}: 4 records, 1 of them invalid" in output and "record 4: " in output
