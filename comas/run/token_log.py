"""tokens/: what the models read and said, token by token, for whom the texts do not suffice."""

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from comas.types import Discussion, Turn, TurnKey
from comas.utils.files import json_lines

TOKENS = "tokens"
"""The folder within a run's."""

Record = dict[str, Any]


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
                of_turn = missing.pop((discussion.discussion_id, turn.turn_id), None)
                yield _key(discussion.discussion_id, turn.turn_id) | _said(turn) | _gained(of_turn)
    for (discussion_id, turn_id), of_turn in missing.items():
        yield _key(discussion_id, turn_id) | _gained(of_turn)


def compressed(records: Iterable[Record]) -> bytes:
    """The content of a file of ``tokens/``; equal records give equal bytes."""
    return gzip.compress(json_lines(records).encode(), mtime=0)


def read_tokens(folder: Path) -> dict[TurnKey, Record]:
    """The records of all steps, each turn's in one."""
    records: dict[TurnKey, Record] = {}
    for path in sorted(folder.glob("*.jsonl.gz")):
        for line in gzip.decompress(path.read_bytes()).splitlines():
            record = json.loads(line)
            records.setdefault((record["discussion_id"], record["turn_id"]), {}).update(record)
    return records


def _key(discussion_id: str, turn_id: str) -> Record:
    return {"discussion_id": discussion_id, "turn_id": turn_id}


def _said(turn: Turn) -> Record:
    return {
        "prompt_token_ids": turn.generation.prompt_token_ids,
        "response_token_ids": turn.generation.response_token_ids,
        "logprobs": _rounded(turn.generation.rollout_logprobs),
    }


def _gained(advantages: Sequence[float] | None) -> Record:
    return {} if advantages is None else {"advantages": _rounded(advantages)}


def _rounded(values: Sequence[float]) -> list[float]:
    return [float(f"{value:.4g}") for value in values]
