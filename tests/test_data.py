"""Data files are read whole or refused with every fault; choices; batches by seed and step."""

import json
from collections import Counter
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_runs import data_error, write_records, written
from tables import case_file, cases

from comas.config.schema import Data
from comas.data import DataError, count_steps, draw_batch, fixed_subset, load_questions
from comas.data.choices import with_choices
from comas.types import Question
from comas.verification.verifiers import verify

RECORD = case_file("data")["RECORD"]


def record(**changes: object) -> dict[str, object]:
    return RECORD | changes


def questions(number: int) -> list[Question]:
    return [Question(f"math/{i}", "math", f"What is {i} + 1?") for i in range(number)]


def test_questions_and_answers_come_apart_and_blank_lines_are_no_records(tmp_path):
    loaded = load_questions(write_records(tmp_path / "a.jsonl", [RECORD, record(id="x", level=5)]))
    assert loaded.questions[0] == Question("math/17", "math", "What is 48 + 23?")
    assert loaded.answers == {"math/17": "71", "x": "71"}
    assert "71" not in repr(loaded.questions)
    text = json.dumps(record(prompt="two\u2028lines"), ensure_ascii=False)
    loaded = load_questions(write_records(tmp_path / "a.jsonl", ["", text, "  ", record(id="x")]))
    assert [q.text for q in loaded.questions] == ["two\u2028lines", "What is 48 + 23?"]


def test_every_faulty_line_is_reported_with_its_number_and_reason(tmp_path):
    poem = {"id": "x", "task": "poetry", "prompt": "\u200b ", "answer": True}
    rows = [RECORD, '{"id": "cut', [1], poem, record(source="")]
    path = write_records(tmp_path / "bad.jsonl", rows)
    assert data_error(path).split("\n  ") == [
        '4 invalid records; write each like {"id": "math/17", "task": "math", '
        '"prompt": "What is 48 + 23?", "answer": "71", "source": "x"}:',
        f"{path}, line 2: Invalid JSON: EOF while parsing a string at line 1 column 11",
        f"{path}, line 3: Input should be an object, not [1]",
        f"{path}, line 4: task: Input should be 'math', 'coding', 'science', 'choice' or "
        "'reasoning', not 'poetry'; "
        "prompt: must not be empty; answer: Input should be a valid string, not True",
        f"{path}, line 5: source: must not be empty",
    ]


