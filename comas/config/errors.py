"""What is wrong with a configuration, in words that name key, value, origin and remedy."""

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
"""The user name and the password of a URL; greedy, since a password may hold any character."""


@dataclass(frozen=True)
class Setting:
    """A key with its value, and who set it: a file with its line, the command line, or nobody.

    Example: ``Setting("rollout.batch_size", 0, "configs/comas.yaml, line 31")``
    """

    key: str
    value: Any
    origin: str
    folder: Path | None = None
    """That of the file, in which a path that is not whole is looked for first."""
    written: str | None = None
    """On the command line: the text of a value that YAML takes for a number, true or false."""

    def __str__(self) -> str:
        return f"{self.key} = {yaml_text(self.value)}  ({self.origin})"


@dataclass(frozen=True)
class Conflict:
    """Keys whose values are not allowed, alone or together."""

    keys: tuple[str, ...]
    constraint: str
    remedy: str


@dataclass(frozen=True)
class InvalidSetting:
    """What is wrong with one setting, or with several together, and what to do about it."""

    settings: tuple[Setting, ...]
    constraint: str
    remedy: str

    def __str__(self) -> str:
        return "\n   ".join([*map(str, self.settings), self.constraint, f"-> {self.remedy}"])


class ConfigError(ValueError):
    """Every error of a configuration, in one readable text."""

    def __init__(self, errors: Sequence[InvalidSetting]) -> None:
        self.errors = tuple(errors)
        count = f"{len(errors)} error{'s' * (len(errors) != 1)} in the configuration:"
        listed = (f"{number}. {error}" for number, error in enumerate(errors, start=1))
        super().__init__("\n".join([count, *listed]))


def yaml_text(value: Any) -> str:
    """``value`` on one line, as it would stand in a file, less the passwords of its URLs."""
    text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10**6)
    # Before it is cut off, after which nothing would tell a password from a path.
    text = CREDENTIALS.sub("://***@", text.removesuffix("...\n").strip())
    return text if len(text) <= MAX_SHOWN_CHARS else text[:MAX_SHOWN_CHARS] + " ..."


def one_line(error: Exception) -> str:
    """The message of ``error`` on one line; of a YAML error with the line of the file."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"{error.problem} (line {error.problem_mark.line + 1})"
    return " ".join(str(error).split())
