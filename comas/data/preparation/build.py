"""Builds missing data files, and checks existing ones."""

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import datasets
from datasets.exceptions import DatasetsError

from comas.config.keys import leaves
from comas.data.preparation import RecordSet, Row, Source
from comas.data.preparation.blend import Sizes, draw_blend
from comas.data.preparation.kodcode import KODCODE
from comas.data.preparation.math_train import MATH
from comas.data.preparation.overlap import OverlapIndex
from comas.data.preparation.record_set import Converted, benchmark_file, convert_rows
from comas.data.preparation.webinstruct import WEBINSTRUCT
from comas.data.records import Record
from comas.data.rows import DataError, hub_rows, read_rows
from comas.types import Domain
from comas.utils.files import json_lines, locked, read_json, read_lines, write_files
from comas.utils.invocation import in_command
from comas.verification import Verifier

log = logging.getLogger(__name__)

TRAINING_SETS: dict[Domain, RecordSet] = {"math": MATH, "coding": KODCODE, "science": WEBINSTRUCT}
"""Datasets of the blend. Another source takes one file and one line here."""

TRAIN_FILE = "train.jsonl"
VALIDATION_FILE = "validation.jsonl"
BLEND_FILES = (TRAIN_FILE, VALIDATION_FILE)
MANIFEST = "checksums.json"
IN_USE = "wait for it or stop it, or name another folder with --output"
REPLACE = "--rebuild replaces it; or name another folder with --output"


@dataclass(frozen=True)
class Entry:
    """One built file: its records by source, omitted rows by reason, and everything that determines
    its content (``recipe``: sources with their revisions, seed, sizes)."""

    sha256: str
    records: dict[str, int]
    left_out: dict[str, int]
    origin: str
    """"hub", or "local copy", whose revision is unknown."""
    recipe: dict[str, Any]


Contents = Mapping[str, tuple[Sequence[Record], Mapping[str, int]]]
"""File -> its records, and the number of omitted rows by reason."""
_Content = dict[Literal["files"], dict[str, Entry]]


class Manifest(dict[str, Entry]):
    """The built files of one folder: name -> entry. Entries are written before their files, so a
    file without an entry is the user's own."""

    def __init__(self, folder: Path) -> None:
        """Read the manifest of a folder, if any. Raises FileError if it is damaged."""
        self._folder, path = folder, folder / MANIFEST
        if path.exists():
            remedy = "Delete it, and build again with --rebuild"
            self.update(read_json(path, _Content, remedy=remedy).get("files", {}))

    def is_built(self, name: str) -> bool:
        """Return True if the file has an entry and exists, whatever its content."""
        return name in self and (self._folder / name).is_file()

    def error(self, name: str, recipe: Mapping[str, Any]) -> str | None:
        """Return why an existing file does not match ``recipe``; None if it does."""
        path = self._folder / name
        if not path.is_file():
            return None
        if name not in self:
            return f"{path} exists, but was not built by this command"
        if hashlib.sha256(path.read_bytes()).hexdigest() != self[name].sha256:
            return f"{path} changed since it was built: its SHA-256 is not that of {MANIFEST}"
        before, wanted = leaves(self[name].recipe), leaves(json.loads(json.dumps(recipe)))
        differences = [
            f"{key} {before.get(key)!r} instead of {wanted.get(key)!r}"
            for key in sorted({*before, *wanted})
            if before.get(key) != wanted.get(key)
        ]
        return f"{path} was built with {', '.join(differences)}" if differences else None

    def store(self, contents: Contents, *, origin: str, recipe: dict[str, Any]) -> None:
        """Write files and their entries, each atomically."""
        texts = {}
        for name, (records, left_out) in contents.items():
            rows = ({k: v for k, v in vars(each).items() if k != "columns"} for each in records)
            texts[self._folder / name] = text = json_lines(rows)
            digest = hashlib.sha256(text.encode()).hexdigest()
            sources = Counter(record.source for record in records)
            self[name] = Entry(digest, dict(sources), dict(left_out), origin, recipe)
            (self._folder / name).parent.mkdir(parents=True, exist_ok=True)
        entries = {name: asdict(entry) for name, entry in sorted(self.items())}
        manifest = json.dumps({"files": entries}, indent=2) + "\n"
        write_files({self._folder / MANIFEST: manifest} | texts)