def test_bytes_that_are_no_text_are_reported_before_a_tokenizer_meets_them(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(json.dumps(RECORD).encode() + b'\n{"id": "\xff"}\n')
    assert f"{path}, line 2: Invalid JSON: invalid unicode code point at" in data_error(path)
    half_a_pair = json.dumps(record(prompt="half")).replace("half", r"half \ud83d")
    lines = write_records(path, [RECORD, half_a_pair])
    assert f"{lines}, line 2: Invalid JSON: unexpected end of hex escape" in data_error(lines)


@pytest.mark.parametrize("form", ["%s", "[%s]"])
def test_a_key_that_stands_twice_in_an_object_is_a_fault(tmp_path, form):
    twice = json.dumps(RECORD).replace('"answer": ', '"answer": "70", "answer": ')
    said = data_error(write_records(tmp_path / "a.json", [form % twice]))
    assert "the key 'answer' occurs more than once in" in said


@cases("written", "12345678901234567890.5", "0.10000000000000000001", "1e-400", "2.50", "1e5")
def test_a_number_is_a_gold_answer_with_all_its_digits(tmp_path, written):
    row = json.dumps(record(answer=0)).replace(": 0", f": {written}")
    [gold] = load_questions(write_records(tmp_path / "a.jsonl", [row])).answers.values()
    assert Decimal(gold) == Decimal(written)


@cases(
    "content, said",
    ("\n\n", ["holds no record"]),
    ("[]", ["holds no record"]),
    (json.dumps([RECORD, None]), ["record 2: Input should be an object"]),
    ('[{"id": 1},\n', ["begins like a JSON list, but cannot be read as one", "line 2"]),
    (None, ["No such file", "scripts/prepare_data.sh", "data/README.md"]),
)
def test_a_file_that_is_missing_broken_or_empty_is_told(tmp_path, content, said):
    path = tmp_path / "a.json"
    if content is not None:
        path.write_text(content)
    message = data_error(path)
    assert [part for part in (str(path), *said) if part not in message] == []


def test_a_run_has_a_step_for_each_whole_batch_of_which_there_must_be_one():
    def steps(num_questions: int, num_epochs: int, num_steps: int | None) -> int:
        return count_steps(num_questions, batch_size=64, num_epochs=num_epochs, num_steps=num_steps)

    assert [steps(2000, 1, None), steps(2000, 3, None), steps(64, 1, None)] == [31, 93, 1]
    assert steps(2000, 1, 50) == 50
    with pytest.raises(DataError, match=r"holds 63 questions, fewer than .* 64 .* to 63 or less"):
        steps(63, 1, 5)


@given(num_questions=st.integers(1, 40), batch_size=st.integers(1, 40), epoch=st.integers(0, 3))
def test_an_epoch_asks_a_question_at_most_once_in_whole_batches(num_questions, batch_size, epoch):
    batch_size = min(batch_size, num_questions)
    per_epoch = num_questions // batch_size
    batches = [
        draw_batch(questions(num_questions), step=step, batch_size=batch_size, seed=1)
        for step in range(epoch * per_epoch, (epoch + 1) * per_epoch)
    ]
    assert all(len(batch) == batch_size for batch in batches)
    asked = Counter(question.question_id for batch in batches for question in batch)
    assert max(asked.values()) == 1
    assert len(asked) == per_epoch * batch_size


def draw(step: int, *, seed: int = 0) -> list[str]:
    """Batches of 2 of 5 questions: epochs of 2 steps."""
    batch = draw_batch(questions(5), step=step, batch_size=2, seed=seed)
    return [question.question_id.removeprefix("math/") for question in batch]


def test_a_batch_depends_on_seed_and_step_alone_across_epochs_and_processes():
    """Literal values: another Python or platform must not change a resumed run."""
    expected = [["3", "1"], ["0", "2"], ["4", "2"], ["1", "3"]]
    assert [draw(step) for step in range(4)] == expected
    assert [draw(step, seed=1) for step in range(4)] != expected


def test_the_subset_for_validation_is_the_same_whatever_the_order_of_the_file():
    some = questions(50)
    subset = fixed_subset(some, 10)
    assert len(subset) == 10
    assert subset == [question for question in some if question in subset]  # the file's order
    assert set(fixed_subset(some[::-1], 10)) == set(subset)
    assert set(fixed_subset(some, 9)) < set(subset)  # a larger subset contains a smaller one
    assert subset != some[:10]
    assert fixed_subset(some, None) == some
    with pytest.raises(DataError, match=r"holds 3 questions, fewer than .* = 4"):
        fixed_subset(questions(3), 4)


OPTIONS = ["red", "blue", "7"]
ARC = {"prompt": "Which?", "choices": {"text": OPTIONS, "label": ["1", "2", "3"]}, "answer": "2"}


def chosen(answer: object, **row: object) -> dict[str, object]:
    record = {"task": "choice", "prompt": "Which?", "answer": answer}
    return with_choices(record, {"choices": OPTIONS} | row, columns=["choices"])


@pytest.mark.parametrize(("answer", "letter"), [("C", "C"), (1, "B"), (0, "A"), ("blue", "B")])
def test_an_answer_is_a_letter_a_number_from_0_or_the_text_of_an_option(answer, letter):
    record = chosen(answer)
    assert record["answer"] == letter
    assert record["prompt"] == "Which?\n\n(A) red\n(B) blue\n(C) 7"


@cases("answer, choices, said")
def test_options_that_are_none_or_are_not_named_are_a_fault(answer, choices, said):
    with pytest.raises(ValueError, match=said):
        chosen(answer, choices=choices)


def test_a_csv_holds_options_in_columns_of_their_own(tmp_path):
    path = written(tmp_path / "quiz.csv", "q,A,B,right\nBigger?,2,3,B\n")
    columns = {"prompt": "q", "answer": "right", "choices": ["A", "B"]}
    found = load_questions(path, Data(columns=columns, domain="choice", answer_after=None))
    assert found.questions == (Question("quiz/1", "choice", "Bigger?\n\n(A) 2\n(B) 3"),)
    assert found.answers == {"quiz/1": "B\n(A) 2\n(B) 3"}
    with pytest.raises(DataError, match=r"no column C; data\.columns\.choices names them"):
        load_questions(path, Data(columns=columns | {"choices": ["A", "C"]}, domain="choice"))


def test_a_prompt_may_list_its_options_itself_and_verdicts_know_their_texts(tmp_path):
    path = tmp_path / "quiz.jsonl"
    record = {"task": "choice", "prompt": "Which?\n\n(A) red\n(B) blue", "answer": "B"}
    path.write_text(json.dumps(record))
    [gold] = load_questions(path).answers.values()
    assert verify("choice", r"\boxed{B, blue}", gold) == "correct"
    assert verify("choice", r"\boxed{(A)}", gold) == "wrong"
    assert verify("choice", r"\boxed{B, red}", gold) == "unanswered"
    path.write_text(json.dumps(record | {"prompt": "Which?"}))
    with pytest.raises(DataError, match=r"lists no options; list the options below the question"):
        load_questions(path)


@cases("labels, answer, letter")
def test_labels_say_which_option_an_answer_names(tmp_path, labels, answer, letter):
    row = ARC | {"choices": {"text": OPTIONS, "label": labels}, "answer": answer}
    path = write_records(tmp_path / "arc.jsonl", [row])
    rules = Data(columns={"choices": ["choices.text"]}, domain="choice")
    [gold] = load_questions(path, rules).answers.values()
    assert gold[0] == letter


def test_columns_of_options_are_read_of_questions_of_choice_alone(tmp_path):
    row = {"task": "math", "prompt": "1 + 1?", "answer": 2, "choices": 3}
    path = write_records(tmp_path / "mixed.jsonl", [row])
    assert load_questions(path).answers == {"mixed/1": "2"}
