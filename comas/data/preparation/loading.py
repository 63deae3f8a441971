"""The rows of a ``Source``: from the hub (or its cache), or from a local copy.

A local copy of ``owner/name`` is the folder ``DIR/owner/name``, and one of

* what ``hf download --repo-type dataset`` or ``git clone`` leaves there, README.md included,
  which names the configs;
* without a README.md: the files of a config (parquet, JSON, JSONL or CSV, the split in their
  names) in the folder ``<config>/``, or, if the config is "default", anywhere;
* what ``Dataset.save_to_disk`` or ``DatasetDict.save_to_disk`` writes, in ``<config>/`` likewise.
"""

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

from datasets import Dataset, IterableDataset, load_dataset, load_from_disk
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
        for row in _rows_of(source, config, local_copies):
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


def _rows_of(source: Source, config: str, local_copies: Path | None) -> Iterator[Row]:
    if local_copies is None:
        yield from _from_hub(source, config)
        return
    copy = _copy_of(source, config, local_copies)
    assert copy is not None, "missing_copies reports this to the user"
    try:
        yield from _read_copy(copy, source, config)
    except (OSError, ValueError, KeyError, DatasetsError) as error:
        raise DataPreparationError(
            f"{source.hub_name}: the local copy {copy} cannot be read as config {config!r}, split "
            f"{source.split!r} ({_reason(error)}). Get it again: "
            f"{_download_command(source, local_copies)}"
        ) from error


def _read_copy(folder: Path, source: Source, config: str) -> Dataset | IterableDataset:
    if _is_saved_to_disk(folder):
        loaded = load_from_disk(str(folder))
        return loaded if isinstance(loaded, Dataset) else loaded[source.split]
    name = config if (folder / "README.md").is_file() else None
    # Streamed, past the library's cache: that takes two folders with the same README.md for the
    # same dataset, whatever their files hold.
    return load_dataset(str(folder), name=name, split=source.split, streaming=True)


def _from_hub(source: Source, config: str) -> Dataset:
    try:
        with quiet_retries():
            return load_dataset(
                source.hub_name, name=config, split=source.split, revision=source.revision
            )
    except (DatasetNotFoundError, GatedRepoError) as error:
        page = f"https://huggingface.co/datasets/{source.hub_name}"
        raise DataPreparationError(
            f"{source.hub_name}: the hub gives it only to accounts that accepted its terms. Accept "
            f"them at {page}, then log in (hf auth login, or set HF_TOKEN)"
            if source.is_gated
            else f"{source.hub_name}: the hub does not have it at {source.revision} ({page}), or "
            f"not for this account: {_reason(error)}"
        ) from error
    except HfHubHTTPError as error:
        raise DataPreparationError(
            f"{source.hub_name}: the hub refused it: {_reason(error)}"
        ) from error
    except ConnectionError as error:
        raise HubUnreachableError(
            f"{source.hub_name}: the hub cannot be reached ({_reason(error)}), and its cache "
            "(HF_HOME) does not have it; --from DIR reads local copies"
        ) from error
    except (OSError, ValueError, DatasetsError) as error:
        raise DataPreparationError(
            f"{source.hub_name}: config {config!r}, split {source.split!r} at {source.revision} "
            f"cannot be read: {_reason(error)}"
        ) from error


def _copy_of(source: Source, config: str, local_copies: Path) -> Path | None:
    """The folder that holds ``config`` of ``source``, or None."""
    folder = local_copies / source.hub_name
    own = folder / config
    if _is_saved_to_disk(own):
        return own
    if (folder / "README.md").is_file():
        return folder
    if len(source.configs) == 1 and _is_saved_to_disk(folder):
        return folder
    if own.is_dir():
        return own
    return folder if config == DEFAULT_CONFIG and folder.is_dir() else None


def _is_saved_to_disk(folder: Path) -> bool:
    return (folder / "state.json").is_file() or (folder / "dataset_dict.json").is_file()


def _reason(error: BaseException) -> str:
    """The message, with that of the error underneath where the library's own says little."""
    cause = error.__cause__
    text = f"{type(error).__name__}: {error}"
    return f"{text}; {type(cause).__name__}: {cause}" if cause is not None else text
