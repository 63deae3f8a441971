"""Your own questions: any format, any column names, from the hub, or generated."""

import codecs
import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import datasets
import pyarrow
import pytest
from datasets import Dataset
from pyarrow import parquet
from small_runs import data_error, written
from tables import case_file, cases

from comas.config.schema import Data, ReasoningGym
from comas.data import DataError, load_questions, reasoning_gym
from comas.data.reasoning_gym import HELD_OUT, endless_rules, generated_rows, held_out_rules
from comas.types import Question
from comas.verification import Verifier
from comas.verification.reasoning_gym import Gold, verify_reasoning_gym

ROWS = case_file("data_sources")["ROWS"]
RULES = Data(
    columns={"prompt": "question", "answer": "solution"}, domain="math", answer_after="####"
)
MATH = Data(domain="math")
MISSING = "has no value (null, NaN or an empty cell)"
AS_CSV = case_file("data_sources")["AS_CSV"]


def files(folder: Path) -> list[Path]:
    parquet = folder / "mine.parquet"
    Dataset.from_list(ROWS).to_parquet(str(parquet))
    return [
        written(folder / "mine.jsonl", "".join(json.dumps(row) + "\n" for row in ROWS)),
        written(folder / "mine.json", json.dumps(ROWS)),
        written(folder / "mine.csv", AS_CSV),
        parquet,
    ]


def test_every_format_gives_the_same_questions_by_the_columns_that_are_named(tmp_path):
    for path in files(tmp_path):
        loaded = load_questions(path, RULES)
        assert loaded.questions == (
            Question("mine/1", "math", "What is 48 + 23?"),
            Question("mine/2", "math", 'Ann says:\n"7, 8". Which is last?'),
        )
        assert loaded.answers == {"mine/1": "71", "mine/2": "8"}


def test_a_rows_own_id_and_task_come_before_the_file_and_the_domain_unless_not_read(tmp_path):
    own = {"prompt": "1 + 1?", "answer": "2", "id": 7, "task": "science"}
    path = written(tmp_path / "mine.jsonl", json.dumps(own))
    assert load_questions(path, MATH).questions == (Question("7", "science", "1 + 1?"),)
    unread = Data(domain="math", columns={"task": None})
    assert load_questions(path, unread).questions == (Question("7", "math", "1 + 1?"),)
    repeated = written(path, "\n".join([json.dumps(own)] * 2))
    assert "already used in line 1; data.columns.id names another" in data_error(repeated, MATH)
    by_row = Data(domain="math", columns={"id": None})
    assert [q.question_id for q in load_questions(path, by_row).questions] == ["mine/1", "mine/2"]
    elsewhere = Data(domain="math", columns={"id": "uuid"})
    assert "id: no column 'uuid' among prompt" in data_error(path, elsewhere)


@cases("name, content, said")
def test_what_a_file_lacks_is_told_with_its_place_and_remedy(tmp_path, name, content, said):
    if isinstance(content, dict):
        content = json.dumps({"prompt": "1 + 1?", "answer": "2"} | content)
    assert said in data_error(written(tmp_path / name, content), MATH)


def test_columns_that_are_missing_are_told_with_those_that_are_there(tmp_path):
    path = written(tmp_path / "mine.jsonl", json.dumps(ROWS[0]))
    assert data_error(path, Data()).splitlines()[1:] == [
        f"  {path}, line 1: task: no column 'task' among question, solution, level; "
        "set data.columns.task or data.domain; "
        "prompt: no column 'prompt' among question, solution, level; set data.columns.prompt; "
        "answer: no column 'answer' among question, solution, level; set data.columns.answer"
    ]
    written(path, json.dumps(ROWS[0] | {"solution": "71"}))
    assert "line 1: answer: has no '####', after which data.answer_after" in data_error(path, RULES)


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_another_encoding_is_named_and_a_byte_order_mark_is_no_part_of_a_file(tmp_path, suffix):
    path = next(file for file in files(tmp_path) if file.suffix == f".{suffix}")
    found, text = load_questions(path, RULES), path.read_text()
    # Also within concatenated files.
    marked = text.replace("\n", "\n\ufeff") if suffix == "jsonl" else text
    path.write_bytes(codecs.BOM_UTF8 + marked.encode())
    assert load_questions(path, RULES) == found
    for encoding in ("utf-16", "utf-16-le"):
        path.write_bytes(text.encode(encoding))
        said = f"mine.{suffix} cannot be read: it is in {encoding.upper()}: save it in UTF-8"
        assert said in data_error(path, RULES)


def test_without_an_id_task_or_source_a_record_has_the_rows_the_settings_and_the_files(tmp_path):
    path = written(tmp_path / "mine.csv", "prompt,answer,id,task,source\n1 + 1?,0.50,,,\n")
    found = load_questions(path, MATH)
    assert found.questions == (Question("mine/1", "math", "1 + 1?"),)
    assert found.answers == {"mine/1": "0.50"}
    assert f"task: {MISSING}" in data_error(path, Data())


