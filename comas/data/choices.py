"""Questions of choice: options from the columns of a dataset, and how prompts list them."""

from collections.abc import Mapping, Sequence
from string import ascii_uppercase as LETTERS  # noqa: N812
from typing import Any

_FIRST = f"\n\n({LETTERS[0]}) "
_IN_PROMPT = (
    "list the options below the question, as in 'Which?\\n\\n(A) this\\n(B) that', or name their "
    "column in data.columns.choices"
)


def with_choices(
    record: Mapping[str, Any], row: Mapping[str, Any], *, columns: Sequence[str]
) -> dict[str, Any]:
    """``record`` with its options below its prompt, and the letter of the right one as its answer.

    The options are in one of ``columns``, as a list, or in all of them, one each; or in the prompt
    already. The answer is a letter, the text of an option, or as a number its place from 0.

    Example: the columns ``choices: ["3", "4"]`` and ``answer: 1`` give ``"...\\n\\n(A) 3\\n(B) 4"``
    and ``"B"``.

    Raises ValueError with what is wrong.
    """
    options = _options(row, columns)
    if options is None:
        listed = gold_with_options("", str(record["prompt"])).splitlines()[1:]
        num_listed = sum(line.startswith(f"({letter}) ") for letter in LETTERS for line in listed)
        return {**record, "answer": _letter(record["answer"], [""] * num_listed)}
    prompt = f"{record['prompt']}\n\n{list_options(options)}"
    return {**record, "prompt": prompt, "answer": _letter(record["answer"], options)}


def list_options(options: Sequence[str]) -> str:
    """Example: ``list_options(["2", "3"])`` gives the lines ``(A) 2`` and ``(B) 3``."""
    lettered = zip(LETTERS, options, strict=False)
    return "\n".join(f"({letter}) {option.strip()}" for letter, option in lettered)


def gold_with_options(letter: str, prompt: str) -> str:
    """The letter with the options below it, which end ``prompt``: what strict grading knows."""
    _, first, rest = prompt.rpartition(_FIRST)
    return f"{letter}\n{first.strip()} {rest}" if first else letter


def _options(row: Mapping[str, Any], columns: Sequence[str]) -> list[str] | None:
    """The options in a row; None: it has none of the columns."""
    if not any(column in row for column in columns):
        return None
    if missing := [column for column in columns if column not in row]:
        raise ValueError(
            f"choices: no column {', '.join(missing)}; data.columns.choices names them"
        )
    options = row[columns[0]] if len(columns) == 1 else [row[column] for column in columns]
    if not isinstance(options, list):
        raise ValueError(
            f"choices: column {columns[0]!r} holds no list; name the columns of the options, as "
            "data.columns.choices=[A,B,C,D] does"
        )
    if not 2 <= len(options) <= len(LETTERS):
        raise ValueError(f"choices: {len(options)} options; there must be 2 to {len(LETTERS)}")
    texts = [str(option).strip() if option is not None else "" for option in options]
    if "" in texts or len(set(texts)) < len(texts):
        raise ValueError("choices: options must not be empty, and must differ")
    return texts


def _letter(answer: Any, options: Sequence[str]) -> str:
    """The letter of the right option."""
    if len(options) < 2:
        raise ValueError(f"prompt: it lists no options; {_IN_PROMPT}")
    letters = LETTERS[: len(options)]
    if isinstance(answer, int) and not isinstance(answer, bool) and 0 <= answer < len(options):
        return letters[answer]
    if isinstance(answer, str):
        text = answer.strip()
        if len(text) == 1 and text in letters:
            return text
        # Some datasets count from 0, some from 1: as a text, a number says neither.
        if text in options and text and not text.isdecimal():
            return letters[list(options).index(text)]
    raise ValueError(
        f"answer: {answer!r} is none of the options; write a letter from A to {letters[-1]}, the "
        f"text of an option that is no number, or (in JSON and Parquet) a number from 0 to "
        f"{len(options) - 1}"
    )
