"""wandb and TensorBoard, each imported only when it is asked for."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from comas.config.plugins import Registry, blaming_plugins
from comas.config.schema import Config
from comas.run.records import Row
from comas.utils.files import FileError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True)
class Findings:
    """What a run came to, after ``step``."""

    step: int
    figures: Mapping[str, "Figure"]
    """By title."""
    header: Sequence[str]
    turns: Sequence[Sequence[Any]]
    """A table of discussions, one row per turn, under ``header``."""


class Tracker(Protocol):
    """Takes the rows of metrics.jsonl, and in the end the findings, to somewhere else."""

    def log(self, row: Row) -> None: ...

    def begin_anew(self) -> None:
        """The next rows are of steps that may have been logged before, and count in their place."""

    def log_findings(self, findings: Findings) -> None: ...

    def close(self, *, failed: bool) -> None: ...


TRACKERS: Registry[Callable[[Config, Path], Tracker]] = Registry(
    {},
    group="comas.trackers",
    wanted="a function from (configuration, the run's folder) to a Tracker",
    adapt=lambda found: found if callable(found) else None,
)
"""Further trackers, by the names in ``logging.trackers``."""


def open_trackers(config: Config, run: Path) -> list[Tracker]:
    """The trackers that ``logging`` asks for; raises FileError when one cannot start."""
    with blaming_plugins():
        trackers = [TRACKERS[name](config, run) for name in config.logging.trackers]
    if config.logging.tensorboard:
        trackers.append(TensorboardTracker(run / "tensorboard"))
    if config.logging.wandb != "disabled":
        trackers.append(WandbTracker(config, run))
    return trackers


class TensorboardTracker:
    """Scalars, figures and the table as text, under ``tensorboard/``."""

    def __init__(self, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._new_writer = SummaryWriter
        self._folder = folder
        self._writer: Any = None

    def log(self, row: Row) -> None:
        if self._writer is None:
            # Hides what was written here before of this and later steps.
            self._writer = self._new_writer(str(self._folder), purge_step=row["step"])
        for key, value in row.items():
            if key != "step" and value is not None:
                self._writer.add_scalar(key, value, row["step"])
        self._writer.flush()

    def begin_anew(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def log_findings(self, findings: Findings) -> None:
        if self._writer is None:
            self._writer = self._new_writer(str(self._folder))
        for title, figure in findings.figures.items():
            self._writer.add_figure(title, figure, findings.step)
        header = [f"| {' | '.join(findings.header)} |", "| --- " * len(findings.header) + "|"]
        rows = map(_markdown_row, findings.turns)
        self._writer.add_text("discussions", "\n".join([*header, *rows]), findings.step)

    def close(self, *, failed: bool) -> None:
        if self._writer is not None:
            self._writer.close()


class WandbTracker:
    """A wandb run named like the run directory, which a resumed process continues.

    Steps that a run repeats are there twice, and what counts was logged last: wandb takes nothing
    back (its ``resume_from`` does, but is a preview, and needs a server and wandb's own counter).
    """

    def __init__(self, config: Config, run: Path) -> None:
        import wandb

        mode: Any = config.logging.wandb
        try:
            self._run = wandb.init(
                project=config.logging.wandb_project,
                name=run.name,
                id=run.name,
                resume="allow",
                dir=str(run),
                mode=mode,
                config=dataclasses.asdict(config),
            )
        except wandb.Error as error:
            raise FileError(
                f"logging.wandb={mode}: wandb does not start: {error}. Log in "
                "with `wandb login`, or set logging.wandb=offline and upload later with "
                "`wandb sync`"
            ) from error
        # Steps come twice when a resumed run repeats some, which wandb's own counter forbids.
        self._run.define_metric("*", step_metric="step")

    def log(self, row: Row) -> None:
        self._run.log({key: value for key, value in row.items() if value is not None})

    def begin_anew(self) -> None:
        pass

    def log_findings(self, findings: Findings) -> None:
        import matplotlib.pyplot  # noqa: F401  Trap: wandb.Image asks for it and does not import it
        from wandb import Image, Table

        images = {title: Image(figure) for title, figure in findings.figures.items()}
        table = Table(columns=list(findings.header), data=[list(turn) for turn in findings.turns])
        self._run.log({"step": findings.step, "discussions": table, **images})

    def close(self, *, failed: bool) -> None:
        from wandb import teardown

        self._run.finish(exit_code=int(failed))
        # Trap: else its service is asked to end at exit, after temporary_folder has ended it.
        teardown()


def _markdown_row(cells: Sequence[Any]) -> str:
    return f"| {' | '.join(map(_markdown_cell, cells))} |"


def _markdown_cell(value: Any) -> str:
    """In backticks where it is a text, as what a model says may look like Markdown."""
    if not isinstance(value, str):
        return "" if value is None else str(value)
    plain = value.replace("`", "'").replace("|", "\\|")
    return f"`{' '.join(plain.split())}`" if plain.strip() else ""
