"""Models, given as a folder in Hugging Face format or as a name on the hub."""

import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import huggingface_hub
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from pydantic import TypeAdapter
from safetensors import SafetensorError, safe_open

from comas.utils.files import read_json, sha256_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ADAPTER_CONFIG = "adapter_config.json"
"""By which PEFT, and everybody, knows the folder of an adapter."""
DESCRIPTION_FILES = ("*.json", "*.jinja", "*.model", "*.txt")
"""Tokenizer and configuration."""
MODEL_FILES = ("*.safetensors", *DESCRIPTION_FILES)
"""Weights, tokenizer and configuration: all that is downloaded, and all that decides what a
model says."""
CARD = "README.md"
NEEDED = ("config.json", "tokenizer*.json", "*.safetensors")
_OBJECT = TypeAdapter(dict[str, Any])


class Adapter(NamedTuple):
    """A LoRA adapter in a folder."""

    base: str
    """The model that it adapts: a folder or a hub name."""
    rank: int


def check_model_folder(folder: Path) -> None:
    """Raise ValueError, with what is missing or damaged, unless ``folder`` holds a model."""
    if missing := [pattern for pattern in NEEDED if not any(folder.glob(pattern))]:
        held = ", ".join(sorted(path.name for path in folder.iterdir())[:8]) or "nothing"
        raise ValueError(
            f"{folder} lacks {', '.join(missing)}: it is not a complete model folder in Hugging "
            f"Face format (it holds: {held})"
        )
    found: dict[str, set[str]] = {}
    for weights in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(weights, framework="np") as file:
                found[weights.name] = {*file.keys()}
        except SafetensorError as error:
            raise ValueError(
                f"{weights} cannot be read ({error}): the file is damaged or incomplete; get it "
                "again"
            ) from error
    for index in folder.glob("*.safetensors.index.json"):
        place = read_json(index, _OBJECT, remedy="Get the model again")["weight_map"]
        if absent := sorted(name for name in place if name not in found.get(place[name], ())):
            raise ValueError(
                f"{folder} lacks {len(absent)} of the weights that {index.name} names, first "
                f"{absent[0]} in {place[absent[0]]}: get the model again"
            )


def adapter_of(folder: Path) -> Adapter | None:
    """The base and rank of the LoRA adapter in ``folder``; None: it is no adapter's.

    Raises ValueError when it is damaged.
    """
    path = folder / ADAPTER_CONFIG
    if not path.is_file():
        return None
    said = read_json(path, _OBJECT, remedy="Get the adapter again")
    if not (folder / "adapter_model.safetensors").is_file():
        raise ValueError(f"{folder} lacks adapter_model.safetensors: get the adapter again")
    return Adapter(base=said["base_model_name_or_path"], rank=said["r"])


def may_be_hub_name(name: str) -> bool:
    """True if ``name`` has the form of a hub name, and not that of a folder or run."""
    owner, _, model = name.partition("/")
    is_path = name.startswith((".", "~", "saves/")) or Path(owner).is_dir()
    return bool(owner and model) and "/" not in model and not is_path


def is_here(model: str) -> bool:
    """True if a model is a folder here or already in the hub's cache."""
    if Path(model).is_dir():
        return True
    return isinstance(huggingface_hub.try_to_load_from_cache(model, "config.json"), str)


def folder_of(model: str) -> Path:
    """The folder of a model on this machine: its own, or that of the hub's cache, into which it is
    downloaded. Raises ValueError when there is no such model or it cannot be had."""
    if Path(model).is_dir():
        return Path(model)
    folder = _download(model, (*MODEL_FILES, CARD))
    check_model_folder(folder)
    return folder


def description_of(model: str) -> Path:
    """The same as ``folder_of``, but a model of the hub may still lack its weights there."""
    return Path(model) if Path(model).is_dir() else _download(model, DESCRIPTION_FILES)


def file_digests(folder: Path) -> dict[str, str]:
    """Name -> digest of every file in ``folder`` that affects what the model says."""
    digests = {}
    for path in sorted(path for pattern in MODEL_FILES for path in folder.glob(pattern)):
        with path.open("rb") as file:
            digests[path.name] = hashlib.file_digest(file, "blake2b").hexdigest()
    return digests