@dataclass(frozen=True)
class Job:
    """Files to build, and how."""

    output: Path
    benchmarks: Mapping[str, RecordSet]
    with_blend: bool
    """Build also the training and validation questions, apart from all ``benchmarks``."""
    sizes: Sizes
    seed: int
    local_copies: Path | None
    """Folder of downloaded datasets; None for the hub."""
    rebuild: bool


@dataclass(frozen=True)
class Outcome:
    """The files that exist at the end of a job, and why others do not."""

    entries: dict[str, Entry] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)
    """Files of ``entries`` that existed before with valid checksums."""
    errors: list[str] = field(default_factory=list)


def build(job: Job) -> Outcome:
    """Build every missing file of ``job``; all of them with ``job.rebuild``.

    A missing dataset, or a file that differs from the job, is an error of the outcome, and the
    others are built; but the blend waits until it can be compared with all benchmarks.

    Raises DataError, before anything is read, if a local copy is missing; FileError if another
    process builds there, or a file is damaged or cannot be written.
    """
    with locked(job.output, remedy=IN_USE):
        manifest = Manifest(job.output)
        _check_copies(job, manifest)
        outcome = Outcome()
        for name, record_set in job.benchmarks.items():
            make = partial(_benchmark, job, record_set)
            _provide(job, manifest, outcome, [benchmark_file(name)], _recipe(record_set), make)
        if job.with_blend and outcome.errors:
            outcome.errors.append(
                f"{TRAIN_FILE} and {VALIDATION_FILE} were not built: they are compared with the "
                "benchmarks above, which failed (--skip NAME leaves one out)"
            )
        elif job.with_blend:
            recipe = _blend_recipe(job, manifest)
            _provide(job, manifest, outcome, BLEND_FILES, recipe, partial(_blend, job))
        return outcome


def _check_copies(job: Job, manifest: Manifest) -> None:
    if job.local_copies is None:
        return
    files = {benchmark_file(name): one.source for name, one in job.benchmarks.items()}
    needed = [
        source for file, source in files.items() if job.rebuild or not manifest.is_built(file)
    ]
    if job.with_blend and (job.rebuild or not all(map(manifest.is_built, BLEND_FILES))):
        needed += [record_set.source for record_set in TRAINING_SETS.values()]
    if missing := missing_copies(needed, job.local_copies):
        raise DataError(
            f"{job.local_copies} lacks {len(missing)} of {len(needed)} datasets. These commands, "
            "run where there is internet, get them:\n  " + "\n  ".join(missing)
        )


def _provide(
    job: Job,
    manifest: Manifest,
    outcome: Outcome,
    files: Sequence[str],
    recipe: dict[str, Any],
    make: Callable[[], Contents],
) -> None:
    """Keep ``files`` that match ``recipe``, make missing ones, or report why neither can be."""
    found = [] if job.rebuild else [manifest.error(file, recipe) for file in files]
    if errors := [f"{error}. {REPLACE}" for error in found if error]:
        outcome.errors.extend(errors)
        return
    if not job.rebuild and all(map(manifest.is_built, files)):
        outcome.kept.update(files)
    else:
        try:
            origin = "hub" if job.local_copies is None else "local copy"
            manifest.store(make(), origin=origin, recipe=recipe)
        except DataError as error:
            outcome.errors.append(str(error))
            return
    outcome.entries.update({file: manifest[file] for file in files})


def _recipe(record_set: RecordSet) -> dict[str, Any]:
    source = vars(record_set.source)
    kept = ("configs", "split", "revision", "licence")
    return {"dataset": source["hub_name"], **{key: source[key] for key in kept}}


def _blend_recipe(job: Job, manifest: Manifest) -> dict[str, Any]:
    return {
        "seed": job.seed,
        "size": job.sizes,
        "datasets": {domain: _recipe(one) for domain, one in TRAINING_SETS.items()},
        "apart_from": {
            name: manifest[benchmark_file(name)].sha256 for name in sorted(job.benchmarks)
        },
    }


