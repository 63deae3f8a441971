"""Builds what is not built yet, and checks what is."""

import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from comas.data.preparation.blend import Blend, BlendSize, draw_blend
from comas.data.preparation.kodcode import KODCODE
from comas.data.preparation.loading import HubUnreachableError, load_rows, missing_copies
from comas.data.preparation.manifest import Entry, Manifest, checksum
from comas.data.preparation.math_train import MATH
from comas.data.preparation.overlap import OverlapIndex
from comas.data.preparation.record_set import (
    Conversion,
    DataPreparationError,
    RecordSet,
    benchmark_file,
    convert_rows,
)
from comas.data.preparation.webinstruct import WEBINSTRUCT
from comas.types import Domain
from comas.utils.files import json_lines, locked, read_lines
from comas.utils.progress import progress_bar
from comas.verification import Verifier

log = logging.getLogger(__name__)

TRAINING_SETS: dict[Domain, RecordSet] = {"math": MATH, "coding": KODCODE, "science": WEBINSTRUCT}
"""Datasets of the blend. Another source for a domain is one file and one line here."""

TRAIN_FILE = "train.jsonl"
VALIDATION_FILE = "validation.jsonl"
DECONTAMINATION_FILE = "decontamination.jsonl"
BLEND_FILES = (TRAIN_FILE, VALIDATION_FILE, DECONTAMINATION_FILE)
IN_USE = "wait for it or stop it, or name another folder with --output"


@dataclass(frozen=True)
class Job:
    """Files to build, and how."""

    output: Path
    benchmarks: Mapping[str, RecordSet]
    with_blend: bool
    """Also the training and validation questions, apart from all of ``benchmarks``."""
    size: BlendSize
    seed: int
    local_copies: Path | None
    """None: from the hub."""
    rebuild: bool


@dataclass(frozen=True)
class Outcome:
    """The files of a job that are there at its end, and why others are not."""

    entries: dict[str, Entry]
    kept: frozenset[str]
    """Those of ``entries`` that were there before, and whose checksums hold."""
    faults: list[str]


def build(job: Job) -> Outcome:
    """Build every file of ``job`` that is not there yet; all of them with ``job.rebuild``.

    A dataset that cannot be had is a fault of the outcome, and the others are built
    nevertheless; the blend waits until it can be compared with every benchmark.

    Raises DataPreparationError, before anything is read, when a file that is there is not what
    the job describes or a local copy is missing; FileError when another process builds there,
    or a file is damaged or cannot be written.
    """
    with locked(job.output, remedy=IN_USE):
        return _build(job)


def _build(job: Job) -> Outcome:
    manifest = Manifest.read(job.output)
    kept = _check_built(job, manifest)
    waiting = {
        name: one for name, one in job.benchmarks.items() if benchmark_file(name) not in kept
    }
    needs_blend = job.with_blend and not kept.issuperset(BLEND_FILES)
    _check_copies(job, [*waiting.values(), *(TRAINING_SETS.values() if needs_blend else ())])
    faults = _build_benchmarks(job, manifest, waiting)
    if needs_blend:
        if faults:
            faults.append(
                f"{TRAIN_FILE} and {VALIDATION_FILE} wait for the benchmarks above, with which "
                "they must be compared (--skip NAME leaves one out)"
            )
        else:
            faults += _build_blend(job, manifest)
    wanted = [*map(benchmark_file, job.benchmarks), *(BLEND_FILES if job.with_blend else ())]
    entries = {file: manifest[file] for file in wanted if manifest.is_built(file)}
    return Outcome(entries, frozenset(kept), faults)


# ---------------------------------------------------------------- what is there


def _check_built(job: Job, manifest: Manifest) -> set[str]:
    """The files that can stay. Raises DataPreparationError for those that are something else."""
    if job.rebuild:
        return set()
    recipes = {benchmark_file(name): _recipe(one) for name, one in job.benchmarks.items()}
    built_benchmarks = {file for file in recipes if manifest.is_built(file)}
    if job.with_blend and built_benchmarks == set(recipes):
        recipes |= dict.fromkeys(BLEND_FILES, _blend_recipe(job, manifest))
    if faults := manifest.faults(recipes):
        raise DataPreparationError(
            "\n  ".join([f"{len(faults)} of the files are not what is asked for:", *faults])
            + "\n--rebuild replaces them; or name another folder with --output"
        )
    return {file for file in recipes if manifest.is_built(file)}


