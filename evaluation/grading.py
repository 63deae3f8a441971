"""Grades answers, each once by every grader, and writes evaluation.json."""

import logging
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path
from statistics import fmean

import comas.verification
from comas.utils.progress import progress_bar
from comas.verification import Grader, Verifier
from comas.verification.verifiers import GRADERS as VERIFIERS_OF
from evaluation.results import (
    EVALUATION,
    GRADERS,
    AnswerKey,
    Cost,
    Evaluation,
    GradedAnswer,
    Tally,
    fingerprint,
    questions_of,
    read_evaluation,
    read_failures,
    read_inference,
    write_evaluation,
)
from evaluation.types import BenchmarkTask

log = logging.getLogger(__name__)

LIBRARIES = (
    *("math-verify", "latex2sympy2-extended", "antlr4-python3-runtime", "sympy", "mpmath"),
    *("pint", "markdown-it-py", "reasoning-gym"),
)
"""Libraries that extract and compare answers."""


def _fingerprint_of_graders() -> str:
    package = Path(comas.verification.__file__).parent
    code = {
        str(path.relative_to(package)): path.read_text("utf-8")
        for path in package.rglob("*")
        if path.suffix in (".py", ".yaml")
    }
    python = [*sys.version_info[:2]]  # it runs the programs
    found = ((each.name.lower().replace("_", "-"), each.version) for each in distributions())
    libraries = sorted({each for each in found if each[0] in LIBRARIES})
    return fingerprint([python, libraries, sorted(code.items())])


GRADERS_FINGERPRINT = _fingerprint_of_graders()
"""Changes with the graders' code and libraries. Computed at import: later edits do not judge."""


def grade_folder(
    folder: Path, tasks: Sequence[BenchmarkTask], *, seeds: Sequence[int], verifier: Verifier
) -> Evaluation:
    """Judge the answers in ``folder``, ``<benchmark>/<setup>``, and write its evaluation.json.

    Verdicts of the same graders on the same answer and question are kept, unless a grader failed.
    Answers to tasks or seeds no longer asked for stay in inference.jsonl and count only as cost.

    Raises ValueError when a file in ``folder`` is damaged.
    """
    assert tasks and seeds and len({task.task_id for task in tasks}) == len(tasks)
    path = folder / EVALUATION
    asked = {(task.task_id, seed): task for seed in seeds for task in tasks}
    answers = read_inference(folder)
    responses = {key: a.response for a in answers if (key := (a.task_id, a.seed)) in asked}
    questions = questions_of(tasks)
    known = _judged_before(path, questions=questions, responses=responses)

    open_keys = [key for key in asked if key in responses and key not in known]
    judged = known | _judge(open_keys, asked=asked, responses=responses, verifier=verifier)
    graded = tuple(judged.get(key, GradedAnswer(*key, None, None, None, None)) for key in asked)

    failures = set(read_failures(folder))
    calls = [call for answer in answers for call in answer.calls]
    evaluation = Evaluation(
        benchmark=folder.parent.name,
        setup=folder.name,
        seeds=tuple(seeds),
        num_asked=len(asked),
        num_done=len(judged),
        num_failures=len(failures & asked.keys() - judged.keys()),
        graders={grader: tally(graded, grader=grader, seeds=seeds) for grader in GRADERS},
        cost=Cost(
            calls=len(calls),
            prompt_tokens=sum(call.prompt_tokens for call in calls),
            completion_tokens=sum(call.completion_tokens for call in calls),
        ),
        questions=questions,
        answers=graded,
        graded_by=GRADERS_FINGERPRINT,
    )
    write_evaluation(path, evaluation)
    accuracies = ", ".join(f"{100 * t.accuracy:.2f} ({g})" for g, t in evaluation.graders.items())
    log.info("%s: accuracy %s", folder, accuracies)
    return evaluation


def tally(graded: Sequence[GradedAnswer], *, grader: Grader, seeds: Sequence[int]) -> Tally:
    """Count verdicts. Missing answers count only in the denominator of accuracy: 4 tasks with
    correct, correct, wrong and no answer have accuracy 2 / 4."""
    counts = Counter(answer.verdict(grader) for answer in graded)
    correct = Counter(a.seed for a in graded if a.verdict(grader) == "correct")
    num_tasks = len(graded) // len(seeds)
    by_seed = tuple(correct[seed] / num_tasks for seed in seeds)
    return Tally(
        accuracy=fmean(by_seed),
        correct=counts["correct"],
        wrong=counts["wrong"],
        unanswered=counts["unanswered"],
        failed=counts["failed"],
        accuracy_by_seed=by_seed,
    )


def _judged_before(
    path: Path, *, questions: Mapping[str, str], responses: Mapping[AnswerKey, str]
) -> dict[AnswerKey, GradedAnswer]:
    """Return the verdicts in evaluation.json that still hold."""
    if not path.exists():
        return {}
    before = read_evaluation(path)
    if before.graded_by != GRADERS_FINGERPRINT:
        log.info("%s: other graders judged these answers, so all are judged again", path.parent)
        return {}
    return {
        (answer.task_id, answer.seed): answer
        for answer in before.answers
        if (response := responses.get((answer.task_id, answer.seed))) is not None
        and answer.response == fingerprint(response)
        and before.questions.get(answer.task_id) == questions[answer.task_id]
        and all(answer.verdict(grader) not in (None, "failed") for grader in GRADERS)
    }


def _judge(
    keys: Sequence[AnswerKey],
    *,
    asked: Mapping[AnswerKey, BenchmarkTask],
    responses: Mapping[AnswerKey, str],
    verifier: Verifier,
) -> dict[AnswerKey, GradedAnswer]:
    items = [(asked[key].form, responses[key], asked[key].gold) for key in keys]
    # Forms that two graders judge alike are judged by strict only.
    todo = {
        grader: [
            item
            for item in dict.fromkeys(items)
            if grader == "strict" or forms[item[0]] is not VERIFIERS_OF["strict"][item[0]]
        ]
        for grader, forms in VERIFIERS_OF.items()
    }
    with progress_bar("grading", unit="verdict", total=sum(map(len, todo.values()))) as bar:
        pending = {g: verifier.submit(todo[g], grader=g, on_verdict=bar.update) for g in GRADERS}
        verdicts = {g: dict(zip(todo[g], pending[g].result(), strict=True)) for g in GRADERS}
    return {
        key: GradedAnswer(
            *key,
            fingerprint(responses[key]),
            *(verdicts[grader].get(item, verdicts["strict"][item]) for grader in GRADERS),
        )
        for key, item in zip(keys, items, strict=True)
    }