def test_the_nan_that_pandas_writes_for_null_is_no_value_and_a_whole_float_a_number(tmp_path):
    columns = {"choices": ["A", "B"]}
    nan = float("nan")
    values = {"A": [1.0, nan, 1.0, 1.0], "B": [2.0] * 4, "answer": [1.0, 0.0, nan, 0.5]}
    path = tmp_path / "mine [1].parquet"
    parquet.write_table(pyarrow.table({"prompt": ["Which?"] * 4} | values), path)
    count, *faults = data_error(path, Data(domain="choice", columns=columns)).splitlines()
    assert count.startswith("3 invalid records")
    reasons = [fault.partition(".parquet, ")[2] for fault in faults]
    assert reasons[0] == "row 2: choices: options must not be empty, and must differ"
    assert reasons[1] == f"row 3: answer: {MISSING}"
    assert reasons[2].startswith("row 4: answer: 0.5 is none of the options")


def test_a_short_float_is_read_as_it_is_written(tmp_path):
    answers = pyarrow.array([0.1, 2.7, 0], pyarrow.float32())
    path = tmp_path / "mine.parquet"
    parquet.write_table(pyarrow.table({"prompt": ["Why?"] * 3, "answer": answers}), path)
    assert [*load_questions(path, Data(domain="math")).answers.values()] == ["0.1", "2.7", "0.0"]


def test_an_option_may_be_the_text_none(tmp_path):
    row = {"prompt": "What does print(None) print?", "choices": ["None", "NaN"], "answer": "None"}
    path = written(tmp_path / "mine.jsonl", json.dumps(row))
    assert load_questions(path, Data(domain="choice")).answers == {"mine/1": "A\n(A) None\n(B) NaN"}


def chat(*messages: tuple[str, Any]) -> list[dict[str, Any]]:
    return [{"role": role, "content": content} for role, content in messages]


TRL = {"prompt": chat(("user", "1 + 1?")), "completion": chat(("assistant", "2"))}
OPENAI = {"messages": chat(("system", "Be brief."), ("user", "1 + 1?"), ("assistant", "2"))}
VERL = {
    "data_source": "sums",
    "prompt": chat(("user", "1 + 1?")),
    "ability": "math",
    "reward_model": {"style": "rule", "ground_truth": "2"},
    "extra_info": {"index": 7},
}


@cases(
    "row, columns",
    (TRL, {"answer": "completion"}),
    (OPENAI, {"prompt": "messages.-2.content", "answer": "messages.-1.content"}),
    (VERL, {"answer": "reward_model.ground_truth", "task": "ability"}),
    ids=["TRL", "OpenAI", "verl"],
)
def test_the_layouts_of_other_frameworks_are_read(tmp_path, row, columns):
    path = tmp_path / "mine.parquet"
    Dataset.from_list([row]).to_parquet(str(path))
    found = load_questions(path, Data(domain="math", columns=columns))
    assert found.questions == (Question("mine/1", "math", "1 + 1?"),)
    assert found.answers == {"mine/1": "2"}


def test_a_dotted_name_reads_what_stands_within_a_column(tmp_path):
    row = {"a.b": "by name", "a": {"b": "nested", "c": {}}, "x": [{"y": ["1", "2"]}], "z": None}
    path = written(tmp_path / "mine.jsonl", json.dumps(row))

    def rules(prompt: str, answer: str) -> Data:
        return Data(domain="math", columns={"prompt": prompt, "answer": answer})

    found = load_questions(path, rules("a.b", "x.0.y.-1"))
    assert [found.questions[0].text, *found.answers.values()] == ["by name", "2"]
    said = f"prompt: {MISSING}; answer: no column 'a.d' among a.b, a, x, z"
    assert said in data_error(path, rules("z.b", "a.d"))
    for nowhere in ("x.7", "x.y.z", "a.b.c", "x..y"):
        assert f"answer: no column '{nowhere}'" in data_error(path, rules("a.b", nowhere))


@cases("name, revision, config, split")
def test_a_dataset_of_the_hub_is_asked_for_by_its_parts(monkeypatch, name, revision, config, split):
    load = Mock(return_value=ROWS)
    monkeypatch.setattr(datasets, "load_dataset", load)
    loaded = load_questions(name, RULES)
    load.assert_called_once_with("openai/gsm8k", revision=revision, name=config, split=split)
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
    assert "train" in data_error("hub:somebody/sums", RULES)


def test_what_the_hub_does_not_give_is_told_with_what_to_do(monkeypatch):
    error = ConnectionError("Couldn't reach the Hub")
    monkeypatch.setattr(datasets, "load_dataset", Mock(side_effect=error))
    said = data_error("hub:somebody/sums", RULES)
    assert said.startswith("somebody/sums: ") and "Couldn't reach the Hub" in said
    assert "accept its terms at https://huggingface.co/datasets/somebody/sums and log in (" in said
    assert "is not a dataset of the hub" in data_error("hub:gsm8k", RULES)


