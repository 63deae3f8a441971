"""The rows of a ``Source``: from the hub (or its cache), or from a local copy.

A local copy of ``owner/name`` is the folder ``DIR/owner/name``, and one of

* what ``hf download --repo-type dataset`` or ``git clone`` leaves there, README.md included,
  which names the configs;
* without a README.md: the files of a config (parquet, JSON, JSONL or CSV, the split in their
  names) in the folder ``<config>/``, or, if the config is "default", anywhere.
"""

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

from datasets import load_dataset
from datasets.exceptions import DatasetNotFoundError, DatasetsError
from huggingface_hub.errors import GatedRepoError, HfHubHTTPError

from comas.data.preparation.record_set import DataPreparationError, Row, Source
from comas.data.rows import quiet_retries

log = logging.getLogger(__name__)

DEFAULT_CONFIG = "default"


class HubUnreachableError(DataPreparationError):
    """No connection: no other dataset can be had from the hub either."""


def load_rows(source: Source, *, local_copies: Path | None) -> Iterator[Row]:
    """The rows of ``source``, one after the other.

    Raises DataPreparationError (HubUnreachableError without a connection) that names the
    dataset and what can be done.
    """
    num_rows = 0
    for config in source.configs:
        if local_copies is None:
            rows = _from_hub(source, config)
        else:
            rows = _from_copy(source, config, local_copies)
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
        if not all(_copy_of(source, config, folder) for config in source.configs)
    ]


def _download_command(source: Source, folder: Path) -> str:
    return (
        f"hf download {source.hub_name} --repo-type dataset --revision {source.revision} "
        f"--local-dir {folder / source.hub_name}"
    )


def _copy_of(source: Source, config: str, local_copies: Path) -> Path | None:
    """The folder that holds ``config`` of ``source``, or None."""
    folder = local_copies / source.hub_name
    if not (folder / "README.md").is_file() and (folder / config).is_dir():
        return folder / config
    is_whole = (folder / "README.md").is_file() or config == DEFAULT_CONFIG
    return folder if is_whole and folder.is_dir() else None


def _from_copy(source: Source, config: str, local_copies: Path) -> Iterable[Row]:
    folder = _copy_of(source, config, local_copies)
    assert folder is not None, "missing_copies reports this to the user"
    name = config if (folder / "README.md").is_file() else None
    try:
        # Streamed, past the library's cache: that takes two folders with the same README.md for
        # the same dataset, whatever their files hold.
        yield from load_dataset(str(folder), name=name, split=source.split, streaming=True)
    except (OSError, ValueError, KeyError, DatasetsError) as error:
        raise DataPreparationError(
            f"{source.hub_name}: the local copy {folder} cannot be read as config {config!r}, "
            f"split {source.split!r} ({_reason(error)}). Get it again: "
            f"{_download_command(source, local_copies)}"
        ) from error


def _from_hub(source: Source, config: str) -> Iterable[Row]:
    name = source.hub_name
    try:
        with quiet_retries():
            return load_dataset(name, name=config, split=source.split, revision=source.revision)
    except (OSError, ValueError, DatasetsError, HfHubHTTPError) as error:
        if isinstance(error, ConnectionError):
            raise HubUnreachableError(
                f"{name}: the hub cannot be reached ({_reason(error)}), and its cache (HF_HOME) "
                "does not have it; --from DIR reads local copies"
            ) from error
        page = f"https://huggingface.co/datasets/{name}"
        is_refused = isinstance(error, DatasetNotFoundError | GatedRepoError)
        raise DataPreparationError(
            f"{name}: the hub gives it only to accounts that accepted its terms. Accept them at "
            f"{page}, then log in (hf auth login, or set HF_TOKEN)"
            if is_refused and source.is_gated
            else f"{name}: config {config!r}, split {source.split!r} at {source.revision} cannot "
            f"be read from {page}: {_reason(error)}"
        ) from error


def _reason(error: BaseException) -> str:
    """The message, with that of the error underneath where the library's own says little."""
    cause = error.__cause__
    text = f"{type(error).__name__}: {error}"
    return f"{text}; {type(cause).__name__}: {cause}" if cause is not None else text
