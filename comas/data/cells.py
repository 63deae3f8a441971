"""Reads a row's value in a column: nested by dotted names, chats as text, None if missing."""

import math
import re
from collections.abc import Mapping
from functools import reduce
from typing import Any

SPELLED_MISSING = frozenset(
    ["nan", "nat", "none", "null", "na", "n/a", "#n/a", "<na>", "inf", "-inf"]
)
"""How pandas, R and spreadsheets write missing or infinite numbers, in lower case. As math each
would be a product of letters, and so a valid gold answer."""
_PLACE = re.compile(r"-?\d+")


def value_at(row: Mapping[str, Any], column: str) -> Any:
    """Return the value of ``row`` in ``column``, whose name may lead into a column by dotted keys
    and indices: in ``{"prompt": [{"role": "user", "content": "1 + 1?"}]}``, ``prompt.-1.content``
    is ``"1 + 1?"``, and ``prompt.content`` is ``["1 + 1?"]``. None for null and for numbers that
    are not finite. Raises LookupError if there is no such column."""
    return given(row[column] if column in row else reduce(_within, column.split("."), row))


def has_column(row: Any, column: str) -> bool:
    """Return True if ``value_at`` finds the column, with or without a value."""
    try:
        value_at(row, column)
    except (LookupError, TypeError):  # of something else than a row, such as a number
        return False
    return True


def given(value: Any) -> Any:
    """Return ``value``; None for a number that is not finite, which marks a missing one."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def spells_missing(value: Any) -> bool:
    """Return True if other programs write a missing value like this."""
    return isinstance(value, str) and value.strip().lower() in SPELLED_MISSING


def text_of(value: Any, *, key: str, column: str) -> Any:
    """Return ``value``, or the text of a list of one message, as in chats of TRL and OpenAI. Raises
    ValueError for other lists and mappings, with the setting that reads one of their texts."""
    if isinstance(value, list) and len(value) == 1 and has_column(value[0], "content"):
        value = value[0]["content"]
        column = f"{column}.0.content"
    if not isinstance(value, list | Mapping):
        return value
    if isinstance(value, Mapping):
        found, within = ", ".join(value), "text" if "text" in value else next(iter(value), "")
    elif value and all(isinstance(one, Mapping) and "content" in one for one in value):
        roles = ", ".join(str(message.get("role")) for message in value)
        found, within = f"{len(value)} messages ({roles})", "-1.content"
    else:
        found, within = f"a list of {len(value)}", "0"
    raise ValueError(
        f"{key}: holds {found}, not one text; data.columns.{key}={column}.{within} reads one of "
        "them, and rollout.system_prompt sets the same system message for all"
    )


def _within(value: Any, part: str) -> Any:
    if value is None:
        return None
    if isinstance(value, list):
        is_place = _PLACE.fullmatch(part)
        return value[int(part)] if is_place else [_within(each, part) for each in value]
    if isinstance(value, Mapping):
        return value[part]
    raise LookupError(part)
