"""Results in the format of lm-evaluation-harness's ``results_*.json``."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from statistics import stdev
from typing import Any

from comas.utils.files import write_text
from evaluation.accuracy import Accuracy, Row


def write_harness_results(folder: Path, row: Row, *, sampling: Mapping[str, Any]) -> None:
    """Write ``results_NAME.json`` into the folder of the row's subject, with the keys of
    ``lm_eval.result_schema`` 0.4.13.

    A task is a benchmark under a setup (``gsm8k_vanilla``); a metric's filter is the grader:
    ``acc,strict`` (0 to 1), and ``acc_stderr,strict`` over tasks ("N/A" for a single task).
    """
    results: dict[str, dict[str, Any]] = {}
    counts: dict[str, dict[str, int]] = {}
    for (grader, column), accuracy in row.accuracies.items():
        task = f"{column.benchmark}_{column.setup}"
        num_tasks = len(accuracy.shares)
        begun = {"name": task, "alias": task, "sample_len": num_tasks}
        found = results.setdefault(task, begun)
        found[f"acc,{grader}"] = accuracy.value
        found[f"acc_stderr,{grader}"] = _standard_error(accuracy)
        counts[task] = dict.fromkeys(("original", "effective"), num_tasks)
    record = {
        "results": results,
        "n-shot": dict.fromkeys(results, 0),
        "higher_is_better": {task: {"acc": True} for task in results},
        "n-samples": counts,
        "versions": dict.fromkeys(results, "comas"),
        "configs": {task: {"task": task, "generation_kwargs": dict(sampling)} for task in results},
        "config": {"model": "comas", "model_args": row.label},
        "model_name": row.label,
    }
    path = folder / f"results_{row.label.rpartition('/')[2]}.json"
    write_text(path, json.dumps(record, indent=1, ensure_ascii=False) + "\n")


def _standard_error(accuracy: Accuracy) -> float | str:
    """Return the standard error of the mean over tasks."""
    shares = list(accuracy.shares.values())
    return stdev(shares) / math.sqrt(len(shares)) if len(shares) > 1 else "N/A"
