"""Telling the thinking of a reasoning model from its answer, by the marks around it."""

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
"""Those of Qwen3, DeepSeek-R1 and most others, of Magistral, Seed-OSS, MiniMax-M3 and Command A."""


class Said(NamedTuple):
    """A response in two parts: the thinking with its marks (of several stretches, the whole
    response), and the rest, which others read."""

    thinking: str
    answer: str


@dataclass(frozen=True)
class ThinkingMarks:
    """Where a model's thinking begins and ends in its responses.

    Example: with ``<think>`` and ``</think>``, the response ``<think>8 + 3</think> 71`` has the
    answer ``71``. Where the chat template ``opens`` the thinking, so has ``8 + 3</think> 71``, and
    ``8 + 3``, which was cut off, has none: its answer is empty.
    """

    start: str
    end: str
    opens: bool = False
    """True if the chat template itself begins the response with an open ``start``."""

    def split(self, response: str) -> Said:
        """A response as thinking and answer. An ``end`` without a ``start`` ends thinking that
        began with the response."""
        said = self.start + response if self.opens else response
        answer = self._thinking.sub("", said).rpartition(self.end)[2]
        if answer == response:
            return Said("", response)
        answer = answer.lstrip()
        return Said(response.removesuffix(answer), answer)

    def is_unfinished(self, response: str) -> bool:
        """True if a response ends while it thinks."""
        said = self.start + response if self.opens else response
        return said.rfind(self.start) > said.rfind(self.end)

    @cached_property
    def _thinking(self) -> re.Pattern[str]:
        return re.compile(f"{re.escape(self.start)}.*?(?:{re.escape(self.end)}|\\Z)", re.DOTALL)


def find_marks(
    tokens: Collection[str], template: str, *, begins_response: str
) -> ThinkingMarks | None:
    """Return the first of ``KNOWN_MARKS`` that are among a model's ``tokens``, or else in its chat
    template, which ``begins_response``; None: it has none."""
    for where in (tokens, template):
        for start, end in KNOWN_MARKS:
            if end in where:
                opens = begins_response.rfind(start) > begins_response.rfind(end)
                return ThinkingMarks(start, end, opens)
    return None
