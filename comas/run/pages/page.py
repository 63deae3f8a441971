"""The data of the page, and its text: one HTML file."""

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader

from comas.run.metrics.meanings import as_regex, meanings

TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    trim_blocks=True,
    keep_trailing_newline=True,
)


@dataclass(frozen=True)
class PageTurn:
    """A turn of a discussion, or a call of an evaluation.

    Example: the scoring of a correct solution: ``PageTurn("r0.s0.e0.t0", "r0.s0.e0", "scoring", 1,
    0, "<score>3</score>", 0.0, "correct", (3,), "stop", 40, 4)``
    """

    id: str
    parent: str | None
    role: str
    agent: int | None
    """Index of the agent; None if no agent said it."""
    round: int | None
    text: str
    reward: float | None
    verdict: str | None
    """The verdict on the solution that the turn is, or is about."""
    scores: tuple[int | str | None, ...]
    """Scores that the turn gave or was given."""
    finish: str
    num_prompt_tokens: int
    num_response_tokens: int
    thinking: str = ""
    signs: tuple[str, ...] = ()
    """Properties to filter by, such as ``"truncated"`` (``_signs`` in ``discussions.py``)."""
    is_solution: bool = False
    """True if ``verdict`` is on the turn itself."""
    asked: Mapping[str, Any] | None = None
    """The program's request for it (``comas.interaction.held.Asked``)."""


@dataclass(frozen=True)
class Thread:
    """Everything said about one question on one occasion."""

    id: str
    """Unique within its source."""
    step: int | None
    question_key: str
    """Key of the question, the same in every run."""
    question: str
    domain: str | None
    labels: Mapping[str, str]
    """Further properties, such as ``{"setup": "debate"}``."""
    chunk: str
    """Key of its prompts and tokens in ``PageSource.details``."""
    turns: tuple[PageTurn, ...]
    gold: str = ""
    """The reference answer, if known."""
    program: Mapping[str, Any] | None = None
    """How the program that held the discussion ended (``comas.interaction.held.Outcome``)."""


@dataclass(frozen=True)
class PageTable:
    title: str
    header: tuple[str, ...]
    rows: Sequence[Sequence[Any]]


Details = dict[str, dict[str, dict[str, Any]]]
"""Thread id -> turn id -> ``prompt`` and, if known, the response's ``tokens``, ``logprobs`` and
``advantages``."""


@dataclass(frozen=True)
class PageSource:
    """One run, or the results of one evaluation."""

    name: str
    path: str
    threads: Sequence[Thread]
    tables: Sequence[PageTable] = ()
    featured: Sequence[str] = ()
    """Ids of the threads that the report links to."""
    without_details: str = ""
    """Why there are no prompts and tokens, if there are none."""
    details: Mapping[str, Details] = field(default_factory=dict)
    """Chunk -> details; the browser decompresses a chunk when it is opened."""
    rows: Sequence[dict[str, Any]] = ()
    result: str = ""
    """The result of a run, in one sentence."""
    notes: Sequence[str] = ()
    """Notes above the result: how the run ended, and its warnings."""
    live: Mapping[str, Any] | None = None
    """``mark`` (the last known row) and ``progress`` of a live run."""


LIBRARIES = ("marked.umd.js", "katex.min.js")
"""Libraries for Markdown and LaTeX; each begins with its licence."""


def page_text(sources: Sequence[PageSource]) -> str:
    data: dict[str, Any] = {
        "page-data": [
            {name: value for name, value in vars(source).items() if name != "details"}
            for source in sources
        ],
        "page-meanings": [[as_regex(each.pattern), each.tooltip] for each in meanings()],
    }
    packed = {element_id: _packed(value) for element_id, value in data.items()}
    packed["page-libraries"] = _libraries()
    for number, source in enumerate(sources):
        packed |= {f"details-{number}-{chunk}": _packed(of) for chunk, of in source.details.items()}
    return TEMPLATES.get_template("page.html").render(
        title=" and ".join(source.name for source in sources),
        is_live=any(source.live is not None for source in sources),
        data=packed,
    )


@cache
def _libraries() -> str:
    return _packed([Path(__file__).with_name(name).read_text() for name in LIBRARIES])


def _packed(value: Any) -> str:
    """Encode ``value``, which may hold dataclasses, as JSON, gzip and base64."""
    content = json.dumps(value, ensure_ascii=False, allow_nan=False, default=asdict).encode()
    return base64.b64encode(gzip.compress(content, mtime=0)).decode()