TASKS = {"chain_sum": {"max_terms": 3}, "countdown": {"size": 1, "seed": 5}}


def rules(**settings: object) -> Data:
    return Data(reasoning_gym=ReasoningGym(**{"tasks": TASKS, "size": 3} | settings))


def test_held_out_questions_have_seeds_of_their_own_and_a_run_as_many_as_it_asks():
    held_out = held_out_rules(rules()).reasoning_gym
    assert held_out.size == reasoning_gym.NUM_HELD_OUT
    chain_sum = {"max_terms": 3, "seed": HELD_OUT}
    assert held_out.tasks == {"chain_sum": chain_sum, "countdown": {"seed": 5 + HELD_OUT}}
    with pytest.raises(DataError, match=r"chain_sum.seed is None, must be an integer"):
        held_out_rules(rules(tasks={"chain_sum": {"seed": None}}))
    endless = rules(size=None)
    assert endless_rules(endless, num_questions=7).reasoning_gym.size == 6  # and 1 of countdown
    assert endless_rules(rules(), num_questions=7).reasoning_gym.size == 3
    with pytest.raises(DataError, match=r"data\.reasoning_gym\.size: null is for a run of"):
        generated_rows(endless)


def test_tasks_for_which_a_constant_is_right_are_refused_with_the_reason():
    with pytest.raises(DataError, match=r"tasks: leave these out:\n") as error:
        generated_rows(rules(tasks={task: {} for task in reasoning_gym.UNSOUND} | TASKS))
    named = [fault.split(":")[0] for fault in str(error.value).split("\n  ")[1:]]
    assert named == ["coin_flip", "game_of_life_halting", "puzzle24"]


@pytest.fixture(scope="module")
def made() -> list[dict[str, str]]:
    pytest.importorskip("reasoning_gym")
    return [row for _, row in generated_rows(rules())]


def test_tasks_take_turns_by_their_share_and_ids_say_how_questions_were_made(made):
    assert [row["id"].removeprefix("reasoning_gym/") for row in made] == [
        "chain_sum/seed0/0",
        "chain_sum/seed0/1",
        "countdown/seed5/0",
        "chain_sum/seed0/2",
    ]
    assert {row["task"] for row in made} == {"reasoning"}


def test_held_out_questions_are_others(made):
    wanted = rules(tasks={"chain_sum": {}}, size=30)
    train, held_out = (load_questions("reasoning_gym", r) for r in (wanted, held_out_rules(wanted)))
    assert not {q.text for q in train.questions} & {q.text for q in held_out.questions}


def test_tasks_that_cannot_be_made_are_named_all_at_once_with_what_there_is(made):
    tasks = {"chain_summ": {}, "gcd": {"values": 3}, "lcm": {"min_value": -1}}
    with pytest.raises(DataError) as error:
        generated_rows(rules(tasks=tasks))
    first, *faults = str(error.value).split("\n  ")
    assert first == "data.reasoning_gym.tasks:"
    assert faults[0].startswith("chain_summ: there is no such task; chain_sum, ")
    assert faults[1].startswith("gcd: it has no option values; it has min_numbers, ")
    assert faults[2].startswith("lcm: {'size': 3, 'min_value': -1} are no options of it")


@pytest.fixture(scope="module")
def golds(made) -> dict[str, str]:
    tasks = {"spiral_matrix": {}, "countdown": {}, "simple_integration": {}, "rubiks_cube": {}}
    return {
        Gold.read(row["answer"]).task: row["answer"]
        for _, row in generated_rows(rules(tasks=tasks, size=1))
    }


@pytest.mark.stack
def test_tasks_judge_their_own_answers_right_and_others_or_endless_ones_wrong(golds):
    own = {task: Gold.read(gold).own_answer for task, gold in golds.items()}
    assert own.pop("rubiks_cube") is None  # judged only by its rules
    items = [("reasoning", rf"So \boxed{{\text{{{own[task]}}}}}", golds[task]) for task in own]
    items += [("reasoning", r"\boxed{0}", gold) for gold in golds.values()]
    items += [("reasoning", text, golds["countdown"]) for text in (r"\boxed{9**9**9**9}", "no box")]
    with Verifier(num_workers=1) as verifier:
        verdicts = verifier.verify_batch(items)
    assert verdicts == ["correct"] * 3 + ["wrong"] * 5 + ["unanswered"]


@pytest.mark.stack
@pytest.mark.parametrize("task", ["spiral_matrix", "countdown", "simple_integration"])
def test_an_answer_that_is_code_is_never_run(golds, task):
    """reasoning_gym evaluates all three: each of these would be right."""
    own = str(Gold.read(golds[task]).own_answer)
    code = {
        "spiral_matrix": f"{own!r}.split()",
        "countdown": f"{own}+len([])",
        "simple_integration": f"eval({own.replace('**', '^')!r})",
    }[task]
    assert verify_reasoning_gym(rf"\boxed{{{own}}}", golds[task]) == "correct"
    assert verify_reasoning_gym(rf"\boxed{{{code}}}", golds[task]) == "wrong"
