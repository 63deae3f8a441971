"""One's own questions: any of the formats, under any names of columns, or from the hub."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import datasets
import httpx
import pytest
from datasets import Dataset
from huggingface_hub.utils import http_backoff

from comas.config.schema import Columns, Data
from comas.data import DataError, load_questions
from comas.data.preparation import loading
from comas.data.preparation.math_train import MATH
from comas.types import Question

ROWS = [
    {"question": "What is 48 + 23?", "solution": "40 + 20 = 60, 8 + 3 = 11 #### 71", "level": 5},
    {
        "question": 'Ann says:\n"7, 8". Which is last?',
        "solution": "The #### sign #### 8",
        "level": 1,
    },
]
RULES = Data(
    columns=Columns(prompt="question", answer="solution"), domain="math", answer_after="####"
)
AS_CSV = """question,solution,level
What is 48 + 23?,"40 + 20 = 60, 8 + 3 = 11 #### 71",5
"Ann says:
""7, 8"". Which is last?",The #### sign #### 8,1
"""


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def files(folder: Path) -> list[Path]:
    parquet = folder / "mine.parquet"
    Dataset.from_list(ROWS).to_parquet(str(parquet))
    return [
        written(folder / "mine.jsonl", "".join(json.dumps(row) + "\n" for row in ROWS)),
        written(folder / "mine.json", json.dumps(ROWS)),
        written(folder / "mine.csv", AS_CSV),
        parquet,
    ]


def error_of(name: str | Path, rules: Data) -> str:
    with pytest.raises(DataError) as caught:
        load_questions(name, rules)
    return str(caught.value)


def test_every_format_gives_the_same_questions(tmp_path):
    for path in files(tmp_path):
        loaded = load_questions(path, RULES)
        assert loaded.questions == (
            Question("mine/1", "math", "What is 48 + 23?"),
            Question("mine/2", "math", 'Ann says:\n"7, 8". Which is last?'),
        )
        assert loaded.answers == {"mine/1": "71", "mine/2": "8"}


def test_a_rows_own_id_and_domain_come_first(tmp_path):
    own = {"question": "1 + 1?", "solution": "2", "task": "science", "id": 7}
    path = written(tmp_path / "mine.jsonl", json.dumps(own))
    rules = Data(columns=RULES.columns, domain="math")
    assert load_questions(path, rules).questions == (Question("7", "science", "1 + 1?"),)


def test_a_column_that_is_null_is_not_read(tmp_path):
    path = written(tmp_path / "mine.jsonl", '{"prompt": "1 + 1?", "answer": 2, "task": "sums"}')
    assert "task: Input should be 'math'" in error_of(path, Data(domain="math"))
    rules = Data(columns=Columns(task=None), domain="math")
    assert load_questions(path, rules).answers == {"mine/1": "2"}


def test_a_csv_keeps_its_texts_as_they_are_written(tmp_path):
    text = "\ufeffid,prompt,answer,task\n007,Code?,0.50,math\nNA,None?,1e3,science\n"
    loaded = load_questions(written(tmp_path / "mine.csv", text))
    assert loaded.answers == {"007": "0.50", "NA": "1e3"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prompt,answer\na,b,c\n", "line 2: 3 values for the 2 columns"),
        ("prompt,answer\na\n", "line 2: 1 values for the 2 columns"),
        ('prompt,answer\n"a,b\n', "mine.csv cannot be read: unexpected end of data"),
        ("prompt,answer\n", "mine.csv holds no record"),
        ("", "mine.csv holds no record"),
    ],
)
def test_a_broken_csv_is_told(tmp_path, text, said):
    assert said in error_of(written(tmp_path / "mine.csv", text), Data(domain="math"))


def test_bytes_that_are_no_text_and_files_that_are_no_parquet_are_told(tmp_path):
    latin = tmp_path / "mine.csv"
    latin.write_bytes("prompt,answer\né,b\n".encode("latin-1"))
    assert "mine.csv cannot be read: 'utf-8' codec" in error_of(latin, Data(domain="math"))
    other = written(tmp_path / "mine.parquet", AS_CSV)
    assert "mine.parquet cannot be read: Parquet magic bytes" in error_of(other, RULES)
    assert "nowhere.csv cannot be read: No such file" in error_of(tmp_path / "nowhere.csv", RULES)


def test_columns_that_are_missing_are_told_with_those_that_are_there(tmp_path):
    path = written(tmp_path / "mine.jsonl", json.dumps(ROWS[0]))
    assert error_of(path, Data()).splitlines()[1:] == [
        f"  {path}, line 1: task: no column 'task' among question, solution, level; "
        "data.columns.task names it or data.domain says it of all; "
        "prompt: no column 'prompt' among question, solution, level; data.columns.prompt names it; "
        "answer: no column 'answer' among question, solution, level; data.columns.answer names it"
    ]
    empty = written(tmp_path / "mine.jsonl", json.dumps(ROWS[0] | {"question": None}))
    assert "line 1: prompt: null" in error_of(empty, RULES)


def test_an_answer_without_the_mark_is_a_fault(tmp_path):
    path = written(tmp_path / "mine.jsonl", json.dumps(ROWS[0] | {"solution": "71"}))
    assert "line 1: answer: has no '####', behind which data.answer_after" in error_of(path, RULES)


# ---------------------------------------------------------------- the hub


def asked_of_hub(monkeypatch: pytest.MonkeyPatch, result: Any) -> list[dict[str, Any]]:
    """Let the hub give rows, or raise; returns what it is asked for."""
    asked: list[dict[str, Any]] = []

    def load_dataset(path: str, **named: Any) -> Any:
        asked.append({"path": path} | named)
        if isinstance(result, Exception):
            raise result
        return result

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    return asked


@pytest.mark.parametrize(
    ("name", "revision", "config", "split"),
    [
        ("hub:openai/gsm8k", None, None, "train"),
        ("hub:openai/gsm8k/main", None, "main", "train"),
        ("hub:openai/gsm8k/main/test", None, "main", "test"),
        ("hub:openai/gsm8k@740312ad/main/test", "740312ad", "main", "test"),
    ],
)
def test_a_dataset_of_the_hub_is_asked_for_by_its_parts(monkeypatch, name, revision, config, split):
    asked = asked_of_hub(monkeypatch, ROWS)
    loaded = load_questions(name, RULES)
    assert asked == [{"path": "openai/gsm8k", "revision": revision, "name": config, "split": split}]
    assert loaded.answers == {"openai/gsm8k/1": "71", "openai/gsm8k/2": "8"}


def test_the_library_reads_what_the_hub_gives(tmp_path, monkeypatch):
    """Stands in for the hub: the library reads a folder of that name in the same way."""
    folder = tmp_path / "somebody/sums"
    folder.mkdir(parents=True)
    written(folder / "test.jsonl", "".join(json.dumps(row) + "\n" for row in ROWS))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    loaded = load_questions("hub:somebody/sums/default/test", RULES)
    assert loaded.answers == {"somebody/sums/1": "71", "somebody/sums/2": "8"}
    assert "train" in error_of("hub:somebody/sums", RULES)


def test_what_the_hub_does_not_give_is_told_with_what_to_do(monkeypatch):
    asked_of_hub(monkeypatch, ConnectionError("Couldn't reach the Hub"))
    said = error_of("hub:somebody/sums", RULES)
    assert said.startswith("hub:somebody/sums: the hub, or what is kept of it here (HF_HOME), does")
    assert "Couldn't reach the Hub" in said and "hub:openai/gsm8k/main/test" in said


def test_a_hub_that_is_out_of_reach_is_told_once(tmp_path, monkeypatch, caplog):
    """The library's own requests, to a port at which nobody listens."""

    def load_dataset(path: str, **named: Any) -> None:
        try:
            http_backoff("HEAD", "http://127.0.0.1:9/", max_retries=1, base_wait_time=0)
        except httpx.ConnectError as error:
            raise ConnectionError(f"Couldn't reach {path}") from error

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    monkeypatch.setattr(loading, "load_dataset", load_dataset)
    assert "Couldn't reach somebody/sums" in error_of("hub:somebody/sums", RULES)
    with pytest.raises(loading.HubUnreachableError, match="Couldn't reach EleutherAI"):
        list(loading.load_rows(MATH.source, local_copies=None))
    assert caplog.messages == []


@pytest.mark.parametrize("name", ["hub:gsm8k", "hub:a/b/c/d/e", "hub:", "hub:a/b@/c"])
def test_a_name_of_another_form_is_told(name):
    assert "is no dataset of the hub" in error_of(name, RULES)
