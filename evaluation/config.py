"""The keys of an evaluation, and its command line."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from comas.config.errors import COMMAND_LINE, ConfigError, Conflict, InvalidSetting, Setting
from comas.config.keys import FOLDER_NAME, FOLDER_NAME_IN_WORDS, key
from comas.config.loading import read
from comas.config.paths import names_file
from comas.config.plugins import PluginError, Registry
from comas.utils.client import error_in_address
from comas.utils.invocation import CommandParser, start_of
from evaluation.benchmarks import BENCHMARKS, Benchmark
from evaluation.setups import SETUPS
from evaluation.setups.program import PROGRAM
from evaluation.tasks import HELD_OUT

USAGE = f"write it like: {start_of('evaluate')} NAME PATH [key=value ...]"


@dataclass
class EvaluationConfig:
    """What is evaluated, how models are asked, and how they are served."""

    benchmarks: list[str] | None = key(None, leads_to="plug-in", example=["gsm8k", "math-500"])
    """Names or plug-ins. null: the paper's seven; for a quick-start run, its held-out questions."""
    setups: list[str] | None = key(None, leads_to="plug-in", example=["vanilla", "debate"])
    """Names or plug-ins; ``program`` is the run's own. null: all built-in setups."""
    limit: int | None = key(None, ge=1, example=50)
    """Maximum number of tasks per benchmark. null: as in the paper (500)."""
    seeds: int = key(1, ge=1)
    """Number of answers per task, with the seeds 0, 1, ..."""
    temperature: float = key(0.7, ge=0)
    """Sampling temperature; 0 is greedy."""
    generation_config: Literal["model", "none"] = key("model")
    """Whether top-p, top-k and repetition penalty of the model's generation_config.json apply, as
    is the default of vLLM's server."""
    max_tokens: int = key(2048, ge=1)
    """Maximum tokens of a reply; fewer if a model's context is short."""
    chat_template_kwargs: dict[str, Any] = key({}, example={"enable_thinking": False})
    """Variables of the chat template, in addition to those of a run's training."""
    concurrency: int = key(32, ge=1)
    """Maximum number of requests in flight per subject."""
    timeout_s: float = key(600.0, gt=0)
    """Time limit of each wait for more of a reply, in seconds."""

    base_url: str | None = key(None)
    """An OpenAI-compatible endpoint to evaluate instead of PATH; no server is started."""
    model: str | None = key(None)
    """The model's name at ``base_url``. null: the only one that the endpoint lists."""
    extra_body: dict[str, Any] = key(
        {}, example={"max_completion_tokens": 4096, "max_tokens": None, "temperature": None}
    )
    """Additional or replaced fields of requests to ``base_url``; null removes a field."""
    weights: Literal["trained", "untrained", "best"] = key("trained")
    """Which models of a run directory: the trained ones, those of its best checkpoint (written by
    --export-best), or those that it began with."""

    results: str = key("results", leads_to="new folder")
    """Folder of all results."""
    data: str = key("data", leads_to="file")
    """Folder of the benchmarks, built by scripts/prepare_data.sh."""

    sandbox: Literal["require_namespaces", "allow_degraded"] | None = key(
        None, example="require_namespaces"
    )
    """Isolation of model-written programs, as ``verification.sandbox`` of a training run."""

    tensor_parallel_size: int = key(1, ge=1)
    """Number of GPUs per server (ignored on CPU)."""
    gpu_memory_utilization: float = key(0.9, gt=0, le=1)
    """Share of a GPU's memory for all servers on it together (ignored on CPU)."""
    cpu_kv_cache_mib: int = key(512, ge=16)
    """KV cache of a server on CPU, in MiB; more if the longest request needs it."""


@dataclass(frozen=True)
class Command:
    """``NAME PATH [key=value ...]``, checked; PATH is None with ``base_url``."""

    name: str
    path: str | None
    config: EvaluationConfig


