"""Runs a setup over the tasks of a benchmark; resumes an interrupted run."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from comas.types import Chat
from comas.utils.client import Client, Endpoint, RefusedPromptError, RequestError, RequestOptions
from comas.utils.concurrency import run_all
from comas.utils.files import write_text
from comas.utils.progress import progress_bar
from comas.utils.seeds import sampling_seed
from evaluation.results import FAILURES, Failure, append_answer, append_failure, read_inference
from evaluation.types import Answer, Ask, BenchmarkTask, Call, Setup

log = logging.getLogger(__name__)

MAX_FAILURES_IN_A_ROW = 32
"""At least; twice the requests in flight if that is more, as an outage fails many at once."""


async def run_inference(
    tasks: Sequence[BenchmarkTask],
    *,
    setup: Setup,
    models: Sequence[Endpoint],
    seeds: Sequence[int],
    options: RequestOptions,
    folder: Path,
) -> None:
    """Answer every task under every seed, and write each answer to ``folder`` at once.

    Answered tasks are skipped; tasks without a usable reply are recorded as failed, and asked again
    by the next call.

    Raises FileError when ``folder`` is damaged or cannot be written, RuntimeError when too many
    tasks fail in a row.
    """
    assert models and len({task.task_id for task in tasks}) == len(tasks)
    name = "/".join(folder.parts[-3:])  # subject, benchmark, setup
    folder.mkdir(parents=True, exist_ok=True)
    pending = open_tasks(tasks, seeds, folder)
    write_text(folder / FAILURES, "")
    num_asked = len(tasks) * len(seeds)
    log.info("%s: %d of %d tasks to ask", name, len(pending), num_asked)
    with progress_bar(name, unit="task", total=num_asked, initial=num_asked - len(pending)) as bar:
        async with Client(models, options) as client:
            max_in_a_row = max(MAX_FAILURES_IN_A_ROW, 2 * options.concurrency)
            run = _Run(setup, client, folder, bar, max_in_a_row)
            queue = iter(pending)
            # More workers would make tasks of many calls end late, with little written until then.
            num_workers = min(options.concurrency, len(pending), setup.at_once or len(pending))
            await run_all(run.work_off(queue) for _ in range(num_workers))
    num_failed = len(run.failures)
    log.info("%s: %d answered", name, len(pending) - num_failed)
    if num_failed:
        log.warning(
            "%s: %d tasks failed, see %s; rerunning the command asks them again. The first: %s",
            *(name, num_failed, folder / FAILURES, run.failures[0].error),
        )


def open_tasks(
    tasks: Sequence[BenchmarkTask], seeds: Sequence[int], folder: Path
) -> list[tuple[BenchmarkTask, int]]:
    """Return the tasks, each with its seed, that ``folder`` has no answer to."""
    done = {(answer.task_id, answer.seed) for answer in read_inference(folder)}
    return [(task, seed) for seed in seeds for task in tasks if (task.task_id, seed) not in done]


@dataclass
class _Run:
    """The shared state of a session's workers."""

    setup: Setup
    client: Client
    folder: Path
    bar: progress_bar
    max_in_a_row: int
    num_in_a_row: int = 0
    failures: list[Failure] = field(default_factory=list)

    async def work_off(self, queue: Iterator[tuple[BenchmarkTask, int]]) -> None:
        """Answer tasks from the shared queue until it is empty."""
        for task, seed in queue:
            try:
                answer = await answer_task(task, seed=seed, setup=self.setup, client=self.client)
            except RequestError as error:
                failure = Failure(task.task_id, seed, str(error))
                append_failure(self.folder, failure)
                self.failures.append(failure)
                self.bar.set_postfix(failed=len(self.failures), refresh=False)
                # Overlong or filtered prompts say nothing about the server.
                self.num_in_a_row += not isinstance(error, RefusedPromptError)
                self._stop_if_hopeless()
            else:
                append_answer(self.folder, answer)
                self.num_in_a_row = 0
            self.bar.update()

    def _stop_if_hopeless(self) -> None:
        if self.num_in_a_row >= self.max_in_a_row:
            raise RuntimeError(
                f"{self.num_in_a_row} tasks in a row failed, the last with: "
                f"{self.failures[-1].error}. Check that the server runs, serves a model of this "
                "name and accepts your key; if only one setup fails, leave it out with setups=[...]"
            )


async def answer_task(
    task: BenchmarkTask,
    *,
    seed: int,
    setup: Setup,
    client: Client,
    on_call: Callable[[Call], object] = lambda call: None,
) -> Answer:
    """Run a setup on one task; ``on_call`` receives every call once it is answered. Raises
    RequestError when a call gets no usable reply."""
    transcript = _Transcript(client, task.task_id, seed, on_call)
    response = await setup.flow(task, transcript)
    calls = transcript.calls if setup.program else dict(sorted(transcript.calls.items()))
    return Answer(task.task_id, seed, response, tuple(calls.values()))


@dataclass
class _Transcript(Ask):
    """Makes the calls of one task, and records them."""

    client: Client
    task_id: str
    seed: int
    on_call: Callable[[Call], object]
    calls: dict[str, Call] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.num_models = self.client.num_models

    async def answer(self, chat: Chat, *, label: str, speaker: int) -> Call:
        reply = await self.client.complete(
            chat.messages,
            model_index=speaker % self.num_models,
            # Not by the setup: equal requests get equal replies.
            seed=sampling_seed(self.seed, self.task_id, label),
            max_tokens=chat.max_tokens,
            stop=chat.stop,
            tools=chat.tools,
        )
        assert label not in self.calls, f"two calls of one task are labelled {label!r}"
        call = self.calls[label] = Call(label, speaker, tuple(chat.messages), **vars(reply))
        self.on_call(call)
        return call
