"""wandb and TensorBoard, imported only when used, and the user's own trackers."""

import dataclasses
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from comas.config.plugins import PluginError, Registry, blaming_plugins, function_of
from comas.config.schema import Config
from comas.run.records import Record, Row
from comas.run.seals import read_origin
from comas.utils.files import FileError

logger = logging.getLogger(__name__)


@runtime_checkable
class Tracker(Protocol):
    """Sends the rows of metrics.jsonl and the discussions to another place."""

    def log_discussions(self, records: Sequence[Record]) -> None:
        """Take the discussions of the step that ``log`` is called for next."""

    def log(self, row: Row) -> None:
        """Take the row of a step, which replaces earlier rows of it and of later steps."""

    def close(self, *, failed: bool) -> None: ...


def open_trackers(config: Config, run: Path) -> list[Tracker]:
    """Start the ``logging.trackers``. Raises FileError when one cannot start, and closes others."""
    trackers: list[Tracker] = []
    try:
        for name in config.logging.trackers:
            with blaming_plugins():
                tracker = TRACKERS[name](config, run)
            if not isinstance(tracker, Tracker):
                error = f"logging.trackers: {name} lacks a method of a Tracker"
                raise PluginError(error, "make it a Tracker of comas/run/trackers.py")
            trackers.append(tracker)
    except BaseException:
        close_trackers(trackers, failed=True)
        raise
    return trackers


def close_trackers(trackers: Sequence[Tracker], *, failed: bool) -> None:
    """Close the trackers, and warn of those that raise: the run's own records are whole."""
    for tracker in trackers:
        try:
            tracker.close(failed=failed)
        except Exception as fault:
            logger.warning("logging.trackers: %r was not closed: %s", tracker, fault)


class TensorboardTracker(Tracker):
    """Scalars, under ``tensorboard/``."""

    def __init__(self, config: Config, run: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._new_writer = SummaryWriter
        self._folder = run / "tensorboard"
        self._writer: Any = None
        self._step = 0

    def log(self, row: Row) -> None:
        if self._writer is None or row["step"] <= self._step:
            self.close(failed=False)
            # Hides earlier records of this and later steps.
            self._writer = self._new_writer(str(self._folder), purge_step=row["step"])
        self._step = row["step"]
        for key, value in row.items():
            if key != "step" and value is not None:
                self._writer.add_scalar(key, value, self._step)
        self._writer.flush()

    def close(self, *, failed: bool) -> None:
        if self._writer is not None:
            self._writer.close()


class WandbTracker(Tracker):
    """A wandb run named like the run directory, which a resume continues.

    Repeated steps are logged twice, of which the last counts: wandb deletes nothing
    (``resume_from`` is a preview, and needs a server and wandb's own step counter).
    """

    def __init__(self, config: Config, run: Path) -> None:
        import wandb

        origin, _ = read_origin(run, None)  # whose identity tells runs of one second apart
        try:
            self._run = wandb.init(
                project=os.environ.get("WANDB_PROJECT", "comas"),
                name=run.name,
                id=f"{run.name}-{origin.run[:8]}" if origin else run.name,
                resume="allow",
                dir=str(run),
                config=dataclasses.asdict(config),
            )
        except wandb.Error as error:
            raise FileError(
                f"logging.trackers: wandb does not start: {error}. Log in with `wandb login`, or "
                "set WANDB_MODE=offline in the environment and upload later with `wandb sync`"
            ) from error
        # A resumed run may repeat steps, which wandb's own counter forbids.
        self._run.define_metric("*", step_metric="step")

    def log(self, row: Row) -> None:
        self._run.log({key: value for key, value in row.items() if value is not None})

    def close(self, *, failed: bool) -> None:
        from wandb import teardown

        self._run.finish(exit_code=int(failed))
        # Trap: otherwise wandb ends its service at exit, after temporary_folder has killed it.
        teardown()


TRACKERS: Registry[Callable[[Config, Path], Tracker]] = Registry(
    {"tensorboard": TensorboardTracker, "wandb": WandbTracker},
    group="comas.trackers",
    wanted="a function from (configuration, the run's folder) to a Tracker",
    adapt=function_of("config", "run"),
)
