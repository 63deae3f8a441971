"""Write results as ``results_*.json`` of lm-evaluation-harness."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from statistics import stdev
from typing import Any

from comas.utils.files import write_text
from evaluation.accuracy import Accuracy, Row


def write_harness_results(folder: Path, row: Row, *, sampling: Mapping[str, Any]) -> None:
    """Write ``results_NAME.json`` to a subject's ``folder``.

    A task is a benchmark under a setup (``gsm8k_vanilla``), since prompts differ from the
    harness's. A metric's filter is the grader: ``acc,strict`` with ``acc_stderr,strict``, the
    standard error over tasks ("N/A" for a single task). Values are shares (0 to 1), and keys those
    of ``lm_eval.result_schema`` 0.4.13.
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
    """Return the standard error of the mean over the tasks' shares of correct answers."""
    shares = list(accuracy.shares.values())
    return stdev(shares) / math.sqrt(len(shares)) if len(shares) > 1 else "N/A"
