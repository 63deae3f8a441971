"""Demonstrations: a user's file of example turns, and their tokens."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from comas.config.schema import Config
from comas.data.records import sound_records
from comas.data.rows import Invalid, json_rows
from comas.interaction.prompts import SHIPPED, fill
from comas.interaction.wording import quoted_in, wording_of
from comas.utils.chat import ChatEncoder, chat_messages

SECTIONS = [section for section in SHIPPED if section != "history"]
"""Sections of prompts that a turn can have: roles, and the sections of ablations."""
_EXAMPLE = json.dumps(
    {
        "role": "evaluation",
        "domain": "math",
        "question": "What is 48 + 23?",
        "solution": "8 + 3 = 11, 4 + 2 = 6: \\boxed{61}",
        "response": "The carry of 8 + 3 is lost.",
    }
)


@dataclass(frozen=True)
class Demonstration:
    """A prompt, with an empty discussion history, and the response to learn."""

    location: str
    """Its place in the file: ``line 3``"""
    role: str
    prompt: str
    response: str


class Lesson(NamedTuple):
    """The token ids of a demonstration for one model."""

    prompt_token_ids: Sequence[int]
    response_token_ids: Sequence[int]
    """Token ids of the response, with the end of the turn."""


def load_demonstrations(config: Config) -> list[Demonstration]:
    """Read the demonstrations of ``society.cold_start``, and fill in the run's prompts. Raises
    DataError that names every faulty line, its key and what is allowed."""
    path = config.society.cold_start
    assert path is not None
    wording = wording_of(config.interaction.prompts)

    def found() -> Iterator[tuple[str, Demonstration | Invalid]]:
        for location, row in json_rows(Path(path)):
            if isinstance(row, Invalid):
                yield location, row
            elif faults := list(_faults_of(row)):
                yield location, Invalid("; ".join(faults))
            else:
                quoted = {key: row[key] for key in _quoted(row["role"], row["domain"])}
                prompt = fill(row["role"], row["domain"], wording=wording, **quoted)
                yield location, Demonstration(location, row["role"], prompt, row["response"])

    return sound_records(path, found(), example=_EXAMPLE)


def encode(
    demonstrations: Sequence[Demonstration], encoder: ChatEncoder, config: Config
) -> list[Lesson]:
    """Encode demonstrations for a model: the prompts as in a rollout, and the responses. Raises
    DataError that names every line that is too long, or could not be sampled."""
    system, rollout = config.rollout.system_prompt, config.rollout
    limits = {"prompt": rollout.max_prompt_tokens, "response": rollout.longest_response}

    def found() -> Iterator[tuple[str, Lesson | Invalid]]:
        for each in demonstrations:
            prompt = encoder.encode(chat_messages(each.prompt, system_prompt=system))
            lesson = Lesson(prompt, encoder.encode_response(each.response))
            faults = list(_faults_of_response(each.response, encoder))
            for key, ids in zip(("prompt", "response"), lesson, strict=True):
                if len(ids) > (most := limits[key]):
                    limit = f"rollout.max_{key}_tokens={most}"
                    faults.append(f"{key}: has {len(ids)} tokens, more than {limit} allows")
            yield each.location, Invalid("; ".join(faults)) if faults else lesson

    return sound_records(str(config.society.cold_start), found(), example=_EXAMPLE)


def in_words(demonstrations: Sequence[Demonstration]) -> str:
    """``142: 50 solution, 92 scoring``"""
    counts = Counter(each.role for each in demonstrations)
    return f"{len(demonstrations)}: {', '.join(f'{n} {role}' for role, n in counts.items())}"


def _quoted(role: str, domain: str) -> list[str]:
    """Return the keys that a prompt quotes, whatever its wording."""
    return [name for name in quoted_in(SHIPPED[role][domain]) if name != "discussion"]


def _faults_of(row: Any) -> Iterator[str]:
    if not isinstance(row, Mapping):
        yield f"is not an object, but {row!r}"
        return
    role, domain = str(row.get("role")), str(row.get("domain"))
    if role not in SECTIONS:
        yield f"role: is {role!r}, and must be one of {', '.join(SECTIONS)}"
        return
    if domain not in SHIPPED[role]:
        yield f"domain: is {domain!r}, and must be one of {', '.join(SHIPPED[role])}"
        return
    texts = [*_quoted(role, domain), "response"]
    for key in texts:
        if not isinstance(row.get(key), str) or not row[key].strip():
            yield f"{key}: is {row.get(key)!r}, and must be a text, not empty"
    for key in row.keys() - {"role", "domain", *texts}:
        allowed = ", ".join(("role", "domain", *texts))
        yield f"{key}: is unknown in a demonstration of role {role}, which has {allowed}"


def _faults_of_response(response: str, encoder: ChatEncoder) -> Iterator[str]:
    thinking = encoder.thinking
    if thinking is not None and thinking.is_unfinished(response):
        yield f"response: has to end by {thinking.end} the thinking that the chat template begins"
    for mark in (thinking.start, thinking.end) if thinking is not None else ():
        response = response.replace(mark, "")
    if encoder.spells_mark(response):
        yield (
            "response: contains a special token of the chat template; leave it out: the end of the "
            "turn is added"
        )
