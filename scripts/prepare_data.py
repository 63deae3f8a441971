"""Builds data/ from public datasets; see scripts/prepare_data.sh."""

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from datasets import disable_progress_bars

from comas.config.paths import here
from comas.config.plugins import PluginError
from comas.data.preparation.blend import PAPER_SIZES
from comas.data.preparation.build import Job, Outcome, build
from comas.types import DOMAINS
from comas.utils.terminal import EXIT_ERROR, command
from evaluation.benchmarks import BENCHMARKS

log = logging.getLogger("prepare_data")

BLEND_NAME = "train"


@command("prepare_data", "comas", interrupted="interrupted. Rerun the command to build the rest")
def main(arguments: Sequence[str]) -> int:
    """Build what the arguments name; return the exit status."""
    disable_progress_bars()  # downloads keep theirs, and converting has its own
    job = _job(arguments)
    log.info(_announcement(job))
    outcome = build(job)
    if outcome.entries:
        sys.stdout.write(_table(job, outcome))
    for error in outcome.errors:
        log.error("error: %s", error)
    if outcome.errors:
        log.error("What is built stays. Rerun the command to build the rest.")
    return EXIT_ERROR if outcome.errors else 0


def _job(arguments: Sequence[str]) -> Job:
    options = _parse(arguments)
    names = set(options.only or [BLEND_NAME, *BENCHMARKS])
    with_blend = BLEND_NAME in names
    wanted = [
        *(n for n in BENCHMARKS if (with_blend or n in names) and n not in options.skip),
        *sorted(names - {BLEND_NAME, *BENCHMARKS}),
    ]
    return Job(
        output=options.output or Path("data"),
        benchmarks={BENCHMARKS[name].name: BENCHMARKS[name] for name in wanted},
        with_blend=with_blend,
        sizes={
            "train": dict(zip(DOMAINS, options.train_size, strict=True)),
            "validation": dict(zip(DOMAINS, options.validation_size, strict=True)),
        },
        seed=options.seed,
        local_copies=options.from_,
        rebuild=options.rebuild,
    )


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/prepare_data.sh", allow_abbrev=False)
    parser.add_argument("--from", dest="from_", type=_folder, metavar="DIR")
    parser.add_argument("--only", nargs="+", type=_name)
    parser.add_argument("--skip", nargs="+", choices=list(BENCHMARKS), default=[])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=lambda text: here() / Path(text).expanduser())
    for name, sizes in PAPER_SIZES.items():
        parser.add_argument(
            f"--{name}-size",
            nargs=len(DOMAINS),
            type=_count,
            default=[sizes[domain] for domain in DOMAINS],
            metavar=tuple(domain.upper() for domain in DOMAINS),
        )
    parser.add_argument("--rebuild", action="store_true")
    return parser.parse_args(arguments)


def _name(text: str) -> str:
    """Accept ``train``, and what ``BENCHMARKS`` finds."""
    try:
        _ = text == BLEND_NAME or BENCHMARKS[text]
    except PluginError as error:
        raise argparse.ArgumentTypeError(f"{text}: {error}") from error
    return text


def _folder(text: str) -> Path:
    if not (folder := here() / Path(text).expanduser()).is_dir():
        raise argparse.ArgumentTypeError(f"{folder} is not a folder")
    return folder


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of questions")
    return int(text)


def _announcement(job: Job) -> str:
    count = len(job.benchmarks)
    parts = [f"{count} benchmark{'s' * (count != 1)}"]
    if job.with_blend:
        train, validation = (sum(part.values()) for part in job.sizes.values())
        parts = [f"{train} training questions", f"{validation} validation questions", *parts]
    where = f"local copies in {job.local_copies}" if job.local_copies else "the Hugging Face hub"
    return f"Building {', '.join(parts)} in {job.output} from {where}."


def _table(job: Job, outcome: Outcome) -> str:
    """Return a line per file, followed by its left-out records by reason."""
    width = max(len(str(job.output / file)) for file in outcome.entries)
    lines = [f"{'file':<{width}}{'records':>9}  from"]
    for file, entry in outcome.entries.items():
        state = "checked, kept" if file in outcome.kept else "built"
        total = sum(entry.records.values())
        lines.append(f"{job.output / file!s:<{width}}{total:>9}  {entry.origin}, {state}")
        if len(entry.records) > 1:
            lines += [f"{'':<{width}}{count:>9}  {name}" for name, count in entry.records.items()]
        for reason, count in sorted(entry.left_out.items(), key=lambda one: -one[1]):
            lines.append(f"{'left out':>{width}}{count:>9}  {reason}")
    return "\n".join(lines) + "\n"
