"""Separate the thinking of a reasoning model from its answer."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

KNOWN_MARKS = (
    ("<think>", "</think>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<mm:think>", "</mm:think>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
)
"""Marks of Qwen3, DeepSeek-R1 and most others, Magistral, Seed-OSS, MiniMax-M3 and Command A."""


class Said(NamedTuple):
    """A response in two parts: the thinking with its marks (the whole response, if it thinks more
    than once), and the answer, which others read."""

    thinking: str
    answer: str


@dataclass(frozen=True)
class ThinkingMarks:
    """The marks that begin and end a model's thinking.

    Example: with ``<think>`` and ``</think>``, the response ``<think>8 + 3</think> 71`` has the
    answer ``71``. If the chat template ``opens`` the thinking, ``8 + 3</think> 71`` has that answer
    too, and ``8 + 3``, which was cut off, has an empty answer.
    """

    start: str
    end: str
    opens: bool = False
    """True if the chat template begins the response with ``start``."""

    def split(self, response: str) -> Said:
        """Split a response into thinking and answer. An ``end`` without a ``start`` ends thinking
        that began with the response."""
        said = self.start + response if self.opens else response
        answer = self._thinking.sub("", said).rpartition(self.end)[2]
        if answer == response:
            return Said("", response)
        answer = answer.lstrip()
        return Said(response.removesuffix(answer), answer)

    def is_unfinished(self, response: str) -> bool:
        """Return True if a response ends inside its thinking."""
        said = self.start + response if self.opens else response
        return said.rfind(self.start) > said.rfind(self.end)

    @cached_property
    def _thinking(self) -> re.Pattern[str]:
        return re.compile(f"{re.escape(self.start)}.*?(?:{re.escape(self.end)}|\\Z)", re.DOTALL)


def find_marks(
    tokens: Collection[str], template: str, *, begins_response: str
) -> ThinkingMarks | None:
    """Return the first of ``KNOWN_MARKS`` in a model's ``tokens``, or else in its chat template,
    or None. ``begins_response`` is what the template writes before a response."""
    for where in (tokens, template):
        for start, end in KNOWN_MARKS:
            if end in where:
                opens = begins_response.rfind(start) > begins_response.rfind(end)
                return ThinkingMarks(start, end, opens)
    return None
