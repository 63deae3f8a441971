"""What a run's agents answer before and after it, asked by ``evaluation``: at other temperatures,
more than once, under the set-ups; and which mistakes they make.

An agent that finds the right answer in one of several tries has it already, and training elicits
it; what none of the tries holds has to be learnt.
"""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from tqdm import tqdm

from comas.config import load
from comas.config.schema import Config
from comas.quickstart.questions import problem_of
from comas.quickstart.worked import habit, work
from comas.quickstart.world import MISTAKES, UNSEEN
from comas.reproduction.runs import PlannedRun
from comas.types import Metrics
from evaluation.inference_log import ANSWERS, read_inference
from evaluation.results import SUMMARY, Evaluation, read_subjects

NUM_TRIES = 8
"""k of pass@k."""
WEIGHTS = ("untrained", "trained")
KINDS = ("right", "its own habit", "another that judges know", "the one no judge knows", "else")
"""What an answer can be; a slip is among what is else."""


class Asked(NamedTuple):
    """How agents are asked."""

    name: str
    settings: tuple[str, ...]
    """Of ``evaluation``."""


SAMPLED = Asked("sampled", ("temperature=1", f"seeds={NUM_TRIES}", "setups=[vanilla]"))
SETUPS = Asked("setups", ("temperature=0.7", "limit=150"))


def ask_agents(run: PlannedRun) -> None:
    """Ask what has not been asked of the finished ``run``, and keep what ``evaluation`` prints.

    Raises RuntimeError when it fails; the next call goes on.
    """
    missing = [(w, asked) for w, asked in _all() if not (_folder(run, w, asked) / SUMMARY).exists()]
    for weights, asked in tqdm(missing, desc=run.label, unit="evaluation", disable=None):
        folder, output = _folder(run, weights, asked), run.saves / f"{run.name}.answers.log"
        command = [sys.executable, "-m", "evaluation", folder.name, str(run.finished)]
        settings = [f"weights={weights}", f"results={folder.parent}", *asked.settings]
        with output.open("a") as file:
            ended = subprocess.run(
                [*command, *settings], stdout=file, stderr=subprocess.STDOUT, check=False
            )
        if ended.returncode != 0:
            raise RuntimeError(f"{run.label}, {weights}: evaluation failed; see {output}")


def read_answers(run: PlannedRun) -> Metrics:
    """Shares from 0 to 1, means over agents, of what has been asked; nothing where nothing was::

    untrained/T=0.7, untrained/T=1        correct
    untrained/pass@8                      correct in one of 8 tries at T=1
    untrained/setup/debate                correct, T=0.7
    untrained/mistakes/its own habit      of all answers at T=1, those of one of ``KINDS``
    """
    metrics: Metrics = {}
    for weights, asked in _all():
        folder = _folder(run, weights, asked)
        if (folder / SUMMARY).exists():
            read = _read_sampled if asked is SAMPLED else _read_setups
            metrics |= {f"{weights}/{name}": value for name, value in read(run, folder).items()}
    return metrics


def _all() -> Iterator[tuple[str, Asked]]:
    return ((weights, asked) for weights in WEIGHTS for asked in (SAMPLED, SETUPS))


def _folder(run: PlannedRun, weights: str, asked: Asked) -> Path:
    return run.saves / "answers" / f"{run.name}-{weights}-{asked.name}"


def _read_sampled(run: PlannedRun, folder: Path) -> Mapping[str, float]:
    assert run.finished is not None
    models = load(Config, run.finished / "config.yaml", []).society.models
    found: dict[str, list[float]] = {name: [] for name in ("T=1", f"pass@{NUM_TRIES}")}
    kinds: list[str] = []
    for subject, model in zip(read_subjects(folder), models, strict=True):
        ((column, evaluation),) = subject.evaluations.items()
        found["T=1"].append(evaluation.graders["strict"].accuracy)
        found[f"pass@{NUM_TRIES}"].append(pass_at_all(evaluation))
        right = {(a.task_id, a.seed) for a in evaluation.answers if a.strict == "correct"}
        for answer in read_inference(column.folder(folder / subject.part) / ANSWERS):
            is_right = (answer.task_id, answer.seed) in right
            question = answer.calls[0].messages[-1]["content"]
            kinds.append(
                kind_of(question, answer.response, model=Path(model).name, is_right=is_right)
            )
    shares = {f"mistakes/{kind}": kinds.count(kind) / len(kinds) for kind in KINDS}
    return {name: fmean(values) for name, values in found.items()} | shares


def _read_setups(run: PlannedRun, folder: Path) -> Mapping[str, float]:
    found: dict[str, list[float]] = {}
    for subject in read_subjects(folder):
        for column, evaluation in subject.evaluations.items():
            found.setdefault(column.setup, []).append(evaluation.graders["strict"].accuracy)
    means = {f"setup/{setup}": fmean(values) for setup, values in found.items()}
    return means | {"T=0.7": means["setup/vanilla"]}


def pass_at_all(evaluation: Evaluation) -> float:
    """Share of tasks that at least one answer of any seed solves (pass@k with k tries)."""
    asked = {answer.task_id for answer in evaluation.answers}
    solved = {answer.task_id for answer in evaluation.answers if answer.strict == "correct"}
    return len(solved) / len(asked)


def kind_of(question: str, response: str, *, model: str, is_right: bool) -> str:
    """Which of ``KINDS`` the response of ``model`` to the prompt ``question`` is."""
    if is_right:
        return "right"
    problem = problem_of(question)
    made = [
        kind
        for kind in (habit(problem, model), UNSEEN, *MISTAKES[problem.domain])
        if work(problem, kind).text == response.strip()
    ]
    if not made:
        return "else"
    if made[0] == UNSEEN:
        return "the one no judge knows"
    own = made[0] == habit(problem, model)
    return "its own habit" if own else "another that judges know"
