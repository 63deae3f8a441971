"""The answers of an evaluation as threads of a page, with every call and its prompt."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from comas.run.pages.page import Details, PageSource, PageTable, PageTurn, Thread
from comas.types import Message
from comas.utils.files import from_here
from evaluation.results import Evaluation, GradedAnswer, Subject, read_inference, read_subjects
from evaluation.types import Answer, role_of


def results_source(folder: Path) -> PageSource:
    """Read the transcripts of a results folder. Raises ValueError if they are missing or
    damaged."""
    subjects = read_subjects(folder)
    threads: list[Thread] = []
    details: dict[str, Details] = {}
    for subject in subjects:
        for column, evaluation in subject.evaluations.items():
            graded = {(answer.task_id, answer.seed): answer for answer in evaluation.answers}
            chunk = f"{subject.part}-{column.benchmark}-{column.setup}"
            for answer in read_inference(column.folder(folder / subject.part)):
                verdicts = graded.get((answer.task_id, answer.seed))
                if verdicts is None:
                    continue  # no longer asked for
                thread = _thread(answer, verdicts, evaluation, subject=subject.part, chunk=chunk)
                threads.append(thread)
                details.setdefault(chunk, {})[thread.id] = {
                    call.label: {"prompt": _prompt(call.messages)} for call in answer.calls
                }
    return PageSource(
        name=folder.resolve().name,
        path=str(from_here(folder)),
        threads=threads,
        tables=[_accuracies(subjects)],
        details=details,
        without_details="evaluations keep no tokens",
    )


def _thread(
    answer: Answer, verdicts: GradedAnswer, evaluation: Evaluation, *, subject: str, chunk: str
) -> Thread:
    question = evaluation.questions[answer.task_id]
    return Thread(
        id=f"{chunk}/{answer.task_id}/seed{answer.seed}",
        step=None,
        question_key=f"{answer.task_id} {question}",
        question=answer.calls[0].messages[-1]["content"] if answer.calls else answer.task_id,
        domain=None,
        labels={
            "benchmark": evaluation.benchmark,
            "setup": evaluation.setup,
            "subject": subject,
            "seed": str(answer.seed),
            "published grader": verdicts.published or "-",
            "math-verify": verdicts.math_verify or "-",
        },
        chunk=chunk,
        turns=tuple(_turns(answer, verdicts.strict)),
    )


def _turns(answer: Answer, verdict: str | None) -> Iterator[PageTurn]:
    """Yield a turn per call, under the call that it answers if labels say so (``r0.s0.e0``)."""
    labels = {call.label for call in answer.calls}
    first = [call for call in answer.calls if call.label.rpartition(".")[0] not in labels]
    graded = [call for call in first if call.response == answer.response] or first
    for call in answer.calls:
        parent = call.label.rpartition(".")[0]
        yield PageTurn(
            id=call.label,
            parent=parent if parent in labels else None,
            role=role_of(call.label),
            agent=call.speaker,
            round=None,
            text=call.response,
            reward=None,
            verdict=verdict,
            scores=(),
            finish=call.finish_reason,
            num_prompt_tokens=call.prompt_tokens,
            num_response_tokens=call.completion_tokens,
            thinking=call.thinking,
            is_solution=call is graded[-1],  # which the verdict is on
        )


def _prompt(messages: Sequence[Message]) -> str:
    return "\n\n".join(f"[{message['role']}]\n{message['content']}" for message in messages)


def _accuracies(subjects: Sequence[Subject]) -> PageTable:
    rows = []
    for column in sorted({column for subject in subjects for column in subject.evaluations}):
        found = (subject.evaluations.get(column) for subject in subjects)
        cells = ("-" if e is None else f"{100 * e.graders['strict'].accuracy:.1f}" for e in found)
        rows.append((column.benchmark, column.setup, *cells))
    header = ("benchmark", "setup", *(subject.part or "model" for subject in subjects))
    return PageTable("Accuracy (%), strict grader", header, rows)