def _benchmark(job: Job, record_set: RecordSet) -> Contents:
    converted, left_out = _convert(job, record_set)
    return {benchmark_file(record_set.name): ([one.record for one in converted], left_out)}


def _blend(job: Job) -> Contents:
    conversions = {domain: _convert(job, one) for domain, one in TRAINING_SETS.items()}
    index = OverlapIndex()
    for name in job.benchmarks:
        path = job.output / benchmark_file(name)
        records = read_lines(path, json.loads, remedy="Build it again with --rebuild")
        prompts = [record["prompt"] for record in records]
        # Also the question without the details after it, since a short one must match as a whole.
        index.add(*prompts, *(p.rpartition("\n\n")[0] or p for p in prompts))
    with Verifier() as verifier:
        blend = draw_blend(
            {domain: converted for domain, (converted, _) in conversions.items()},
            sizes=job.sizes,
            seed=job.seed,
            benchmarks=index,
            verify=verifier.verify_batch,
        )
    left_out = {
        f"{domain}: {reason}": count
        for domain, (_, of_rows) in conversions.items()
        for reason, count in (of_rows + blend.left_out[domain]).items()
    }
    return {
        TRAIN_FILE: (blend.records["train"], left_out),
        VALIDATION_FILE: (blend.records["validation"], {}),
    }


def _convert(job: Job, record_set: RecordSet) -> tuple[list[Converted], Counter[str]]:
    name, source = record_set.name, record_set.source
    log.info("%s: getting %s", name, source.hub_name)
    converted, left_out = convert_rows(record_set, load_rows(source, local_copies=job.local_copies))
    num_rows = len(converted) + left_out.total()
    if source.num_rows is not None and num_rows != source.num_rows:
        log.warning("%s: %d rows, but the hub's copy has %d", name, num_rows, source.num_rows)
        left_out += Counter({"the copy lacks it": source.num_rows - num_rows})
    if not converted:
        raise DataError(f"{name}: none of {num_rows} rows of {source.hub_name} can be used")
    log.info("%s: %d of %d rows can be used", name, len(converted), num_rows)
    return converted, left_out


def load_rows(source: Source, *, local_copies: Path | None) -> Iterator[Row]:
    """Yield the rows of ``source``; raises DataError."""
    for config in source.configs:
        if local_copies is None:
            name, revision = source.hub_name, source.revision
            yield from hub_rows(name, config=config, split=source.split, revision=revision)
        else:
            yield from _copied_rows(source, config, local_copies)


def missing_copies(sources: Iterable[Source], folder: Path) -> list[str]:
    """Return the commands that download ``sources`` missing in ``folder``."""
    return [
        _download_command(source, folder)
        for source in sources
        if not (folder / source.hub_name).is_dir()
    ]


def _download_command(source: Source, folder: Path) -> str:
    return (
        f"hf download {source.hub_name} --repo-type dataset --revision {source.revision} "
        f"--local-dir {in_command(folder / source.hub_name)}"
    )


def _copied_rows(source: Source, config: str, local_copies: Path) -> Iterator[Row]:
    folder = local_copies / source.hub_name
    try:
        # The library only finds the files: it would type all rows by the first ones, and confuse
        # two folders with the same README.md.
        files = datasets.load_dataset_builder(str(folder), name=config).config.data_files
        for file in files[source.split]:
            for location, row in read_rows(str(file)):
                if not isinstance(row, Mapping):
                    raise ValueError(f"{file}, {location} is not a row: {row}")
                # An empty cell of a CSV file is an empty text in the hub's files.
                yield {k: "" if v is None and file.endswith(".csv") else v for k, v in row.items()}
    except (OSError, ValueError, KeyError, DatasetsError) as error:
        raise DataError(
            f"{source.hub_name}: the local copy {folder} cannot be read as config {config!r}, "
            f"split {source.split!r} ({type(error).__name__}: {error}). Get it again: "
            f"{_download_command(source, local_copies)}"
        ) from error
