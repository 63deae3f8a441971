"""Builds the quick-start society once, and finds it again afterwards."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from comas.concurrency import run_all
from comas.files import FileError, json_lines, locked, write_text
from comas.interaction import prompts
from comas.progress import progress_bar
from comas.quickstart.questions import records

log = logging.getLogger(__name__)

ARCHITECTURES = ("qwen2", "llama")
NUM_TRAIN_PER_DOMAIN = 800
NUM_VALIDATION_PER_DOMAIN = 100
UNFINISHED = "unfinished-"
"""Begins the name of a build's folder until the society is complete."""
LOCKING_S = 60.0
"""What a build gets, after making its folder, to lock it."""
_VERSIONED = ("torch", "transformers", "tokenizers")
_PROGRESS = re.compile(rb"(\d+)/(\d+)\n")
_PACKAGE_ROOT = Path(__file__).parents[2]


def build_society(root: Path, *, seed: int) -> Path:
    """Build the tiny agents and their questions under ``root``, unless they are there already.

    Returns ``root/quickstart/<fingerprint>``, which holds ``models/qwen2``, ``models/llama``
    (Hugging Face format), ``train.jsonl`` and ``validation.jsonl``. It appears complete or not
    at all; another seed, recipe or library version has a folder of its own.

    Raises RuntimeError with the end of its error output when a warm start fails.
    """
    society = root / "quickstart" / fingerprint(recipe_sources(), seed=seed)
    if society.is_dir():
        return society
    society.parent.mkdir(parents=True, exist_ok=True)
    log.info(
        "Building the quick-start society in %s: its questions, and tiny agents (%s) that first "
        "learn to speak. About 3 minutes on 2 cores, once.",
        society,
        ", ".join(ARCHITECTURES),
    )
    _remove_leftovers(society.parent)
    with (
        tempfile.TemporaryDirectory(prefix=UNFINISHED, dir=society.parent) as aside,
        locked(Path(aside), remedy="it is another build"),
    ):
        unfinished = Path(aside) / "society"
        unfinished.mkdir()
        _write_questions(unfinished, seed=seed)
        asyncio.run(_warm_start_all(unfinished / "models", logs=Path(aside), seed=seed))
        _put_in_place(unfinished, society)
    return society


def fingerprint(sources: Sequence[Path], *, seed: int) -> str:
    """Twelve hex digits that change with the seed, a source file or a library version."""
    digest = hashlib.sha256(f"seed {seed}".encode())
    for name in _VERSIONED:
        digest.update(f"{name} {version(name)}".encode())
    for source in sources:
        digest.update(source.name.encode() + source.read_bytes())
    return digest.hexdigest()[:12]


def recipe_sources() -> list[Path]:
    """The files that decide what is built: this room, and the prompt templates."""
    return [*sorted(Path(__file__).parent.glob("*.py")), Path(prompts.__file__)]


def _remove_leftovers(folder: Path) -> None:
    """Delete what killed builds left behind; one that is under way holds its lock."""
    for leftover in folder.glob(f"{UNFINISHED}*"):
        if time.time() - leftover.stat().st_mtime < LOCKING_S:
            continue
        try:
            with locked(leftover, remedy="it is being built"):
                shutil.rmtree(leftover)
        except FileError:
            log.debug("%s is another build", leftover)


def _write_questions(folder: Path, *, seed: int) -> None:
    for split, num_per_domain in (
        ("train", NUM_TRAIN_PER_DOMAIN),
        ("validation", NUM_VALIDATION_PER_DOMAIN),
    ):
        rows = records(seed=seed, held_out=split == "validation", num_per_domain=num_per_domain)
        write_text(folder / f"{split}.jsonl", json_lines(rows))


async def _warm_start_all(models: Path, *, logs: Path, seed: int) -> None:
    """One process an agent, side by side; the first failure stops the others."""
    await run_all(
        _warm_start(
            architecture,
            models / architecture,
            error_log=logs / f"{architecture}.log",
            seed=seed,
            bar_position=position,
        )
        for position, architecture in enumerate(ARCHITECTURES)
    )


async def _warm_start(
    architecture: str, folder: Path, *, error_log: Path, seed: int, bar_position: int
) -> None:
    """Run one warm start to its end, showing its progress; it never outlives this call."""
    command = [sys.executable, "-m", "comas.quickstart.warm_start", architecture]
    with error_log.open("w") as errors:
        process = await asyncio.create_subprocess_exec(
            *command,
            str(folder.resolve()),
            str(seed),
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            cwd=_PACKAGE_ROOT,
            # One thread each: spinning threads of two processes slow each other down ninefold.
            env={**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"},
        )
    try:
        assert process.stdout is not None
        with progress_bar(f"teaching {architecture}", unit="step", position=bar_position) as bar:
            async for line in process.stdout:
                # Libraries that the child imports may write to its stdout, too.
                if progress := _PROGRESS.fullmatch(line):
                    num_done, bar.total = map(int, progress.groups())
                    bar.update(num_done - bar.n)
        if await process.wait() != 0:
            tail = error_log.read_text()[-2000:]
            raise RuntimeError(f"The warm start of the {architecture} agent failed:\n{tail}")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def _put_in_place(unfinished: Path, society: Path) -> None:
    try:
        unfinished.rename(society)
    except OSError:
        # Another run finished the same society meanwhile, and both are the same.
        if not society.is_dir():
            raise
