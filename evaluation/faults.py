"""What is wrong with JSON that should have had another shape, in words."""

from __future__ import annotations

from pydantic import ValidationError

MAX_LISTED = 3


def faults_in_words(error: ValidationError) -> str:
    """Example: ``"seeds.0: Input should be a valid integer; num_tasks: Field required"``."""
    faults = [
        f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}".lstrip(": ")
        for fault in error.errors()
    ]
    more = f" (and {len(faults) - MAX_LISTED} more)" * (len(faults) > MAX_LISTED)
    return "; ".join(faults[:MAX_LISTED]) + more