def read_command(arguments: Sequence[str]) -> Command:
    """Read ``NAME [PATH] [key=value ...]``; ``--base-url URL`` stands for ``base_url=URL``, and
    ``--greedy`` for ``temperature=0``. Raises ConfigError with every error that was found."""
    positional, overrides = split(arguments)
    config, errors = read(EvaluationConfig, None, overrides, check=_conflicts)
    errors += _errors_of_positional(positional, config)
    if errors:
        raise ConfigError(errors)
    name, *path = positional
    return Command(name, path[0] if path else None, config)


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """(positional arguments, key=value overrides); ends the process where there are others."""
    parser = CommandParser("evaluate")
    parser.add_argument("--base-url")
    parser.add_argument("--greedy", action="store_true")
    parser.add_argument("texts", nargs="*")
    given = parser.parse_intermixed_args(arguments)
    overrides = [text for text in given.texts if "=" in text and not names_file(text)]
    names = [text for text in given.texts if text not in overrides]
    if given.base_url is not None:
        overrides.insert(0, f"base_url={given.base_url}")
    if given.greedy and any(text.startswith("temperature=") for text in overrides):
        parser.error("--greedy is temperature=0: leave out one of them")
    if given.greedy:
        overrides.append("temperature=0")
    return names, overrides


def _conflicts(config: EvaluationConfig) -> Iterator[Conflict]:
    yield from _name_conflicts("benchmarks", config.benchmarks, BENCHMARKS, others=[HELD_OUT])
    yield from _name_conflicts("setups", config.setups, SETUPS, others=[PROGRAM])
    if config.extra_body.get("temperature", config.temperature) == 0 and config.seeds > 1:
        remedy = "leave out seeds, or set a temperature above 0"
        key = "extra_body" if "temperature" in config.extra_body else "temperature"
        yield Conflict(("seeds", key), "greedy replies are the same each time", remedy)
    if own := {"model", "messages", "n", "seed", "stream"} & {*config.extra_body}:
        said = f"holds {', '.join(sorted(own))}, which each request sets for itself"
        yield Conflict(("extra_body",), said, "leave it out; seeds= and model= are keys")
    if config.base_url is None:
        remedy = "give base_url as well, or leave it out"
        for name in filter(partial(getattr, config), ("model", "extra_body")):
            yield Conflict((name,), "is for an endpoint", remedy)
        return
    if (error := error_in_address(config.base_url)) is not None:
        yield Conflict(("base_url",), *error)
    for name, is_given, reason in (
        ("weights", config.weights != "trained", "only a run directory has several weights"),
        ("generation_config", config.generation_config != "model", "the server there decides"),
    ):
        if is_given:
            yield Conflict((name, "base_url"), reason, f"leave out {name} or base_url")


def _name_conflicts(
    key: str, names: list[str] | None, registry: Registry[Any], *, others: list[str]
) -> Iterator[Conflict]:
    """Find names that are repeated or unknown (folders and tables use their labels)."""
    if names is None:
        return
    labels = [
        entry.name if isinstance(entry, Benchmark) else registry.label(name)
        for name, entry in zip(names, [registry.find(name) for name in names], strict=True)
    ]
    taken = [label for name, label in zip(names, labels, strict=True) if name != label in registry]
    if not names or len(set(labels)) < len(labels) or taken:
        known = ", ".join([registry.known(), *others])
        yield Conflict((key,), "must hold names, each once", f"choose among {known}")
    for name in names:
        try:
            _ = name in others or registry[name]
        except PluginError as error:
            also = "" if ":" in name else "".join(f"; or {other}" for other in others)
            yield Conflict((key,), f"{name}: {error.constraint}", error.remedy + also)


def _errors_of_positional(
    positional: Sequence[str], config: EvaluationConfig
) -> Iterator[InvalidSetting]:
    most = 1 if config.base_url is not None else 2
    if len(positional) != most:
        expected = "NAME alone, as base_url names the model" if most == 1 else "NAME and PATH"
        given = Setting("arguments", list(positional), COMMAND_LINE)
        yield InvalidSetting((given,), f"must be {expected}", USAGE)
    if positional and not FOLDER_NAME.fullmatch(positional[0]):
        yield InvalidSetting(
            (Setting("NAME", positional[0], COMMAND_LINE),), FOLDER_NAME_IN_WORDS, USAGE
        )
