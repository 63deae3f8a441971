"""Multiple choice: options with their letters."""

from collections.abc import Sequence

LETTERS = "ABCD"


def list_options(options: Sequence[str]) -> str:
    """Example: ``list_options(["2", "3"])`` gives the lines ``(A) 2`` and ``(B) 3``."""
    lettered = zip(LETTERS, options, strict=False)
    return "\n".join(f"({letter}) {option.strip()}" for letter, option in lettered)
