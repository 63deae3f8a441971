"""wandb, TensorBoard and Trackio, each imported only when it is asked for."""

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from comas.config.plugins import PluginError, Registry, blaming_plugins, check_call
from comas.config.schema import Config
from comas.run.records import Record, Row
from comas.utils.files import FileError
from comas.utils.invocation import program

NUM_TRACES = 8
"""Discussions of a step that Trackio gets as traces."""

if TYPE_CHECKING:
    from matplotlib.figure import Figure


INSTALL_TRACKIO = f"Install it, or a newer version: {program('pip')} install -U trackio"


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

    def log_discussions(self, records: Sequence[Record]) -> None:
        """Take the discussions of the step whose row comes next, if it keeps those of any step."""

    def log(self, row: Row) -> None: ...

    def begin_anew(self) -> None:
        """The next rows are of steps that may have been logged before, and count in their place."""

    def log_findings(self, findings: Findings) -> None: ...

    def close(self, *, failed: bool) -> None: ...


def _as_tracker(found: Any) -> Callable[[Config, Path], Tracker] | None:
    if not callable(found):
        return None
    check_call(found, "config", "run")
    return found


TRACKERS: Registry[Callable[[Config, Path], Tracker]] = Registry(
    {},
    group="comas.trackers",
    wanted="a function from (configuration, the run's folder) to a Tracker",
    adapt=_as_tracker,
)
"""Further trackers, by the names in ``logging.trackers``."""


def open_trackers(config: Config, run: Path) -> list[Tracker]:
    """The trackers that ``logging`` asks for; raises FileError when one cannot start."""
    with blaming_plugins():
        trackers = [_own_tracker(name, config, run) for name in config.logging.trackers]
    if config.logging.tensorboard:
        trackers.append(TensorboardTracker(run / "tensorboard"))
    if config.logging.wandb != "disabled":
        trackers.append(WandbTracker(config, run))
    if config.logging.trackio:
        trackers.append(TrackioTracker(config, run))
    return trackers


def _own_tracker(name: str, config: Config, run: Path) -> Tracker:
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
    """Scalars, figures and the table as text, under ``tensorboard/``."""

    def __init__(self, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._new_writer = SummaryWriter
        self._folder = folder
        self._writer: Any = None

    def log_discussions(self, records: Sequence[Record]) -> None:
        pass

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

    def log_discussions(self, records: Sequence[Record]) -> None:
        pass

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


class TrackioTracker:
    """A Trackio run named like the run directory, with discussions of every step as traces.

    Where it is kept is Trackio's own choice: below TRACKIO_DIR on this machine, unless
    TRACKIO_SPACE_ID names a Space, which may be public, or TRACKIO_SERVER_URL a server. Steps that
    a run repeats are there twice, as in wandb.
    """

    def __init__(self, config: Config, run: Path) -> None:
        try:
            import trackio
        except ImportError as error:
            raise FileError(f"logging.trackio=true: {error}. {INSTALL_TRACKIO}") from error
        self._trackio = trackio
        self._traces: list[Any] = []
        try:
            self._run = trackio.init(
                project=config.logging.trackio_project,
                name=run.name,
                resume="allow",
                config=dataclasses.asdict(config),
                embed=False,
            )
        except (ValueError, OSError) as error:
            raise FileError(f"logging.trackio=true: Trackio does not start: {error}") from error

    def log_discussions(self, records: Sequence[Record]) -> None:
        self._traces = [
            self._trackio.Trace(messages=messages_of(record), metadata=metadata_of(record))
            for record in records[:NUM_TRACES]
        ]

    def log(self, row: Row) -> None:
        values = {k: v for k, v in row.items() if k != "step" and v is not None}
        traces = {"discussions": self._traces} if self._traces else {}
        self._run.log(values | traces, step=row["step"])
        self._traces = []

    def begin_anew(self) -> None:
        self._traces = []

    def log_findings(self, findings: Findings) -> None:
        """The figures alone: of discussions it has traces."""
        images = {title: self._trackio.Image(_pixels(of)) for title, of in findings.figures.items()}
        self._run.log(images, step=findings.step)

    def close(self, *, failed: bool) -> None:
        self._run.finish()


def messages_of(record: Record) -> list[dict[str, str]]:
    """A discussion as a chat: the question, and every turn with who it is, what came of it and what
    was thought.

    Example: ``[{"role": "user", "content": "What is 1 + 1?"}, {"role": "assistant", "content":
    "[solution r0.s0, agent 0, correct, reward 1.0]\\n2"}]``
    """
    messages = [{"role": "user", "content": record["question"]}]
    for turn in record["turns"]:
        who = "given" if turn["agent"] is None else f"agent {turn['agent']}"
        about = [f"{turn['role']} {turn['turn_id']}", who]
        about += [turn["verdict"]] if "verdict" in turn else []
        about += [] if turn["reward"] is None else [f"reward {turn['reward']}"]
        content = f"[{', '.join(about)}]\n{turn.get('thinking', '')}{turn['response']}"
        messages.append({"role": "assistant", "content": content})
    return messages


def metadata_of(record: Record) -> dict[str, Any]:
    """By what discussions can be searched for."""
    verdicts = [turn["verdict"] for turn in record["turns"] if "verdict" in turn]
    return {
        "discussion_id": record["discussion_id"],
        "question_id": record["question_id"],
        "domain": record["domain"],
        "num_correct": verdicts.count("correct"),
        "num_solutions": len(verdicts),
        "is_truncated": any(turn["finish_reason"] == "length" for turn in record["turns"]),
    }


def _pixels(figure: "Figure") -> Any:
    """A drawing as Trackio takes it: an array [height, width, RGB] of bytes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from numpy import asarray

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return asarray(canvas.buffer_rgba())[:, :, :3].copy()


def _markdown_row(cells: Sequence[Any]) -> str:
    return f"| {' | '.join(map(_markdown_cell, cells))} |"


def _markdown_cell(value: Any) -> str:
    """In backticks where it is a text, as what a model says may look like Markdown."""
    if not isinstance(value, str):
        return "" if value is None else str(value)
    plain = value.replace("`", "'").replace("|", "\\|")
    return f"`{' '.join(plain.split())}`" if plain.strip() else ""
