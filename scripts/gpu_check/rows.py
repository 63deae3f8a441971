"""What the checks found: a row of a table for each, and what is wrong with it."""

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
    """What a society showed in two steps."""

    check: str
    size: str
    zero: str
    start_s: float
    tokens_per_s: float
    """Sampled in the second step by all agents together."""
    update_s: float
    """Of the second step, with the phases around it."""
    utilisation: float
    """Of the floating-point operations per second of a plain matrix product."""
    sync_s: float
    planned: str
    """What preflight expects a run to need, which also keeps a copy for its checkpoints."""
    reserved_gib: float
    """The most of a GPU that PyTorch held in a rank; 0 on a CPU."""
    memory_gib: float
    """The most in use on a GPU, by nvidia-smi; on a CPU in all of our processes."""
    mismatch: tuple[float, ...]
    """Of each step, the larger of the agents'."""
    movement: float
    """Mean change of a token's log-prob by the last update, the smaller of the agents'."""
    own_faults: tuple[str, ...] = ()
    """Of the part that is the check's own."""

    @property
    def faults(self) -> list[str]:
        """What is wrong with it."""
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
    """Of a check that an engine ended."""
    return in_table([check, size, *[""] * (len(HEADS) - 3), "FAULT"])


def in_table(cells: Sequence[str]) -> str:
    """``| a | b |``"""
    return f"| {' | '.join(cells)} |"


def table_head() -> str:
    """The first two lines of the table."""
    return f"{in_table(HEADS)}\n{'|---' * len(HEADS)}|"
