"""``comas train [--dry-run | --trial[=TIME] | --export-best] [CONFIG] [key=value ...]``, also
available as ``python -m comas``."""

if __name__ == "__main__":  # let Ctrl-C end the imports below, which take seconds
    from comas.utils.interrupts import end_at_ctrl_c

    end_at_ctrl_c()

import argparse
import errno
import logging
import re
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from comas.config.paths import names_file
from comas.config.plugins import PluginError, blaming_plugins
from comas.config.schema import Config
from comas.engines.cluster.supervision import LostEngineError
from comas.preflight.checks import errors_of
from comas.preflight.configuration import choose_config, load_config
from comas.preflight.preparation import check_run, describe_run, prepare
from comas.preflight.sizes import describe_sizes
from comas.run import RunDirectory
from comas.run.bookkeeping import save_models
from comas.run.guards import closing_line
from comas.run.pages.live import duration
from comas.run.pages.run_report import report
from comas.run.prepared import Prepared
from comas.run.records import METRICS, read_rows
from comas.run.status import BEST
from comas.train import agents_of, discuss, train
from comas.trial import BUDGET_S, try_out
from comas.utils.files import from_here, in_command
from comas.utils.invocation import CommandParser, start_of
from comas.utils.terminal import (
    EXIT_ERROR,
    EXIT_INTERRUPTED,
    EXIT_MACHINE,
    EXIT_RUN,
    deferred_signals,
    run_command,
    start_command,
)

log = logging.getLogger("comas")

