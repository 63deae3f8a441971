"""Results of the checks: a row of a table for each, with its faults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MAX_MISMATCH = 0.02
"""Mean |policy - engine| log-prob difference of a token, and the least that an update changes."""
HEADS = (
    "check", "model", "ZeRO", "start s", "tokens/s", "update s", "FLOPs utilisation", "sync s",
    "planned", "reserved GiB", "memory GiB", "mismatch", "moved", "verdict",
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """The measurements of a society in two steps."""

    check: str
    size: str
    zero: str
    start_s: float
    tokens_per_s: float
    """Sampled in the second step by all agents together."""
    update_s: float
    """Seconds of the second step's update, with the phases around it."""
    utilisation: float
    """Share of the floating-point operations per second of a plain matrix product."""
    sync_s: float
    planned: str
    """The memory that preflight expects a run to need; a run also keeps a copy for checkpoints."""
    reserved_gib: float
    """The most of a GPU that PyTorch held in a rank; 0 on a CPU."""
    memory_gib: float
    """The most in use on a GPU, by nvidia-smi; on a CPU in all of our processes."""
    mismatch: tuple[float, ...]
    """Mean log-prob difference of a token in each step, the larger of the agents'."""
    movement: float
    """Mean change of a token's log-prob by the last update, the smaller of the agents'."""
    own_faults: tuple[str, ...] = ()
    """Faults in what the check adds to the two steps."""

    @property
    def faults(self) -> list[str]:
        """All faults of the check, in words."""
        where = f"{self.check} of {self.size}"
        faults = [
            f"{where}: policy and engine differ by {mismatch:.4f} a token in step {step}"
            for step, mismatch in enumerate(self.mismatch, start=1)
            if not mismatch < MAX_MISMATCH
        ]
        if not self.movement > MAX_MISMATCH:
            faults.append(f"{where}: an update changed a log-prob by {self.movement:.4f} only")
        return faults + [f"{where}: {fault}" for fault in self.own_faults]

    def __str__(self) -> str:
        """A row of the table in Markdown."""
        return in_table(
            (
                self.check, self.size, self.zero, f"{self.start_s:.0f}",
                f"{self.tokens_per_s:.0f}", f"{self.update_s:.2f}", f"{self.utilisation:.1%}",
                f"{self.sync_s:.2f}", self.planned, f"{self.reserved_gib:.1f}",
                f"{self.memory_gib:.1f}", " ".join(f"{one:.1e}" for one in self.mismatch),
                f"{self.movement:.2g}", "FAULT" if self.faults else "ok",
            )
        )  # fmt: skip


def failed_row(check: str, size: str) -> str:
    """The row of a check that an engine's failure ended."""
    return in_table([check, size, *[""] * (len(HEADS) - 3), "FAULT"])


def in_table(cells: Sequence[str]) -> str:
    """``| a | b |``"""
    return f"| {' | '.join(cells)} |"


def table_head() -> str:
    """The first two lines of the table."""
    return f"{in_table(HEADS)}\n{'|---' * len(HEADS)}|"
