"""The rows of a ``Source``: from the hub (or its cache), or from a local copy.

A local copy of ``owner/name`` is the folder ``DIR/owner/name``, as ``hf download --repo-type
dataset`` or ``git clone`` leaves it.
"""

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

import datasets
from datasets.exceptions import DatasetsError

from comas.data.preparation.record_set import Row, Source
from comas.data.rows import DataError, hub_rows

log = logging.getLogger(__name__)


def load_rows(source: Source, *, local_copies: Path | None) -> Iterator[Row]:
    """The rows of ``source``, one after the other.

    Raises DataError that names the dataset and what can be done.
    """
    num_rows = 0
    for config in source.configs:
        if local_copies is None:
            name, revision = source.hub_name, source.revision
            rows = hub_rows(name, config=config, split=source.split, revision=revision)
        else:
            rows = _copied_rows(source, config, local_copies)
        for row in rows:
            num_rows += 1
            yield row
    if source.num_rows not in (None, num_rows):
        log.warning(
            "%s: %d rows, but the hub's copy has %d", source.hub_name, num_rows, source.num_rows
        )


def missing_copies(sources: Iterable[Source], folder: Path) -> list[str]:
    """The commands that get those of ``sources`` that are not under ``folder``."""
    return [
        _download_command(source, folder)
        for source in sources
        if not (folder / source.hub_name).is_dir()
    ]


def _download_command(source: Source, folder: Path) -> str:
    return (
        f"hf download {source.hub_name} --repo-type dataset --revision {source.revision} "
        f"--local-dir {folder / source.hub_name}"
    )


def _copied_rows(source: Source, config: str, local_copies: Path) -> Iterator[Row]:
    folder = local_copies / source.hub_name
    try:
        # Streamed, past the library's cache: that takes two folders with the same README.md for
        # the same dataset, whatever their files hold.
        yield from datasets.load_dataset(
            str(folder), name=config, split=source.split, streaming=True
        )
    except (OSError, ValueError, KeyError, DatasetsError) as error:
        raise DataError(
            f"{source.hub_name}: the local copy {folder} cannot be read as config {config!r}, "
            f"split {source.split!r} ({type(error).__name__}: {error}; {error.__cause__}). Get it "
            f"again: {_download_command(source, local_copies)}"
        ) from error
