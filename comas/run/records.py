"""The records of a run, for people and other programs: its log, and of each step metrics,
discussions and tokens."""

import gzip
import json
import logging
import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

from comas.reward_formulation.interaction_reward import parse_score
from comas.types import AnswerKey, Discussion, Generation, RewardedDiscussion, Turn, TurnKey
from comas.utils.files import append_lines, explaining_errors, json_lines, read_lines
from comas.verification.forms import in_json, parted

logger = logging.getLogger(__name__)

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
LOG = "train.log"
"""The file of all that is logged within a run's folder."""
_WARNING = re.compile(r"^\S+ \S+ WARNING comas[\w.]*: (.+)", re.MULTILINE)
METRICS = "metrics.jsonl"
"""The file of metrics within a run's folder."""
TOKENS = "tokens"
"""The folder of token ids within a run's."""
VALIDATIONS = "validations"
"""The folder of the answers to held-out questions within a run's."""
GZIP_LEVEL = 4
"""Of its files. Python's default took about as long as all else that the driver of a large society
does, for files that are little smaller."""

NO_ANSWERS: AnswerKey = MappingProxyType({})

Row = dict[str, Any]
"""The metrics of a step, under their names, and ``step``."""
Record = dict[str, Any]
"""A line of a file in ``discussions/``, ``tokens/`` or ``validations/``."""


# ---------------------------------------------------------------- train.log


@contextmanager
def log_file(path: Path) -> Iterator[None]:
    """Let everything that is logged in this process also go to ``path``."""
    with explaining_errors(path):
        handler = _RunLog(path, encoding="utf-8", errors="backslashreplace")
    handler.setFormatter(logging.Formatter(LOG_FORMAT))
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
        with suppress(OSError):  # of what it could not write, which it has told
            handler.close()


class _RunLog(logging.FileHandler):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """A full disk ends the log, with a word; what matters more ends the run by itself."""
        logging.getLogger().removeHandler(self)
        logger.warning("%s ends here: %s", self.baseFilename, sys.exc_info()[1])


def read_warnings(path: Path) -> list[str]:
    """Our own warnings in a train.log, each once; those of libraries are left out."""
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    return list(dict.fromkeys(_WARNING.findall(text)))


# ---------------------------------------------------------------- metrics.jsonl


def append_row(path: Path, step: int, metrics: Mapping[str, float | None]) -> Row:
    """Write the row of ``step`` into a metrics.jsonl, on the disk before the next step begins, and
    return it. A value that is not finite becomes null, which JSON has, with a warning."""
    broken = [k for k, v in metrics.items() if v is not None and not math.isfinite(v)]
    if broken:
        logger.warning("step %d: not finite, written as null: %s", step, ", ".join(broken))
    row = {"step": step} | {k: None if k in broken else v for k, v in metrics.items()}
    append_lines(path, [json.dumps(row, allow_nan=False).encode()])
    return row


def read_rows(path: Path) -> list[Row]:
    """All rows of a metrics.jsonl, without a last one that a killed process left unfinished."""
    return read_lines(path, _parse_row, remedy="Delete the line to continue")


def _parse_row(line: bytes) -> Row:
    row = json.loads(line)
    if not isinstance(row, dict) or not isinstance(row.get("step"), int):
        raise ValueError("it is no object with a step")
    return row


# ---------------------------------------------------------------- discussions/


def discussion_record(
    item: RewardedDiscussion, *, verdicts: Mapping[TurnKey, str], answers: AnswerKey = NO_ANSWERS
) -> Record:
    """The question with its reference answer (``gold``) and the columns that the reward or the
    verifier reads, where it has any, and every turn with its reward, a scoring with its score
    (null: none can be read); agent null: it was given, or its ``author`` is another model.

    Prompts are left out: they repeat the question and earlier turns.
    """
    discussion = item.discussion
    key = discussion.discussion_id
    gold, columns = parted(answers.get(discussion.question.question_id, ""))
    columns = in_json(discussion.question.columns) or columns
    return {
        "discussion_id": discussion.discussion_id,
        "question_id": discussion.question.question_id,
        "domain": discussion.question.domain,
        "question": discussion.question.text,
        "num_overlong_prompts": discussion.num_overlong_prompts,
        **({"columns": columns} if columns else {}),
        **({"gold": gold} if gold else {}),
        "turns": [
            _turn_record(turn, reward, verdicts.get((key, turn.turn_id)))
            for turn, reward in zip(discussion.turns, item.rewards, strict=True)
        ],
    }


