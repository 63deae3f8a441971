"""What the keys that end a run early must satisfy: the best validation, patience, conditions."""

import math
import re
from collections.abc import Iterator

from comas.config.faults import Conflict
from comas.config.schema import Config
from comas.run.stopping import EXAMPLE, parse_condition
from comas.run.validation import DISCUSSIONS, GREEDY, SAMPLED

OF_VALIDATION = re.compile(rf"(?:agent_(\d+)/)?(?:{SAMPLED}|probe)/.+")
"""Names of the metrics that a validation gives."""


def best_conflicts(config: Config) -> Iterator[Conflict]:
    """What contradicts ``training.keep_best`` and ``training.patience``."""
    metric, patience = config.training.keep_best, config.training.patience
    if metric is None:
        if patience is not None:
            yield Conflict(
                ("training.patience", "training.keep_best"),
                "without a metric, no validation is better than another",
                f"set training.keep_best to one such as {SAMPLED}/accuracy",
            )
        return
    match = OF_VALIDATION.fullmatch(metric)
    if match is None or int(match[1] or 0) >= config.society.num_agents:
        yield Conflict(
            ("training.keep_best",),
            "must be a metric that this run's validations give",
            f"write {SAMPLED}/accuracy, {GREEDY}/accuracy, one of a domain such as "
            f"{SAMPLED}/accuracy/math, or one of an agent such as agent_0/{SAMPLED}/accuracy",
        )
        return
    yield from _unmeasured(config, metric)
    interval = math.lcm(*filter(None, config.update_every))
    if config.training.validate_every % interval:
        yield Conflict(
            ("training.keep_best", "training.validate_every", "society.update_every"),
            "the best validation has a checkpoint, which must come right after an update of every "
            f"policy: {config.training.validate_every} is no multiple of {interval}",
            f"set training.validate_every to a multiple of {interval}",
        )


def _unmeasured(config: Config, metric: str) -> Iterator[Conflict]:
    """The key without which ``metric`` is not measured."""
    needed = {
        GREEDY: (
            "validation.greedy",
            config.validation.greedy and config.validation.temperature > 0,
            "set validation.greedy=true and a validation.temperature above 0, or name "
            f"{SAMPLED}/accuracy",
        ),
        DISCUSSIONS: (
            "validation.discussions",
            config.validation.discussions,
            "set validation.discussions=true",
        ),
        "probe": ("data.probe", config.data.probe is not None, "set data.probe"),
    }
    for prefix, (key, is_measured, remedy) in needed.items():
        if f"/{prefix}/" in f"/{metric}" and not is_measured:
            yield Conflict(("training.keep_best", key), f"{metric} is not measured", remedy)


def condition_conflicts(config: Config) -> Iterator[Conflict]:
    """The entries of ``training.stop_when`` that are no conditions."""
    faults = []
    for text in config.training.stop_when:
        try:
            parse_condition(text)
        except ValueError as error:
            faults.append(str(error))
    if faults:
        yield Conflict(("training.stop_when",), "; ".join(faults), f'write "{EXAMPLE}"')
