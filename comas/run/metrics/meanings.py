"""The meaning of each metric, read from the tables of metrics.md, which is also a page of the
documentation; pages of runs take their captions from them."""

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from comas.types import ALL_DOMAINS

TABLES = Path(__file__).with_name("metrics.md")
PLACEHOLDERS = {
    "i": r"\d+",
    "domain": "|".join(ALL_DOMAINS),
    "role": r"(?!spread\b)[a-z_]+",  # but for ``reward/spread``
    "where": "train|validation(?:/greedy|/discussion)?",
    "threshold": "from_score_[23]",
    "score": "score_[123]|invalid",
    "truth": "correct|incorrect",
    "mistake": ".+",
}
"""Placeholder -> regular expression for its values."""


class Meaning(NamedTuple):
    """A row of a table: ``agent_0/validation/accuracy`` fits the pattern
    ``[agent_<i>/]validation/accuracy[/<domain>]``."""

    pattern: str
    unit: str
    better: str
    """``higher``, ``lower``, or empty if neither is better by itself."""
    text: str

    @property
    def tooltip(self) -> str:
        """``Share of ... (share; higher is better)``"""
        facts = [self.unit, f"{self.better} is better" if self.better else ""]
        known = "; ".join(filter(None, facts))
        return f"{self.text} ({known})" if known else self.text


@cache
def meanings() -> tuple[Meaning, ...]:
    lines = re.findall(r"^\| `(.+?)` \| (.*) \|$", TABLES.read_text(encoding="utf-8"), re.M)
    return tuple(
        Meaning(pattern, *(cell.strip() for cell in cells.split("|"))) for pattern, cells in lines
    )


def meanings_of(metric: str) -> list[Meaning]:
    """Return the meanings whose pattern fits the name ``metric``: one, or none if it is unknown."""
    return [each for each in meanings() if re.fullmatch(as_regex(each.pattern), metric)]


def as_regex(pattern: str) -> str:
    """Return a regular expression for Python and JavaScript: ``[a/]<i> -> (?:a/)?(?:\\d+)``"""
    optional = pattern.replace("[", "(?:").replace("]", ")?")
    return re.sub(r"<(\w+)>", lambda found: f"(?:{PLACEHOLDERS[found[1]]})", optional)