DRY_RUN, TRIAL, EXPORT_BEST = "--dry-run", "--trial", "--export-best"
TIME = re.compile(r"([1-9]\d*)([smh])")
FULL_OR_BROKEN = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS}
"""Errors of a disk that takes no more data."""


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit status."""
    options = _read(arguments)
    start_command("comas")
    log.setLevel(logging.DEBUG)  # tracebacks, for the run's train.log alone
    run: RunDirectory | None = None
    try:
        if options.dry_run:
            found = check_run(_configure(options.arguments))
            for line in describe_run(found):
                log.info(line)
            return EXIT_ERROR if errors_of(found.checks) else 0
        config = _configure(options.arguments)
        if options.export_best and config.resume is None:
            raise ValueError(f"{EXPORT_BEST} needs resume=saves/<run>, the run to export from")
        if options.trial and config.resume is not None:
            raise ValueError(
                f"{TRIAL} tries a run from its start: leave out resume={config.resume}"
            )
        prepared = prepare(config)
        if options.trial:
            _try(prepared, budget_s=options.trial)
            return 0
        if options.export_best:
            log.info("the best agents are in %s", from_here(_export_best(prepared)))
            return 0
        config = prepared.config
        if config.resume:
            run = RunDirectory.open(config, prepared.contents)
        else:
            run = RunDirectory.create(config)
        with run, blaming_plugins():
            log.info("run directory: %s", from_here(run.path))
            for line in (*describe_sizes(config, prepared.sizes), *prepared.settings):
                log.info(line)
            for warning in prepared.warnings:
                log.warning(warning)
            train(prepared, run)
            page = report(run.path)
        log.info("report: %s", from_here(page))
        log.info("every discussion, as a page: %s %s", start_of("view"), in_command(run.path))
        log.log(*closing_line(read_rows(run.path / METRICS), from_here(run.path / "models")))
        return 0
    except KeyboardInterrupt as error:
        log.error("interrupted")
        _close(run, error)
        return EXIT_INTERRUPTED
    except (ValueError, OSError, RuntimeError) as error:
        log.error("error: %s", error)
        _close(run, error)
        return exit_status(error)


def exit_status(error: Exception) -> int:
    """Return the exit status for an error of the user (such as an unknown key), of the run (such as
    weights that are not finite) or of the machine (a full disk, lost engines)."""
    for cause in (error, error.__cause__):
        is_full = isinstance(cause, OSError) and cause.errno in FULL_OR_BROKEN
        if is_full or isinstance(cause, LostEngineError):
            return EXIT_MACHINE
    return EXIT_RUN if isinstance(error, RuntimeError) else EXIT_ERROR


def _read(arguments: Sequence[str]) -> argparse.Namespace:
    parser = CommandParser("train")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument(DRY_RUN, action="store_true")
    instead.add_argument(TRIAL, type=_seconds)
    instead.add_argument(EXPORT_BEST, action="store_true")
    parser.add_argument("arguments", nargs="*")
    for word, following in pairwise(arguments):
        if word == TRIAL and TIME.fullmatch(following):
            parser.error(f"write {TRIAL}={following}, with an equals sign and no space")
    # Else argparse would take the configuration for the time.
    words = [f"{TRIAL}={BUDGET_S:.0f}s" if word == TRIAL else word for word in arguments]
    return parser.parse_intermixed_args(words)


def _seconds(text: str) -> float:
    """Return the seconds of a duration: ``10m`` is 600.0."""
    if (found := TIME.fullmatch(text)) is None:
        raise argparse.ArgumentTypeError(f"{text} is no time: write it like 90s, 10m or 2h")
    return float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]]


def _try(prepared: Prepared, *, budget_s: float) -> None:
    for warning in prepared.warnings:
        log.warning(warning)
    log.info(
        "trial: about %s once the engines are up (%s=TIME changes it), or longer if a small batch, "
        "a small update and a few held-out questions take longer",
        duration(budget_s),
        TRIAL,
    )
    with blaming_plugins(), agents_of(prepared) as agents:
        for line in try_out(prepared, agents, discuss=discuss, budget_s=budget_s):
            log.info(line)


def _configure(arguments: Sequence[str]) -> Config:
    """Load the configuration that the arguments name, or one that fits this machine."""
    names_config = bool(arguments) and ("=" not in arguments[0] or names_file(arguments[0]))
    path = Path(arguments[0]) if names_config else None
    overrides = arguments[1:] if names_config else arguments
    if path is None and not any(override.startswith("resume=") for override in overrides):
        path, reason = choose_config()
        log.info(reason)
    config = load_config(path, overrides)
    if path is None:
        log.info("continuing %s", config.resume)
    else:
        log.info("configuration: %s", " ".join(map(str, (path, *overrides))))
    return config


def _export_best(prepared: Prepared) -> Path:
    """Write the models of the best checkpoint into the run's folder ``best/``; returns that folder.
    Raises ValueError if there is no such checkpoint, and EngineError if engines fail."""
    with RunDirectory.open(prepared.config, prepared.contents) as run:
        run.trains = False
        step, checkpoint = run.best_checkpoint()
        with blaming_plugins(), agents_of(prepared) as agents:
            agents.load_checkpoint(checkpoint, step=step)
            save_models(prepared, run, agents, step=step, name=BEST)
    return run.path / BEST


def _close(run: RunDirectory | None, ended_by: BaseException) -> None:
    """Write the report of a run that ended early, and log how to continue it."""
    if run is None:
        return
    with suppress(KeyboardInterrupt), deferred_signals("writing the report"):
        try:
            log.error("report: %s", from_here(report(run.path)))
        except ValueError as error:
            log.error("there is no report: %s", error)
    log.error("%s resume=%s%s", *_how_to_continue(run, ended_by))


def _how_to_continue(run: RunDirectory, ended_by: BaseException) -> tuple[str, str, str]:
    """Return (where a resume begins and its command, the run's folder, further settings): those of
    this resume, and resume_changed if a plug-in failed and so has to be edited."""
    step = run.origin.newest_checkpoint
    where = "to start over (there is no checkpoint yet)"
    if step is not None:
        where = f"to continue after step {step}"
    if not isinstance(ended_by, KeyboardInterrupt):
        where += ", once the error is mended"
    in_actor = getattr(ended_by.__cause__, "cause", None)  # of Ray's error
    is_faulty = any(isinstance(each, PluginError) for each in (ended_by, in_actor))
    words = " resume_changed=true" * (is_faulty or run.config.resume_changed)
    words += " resume_foreign=true" * run.config.resume_foreign
    return f"{where}: {start_of('train')}", in_command(run.path), words


if __name__ == "__main__":
    run_command(main)
