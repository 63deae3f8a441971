"""The records of a run: its log, and the metrics, discussions and tokens of each step."""

import gzip
import json
import logging
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import partial
from math import isfinite
from pathlib import Path
from types import MappingProxyType
from typing import Any

from comas.interaction.held import outcome_of
from comas.reward_formulation.interaction_reward import parse_score
from comas.types import ROLES, AnswerKey, Discussion, RewardedDiscussion, Turn, TurnKey
from comas.utils.files import FileError, explaining_errors, json_lines, read_lines
from comas.verification.forms import in_json, parted

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
LOG = "train.log"
_WARNING = re.compile(r"^\S+ \S+ WARNING comas[\w.]*: (.+)", re.MULTILINE)
METRICS = "metrics.jsonl"
DISCUSSIONS, TOKENS, VALIDATIONS = "discussions", "tokens", "validations"
"""Folders: what was said, as token ids, and answers to held-out questions."""
GZIP_LEVEL = 4
"""Python's default level doubled the driver's time per step for slightly smaller files."""

Row = dict[str, Any]
"""A step's metrics by name, and ``step``."""
Record = dict[str, Any]
"""A line of a file in ``discussions/``, ``tokens/`` or ``validations/``."""
parse = partial(json.loads, parse_constant=lambda number: None)
"""Reads a line, with null for numbers that are not finite (a plug-in's), which no page can hold."""


@contextmanager
def log_file(path: Path) -> Iterator[None]:
    """Write everything that this process logs also to ``path``."""
    with explaining_errors(path):
        handler = logging.FileHandler(path, encoding="utf-8", errors="backslashreplace")
    handler.setFormatter(logging.Formatter(LOG_FORMAT))
    handler.handleError = lambda record: None  # type: ignore[method-assign]  # a full disk: see below
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
        with suppress(OSError):  # a full disk ends the run when it writes its records
            handler.close()


def read_warnings(run: Path) -> list[str]:
    """Return CoMAS's own warnings in a run's train.log, without repetitions."""
    path = run / LOG
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    return list(dict.fromkeys(_WARNING.findall(text)))


def read_rows(path: Path) -> list[Row]:
    """Return all rows of a metrics.jsonl but a partial last line."""
    return read_lines(path, _parse_row, remedy="Delete the line to continue")


def _parse_row(line: bytes) -> Row:
    row = parse(line)
    if not isinstance(row, dict) or not isinstance(row.get("step"), int):
        raise ValueError("it is not an object with a step")
    return row


def discussion_record(
    item: RewardedDiscussion,
    *,
    verdicts: Mapping[TurnKey, str],
    answers: AnswerKey = MappingProxyType({}),
) -> Record:
    """Return a discussion as JSON values.

    ``gold`` is the reference answer, and ``columns`` are further fields that the reward or verifier
    reads. A scoring's ``score`` is null if unreadable. A turn's ``agent`` is null if the turn was
    given. Prompts, which repeat earlier turns, are left out.
    """
    discussion = item.discussion
    key = discussion.discussion_id
    gold, columns = parted(answers.get(discussion.question.question_id, ""))
    outcome = outcome_of(discussion)
    where_present = {
        "columns": in_json(discussion.question.columns) or columns,
        "gold": gold,
        "program": outcome and asdict(outcome),
        "roles": {name: r.purpose for name, r in discussion.roles.items() if name not in ROLES},
    }
    scorings = discussion.turns_that("scores")
    return {
        "discussion_id": discussion.discussion_id,
        "question_id": discussion.question.question_id,
        "domain": discussion.question.domain,
        "question": discussion.question.text,
        "num_overlong_prompts": discussion.num_overlong_prompts,
        **{name: value for name, value in where_present.items() if value},
        "turns": [
            _turn_record(turn, reward, verdicts.get((key, turn.turn_id)))
            | ({"score": parse_score(turn.text)} if turn in scorings else {})
            for turn, reward in zip(discussion.turns, item.rewards, strict=True)
        ],
    }


def _turn_record(turn: Turn, reward: float | None, verdict: str | None) -> Record:
    said = turn.generation
    record: Record = {
        "turn_id": turn.turn_id,
        "parent_turn_id": turn.parent_turn_id,
        "round": turn.round_index,
        "role": turn.role,
        "agent": None if turn.is_given else turn.agent_index,
        "reward": reward,
        "response": turn.text,
        "finish_reason": said.finish_reason,
        "num_prompt_tokens": len(said.prompt_token_ids),
        "num_response_tokens": len(said.response_token_ids),
        "policy_version": said.policy_version,
    }
    where_present = {
        "thinking": said.thinking_text,
        "spells_mark": said.spells_mark,
        "verdict": verdict,
    }
    return record | {name: value for name, value in where_present.items() if value}


def token_records(
    discussions: Iterable[Discussion], advantages: Mapping[TurnKey, Sequence[float]]
) -> Iterator[Record]:
    """Yield one record per sampled turn, with its advantages if it was trained on; then one for
    each turn of earlier steps in ``advantages``.

    Numbers have four significant digits; null is one that is not finite. Example::

        {"discussion_id": "step1/math/17/copy0", "turn_id": "r0.s0", "prompt_token_ids": [5, 8, 2],
         "response_token_ids": [7, 9, 1], "logprobs": [-0.1, -0.7, -0.2],
         "advantages": [1.52, 1.52, 1.52]}
    """
    rounded = {key: {"advantages": _rounded(values)} for key, values in advantages.items()}
    for discussion in discussions:
        for turn in discussion.turns:
            said = turn.generation
            if not turn.is_given:
                yield {
                    "discussion_id": discussion.discussion_id,
                    "turn_id": turn.turn_id,
                    "prompt_token_ids": list(said.prompt_token_ids),
                    "response_token_ids": list(said.response_token_ids),
                    "logprobs": _rounded(said.rollout_logprobs),
                    **rounded.pop((discussion.discussion_id, turn.turn_id), {}),
                }
    for (discussion_id, turn_id), gained in rounded.items():
        yield {"discussion_id": discussion_id, "turn_id": turn_id, **gained}


def compressed(records: Iterable[Record]) -> bytes:
    """Return the bytes of a file in ``tokens/``, which depend on nothing but the records."""
    return gzip.compress(json_lines(records).encode(), compresslevel=GZIP_LEVEL, mtime=0)


def read_tokens(folder: Path, *, steps: Iterable[int] | None = None) -> dict[TurnKey, Record]:
    """Read the files of ``steps`` (None: all), and merge the records of each turn."""
    names = ["step_*"] if steps is None else [f"step_{step:04d}" for step in steps]
    records: dict[TurnKey, Record] = {}
    for path in sorted(path for name in names for path in folder.glob(f"{name}.jsonl.gz")):
        try:
            for record in map(parse, gzip.decompress(path.read_bytes()).splitlines()):
                records.setdefault((record["discussion_id"], record["turn_id"]), {}).update(record)
        except (EOFError, LookupError, OSError, TypeError, ValueError, zlib.error) as error:
            raise FileError(f"{path} is damaged: {error}. Delete it to go on without it") from error
    return records


def _rounded(values: Sequence[float]) -> list[float | None]:
    return [float(f"{value:.4g}") if isfinite(value) else None for value in values]
