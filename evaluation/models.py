"""The target of an evaluation: the models at a path or an endpoint, and their subjects."""

import hashlib
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from comas.config import Config, load
from comas.config.paths import find, tried
from comas.config.schema import Data
from comas.interaction.wording import location_of
from comas.preflight.locations import held_out_rules, is_built, locate, variants_in
from comas.quickstart import QUICKSTART_PREFIX, build_society
from comas.run.seals import SOURCES, kept_source, read_inputs
from comas.run.status import BEST, MODELS, trained_steps
from comas.utils.client import Endpoint, error_in_address, list_models
from comas.utils.files import from_here, in_command, read_json
from comas.utils.gguf import GGUF_SUFFIX, converted
from comas.utils.invocation import start_of
from comas.utils.model_folder import (
    adapter_of,
    check_model_folder,
    context_length,
    file_digests,
    folder_of,
    may_be_hub_name,
)
from comas.utils.thinking import KNOWN_MARKS, ThinkingMarks
from evaluation.results import fingerprint

MAX_CONTEXT = 32768
"""Tokens of prompt and reply, as in the published results."""
CONTEXT_SHARE_OF_REPLY = 8
"""A reply gets at most 1/8 of the context, so that Consistency's prompt holds five replies, the
task and room for the next reply."""

NO_KWARGS: Mapping[str, Any] = {}

NAME_IT = f"name the model: model=NAME ({start_of('discuss')}: --name NAME)"

WHAT_IT_MAY_BE = (
    "Give a model folder in Hugging Face format (config.json, *.safetensors), a GGUF file, a hub "
    "name such as Qwen/Qwen2.5-3B-Instruct, or the folder of a run, which training "
    "writes to saves/; for an endpoint, --base-url URL"
)


