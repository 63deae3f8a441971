"""A benchmark: a dataset, the form of its answers, the number of tasks."""

from dataclasses import dataclass
from pathlib import Path

from comas.data.preparation import RecordSet
from comas.data.preparation.record_set import benchmark_file
from comas.types import Domain

CLOSING_SENTENCES: dict[Domain, str] = {
    "math": r"Work through it step by step and finish with the result inside \boxed{}.",
    "science": (
        "Work through it step by step and finish with one decimal number inside "
        r"\boxed{}, for example \boxed{0.25}, leaving the unit out of the box."
    ),
    "choice": (
        "Work through it step by step and finish with the letter of the one right option inside "
        r"\boxed{}, for example \boxed{B}."
    ),
    "reasoning": (
        "Work through it step by step and finish with the answer, in the form that is asked for, "
        r"inside \boxed{}."
    ),
    "coding": (
        "Give the complete Python code in exactly one fenced block, which begins with ```python "
        "and ends with ```."
    ),
}
"""The last sentence of a task, by the form of its answer."""


@dataclass(frozen=True)
class Benchmark(RecordSet):
    """A record set for evaluations. ``name`` also names its file of records."""

    limit: int = 500
    """Maximum number of tasks per evaluation, as in the paper."""

    def records_path(self, data: Path) -> Path:
        """Return the file that ``scripts/prepare_data.sh`` builds in the folder ``data``."""
        return data / benchmark_file(self.name)