def _turn_record(turn: Turn, reward: float | None, verdict: str | None) -> Record:
    record: Record = {
        "turn_id": turn.turn_id,
        "parent_turn_id": turn.parent_turn_id,
        "round": turn.round_index,
        "role": turn.role,
        "agent": None if turn.is_given else turn.agent_index,
        "reward": reward,
        "response": turn.text,
        "finish_reason": turn.generation.finish_reason,
        "num_prompt_tokens": len(turn.generation.prompt_token_ids),
        "num_response_tokens": len(turn.generation.response_token_ids),
        "policy_version": turn.generation.policy_version,
    }
    if turn.role == "scoring":
        record["score"] = parse_score(turn.text)
    if turn.generation.author:
        record["author"] = turn.generation.author
    if turn.generation.thinking_text:
        record["thinking"] = turn.generation.thinking_text
    if turn.generation.calls:
        record["calls"] = [call._asdict() for call in turn.generation.calls]
    if turn.generation.spells_mark:
        record["spells_mark"] = True
    return record if verdict is None else record | {"verdict": verdict}


# ---------------------------------------------------------------- tokens/


def token_records(
    discussions: Iterable[Discussion], advantages: Mapping[TurnKey, Sequence[float]]
) -> Iterator[Record]:
    """One record per turn that somebody said, with its advantages where an update was on it; then
    one per turn of earlier steps that ``advantages`` names.

    Numbers have four significant digits. Example::

        {"discussion_id": "step1/math/17/copy0", "turn_id": "r0.s0", "prompt_token_ids": [5, 8, 2],
         "response_token_ids": [7, 9, 1], "logprobs": [-0.1, -0.7, -0.2],
         "advantages": [1.52, 1.52, 1.52]}
    """
    missing = dict(advantages)
    for discussion in discussions:
        for turn in discussion.turns:
            if not turn.is_given:
                key = (discussion.discussion_id, turn.turn_id)
                yield _token_record(key, turn.generation, missing.pop(key, None))
    for key, gained in missing.items():
        yield _token_record(key, None, gained)


def _token_record(
    key: TurnKey, said: Generation | None, advantages: Sequence[float] | None
) -> Record:
    record: Record = {"discussion_id": key[0], "turn_id": key[1]}
    if said is not None:
        record["prompt_token_ids"] = list(said.prompt_token_ids)
        record["response_token_ids"] = list(said.response_token_ids)
        record["logprobs"] = _rounded(said.rollout_logprobs)
        if said.sampled is not None:
            record["sampled"] = list(said.sampled)
    if advantages is not None:
        record["advantages"] = _rounded(advantages)
    return record


def compressed(records: Iterable[Record]) -> bytes:
    """The content of a file of ``tokens/``; equal records give equal bytes."""
    return gzip.compress(json_lines(records).encode(), compresslevel=GZIP_LEVEL, mtime=0)


def read_tokens(folder: Path, *, steps: Iterable[int] | None = None) -> dict[TurnKey, Record]:
    """The records in the files of ``steps`` (None: of all), those of a turn in one."""
    names = ["step_*"] if steps is None else [f"step_{step:04d}" for step in steps]
    records: dict[TurnKey, Record] = {}
    for path in sorted(path for name in names for path in folder.glob(f"{name}.jsonl.gz")):
        for line in gzip.decompress(path.read_bytes()).splitlines():
            record = json.loads(line)
            records.setdefault((record["discussion_id"], record["turn_id"]), {}).update(record)
    return records


def _rounded(values: Sequence[float]) -> list[float]:
    return [float(f"{value:.4g}") for value in values]
