"""Builds the quick-start society once, and finds it again afterwards."""

import ast
import asyncio
import hashlib
import json
import logging
import os
import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from comas.interaction import prompts, setup_prompts
from comas.interaction.prompts import SHIPPED_FILE
from comas.quickstart.probe import probe_records
from comas.quickstart.questions import records
from comas.utils.concurrency import run_all
from comas.utils.files import (
    PARTIAL,
    FileError,
    json_lines,
    locked,
    remove,
    sha256_of,
    write_text,
    written_aside,
)
from comas.utils.interrupts import run

log = logging.getLogger(__name__)

ARCHITECTURES = ("qwen2", "llama")
NUM_TRAIN_PER_DOMAIN = 800
NUM_VALIDATION_PER_DOMAIN = 100
DIGESTS = "sha256.json"
"""File in the cache that lists the digests of an agent's files."""
VERSIONS = "".join(f"{name} {version(name)}" for name in ("torch", "transformers", "tokenizers"))
_NOT_OF_THE_RECIPE = ("__init__.py", "build.py")
_PACKAGE_ROOT = Path(__file__).parents[2]


def build_society(root: Path, *, seed: int, variants: Collection[str] = ()) -> Path:
    """Build the tiny agents, their questions and the ``variants`` of agents
    (``comas.quickstart.world.VARIANTS``) under ``root``, unless they exist.

    Returns ``root/quickstart/<fingerprint>``, which holds ``models/qwen2``, ``models/llama``
    (Hugging Face format), ``train.jsonl``, ``validation.jsonl`` and ``probe.jsonl``. It appears
    complete or not at all; another seed, recipe or library version has a folder of its own.
    One process builds at a time; others wait and use its result.

    Raises RuntimeError when a warm start fails.
    """
    society = society_folder(root, seed=seed)
    models = [society / "models" / name for name in variants]
    if not all(path.is_dir() for path in (society, *models)):
        with locked(society.parent, remedy="it builds one society at a time", waits=True):
            # Only the holder of the lock builds, so these were left by killed builds.
            for leftover in society.parent.glob(f"{PARTIAL}*"):
                remove(leftover)
            if not society.is_dir():
                _build(society, seed=seed)
            for folder in models:
                if not folder.is_dir():
                    with written_aside(folder) as aside:
                        run(_obtain(folder.name, aside, seed=seed, bar_position=0))
    return society


def society_folder(root: Path, *, seed: int) -> Path:
    """Return the folder of the society that today's recipe builds."""
    return root / "quickstart" / fingerprint(recipe_sources(), seed=seed)


def fingerprint(sources: Sequence[Path], *, seed: int) -> str:
    """Return twelve hex digits that change with the seed, a library version or a source's code."""
    sizes = f"{NUM_TRAIN_PER_DOMAIN} {NUM_VALIDATION_PER_DOMAIN}"
    digest = hashlib.sha256(f"seed {seed}, {sizes}{VERSIONS}".encode())
    for source in sources:
        digest.update(source.name.encode() + _code(source))
    return digest.hexdigest()[:12]


@cache
def _code(source: Path) -> bytes:
    """Return a file without comments and docstrings, whose changes should not teach agents anew."""
    if source.suffix != ".py":
        return source.read_bytes()
    tree = ast.parse(source.read_bytes())
    for node in ast.walk(tree):
        if isinstance(body := getattr(node, "body", None), list):
            body[:] = [each for each in body if not _is_docstring(each)]
    return ast.dump(tree).encode()


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def recipe_sources() -> list[Path]:
    """Return the files that decide what agents learn: this package's, and all prompts."""
    package = sorted(Path(__file__).parent.glob("*.py"))
    recipe = [path for path in package if path.name not in _NOT_OF_THE_RECIPE]
    return [*recipe, Path(prompts.__file__), SHIPPED_FILE, Path(setup_prompts.__file__)]


def _build(society: Path, *, seed: int) -> None:
    log.info(
        "Building the quick-start society in %s: its questions, and two tiny agents (%s), copied "
        "from %s or taught to speak, about a minute on 2 quiet cores.",
        society,
        ", ".join(ARCHITECTURES),
        cache_folder(),
    )
    with written_aside(society) as folder:
        write_questions(folder, seed=seed)
        obtaining = (
            _obtain(name, folder / "models" / name, seed=seed, bar_position=position)
            for position, name in enumerate(ARCHITECTURES)
        )
        run(run_all(obtaining))  # the first failure stops the others


def write_questions(folder: Path, *, seed: int) -> None:
    """Write the society's question files into ``folder``."""
    split = partial(records, seed=seed)
    rows: dict[str, Sequence[Mapping[str, Any]]] = {
        "train": split(held_out=False, num_per_domain=NUM_TRAIN_PER_DOMAIN),
        "validation": split(held_out=True, num_per_domain=NUM_VALIDATION_PER_DOMAIN),
        "probe": probe_records(seed=seed),
    }
    for name, lines in rows.items():
        write_text(folder / f"{name}.jsonl", json_lines(lines))


async def _obtain(name: str, folder: Path, *, seed: int, bar_position: int) -> None:
    """Copy an agent into ``folder`` from the cache, or else teach it and cache it."""
    cached = cache_folder() / fingerprint(recipe_sources(), seed=seed) / name
    if not _copy_cached(cached, folder):
        await _warm_start(name, folder, seed=seed, bar_position=bar_position)
        _cache(folder, cached)


def cache_folder() -> Path:
    """Return the cache that all clones of this user share: in ``XDG_CACHE_HOME``, or ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "comas/quickstart"


def _copy_cached(cached: Path, folder: Path) -> bool:
    """Copy a cached agent; returns False, with ``folder`` removed, unless its digests match."""
    if not cached.is_dir():
        return False
    try:
        shutil.copytree(cached, folder, dirs_exist_ok=True)
        expected = json.loads((folder / DIGESTS).read_bytes())
        (folder / DIGESTS).unlink()
        if sha256_of(folder.rglob("*"), within=folder) != expected:
            raise ValueError("its files do not match their digests")
    except (OSError, ValueError) as error:
        log.warning("The agent in %s is damaged and is taught again: %s", cached, error)
        remove(folder)
        return False
    return True


def _cache(folder: Path, cached: Path) -> None:
    """Copy a taught agent to the cache; if that fails, a warning says why."""
    try:
        with (
            locked(cached.parent, remedy="it caches one agent at a time", waits=True),
            written_aside(cached) as aside,
        ):
            digests = sha256_of(folder.rglob("*"), within=folder)
            shutil.copytree(folder, aside, dirs_exist_ok=True)
            (aside / DIGESTS).write_text(json.dumps(digests))
    except (OSError, FileError) as error:
        log.warning("Other clones will teach this agent again: %s", error)


async def _warm_start(name: str, folder: Path, *, seed: int, bar_position: int) -> None:
    """Teach one agent in a process of its own, which never outlives this call."""
    arguments = (name, str(folder.resolve()), str(seed), str(bar_position))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "comas.quickstart.warm_start", *arguments),
        cwd=_PACKAGE_ROOT,
        # One thread each: spinning threads of two processes slow each other down ninefold.
        env={**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"},
        start_new_session=True,  # Ctrl-C reaches this process alone, which then kills that one
    )
    try:
        if await process.wait() != 0:
            raise RuntimeError(f"The warm start of the {name} agent failed (see above)")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
