"""Multiple choice: options with their letters."""

from collections.abc import Sequence

LETTERS = "ABCD"
_FIRST = f"\n\n({LETTERS[0]}) "


def list_options(options: Sequence[str]) -> str:
    """Example: ``list_options(["2", "3"])`` gives the lines ``(A) 2`` and ``(B) 3``."""
    lettered = zip(LETTERS, options, strict=False)
    return "\n".join(f"({letter}) {option.strip()}" for letter, option in lettered)


def gold_with_options(letter: str, prompt: str) -> str:
    """The letter with the options below it, which end ``prompt``: what strict grading knows."""
    _, first, rest = prompt.rpartition(_FIRST)
    return f"{letter}\n{first.strip()} {rest}" if first else letter
