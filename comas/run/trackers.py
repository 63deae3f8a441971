"""wandb and TensorBoard, each imported only when it is asked for, and the user's own trackers."""

import dataclasses
import inspect
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from comas.config.plugins import PluginError, Registry, blaming_plugins, check_call
from comas.config.schema import Config
from comas.run.records import Record, Row
from comas.utils.files import FileError

TABLE_HEADER = (
    *("discussion", "question", "turn", "role", "agent", "response", "reward", "verdict", "score"),
)
"""Of the table of discussions that wandb and TensorBoard get at a run's end."""


class Tracker(Protocol):
    """Takes the rows of metrics.jsonl, and the discussions, to somewhere else."""

    def log_discussions(self, records: Sequence[Record]) -> None:
        """Take the discussions of the step whose row comes next."""

    def log(self, row: Row) -> None: ...

    def begin_anew(self) -> None:
        """The next rows are of steps that may have been logged before, and count in their place."""

    def close(self, *, failed: bool) -> None: ...


def _as_tracker(found: Any) -> Callable[[Config, Path], Tracker] | None:
    if not callable(found):
        return None
    check_call(found, "config", "run")
    return found


def open_trackers(config: Config, run: Path) -> list[Tracker]:
    """Return those of ``logging.trackers``; raises FileError when one cannot start."""
    with blaming_plugins():
        return [_open_tracker(name, config, run) for name in config.logging.trackers]


def _open_tracker(name: str, config: Config, run: Path) -> Tracker:
    made = TRACKERS[name](config, run)
    for method in (name for name in vars(Tracker) if not name.startswith("_")):
        _, *wanted = inspect.signature(getattr(Tracker, method)).parameters.values()
        positional = [each.name for each in wanted if each.kind is not each.KEYWORD_ONLY]
        named = [each.name for each in wanted if each.kind is each.KEYWORD_ONLY]
        try:
            check_call(getattr(made, method, None), *positional, named=named)
        except TypeError as error:
            where = TRACKERS.source_of(name) or name
            fault = f"logging.trackers: {where}: {type(made).__name__}.{method}: {error}"
            raise PluginError(fault, "make it a Tracker of comas/run/trackers.py") from error
    return made


class TensorboardTracker:
    """Scalars, and the last step's discussions as text, under ``tensorboard/``."""

    def __init__(self, config: Config, run: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._new_writer = SummaryWriter
        self._folder = run / "tensorboard"
        self._writer: Any = None
        self._records: Sequence[Record] = ()
        self._step = 0

    def log_discussions(self, records: Sequence[Record]) -> None:
        self._records = records

    def log(self, row: Row) -> None:
        self._step = row["step"]
        if self._writer is None:
            # Hides what was written here before of this and later steps.
            self._writer = self._new_writer(str(self._folder), purge_step=self._step)
        for key, value in row.items():
            if key != "step" and value is not None:
                self._writer.add_scalar(key, value, self._step)
        self._writer.flush()

    def begin_anew(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def close(self, *, failed: bool) -> None:
        if self._writer is not None:
            if self._records:
                lines = [f"| {' | '.join(TABLE_HEADER)} |", "| --- " * len(TABLE_HEADER) + "|"]
                for row in table_rows(self._records):
                    lines.append(f"| {' | '.join(map(_markdown_cell, row))} |")
                self._writer.add_text("discussions", "\n".join(lines), self._step)
            self._writer.close()


class WandbTracker:
    """A wandb run named like the run directory, which a resumed process continues.

    Steps that a run repeats are there twice, and what counts was logged last: wandb takes nothing
    back (its ``resume_from`` does, but is a preview, and needs a server and wandb's own counter).
    """

    def __init__(self, config: Config, run: Path) -> None:
        import wandb

        try:
            self._run = wandb.init(
                project=os.environ.get("WANDB_PROJECT", "comas"),
                name=run.name,
                id=run.name,
                resume="allow",
                dir=str(run),
                config=dataclasses.asdict(config),
            )
        except wandb.Error as error:
            raise FileError(
                f"logging.trackers: wandb does not start: {error}. Log in with `wandb login`, or "
                "set WANDB_MODE=offline in the environment and upload later with `wandb sync`"
            ) from error
        # Steps come twice when a resumed run repeats some, which wandb's own counter forbids.
        self._run.define_metric("*", step_metric="step")
        self._records: Sequence[Record] = ()
        self._step = 0

    def log_discussions(self, records: Sequence[Record]) -> None:
        self._records = records

    def log(self, row: Row) -> None:
        self._step = row["step"]
        self._run.log({key: value for key, value in row.items() if value is not None})

    def begin_anew(self) -> None:
        pass

    def close(self, *, failed: bool) -> None:
        from wandb import Table, teardown

        if self._records:
            table = Table(columns=list(TABLE_HEADER), data=list(table_rows(self._records)))
            self._run.log({"step": self._step, "discussions": table})
        self._run.finish(exit_code=int(failed))
        # Trap: else its service is asked to end at exit, after temporary_folder has ended it.
        teardown()


TRACKERS: Registry[Callable[[Config, Path], Tracker]] = Registry(
    {"tensorboard": TensorboardTracker, "wandb": WandbTracker},
    group="comas.trackers",
    wanted="a function from (configuration, the run's folder) to a Tracker",
    adapt=_as_tracker,
)
"""By the names in ``logging.trackers``."""


def table_rows(records: Sequence[Record]) -> Iterator[list[Any]]:
    """Yield each turn under ``TABLE_HEADER``."""
    for record in records:
        for turn in record["turns"]:
            said = (turn["turn_id"], turn["role"], turn["agent"], turn["response"], turn["reward"])
            judged = (turn.get("verdict"), turn.get("score"))
            yield [record["discussion_id"], record["question"], *said, *judged]


def _markdown_cell(value: Any) -> str:
    """Return a text in backticks, as what a model says may look like Markdown."""
    if not isinstance(value, str):
        return "" if value is None else str(value)
    plain = " ".join(value.replace("`", "'").replace("|", "\\|").split())
    return f"`{plain}`" if plain else ""
