"""Errors of a configuration, each with its key, value, origin and remedy."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

DEFAULT_ORIGIN = "default"
COMMAND_LINE = "command line"
MAX_SHOWN_CHARS = 200
CREDENTIALS = re.compile(r"://\S*@")
"""User name and password of a URL; greedy, since a password may hold any character."""


@dataclass(frozen=True)
class Setting:
    """A key with its value and origin: a file and line, the command line, or the default.

    Example: ``Setting("rollout.batch_size", 0, "configs/comas.yaml, line 31")``
    """

    key: str
    value: Any
    origin: str = DEFAULT_ORIGIN
    folder: Path | None = None
    """The file's folder, in which relative paths are looked up first."""
    written: str | None = None
    """The text of a value on the command line that YAML reads as a number, true or false."""

    def __str__(self) -> str:
        return f"{self.key} = {yaml_text(self.value)}  ({self.origin})"


@dataclass(frozen=True)
class Conflict:
    """Keys whose values are not allowed together, or a key whose value never is."""

    keys: tuple[str, ...]
    constraint: str
    remedy: str


@dataclass(frozen=True)
class InvalidSetting:
    """An invalid setting, or several that exclude each other, with the remedy."""

    settings: tuple[Setting, ...]
    constraint: str
    remedy: str

    def __str__(self) -> str:
        return "\n   ".join([*map(str, self.settings), self.constraint, f"-> {self.remedy}"])


class ConfigError(ValueError):
    """All errors of a configuration, in one text."""

    def __init__(self, errors: Sequence[InvalidSetting]) -> None:
        self.errors = tuple(errors)
        count = f"{len(errors)} error{'s' * (len(errors) != 1)} in the configuration:"
        listed = (f"{number}. {error}" for number, error in enumerate(errors, start=1))
        super().__init__("\n".join([count, *listed]))


def yaml_text(value: Any) -> str:
    """Return ``value`` as one line of YAML, without the passwords of its URLs."""
    text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10**6)
    # Before truncation, which could make a password look like a path.
    text = CREDENTIALS.sub("://***@", text.removesuffix("...\n").strip())
    return text if len(text) <= MAX_SHOWN_CHARS else text[:MAX_SHOWN_CHARS] + " ..."


def one_line(error: Exception) -> str:
    """Return the message of ``error`` on one line; for YAML, with the line of the file."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"{error.problem} (line {error.problem_mark.line + 1})"
    return " ".join(str(error).split())
