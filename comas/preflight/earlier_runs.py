"""How long a run takes, from the steps of an earlier one with the same settings."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from comas.config import ConfigError, changed_keys, load
from comas.config.schema import Config
from comas.run.prepared import Sizes
from comas.run.records import Row, read_rows
from comas.utils.files import FileError

IRRELEVANT = ("name", "seed", "saves", "resume", "training.", "logging.", "cluster.start_timeout_s")
"""Beginnings of the keys that change neither a step nor a validation."""
MIN_STEPS = 3
OF_A_STEP = ("time/step_s", "tokens/prompt", "tokens/response")
OF_A_VALIDATION = ("time/validation_s",)


@dataclass(frozen=True)
class MeasuredRun:
    """Medians over the steps of a run."""

    folder: Path
    step_s: float
    validation_s: float
    prompt_tokens: float
    response_tokens: float

    def seconds(self, sizes: Sizes) -> float:
        """Duration of a run of these sizes, once its engines are up."""
        return sizes.num_steps * self.step_s + sizes.num_validations * self.validation_s


def earlier_run(config: Config) -> MeasuredRun | None:
    """The newest run under ``config.saves`` with the same settings, metrics that can be read and at
    least ``MIN_STEPS`` steps; None: there is none."""
    folders = sorted(Path(config.saves).glob("*/metrics.jsonl"), reverse=True)
    for folder in (metrics.parent for metrics in folders if not metrics.parent.is_symlink()):
        if _is_like(folder, config) and (measured := _measure(folder)) is not None:
            return measured
    return None


def _is_like(folder: Path, config: Config) -> bool:
    try:
        before = load(Config, folder / "config.yaml", [])
    except ConfigError:  # of an older version
        return False
    return all(key.startswith(IRRELEVANT) for key in changed_keys(before, config))


def _measure(folder: Path) -> MeasuredRun | None:
    """None where the metrics are too few, of an older version or cannot be read."""
    try:
        rows = read_rows(folder / "metrics.jsonl")
    except (FileError, OSError):
        return None
    steps = _numbers(rows, OF_A_STEP)[1:]  # the first one warms up
    validations = _numbers(rows, OF_A_VALIDATION)
    if len(steps) < MIN_STEPS or not validations:
        return None
    step_s, prompts, responses = map(median, zip(*steps, strict=True))
    return MeasuredRun(folder, step_s, median(s for (s,) in validations), prompts, responses)


def _numbers(rows: Iterable[Row], names: Sequence[str]) -> list[list[float]]:
    """The values under ``names``, of every row that has a number under each."""
    return [
        [row[name] for name in names]
        for row in rows
        if all(isinstance(row.get(name), int | float) for name in names)
    ]
