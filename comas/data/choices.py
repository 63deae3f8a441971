"""Choice questions: reads options from columns, and lists them in prompts."""

from collections.abc import Mapping, Sequence
from string import ascii_uppercase as LETTERS  # noqa: N812
from typing import Any

from comas.data.cells import given, has_column, value_at
from comas.verification.choice import read_options

_FIRST = f"\n\n({LETTERS[0]}) "
_IN_PROMPT = (
    "list the options below the question, as in 'Which?\\n\\n(A) this\\n(B) that', or name their "
    "column in data.columns.choices"
)


def with_choices(
    record: Mapping[str, Any],
    row: Mapping[str, Any],
    *,
    columns: Sequence[str],
    labels: str | None = None,
) -> dict[str, Any]:
    """List the options below the record's prompt, and make its answer the letter of the right one.

    The options are a list in one column, one per column in several, or already in the prompt. The
    answer is a letter, an option's text, or its index from 0 as a number; in rows that have the
    column ``labels``, an option's label replaces its letter.

    Example: the columns ``choices: ["3", "4"]`` and ``answer: 1`` give ``"...\\n\\n(A) 3\\n(B) 4"``
    and ``"B"``. Raises ValueError.
    """
    options = _options(row, columns)
    if options is None:
        _, _, listed = gold_with_options("", str(record["prompt"])).partition("\n")
        options = _texts([*read_options(listed).values()], "options")
        return {**record, "answer": _letter(record["answer"], options)}
    prompt = f"{record['prompt']}\n\n{list_options(options)}"
    named = _labels(row, labels, num_options=len(options))
    return {**record, "prompt": prompt, "answer": _letter(record["answer"], options, named)}


def list_options(options: Sequence[str]) -> str:
    """Return lettered lines: ``list_options(["2", "3"])`` gives ``(A) 2`` and ``(B) 3``."""
    lettered = zip(LETTERS, options, strict=False)
    return "\n".join(f"({letter}) {option.strip()}" for letter, option in lettered)


def gold_with_options(letter: str, prompt: str) -> str:
    """Return the letter, with the options at the end of ``prompt`` below it, for strict grading."""
    _, first, rest = prompt.rpartition(_FIRST)
    return f"{letter}\n{first.strip()} {rest}" if first else letter


def _options(row: Mapping[str, Any], columns: Sequence[str]) -> list[str] | None:
    """Return the options in a row; None if it has none of the columns."""
    missing = [column for column in columns if not has_column(row, column)]
    if len(missing) == len(columns):
        return None
    if missing:
        raise ValueError(
            f"choices: no column {', '.join(missing)}; data.columns.choices names them"
        )
    values = [value_at(row, column) for column in columns]
    options = values[0] if len(columns) == 1 else values
    if not isinstance(options, list):
        raise ValueError(
            f"choices: column {columns[0]!r} holds no list; set data.columns.choices to the "
            "options' columns, as [A,B,C,D], or to the column of their list, as [choices.text]"
        )
    if not 2 <= len(options) <= len(LETTERS):
        raise ValueError(f"choices: {len(options)} options; there must be 2 to {len(LETTERS)}")
    return _texts(options, "options")


def _labels(
    row: Mapping[str, Any], column: str | None, *, num_options: int
) -> Sequence[str] | None:
    """Return the options' labels in a row; None if it has none."""
    labels = value_at(row, column) if column is not None and has_column(row, column) else None
    if labels is None:
        return None
    if not isinstance(labels, list) or len(labels) != num_options:
        raise ValueError(
            f"choices: column {column!r} (data.columns.labels) holds {labels!r}; it must hold a "
            f"label for each of {num_options} options"
        )
    return _texts(labels, "labels")


def _texts(values: Sequence[Any], what: str) -> list[str]:
    """Options or labels as texts. Raises ValueError if one is missing, or two are equal."""
    if nested := [value for value in values if isinstance(value, list | Mapping)]:
        raise ValueError(
            f"choices: {what} must be texts, not {nested[0]!r}; a dotted name such as "
            "choices.text reads the text within each"
        )
    texts = ["" if given(value) is None else str(value).strip() for value in values]
    if "" in texts or len(set(texts)) < len(texts):
        raise ValueError(f"choices: {what} must not be empty, and must differ")
    return texts


def _letter(answer: Any, options: Sequence[str], labels: Sequence[str] | None = None) -> str:
    """Return the letter of the right option."""
    if len(options) < 2:
        raise ValueError(f"prompt: it lists no options; {_IN_PROMPT}")
    letters = LETTERS[: len(options)]
    names = list(letters if labels is None else labels)
    if isinstance(answer, float) and answer.is_integer():  # a whole number in a column with gaps
        answer = int(answer)
    is_number = isinstance(answer, int) and not isinstance(answer, bool)
    text = str(answer).strip() if is_number or isinstance(answer, str) else ""
    if labels is None and text in names and text in options and text != options[names.index(text)]:
        what = f"answer: {text!r} is a letter and the text of another option"
        raise ValueError(f"{what}: set data.columns.labels, or give its number (JSON, Parquet)")
    if text in names:
        return letters[names.index(text)]
    # Datasets count from 0 or from 1: a number as text, or beside labels, does not tell which.
    if is_number and labels is None and 0 <= answer < len(options):
        return letters[answer]
    if text in options and text and not text.isdecimal():
        return letters[list(options).index(text)]
    raise ValueError(
        f"answer: {answer!r} is none of the options; write one of {', '.join(names)}, the text of "
        "an option that is no number, or (in JSON and Parquet without data.columns.labels) a "
        "number from 0"
    )
