"""Questions of choice: from columns or prompts to options, letters and golds."""

import json
from pathlib import Path

import pytest
from tables import cases

from comas.config.schema import Data
from comas.data import DataError, load_questions
from comas.data.choices import with_choices
from comas.types import Question
from comas.verification.verifiers import verify

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


@pytest.mark.parametrize("answer", ["D", "c", 3, -1, True, None, "green", "1", "7"])
def test_what_names_no_option_or_counts_from_nobody_knows_where_is_a_fault(answer):
    with pytest.raises(ValueError, match=r"none of the options; write one of A, B, C, "):
        chosen(answer)


@cases(
    "choices, said",
    (["red"], "1 options; there must be 2 to 26"),
    (["red", " "], "must not be empty"),
    (["red", "red "], "must differ"),
    ("red, blue", r"holds no list; data\.columns\.choices names the columns .*\[A,B,C,D\]"),
    (ARC["choices"], r"holds no list; .* the one of their list, as \[choices\.text\] does"),
)
def test_options_that_are_none_are_a_fault(choices, said):
    with pytest.raises(ValueError, match=said):
        chosen("A", choices=choices)


def test_a_csv_holds_options_in_columns_of_their_own(tmp_path):
    path = tmp_path / "quiz.csv"
    path.write_text("q,A,B,right\nBigger?,2,3,B\nSmaller?,2,3,#### A\n")
    columns = {"prompt": "q", "answer": "right", "choices": ["A", "B"]}
    rules = Data(columns=columns, domain="choice", answer_after=None)
    with pytest.raises(DataError, match=r"line 3: answer: '#### A' is none of the options"):
        load_questions(path, rules)
    path.write_text("q,A,B,right\nBigger?,2,3,B\n")
    found = load_questions(path, rules)
    assert found.questions == (Question("quiz/1", "choice", "Bigger?\n\n(A) 2\n(B) 3"),)
    assert found.answers == {"quiz/1": "B\n(A) 2\n(B) 3"}
    with pytest.raises(DataError, match=r"no column C; data\.columns\.choices names them"):
        load_questions(
            path,
            Data(
                columns={"prompt": "q", "answer": "right", "choices": ["A", "C"]}, domain="choice"
            ),
        )


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


def read(path: Path, row: dict[str, object], **columns: object) -> str:
    """The letter of the only record."""
    path.write_text(json.dumps(row))
    rules = Data(columns={"choices": ["choices.text"], **columns}, domain="choice")
    [gold] = load_questions(path, rules).answers.values()
    return gold[0]


@cases(
    "labels, answer, letter",
    (["1", "2", "3"], "2", "B"),
    (["1", "2", "3"], 3, "C"),
    (["0", "1", "2"], "2", "C"),
    (["A", "B", "C"], "C", "C"),
    (["1", "2", "3"], "red", "A"),
    (None, "B", "B"),
)
def test_labels_say_which_option_an_answer_names(tmp_path, labels, answer, letter):
    row = ARC | {"choices": {"text": OPTIONS, "label": labels}, "answer": answer}
    assert read(tmp_path / "arc.jsonl", row) == letter


def test_options_may_be_a_list_of_pairs_and_labels_a_column_of_any_name(tmp_path):
    """As AI2 itself writes ARC."""
    pairs = [{"text": text, "label": str(n)} for n, text in enumerate(OPTIONS, start=1)]
    row = {"question": {"stem": "Which?", "choices": pairs}, "answerKey": "2"}
    named = {"prompt": "question.stem", "answer": "answerKey", "choices": ["question.choices.text"]}
    path = tmp_path / "arc.jsonl"
    assert read(path, row, **named, labels="question.choices.label") == "B"
    with pytest.raises(DataError, match=r"'2' is none of the options; .*data\.columns\.labels na"):
        read(path, row, **named)


@cases(
    "changes, said",
    ({"answer": "4"}, "'4' is none of the options; write one of 1, 2, 3, the text of"),
    ({"choices": ARC["choices"] | {"label": ["1", "2"]}}, "a label for each of 3 options"),
    ({"choices": ARC["choices"] | {"label": ["1"] * 3}}, "labels must not be empty, and must"),
    ({"choices": {"text": [["red"], ["blue"]]}}, r"options must be texts, not \['red'\]; a dot"),
)
def test_labels_and_nested_options_that_do_not_fit_are_a_fault(tmp_path, changes, said):
    with pytest.raises(DataError, match=said):
        read(tmp_path / "arc.jsonl", ARC | changes)


def test_columns_of_options_are_read_of_questions_of_choice_alone(tmp_path):
    path = tmp_path / "mixed.jsonl"
    path.write_text(json.dumps({"task": "math", "prompt": "1 + 1?", "answer": 2, "choices": 3}))
    assert load_questions(path).answers == {"mixed/1": "2"}
