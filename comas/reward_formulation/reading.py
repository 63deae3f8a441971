"""What schemes read: tagged answers in responses, and the numbers of plug-ins."""

import re
from typing import Any


def content_of(text: str, *, tag: str) -> str | None:
    """Return the content of all pairs of ``tag``; None if they differ or a tag is unpaired. Takes
    linear time, even if a response collapsed into tags."""
    tags = list(re.finditer(f"</?{tag}>", text))
    opening, closing = tags[::2], tags[1::2]
    if [t[0] for t in tags] != [f"<{tag}>", f"</{tag}>"] * len(closing):
        return None
    pairs = zip(opening, closing, strict=True)
    contents = {text[first.end() : last.start()].strip() for first, last in pairs}
    return contents.pop() if len(contents) == 1 else None


def as_number(value: Any) -> float | None:
    """Convert a number, such as numpy's or torch's; None stays None. Raises ValueError."""
    try:
        return None if value is None else float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise ValueError(f"reward.scheme gave {value!r} instead of a number or None") from error
