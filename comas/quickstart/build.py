"""Builds the quick-start society once, and finds it again afterwards."""

import asyncio
import hashlib
import logging
import os
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from comas.interaction import prompts, setup_prompts
from comas.interaction.prompts import SHIPPED_FILE
from comas.quickstart.probe import probe_records
from comas.quickstart.questions import records
from comas.utils.concurrency import run_all
from comas.utils.files import PARTIAL, json_lines, locked, remove, write_text, written_aside
from comas.utils.interrupts import run

log = logging.getLogger(__name__)

ARCHITECTURES = ("qwen2", "llama")
NUM_TRAIN_PER_DOMAIN = 800
NUM_VALIDATION_PER_DOMAIN = 100
_VERSIONED = ("torch", "transformers", "tokenizers")
_PACKAGE_ROOT = Path(__file__).parents[2]


def build_society(root: Path, *, seed: int, variants: Collection[str] = ()) -> Path:
    """Build the tiny agents and their questions under ``root``, unless they are there already; and
    those ``variants`` of agents (``comas.quickstart.world.VARIANTS``) that are not, beside them.

    Returns ``root/quickstart/<fingerprint>``, which holds ``models/qwen2``, ``models/llama``
    (Hugging Face format), ``train.jsonl``, ``validation.jsonl`` and ``probe.jsonl``. It appears
    complete or not at all; another seed, recipe or library version has a folder of its own. One
    process builds at a time; others wait, and find what it has built.

    Raises RuntimeError with the end of its error output when a warm start fails.
    """
    society = root / "quickstart" / fingerprint(recipe_sources(), seed=seed)
    if not all(path.is_dir() for path in (society, *_models(society, variants))):
        with locked(society.parent, remedy="it builds one society at a time", waits=True):
            # Whoever holds the lock is the only builder, so these are what killed ones left.
            for leftover in society.parent.glob(f"{PARTIAL}*"):
                remove(leftover)
            if not society.is_dir():
                _build(society, seed=seed)
            for folder in _models(society, variants):
                if not folder.is_dir():
                    with written_aside(folder) as aside:
                        run(_warm_start(folder.name, aside, seed=seed, bar_position=0))
    return society


def _models(society: Path, names: Iterable[str]) -> list[Path]:
    return [society / "models" / name for name in names]


def fingerprint(sources: Sequence[Path], *, seed: int) -> str:
    """Twelve hex digits that change with the seed, a source file or a library version."""
    digest = hashlib.sha256(f"seed {seed}".encode())
    for name in _VERSIONED:
        digest.update(f"{name} {version(name)}".encode())
    for source in sources:
        digest.update(source.name.encode() + source.read_bytes())
    return digest.hexdigest()[:12]


def recipe_sources() -> list[Path]:
    """The files that decide what is built: this package, and all prompts."""
    package = sorted(Path(__file__).parent.glob("*.py"))
    return [*package, Path(prompts.__file__), SHIPPED_FILE, Path(setup_prompts.__file__)]


def _build(society: Path, *, seed: int) -> None:
    log.info(
        "Building the quick-start society in %s: its questions, and tiny agents (%s) that first "
        "learn to speak. About a minute on 2 quiet cores, once.",
        society,
        ", ".join(ARCHITECTURES),
    )
    with written_aside(society) as folder:
        rows: dict[str, Sequence[Mapping[str, Any]]] = {
            "train": records(seed=seed, held_out=False, num_per_domain=NUM_TRAIN_PER_DOMAIN),
            "validation": records(
                seed=seed, held_out=True, num_per_domain=NUM_VALIDATION_PER_DOMAIN
            ),
            "probe": probe_records(seed=seed),
        }
        for name, lines in rows.items():
            write_text(folder / f"{name}.jsonl", json_lines(lines))
        run(_warm_start_all(folder / "models", seed=seed))


async def _warm_start_all(models: Path, *, seed: int) -> None:
    """One process per agent, side by side; the first failure stops the others."""
    await run_all(
        _warm_start(architecture, models / architecture, seed=seed, bar_position=position)
        for position, architecture in enumerate(ARCHITECTURES)
    )


async def _warm_start(architecture: str, folder: Path, *, seed: int, bar_position: int) -> None:
    """Run one warm start, which shows its progress, to its end; it never outlives this call."""
    arguments = (architecture, str(folder.resolve()), str(seed), str(bar_position))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "comas.quickstart.warm_start", *arguments),
        cwd=_PACKAGE_ROOT,
        # One thread each: spinning threads of two processes slow each other down ninefold.
        env={**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"},
        start_new_session=True,  # Ctrl-C reaches this process alone, which then kills that one
    )
    try:
        if await process.wait() != 0:
            raise RuntimeError(f"The warm start of the {architecture} agent failed (see above)")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