@dataclass(frozen=True)
class LocalModel:
    """A model folder in Hugging Face format, to be served here."""

    folder: Path
    fingerprint: str
    """Digest of weights, tokenizer and configuration."""
    context_length: int
    """Tokens of prompt and reply: the model's maximum, at most ``MAX_CONTEXT``, or as many as the
    longest request needs."""
    dtype: str
    """That of the stored weights."""
    adapter: Path | None = None
    """Folder of a LoRA adapter of the model in ``folder``."""
    adapter_rank: int = 0
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Further variables of its chat template."""

    @property
    def identity(self) -> dict[str, Any]:
        """JSON values that distinguish it from other models."""
        return {"fingerprint": self.fingerprint} | _told(self.template_kwargs)


@dataclass(frozen=True)
class RemoteModel:
    """A model at a remote endpoint."""

    endpoint: Endpoint
    context_length: int | None
    """None if unknown."""

    @property
    def template_kwargs(self) -> Mapping[str, Any]:
        """Further variables of its chat template."""
        return self.endpoint.template_kwargs

    @property
    def identity(self) -> dict[str, Any]:
        """JSON values that distinguish it from other models."""
        endpoint = {"base_url": self.endpoint.base_url.rstrip("/"), "model": self.endpoint.model}
        sent = {"extra_body": dict(self.endpoint.extra_body)} if self.endpoint.extra_body else {}
        return endpoint | _told(self.template_kwargs) | sent


def _told(template_kwargs: Mapping[str, Any]) -> dict[str, Any]:
    return {"template_kwargs": dict(template_kwargs)} if template_kwargs else {}


Model = LocalModel | RemoteModel


@dataclass(frozen=True)
class Target:
    """The models and subjects of an evaluation.

    Example, a run of two agents: two models, and the subjects ``{"agent_0": (0,), "agent_1":
    (1,), "society": (0, 1)}``.
    """

    title: str
    """For the terminal."""
    models: tuple[Model, ...]
    subjects: Mapping[str, tuple[int, ...]]
    """Folder of each subject in ``results/NAME`` -> indices of its models, which play the speakers
    of a setup in this order. A single model's folder is "."."""
    held_out: str | None = None
    """File or dataset of the run's validation questions; None without a run."""
    held_out_rules: Data = field(default_factory=Data)
    """How to read it."""
    system_prompt: str | None = None
    """That of the run's agents."""
    verifiers: Mapping[Any, str] = field(default_factory=dict)
    """Domain -> the run's own verifier, if any."""
    prompts: str | None = None
    """The run's copy of its own file of prompts."""
    run: Path | None = None
    """Its directory."""
    is_quickstart: bool = False
    """True if the questions are the quick-start's."""

    def max_tokens(self, wanted: int) -> int:
        """Return ``wanted``, or less if a model's context is short."""
        contexts = (model.context_length for model in self.models)
        shares = [context // CONTEXT_SHARE_OF_REPLY for context in contexts if context is not None]
        return min([wanted, *shares])


def find_target(
    path: str, *, weights: str, template_kwargs: Mapping[str, Any] = NO_KWARGS
) -> Target:
    """Find the models at ``path``: a run directory, a model folder or a hub name.

    For run directories, ``weights`` may also be "best" (its best checkpoint) or "untrained" (the
    models it began with). ``template_kwargs`` override the run's own.

    Raises ValueError that says what ``path`` may be when nothing is found.
    """
    folder = find(path) or Path(path)
    if (folder / "config.yaml").is_file():
        return _run_target(folder.resolve(), weights=weights, template_kwargs=template_kwargs)
    if weights != "trained":
        raise ValueError(f"weights={weights} is for a run directory, and {path} is not one")
    if folder.suffix == GGUF_SUFFIX:
        folder = converted(folder, saves=Path("saves"))
    title = path
    if folder.is_dir():
        title = str(folder.resolve())
    elif may_be_hub_name(path):
        folder = _explaining(folder_of, path)
    else:
        raise ValueError(f"{path} is no folder{tried(path)}. {WHAT_IT_MAY_BE}")
    model = replace(read_model(folder), template_kwargs=template_kwargs)
    return Target(title, (model,), {".": (0,)})


def find_remote(
    base_url: str,
    *,
    model: str | None,
    template_kwargs: Mapping[str, Any] = NO_KWARGS,
    extra_body: Mapping[str, Any] = NO_KWARGS,
) -> Target:
    """Find the model ``model`` of an endpoint, or the only one that it lists.

    The key is read from OPENAI_API_KEY. The context length of an unlisted model is unknown.

    Raises ValueError when the address is invalid or holds a password, or when no model is named and
    the endpoint does not list exactly one.
    """
    if (error := error_in_address(base_url)) is not None:
        raise ValueError("base_url {}: {}".format(*error))
    api_key = os.environ.get("OPENAI_API_KEY", "").strip() or "none"
    try:
        listed = list_models(base_url, api_key)
    except ValueError as error:
        if model is None:
            raise ValueError(f"{error} If it has no such list, {NAME_IT}") from error
        listed = {}
    if model is None and len(listed) != 1:
        names = ", ".join(listed) or "none"
        raise ValueError(f"{base_url} does not serve exactly one model, but {names}: {NAME_IT}")
    model = next(iter(listed)) if model is None else model
    # Without its tokenizer, the usual marks are assumed.
    endpoint = Endpoint(
        base_url,
        model,
        api_key,
        template_kwargs=template_kwargs,
        thinking=ThinkingMarks(*KNOWN_MARKS[0]),
        extra_body=extra_body,
    )
    remote = RemoteModel(endpoint, listed.get(model))
    return Target(f"{model} at {base_url}", (remote,), {".": (0,)})


def read_model(folder: Path, base_of_run: str | None = None) -> LocalModel:
    """Inspect the folder of a model, or of a LoRA adapter and its base, which may have been moved
    with the run. Raises ValueError if it is incomplete."""
    if (adapter := adapter_of(folder)) is not None:
        moved = None if Path(adapter.base).is_dir() else base_of_run
        base = read_model(_explaining(folder_of, moved or adapter.base))
        both = f"{base.fingerprint} {fingerprint(file_digests(folder))}"
        digest = hashlib.sha256(both.encode()).hexdigest()
        return replace(base, fingerprint=digest, adapter=folder, adapter_rank=adapter.rank)
    _explaining(check_model_folder, folder)
    whole = read_json(folder / "config.json", dict[str, Any], remedy="Get the model again")
    config = whole.get("text_config") or whole
    dtype = config.get("dtype") or config.get("torch_dtype") or "auto"
    length = min(context_length(config) or MAX_CONTEXT, MAX_CONTEXT)
    return LocalModel(folder, fingerprint(file_digests(folder)), length, dtype)


def _run_target(run: Path, *, weights: str, template_kwargs: Mapping[str, Any]) -> Target:
    config = load(Config, run / "config.yaml", [])
    as_it_began = {
        policy: model
        for policy, model in enumerate(config.models)
        if weights == "untrained" or policy not in config.trained_policies
    }
    saves, before = run.parent, read_inputs(run)  # the run may have been moved from config.saves
    locations = {
        name: locate(name, saves=saves, seed=config.seed, found_before=before)
        for name in (config.data.validation, *as_it_began.values())
    }
    if not all(is_built(name, location) for name, location in locations.items()):
        build_society(saves, seed=config.seed, variants=variants_in(locations))
    saved = BEST if weights == "best" else MODELS
    step = None if weights == "untrained" else trained_steps(run, name=saved)
    folders = [
        _explaining(folder_of, locations[as_it_began[policy]])
        if policy in as_it_began
        else _trained(run, config, policy, folder=saved)
        for policy in range(config.num_policies)
    ]
    with ThreadPoolExecutor() as threads:
        found = threads.map(read_model, folders, map(before.get, config.models))
        models = [
            replace(model, template_kwargs={**kwargs, **template_kwargs})
            for model, kwargs in zip(found, config.chat_template_kwargs, strict=True)
        ]
    # Equal agents are asked once, as the first of them.
    distinct = [model for place, model in enumerate(models) if models.index(model) == place]
    chosen = [distinct.index(models[policy]) for policy in config.policy_of_agent]
    subjects: dict[str, tuple[int, ...]] = {
        f"agent_{chosen.index(place)}": (place,) for place in chosen
    }
    if len(chosen) > 1:
        subjects["society"] = tuple(chosen)
    return Target(
        title=f"the {weights} agents of {from_here(run)}" + (f", of step {step}" if step else ""),
        models=tuple(distinct),
        subjects=subjects,
        held_out=locations[config.data.validation],
        held_out_rules=held_out_rules(config),
        verifiers=config.verification.verifiers,
        system_prompt=config.rollout.system_prompt,
        prompts=kept_prompts(run, config),
        run=run,
        is_quickstart=config.data.validation.startswith(QUICKSTART_PREFIX),
    )


def kept_prompts(run: Path, config: Config) -> str | None:
    """Return the run's unedited copy of its prompts, or None. Raises ValueError if it is gone."""
    if config.interaction.prompts is None:
        return None
    kept = kept_source(run, location_of(config.interaction.prompts))
    if kept is None:
        raise ValueError(
            f"{from_here(run / SOURCES)} lacks the file of interaction.prompts that the run used: "
            "restore that folder from a copy"
        )
    return str(kept)


def _trained(run: Path, config: Config, policy: int, *, folder: str) -> Path:
    """Return the model folder of the first agent of ``policy``."""
    model = run / folder / f"agent_{config.policy_of_agent.index(policy)}"
    if not model.is_dir() and folder == BEST:
        raise ValueError(
            f"{from_here(model)} does not exist. Write it with {start_of('train')} "
            f"--export-best resume={in_command(run)}, of a run with training.keep_best"
        )
    if not model.is_dir():
        raise ValueError(
            f"{from_here(model)} does not exist: the run has not ended. Finish it with "
            f"{start_of('train')} resume={in_command(run)}, or take the models it began with: "
            f"weights=untrained ({start_of('discuss')}: --untrained)"
        )
    return model


def _explaining(find: Callable[[Any], Any], model: Any) -> Any:
    try:
        return find(model)
    except ValueError as error:
        raise ValueError(f"{error}. {WHAT_IT_MAY_BE}") from error
