"""What a run needs beside what is there: the lines of the preflight's table."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from comas.config.plugins import blaming_plugins
from comas.utils.terminal import in_columns

Found = TypeVar("Found")

MAX_SUBJECT_CHARS = 44


@dataclass(frozen=True)
class Need:
    """One line of the table.

    Example: ``Need("GPUs", "8", "2", fault="too few GPUs: ... Use fewer agents ...")``
    """

    subject: str
    needed: str
    present: str
    fault: str | None = None
    """Why the run cannot start, and what to do about it; None: nothing is in its way."""
    doubt: str | None = None
    """What an estimate warns of, although the run may start."""


class PreflightError(ValueError):
    """Everything that keeps a run from starting, below the table of what it needs."""

    def __init__(self, needs: Sequence[Need]) -> None:
        self.faults = faults_of(needs)
        count = f"{len(self.faults)} fault{'s' * (len(self.faults) != 1)}:"
        listed = [f"{number}. {fault}" for number, fault in enumerate(self.faults, start=1)]
        super().__init__("\n".join(["this run cannot start", *table(needs), count, *listed]))


class Checklist(list[Need]):
    """Needs in the order in which they are looked up; a fault of one keeps none from the others."""

    def find(
        self,
        subject: str,
        needed: str,
        find: Callable[[], Found],
        *,
        show: Callable[[Found], str] = str,
    ) -> Found | None:
        """Return what ``find`` does, shown as what is there; None if it raises, a fault."""
        try:
            with blaming_plugins():
                found = find()
        except (ValueError, OSError) as error:
            self.append(Need(subject, needed, "not usable", fault=str(error)))
            return None
        self.append(Need(subject, needed, show(found)))
        return found


def faults_of(needs: Iterable[Need]) -> list[str]:
    """Return every fault once: what two lines have in common is one thing to mend."""
    return list(dict.fromkeys(need.fault for need in needs if need.fault is not None))


def table(needs: Sequence[Need]) -> list[str]:
    """Return the needs as lines of aligned columns, of which the last says what is wrong.

    Example::

                     needed          present
        GPUs         8               2            <- fault 1
        host memory  277.6 GiB       283.0 GiB    <- doubtful
    """
    faults = faults_of(needs)
    rows = [["", "needed", "present", ""]]
    for need in needs:
        remark = "<- doubtful" if need.doubt is not None else ""
        if need.fault is not None:
            remark = f"<- fault {faults.index(need.fault) + 1}"
        subject = need.subject
        if len(subject) > MAX_SUBJECT_CHARS:  # its end says more than its beginning
            subject = f"...{subject[3 - MAX_SUBJECT_CHARS :]}"
        rows.append([subject, need.needed, need.present, remark])
    return in_columns(rows)
