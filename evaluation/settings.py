"""The keys of an evaluation, and how its command line is read."""

from __future__ import annotations

import dataclasses
import difflib
import re
import typing
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from comas.config.checks import RUN_NAME, broken_bound
from comas.config.loading import (
    COMMAND_LINE,
    DEFAULT_ORIGIN,
    ConfigError,
    Fault,
    Setting,
    type_in_words,
)
from comas.config.schema import constraint_of, setting
from evaluation.benchmarks import BENCHMARKS
from evaluation.setups import SETUPS
from evaluation.tasks import HELD_OUT

EXAMPLES = {
    "benchmarks": "[gsm8k, math-500]",
    "setups": "[vanilla, debate]",
    "limit": "50",
    "port": "8000",
}
"""Values for keys whose default is null."""


@dataclass
class Settings:
    """What is evaluated, how models are asked, and where they are served."""

    benchmarks: list[str] | None = setting(None)
    """null: the paper's seven; of a quick-start run, its held-out questions."""
    setups: list[str] | None = setting(None)
    """null: all."""
    limit: int | None = setting(None, at_least=1)
    """Tasks of each benchmark, at most; null: as in the paper (500)."""
    seeds: int = setting(1, at_least=1)
    """How often everything is asked: with the seeds 0, 1, ..."""
    temperature: float = setting(0.7, at_least=0)
    generation_config: str = setting("model", one_of=("model", "none"))
    """Whether the sampling values of the model's own generation_config.json (top-p, top-k,
    repetition penalty) apply beside the temperature, as vLLM's server has it by default."""
    max_tokens: int = setting(2048, at_least=1)
    """Tokens of a reply, at most. Models with a short context get less (see models.py)."""
    concurrency: int = setting(32, at_least=1)
    """Requests of a subject in flight."""
    timeout_s: float = setting(600.0, above=0)
    """How long a reply may take."""

    base_url: str | None = setting(None)
    """An OpenAI-compatible endpoint to evaluate, in place of PATH; no server is started then."""
    model: str | None = setting(None)
    """The model's name at ``base_url``; null: the only one that the endpoint lists."""
    weights: str = setting("trained", one_of=("trained", "untrained"))
    """Of a run directory: what it made, or the models that it began with."""

    baseline: str | None = setting(None)
    """Name of the results that the summary compares these with."""
    results: str = setting("results")
    data: str = setting("data")
    """Where scripts/prepare_data.sh built the benchmarks."""

    port: int | None = setting(None, at_least=1024, at_most=65535)
    """Of the server; several models have consecutive ones from it on. null: free ones."""
    start_timeout_s: float = setting(900.0, above=0)
    """How long servers may take to start."""
    tensor_parallel: int = setting(1, at_least=1)
    """GPUs that serve a model together (ignored on CPU)."""
    gpu_memory_share: float = setting(0.9, above=0, at_most=1)
    """Share of a GPU's memory that servers may fill, all of that GPU together."""
    cpu_kv_cache_mib: int = setting(512, at_least=16)
    """KV cache of a server on CPU, in MiB (ignored on GPU)."""


@dataclass(frozen=True)
class Command:
    """``NAME PATH [key=value ...]``, checked; PATH is None with ``base_url``."""

    name: str
    path: str | None
    settings: Settings


def read_command(arguments: Sequence[str]) -> Command:
    """Read ``NAME [PATH] [key=value ...]``; ``--base-url URL`` stands for ``base_url=URL``.

    Raises ConfigError with every fault that was found.
    """
    positional, overrides = _split(arguments)
    given, faults = _parse(overrides)
    settings, value_faults = _check_values(given)
    faults += [*value_faults, *_faults_of_positional(positional, settings)]
    if faults:
        raise ConfigError(faults)
    name, *path = positional
    return Command(name, path[0] if path else None, settings)


def known_keys() -> dict[str, Any]:
    """Every key with its type."""
    return typing.get_type_hints(Settings)


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """(positional arguments, key=value overrides)."""
    texts = list(arguments)
    if "--base-url" in texts[:-1]:
        at = texts.index("--base-url")
        texts[at : at + 2] = [f"base_url={texts[at + 1]}"]
    texts = [re.sub("^--base-url=", "base_url=", text) for text in texts]
    return [text for text in texts if "=" not in text], [text for text in texts if "=" in text]