def contents_of(model: str, *, folder: Path) -> str:
    """What changes with any file that affects what the model says: a digest of ``folder``, which
    holds it, or the commit of one on the hub."""
    if not Path(model).is_dir():
        return f"commit {folder.name}"
    found = sha256_of((path for each in MODEL_FILES for path in folder.glob(each)), within=folder)
    listed = "".join(f"{digest}  {name}\n" for name, digest in found.items())
    return f"sha256 {hashlib.sha256(listed.encode()).hexdigest()}"


@cache
def without_weights(model: str) -> "PreTrainedModel":
    """The modules of a model (folder or hub name), made from its config.json alone.

    Raises OSError when there is no such model or the hub cannot be reached, ValueError when
    transformers knows no causal language model of its kind.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(model, trust_remote_code=False)
    if config.is_encoder_decoder or type(config) not in AutoModelForCausalLM._model_mapping:
        raise ValueError(
            f"its model_type is {config.model_type}, of which transformers has no causal language "
            "model without an encoder: choose one that has"
        )
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, trust_remote_code=False)


def has_recurrent_layers(folder: Path) -> bool:
    """True if a layer of the model in ``folder`` keeps a state and not keys and values."""
    model = without_weights(str(folder))
    layer_types = getattr(model.config.get_text_config(), "layer_types", None) or ()
    attention = {"full_attention", "sliding_attention", "chunked_attention"}
    return model._is_stateful or not attention.issuperset(layer_types)


def adapted_layers(folder: Path, wanted: Sequence[str] | None) -> list[str]:
    """The layers that LoRA adapts, by the last part of their names: ``["down_proj", ...]``.

    Raises ValueError when the model lacks one of ``wanted``, ``policy.lora.target_modules``.
    """
    import torch

    model = without_weights(str(folder))
    head = model.get_output_embeddings()
    known = {
        name.rpartition(".")[2]
        for name, layer in model.named_modules()
        if isinstance(layer, torch.nn.Linear) and layer is not head
    }
    unknown = set(wanted or ()) - known
    if unknown:
        raise ValueError(
            f"policy.lora.target_modules: {', '.join(sorted(unknown))} is no linear layer of "
            f"{folder} that can be adapted; choose among {', '.join(sorted(known))}, or write "
            "null for all of them"
        )
    return sorted(known if wanted is None else set(wanted))


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer of a model's folder. Raises ValueError, with what to do about it, when it is
    damaged, has no chat template, or has tokens that the model does not know."""
    from transformers import AutoConfig, AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        known = AutoConfig.from_pretrained(folder).get_text_config().vocab_size
    except Exception as error:  # the tokenizers library raises nothing narrower
        reason = " ".join(str(error).split())
        raise ValueError(
            f"the tokenizer in {folder} cannot be read ({reason}): get the model again"
        ) from error
    if tokenizer.chat_template is None:
        raise ValueError(
            f"the tokenizer in {folder} has no chat template, but every prompt is a chat message: "
            "choose an instruction-tuned model, or add chat_template.jinja"
        )
    highest = max(tokenizer.get_vocab().values())
    if highest >= known:
        raise ValueError(
            f"the tokenizer in {folder} has token {highest}, but the model knows those below "
            f"{known} (vocab_size in config.json): they are of different models; take both from one"
        )
    return tokenizer


def _download(model: str, patterns: Sequence[str]) -> Path:
    """The files of a hub model; what is in the hub's cache is not downloaded."""
    try:
        return Path(huggingface_hub.snapshot_download(model, allow_patterns=list(patterns)))
    except LocalEntryNotFoundError as error:
        raise ValueError(
            f"{model} is neither a folder here nor in the hub's cache, and the hub cannot be "
            f"reached. Run hf download {model} --local-dir FOLDER where there is internet, and "
            "name that folder"
        ) from error
    except (HfHubHTTPError, HFValidationError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"{model} is no folder here, and the hub does not give it: {reason}"
        ) from error
