"""Former keys of this repository, and keys of the paper's released code."""

from functools import cache
from pathlib import Path

import yaml

RELEASED_SECTIONS = ("default_agent", "agents", "workflow_args", "reward_alloc")
"""Sections of the released code; other keys of it are at the top level."""


def former(key: str) -> tuple[str, str] | None:
    """Return the error and remedy for a former key, or one of the released code, or None.

    Example: the remedy for ``agents.0.agent-0.pretrain`` is to write ``society.models``.
    """
    tables = former_keys()
    section, _, last = key.rpartition(".")
    for name in (key, section):  # an entry of a mapping
        if (ours := tables["renamed"].get(name)) is not None:
            return f"{name} was renamed {ours}", f"write {ours} instead"
        if name in tables["gone"]:
            return f"is no key any more: {tables['gone'][name]}", "leave it out"
    if section and key.partition(".")[0] not in RELEASED_SECTIONS:
        return None
    whose = "a key of the paper's released code: here"
    for name in (key, last):
        if name in tables["released"]:
            return "is not a known key", f"{whose} write {tables['released'][name]}"
        if name in tables["released_gone"]:
            return "is not a known key", f"{whose} leave it out ({tables['released_gone'][name]})"
    return None


@cache
def former_keys() -> dict[str, dict[str, str]]:
    """Return the tables of ``former.yaml``."""
    return yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