def _parse(overrides: Iterable[str]) -> tuple[list[Setting], list[Fault]]:
    settings, faults = [], []
    for override in overrides:
        key, _, text = override.partition("=")
        try:
            settings.append(Setting(key, yaml.safe_load(text), COMMAND_LINE))
        except yaml.YAMLError:
            given = Setting(key, text, COMMAND_LINE)
            faults.append(Fault((given,), "is not YAML", "close its brackets and quotes"))
    return settings, faults


def _check_values(given: Sequence[Setting]) -> tuple[Settings, list[Fault]]:
    """The defaults with every valid setting in place, and the faults of all others."""
    merged, known = OmegaConf.structured(Settings), known_keys()
    faults = []
    for item in given:
        if item.key not in known:
            faults.append(Fault((item,), "is not a known key", _nearest(item.key)))
            continue
        try:
            OmegaConf.update(merged, item.key, item.value)
        except OmegaConfBaseException:
            constraint = f"must be {type_in_words(known[item.key])}"
            faults.append(Fault((item,), constraint, _example(item.key)))
    settings = OmegaConf.to_object(merged)
    assert isinstance(settings, Settings)
    origin = {item.key: item for item in given}

    def fault(key: str, constraint: str, remedy: str) -> Fault:
        default = Setting(key, getattr(settings, key), DEFAULT_ORIGIN)
        return Fault((origin.get(key, default),), constraint, remedy)

    faults += [fault(*conflict) for conflict in _conflicts(settings)]
    return settings, faults


def _conflicts(settings: Settings) -> Iterator[tuple[str, str, str]]:
    """(key, constraint, remedy) of every value that is not allowed."""
    for field in dataclasses.fields(Settings):
        value = getattr(settings, field.name)
        if broken := broken_bound(value, constraint_of(settings, field.name)):
            yield field.name, broken, _example(field.name)
    for key, known in (("benchmarks", [*BENCHMARKS, HELD_OUT]), ("setups", list(SETUPS))):
        names = getattr(settings, key)
        if names is not None and (not names or len(set(names)) < len(names)):
            yield key, "must hold names, each once", f"choose among {', '.join(known)}"
        elif unknown := [name for name in names or () if name not in known]:
            yield key, f"unknown: {', '.join(unknown)}", f"choose among {', '.join(known)}"
    if settings.base_url is not None and not re.match("https?://[^/]", settings.base_url):
        yield "base_url", "is no address", "write it like base_url=http://127.0.0.1:8000/v1"
    if settings.base_url is None and settings.model is not None:
        yield "model", "is for an endpoint", "give base_url as well, or leave it out"
    if settings.base_url is not None and settings.port is not None:
        yield "port", "is for a server started here, and base_url names one", "leave it out"
    if settings.base_url is not None and settings.weights != "trained":
        yield "weights", "is for a run directory, and base_url names an endpoint", "leave it out"
    if settings.base_url is not None and settings.generation_config != "model":
        yield "generation_config", "is decided by the server at base_url", "leave it out"


def _faults_of_positional(positional: Sequence[str], settings: Settings) -> Iterator[Fault]:
    usage = "write it like: bash scripts/evaluate_model.sh NAME PATH [key=value ...]"
    most = 1 if settings.base_url is not None else 2
    if len(positional) != most:
        expected = "NAME alone, as base_url names the model" if most == 1 else "NAME and PATH"
        given = Setting("arguments", list(positional), COMMAND_LINE)
        yield Fault((given,), f"must be {expected}", usage)
    if positional and not RUN_NAME.fullmatch(positional[0]):
        constraint = "must be a folder name: letters, digits and . _ - , at most 64"
        yield Fault((Setting("NAME", positional[0], COMMAND_LINE),), constraint, usage)


def _nearest(key: str) -> str:
    close = difflib.get_close_matches(key, known_keys(), n=1)
    return f"did you mean {close[0]}?" if close else f"the keys are: {', '.join(known_keys())}"


def _example(key: str) -> str:
    value = EXAMPLES.get(key, getattr(Settings(), key))
    return f"write it like {key}={value}"
