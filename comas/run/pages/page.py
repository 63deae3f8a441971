"""The one page: what it is made of, and how it is written."""

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
from comas.utils import files

TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    trim_blocks=True,
    keep_trailing_newline=True,
)


@dataclass(frozen=True)
class PageTurn:
    """A turn of a discussion, or a call of an evaluation, as the page shows and filters it.

    Example: the scoring of a correct solution: ``PageTurn("r0.s0.e0.t0", "r0.s0.e0", "scoring", 1,
    0, "<score>3</score>", 0.0, "correct", (3,), "stop", 40, 4)``
    """

    id: str
    parent: str | None
    role: str
    agent: int | None
    """None: no agent said it."""
    round: int | None
    text: str
    reward: float | None
    verdict: str | None
    """On the solution that the turn is, or is about."""
    scores: tuple[int | str | None, ...]
    """Scores that the turn gave or was given; None: one that could not be read."""
    finish: str
    num_prompt_tokens: int
    num_response_tokens: int
    thinking: str = ""
    """The thinking before ``text``."""
    calls: tuple[tuple[int, int], ...] = ()
    """Where calls of tools with their answers begin and end in ``text``, in UTF-16 units."""
    signs: tuple[str, ...] = ()
    """Properties to filter by, such as ``"truncated"`` (``comas.run.pages.discussions``)."""
    author: str = ""
    """The model that said it, where that is no agent; empty where none did: it was given."""


@dataclass(frozen=True)
class Thread:
    """Everything said about one question on one occasion."""

    id: str
    """Unique within its source."""
    step: int | None
    question_key: str
    """Equal where the same question was asked, in another run as well."""
    question: str
    domain: str | None
    labels: Mapping[str, str]
    """Further properties that tell it from others, such as ``{"setup": "debate"}``."""
    chunk: str
    """The key in ``PageSource.details`` that has its prompts and tokens."""
    turns: tuple[PageTurn, ...]
    gold: str = ""
    """The reference answer; empty: it is not known."""


@dataclass(frozen=True)
class PageTable:
    """A small table of the report."""

    title: str
    header: tuple[str, ...]
    rows: Sequence[Sequence[Any]]


Details = dict[str, dict[str, dict[str, Any]]]
"""Thread id -> turn id -> ``prompt``, and where they are known ``tokens``, ``logprobs`` and
``advantages``, one for each token of the response."""


@dataclass(frozen=True)
class PageSource:
    """One run, or the results of one evaluation."""

    name: str
    path: str
    threads: Sequence[Thread]
    tables: Sequence[PageTable] = ()
    featured: Sequence[str] = ()
    """Threads that the report points at."""
    without_details: str = ""
    """Why prompts and tokens are not there, where they are not."""
    details: Mapping[str, Details] = field(default_factory=dict)
    """By chunk: each is decompressed by the browser when it is looked at."""
    rows: Sequence[dict[str, Any]] = ()
    """The metrics of a run, of which the page draws curves."""
    result: str = ""
    """The result of a run, in a sentence."""
    notes: Sequence[str] = ()
    """What a reader of the result has to know first: how a run ended, and its warnings."""
    live: Mapping[str, Any] | None = None
    """Of a run that is followed: ``mark`` (up to where it is known) and ``progress``."""


LIBRARIES = ("marked.umd.js", "katex.min.js")
"""What the page shows Markdown and LaTeX with; each begins with its licence."""


def write_page(path: Path, sources: Sequence[PageSource]) -> None:
    """Write the page of ``sources``; raises FileError when ``path`` cannot be written."""
    files.write_text(path, page_text(sources))


def page_text(sources: Sequence[PageSource]) -> str:
    """The HTML, in which all data is compressed."""
    data: dict[str, Any] = {
        "page-data": [_without_details(source) for source in sources],
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


def _without_details(source: PageSource) -> dict[str, Any]:
    shown = {name: value for name, value in vars(source).items() if name != "details"}
    for name in ("threads", "tables"):
        shown[name] = [asdict(item) for item in shown[name]]
    return shown


def _packed(value: Any) -> str:
    """``value`` as JSON, gzip and base64."""
    content = json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    return base64.b64encode(gzip.compress(content, mtime=0)).decode()
