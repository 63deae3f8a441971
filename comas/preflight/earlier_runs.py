"""How long a run takes, from the steps of an earlier one with the same settings."""

from dataclasses import dataclass
from pathlib import Path
from statistics import median

from comas.config import ConfigError, changed_keys, load
from comas.config.schema import Config
from comas.preflight.sizes import Sizes
from comas.run_directory.metrics_log import read_rows

IRRELEVANT = ("name", "seed", "saves", "resume", "training.", "logging.", "cluster.start_timeout_s")
"""Beginnings of the keys that change neither a step nor a validation."""
MIN_STEPS = 3


@dataclass(frozen=True)
class MeasuredRun:
    """Medians over the steps of a run."""

    folder: Path
    step_s: float
    validation_s: float
    prompt_tokens: float
    response_tokens: float

    def seconds(self, sizes: Sizes) -> float:
        """Of a run of these sizes, once its engines are up."""
        return sizes.num_steps * self.step_s + sizes.num_validations * self.validation_s


def earlier_run(config: Config) -> MeasuredRun | None:
    """The newest run under ``config.saves`` with the same settings and at least ``MIN_STEPS``
    steps; None: there is none."""
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
    rows = read_rows(folder / "metrics.jsonl")
    steps = [row for row in rows if "time/step_s" in row][1:]  # the first one warms up
    validations = [row["time/validation_s"] for row in rows if "time/validation_s" in row]
    if len(steps) < MIN_STEPS or not validations:
        return None
    step_s, prompts, responses = (
        median(row[name] for row in steps)
        for name in ("time/step_s", "tokens/prompt", "tokens/response")
    )
    return MeasuredRun(folder, step_s, median(validations), prompts, responses)
