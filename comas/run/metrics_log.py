"""metrics.jsonl: one object per step, on the disk before the next step begins."""

import json
import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from comas.utils.files import append_lines, json_lines, read_lines, write_text

logger = logging.getLogger(__name__)

METRICS = "metrics.jsonl"
"""The file within a run's folder."""

Row = dict[str, Any]


class MetricsLog:
    """The file of all metrics. A value that is not finite is written as null, with a warning:
    JSON has no NaN, and a run should not die of a metric."""

    def __init__(self, path: Path) -> None:
        self._path = path
        append_lines(path, [])

    def append(self, step: int, metrics: Mapping[str, float | None]) -> Row:
        """Write the row of ``step``; returns it as written."""
        broken = [k for k, v in metrics.items() if v is not None and not math.isfinite(v)]
        if broken:
            logger.warning("step %d: not finite, written as null: %s", step, ", ".join(broken))
        row = {"step": step} | {k: None if k in broken else v for k, v in metrics.items()}
        append_lines(self._path, [json.dumps(row, allow_nan=False).encode()])
        return row

    def rows_after(self, step: int) -> list[Row]:
        """The rows of later steps."""
        return [row for row in read_rows(self._path) if row["step"] > step]

    def drop_after(self, step: int) -> None:
        """Forget the rows of later steps."""
        kept = (row for row in read_rows(self._path) if row["step"] <= step)
        write_text(self._path, json_lines(kept))


def read_rows(path: Path) -> list[Row]:
    """All rows of a metrics.jsonl, without a last one that a killed process left unfinished."""
    return read_lines(path, _parse_row, remedy="Delete the line to continue")


def _parse_row(line: bytes) -> Row:
    row = json.loads(line)
    if not isinstance(row, dict) or not isinstance(row.get("step"), int):
        raise ValueError("it is no object with a step")
    return row