def _check_copies(job: Job, needed: Sequence[RecordSet]) -> None:
    if job.local_copies is None:
        return
    if missing := missing_copies([one.source for one in needed], job.local_copies):
        raise DataPreparationError(
            f"{job.local_copies} lacks {len(missing)} of {len(needed)} datasets. These commands, "
            "run where there is internet, get them:\n  " + "\n  ".join(missing)
        )


def _recipe(record_set: RecordSet) -> dict[str, Any]:
    source = vars(record_set.source)
    kept = ("configs", "split", "revision", "licence")
    return {"dataset": source["hub_name"], **{key: source[key] for key in kept}}


def _blend_recipe(job: Job, manifest: Manifest) -> dict[str, Any]:
    return {
        "seed": job.seed,
        "size": asdict(job.size),
        "datasets": {domain: _recipe(one) for domain, one in TRAINING_SETS.items()},
        "apart_from": {
            name: manifest[benchmark_file(name)].sha256 for name in sorted(job.benchmarks)
        },
    }


# ---------------------------------------------------------------- building


def _build_benchmarks(job: Job, manifest: Manifest, waiting: Mapping[str, RecordSet]) -> list[str]:
    """The faults of those that could not be built."""
    faults: list[str] = []
    for name, record_set in waiting.items():
        try:
            conversion = _convert(job, record_set)
        except HubUnreachableError as error:
            return [*faults, f"{error}; the datasets after it were not tried"]
        except DataPreparationError as error:
            faults.append(str(error))
            continue
        records = [asdict(one.record) for one in conversion.converted]
        content = _content(job, records, conversion.left_out, _recipe(record_set))
        manifest.store({benchmark_file(name): content})
    return faults


def _build_blend(job: Job, manifest: Manifest) -> list[str]:
    recipe = _blend_recipe(job, manifest)
    if not job.rebuild and (faults := manifest.faults(dict.fromkeys(BLEND_FILES, recipe))):
        return [f"{fault} (--rebuild replaces it)" for fault in faults]
    try:
        conversions = {domain: _convert(job, one) for domain, one in TRAINING_SETS.items()}
        blend = _draw(job, conversions)
    except DataPreparationError as error:
        return [f"the blend was not drawn: {error}"]
    lines: dict[str, list[Mapping[str, Any]]] = {
        TRAIN_FILE: list(map(asdict, blend.train)),
        VALIDATION_FILE: list(map(asdict, blend.validation)),
        DECONTAMINATION_FILE: list(map(asdict, blend.repetitions)),
    }
    left_out = {
        f"{domain}: {reason}": count
        for domain, conversion in conversions.items()
        for reason, count in (conversion.left_out + blend.left_out[domain]).items()
    }
    manifest.store(
        {
            file: _content(job, records, left_out if file == TRAIN_FILE else {}, recipe)
            for file, records in lines.items()
        }
    )
    return []


def _content(
    job: Job,
    records: Sequence[Mapping[str, Any]],
    left_out: Mapping[str, int],
    recipe: dict[str, Any],
) -> tuple[str, Entry]:
    """The text of a file, and its entry in the manifest."""
    text = json_lines(records)
    entry = Entry(
        sha256=checksum(text),
        records=dict(Counter(record["source"] for record in records)),
        left_out=dict(left_out),
        origin="hub" if job.local_copies is None else "local copy",
        recipe=recipe,
    )
    return text, entry


def _convert(job: Job, record_set: RecordSet) -> Conversion:
    log.info("%s: getting %s", record_set.name, record_set.source.hub_name)
    rows = load_rows(record_set.source, local_copies=job.local_copies)
    description = f"converting {record_set.name}"
    with progress_bar(description, unit="row", total=record_set.source.num_rows) as bar:
        conversion = convert_rows(record_set, rows, on_row=bar.update)
    num_usable, num_rows = len(conversion.converted), conversion.num_rows
    log.info("%s: %d of %d rows can be used", record_set.name, num_usable, num_rows)
    return conversion


def _draw(job: Job, conversions: Mapping[Domain, Conversion]) -> Blend:
    index = OverlapIndex()
    for name in job.benchmarks:
        path = job.output / benchmark_file(name)
        for record in read_lines(path, json.loads, remedy="Build it again with --rebuild"):
            index.add(record["id"], record["prompt"])
    with Verifier() as verifier:
        return draw_blend(
            {domain: conversion.converted for domain, conversion in conversions.items()},
            size=job.size,
            seed=job.seed,
            benchmarks=index,
            verify=verifier.verify_batch,
        )
