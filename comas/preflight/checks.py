"""The checks of the preflight, each a line of its table."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from comas.config.plugins import blaming_plugins
from comas.utils.terminal import in_columns

Found = TypeVar("Found")


@dataclass(frozen=True)
class Check:
    """One line of the table.

    Example: ``Check("GPUs", "8", "2", error="too few GPUs: ... Use fewer agents ...")``
    """

    subject: str
    needed: str
    present: str
    error: str | None = None
    """Why the run cannot start, with the remedy."""
    warning: str | None = None
    """What may go wrong, although the run can start."""


class PreflightError(ValueError):
    """Every error that keeps a run from starting, below the table of all checks."""

    def __init__(self, checks: Sequence[Check]) -> None:
        self.errors = errors_of(checks)
        count = f"{len(self.errors)} error{'s' * (len(self.errors) != 1)}:"
        listed = [f"{number}. {error}" for number, error in enumerate(self.errors, start=1)]
        super().__init__("\n".join(["this run cannot start", *table(checks), count, *listed]))


class Checks(list[Check]):
    """Checks in the order in which they were made; all are made, also after an error."""

    def find(
        self,
        subject: str,
        needed: str,
        find: Callable[[], Found],
        *,
        show: Callable[[Found], str] = str,
    ) -> Found | None:
        """Call ``find``; record its result, or its ValueError or OSError as the check's error.
        Returns the result, or None after an error."""
        try:
            with blaming_plugins():
                found = find()
        except (ValueError, OSError) as error:
            self.append(Check(subject, needed, "not usable", error=str(error)))
            return None
        self.append(Check(subject, needed, show(found)))
        return found


def errors_of(checks: Iterable[Check]) -> list[str]:
    """Return the distinct errors, since several checks may share one."""
    return list(dict.fromkeys(check.error for check in checks if check.error is not None))


def table(checks: Sequence[Check]) -> list[str]:
    """Return the checks as lines of aligned columns; the last names errors and warnings:
    ``GPUs  8  2  <- error 1``."""
    errors = errors_of(checks)
    rows = [["", "needed", "present", ""]]
    for check in checks:
        remark = "<- warning" if check.warning is not None else ""
        if check.error is not None:
            remark = f"<- error {errors.index(check.error) + 1}"
        subject = check.subject if len(check.subject) < 45 else f"...{check.subject[-41:]}"
        rows.append([subject, check.needed, check.present, remark])
    return in_columns(rows)
