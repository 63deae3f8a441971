"""Models, given by a folder in Hugging Face format or a hub name."""

import hashlib
import json
import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import huggingface_hub
from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError
from pydantic import BaseModel, Field
from safetensors import SafetensorError, safe_open

from comas.utils.files import read_json, sha256_of, write_text

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ADAPTER_CONFIG = "adapter_config.json"
"""The file by which PEFT recognises an adapter's folder."""
DESCRIPTION_FILES = ("*.json", "*.jinja", "*.model", "*.txt")
"""Files of the tokenizer and the config."""
MODEL_FILES = ("*.safetensors", *DESCRIPTION_FILES)
"""The files that are downloaded, and that affect a model's output."""
TOKENIZER_FILES = (
    *("tokenizer*", "vocab.*", "merges.txt", "special_tokens_map.json", "added_tokens.json"),
    *("chat_template*", "generation_config.json"),
)
"""Files of the base model that a trained one takes over."""
CARD = "README.md"
NEEDED = ("config.json", "tokenizer*.json", "*.safetensors")
NOT_STRETCHED = ("default", "dynamic", "llama3", "longrope", "su")
"""Kinds of RoPE for which vLLM's table has max_position_embeddings entries. (With "dynamic" it
accepts more, and then reads beyond the end of its table.)"""


class Adapter(BaseModel):
    """A LoRA adapter in a folder."""

    base: str = Field(alias="base_model_name_or_path")
    """The adapted model: a folder or a hub name."""
    rank: int = Field(alias="r")


class _Index(BaseModel):
    weight_map: dict[str, str]


def check_model_folder(folder: Path) -> None:
    """Raise ValueError that lists missing or damaged files unless ``folder`` holds a model."""
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
        place = read_json(index, _Index, remedy="Get the model again").weight_map
        if absent := sorted(name for name in place if name not in found.get(place[name], ())):
            raise ValueError(
                f"{folder} lacks {len(absent)} of the weights that {index.name} names, first "
                f"{absent[0]} in {place[absent[0]]}: get the model again"
            )


def context_length(config: dict[str, Any]) -> int | None:
    """Return the context in tokens, for prompt and response together, of a text model with this
    config.json; None if it does not say, or stretches its positions (yarn), as vLLM does itself."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    return config.get("max_position_embeddings") if kind in NOT_STRETCHED else None


def adapter_of(folder: Path) -> Adapter | None:
    """Return the LoRA adapter in ``folder``, or None. Raises ValueError if it is damaged."""
    path = folder / ADAPTER_CONFIG
    if not path.is_file():
        return None
    if not (folder / "adapter_model.safetensors").is_file():
        raise ValueError(f"{folder} lacks adapter_model.safetensors: get the adapter again")
    return read_json(path, Adapter, remedy="Get the adapter again")


def may_be_hub_name(name: str) -> bool:
    """Return True if ``name`` has the form of a hub name rather than of a folder or run."""
    owner, _, model = name.partition("/")
    is_path = name.startswith((".", "~", "saves/")) or Path(owner).is_dir()
    return bool(owner and model) and "/" not in model and not is_path


def is_here(model: str) -> bool:
    """Return True if a model is a local folder or in the hub's cache."""
    if Path(model).is_dir():
        return True
    return isinstance(huggingface_hub.try_to_load_from_cache(model, "config.json"), str)


def folder_of(model: str) -> Path:
    """Return a model's local folder, downloading a hub model to the hub's cache. Raises ValueError
    if there is no such model or the download fails."""
    if Path(model).is_dir():
        return Path(model)
    folder = _download(model, (*MODEL_FILES, CARD))
    check_model_folder(folder)
    return folder


def description_of(model: str) -> Path:
    """Do the same as ``folder_of``, but do not download the weights."""
    return Path(model) if Path(model).is_dir() else _download(model, DESCRIPTION_FILES)


def file_digests(folder: Path) -> dict[str, str]:
    """Return name -> SHA-256 of the files that affect the model's output."""
    return sha256_of((path for each in MODEL_FILES for path in folder.glob(each)), within=folder)


def contents_of(model: str, *, folder: Path) -> str:
    """Return a digest of the model's files in ``folder``, or the commit of a hub model."""
    if not Path(model).is_dir():
        return f"commit {folder.name}"
    listed = "".join(f"{digest}  {name}\n" for name, digest in file_digests(folder).items())
    return f"sha256 {hashlib.sha256(listed.encode()).hexdigest()}"


@cache
def without_weights(model: str) -> "PreTrainedModel":
    """Return the modules of a model (folder or hub name) without weights, from its config.json.

    Raises OSError if there is no such model or the hub cannot be reached, and ValueError if
    transformers has no causal language model of its type.
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
    """True if a layer of the model in ``folder`` keeps a state instead of keys and values."""
    model = without_weights(str(folder))
    layer_types = getattr(model.config.get_text_config(), "layer_types", None) or ()
    attention = {"full_attention", "sliding_attention", "chunked_attention"}
    return model._is_stateful or not attention.issuperset(layer_types)


def adapted_layers(folder: Path, wanted: Sequence[str] | None) -> list[str]:
    """Return the last parts of the names of the layers that LoRA adapts: ``["down_proj", ...]``.
    Raises ValueError if the model lacks one of ``wanted`` (``policy.lora.target_modules``)."""
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
    """Load the tokenizer in a model's folder. Raises ValueError if it is damaged, has no chat
    template, or has token ids beyond the model's vocabulary."""
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


def describe_as(base: Path, folder: Path) -> None:
    """Complete the model that ``save_pretrained`` wrote to ``folder`` with the tokenizer and the
    generation config of ``base`` and, if the architecture is the same, with its config, so that
    any program that reads the base can read the model."""
    written = json.loads((folder / "config.json").read_text())
    config = json.loads((base / "config.json").read_text())
    if config.get("architectures") == written["architectures"]:
        config.pop("torch_dtype", None)  # the former name
        config["dtype"] = written["dtype"]
        write_text(folder / "config.json", json.dumps(config, indent=2, ensure_ascii=False) + "\n")
    copy_tokenizer(base, folder)


def copy_tokenizer(base: Path, folder: Path) -> None:
    """Copy ``base``'s tokenizer files and generation config."""
    for pattern in TOKENIZER_FILES:
        for source in base.glob(pattern):
            shutil.copyfile(source, folder / source.name)


def _download(model: str, patterns: Sequence[str]) -> Path:
    """Return the folder of a hub model, downloading files that the hub's cache lacks."""
    try:
        return Path(huggingface_hub.snapshot_download(model, allow_patterns=list(patterns)))
    except LocalEntryNotFoundError as error:
        raise ValueError(
            f"{model} is neither a folder here nor in the hub's cache, and the hub cannot be "
            f"reached. Run hf download {model} --local-dir FOLDER where there is internet, and "
            "name that folder"
        ) from error
    except (httpx.HTTPError, HFValidationError) as error:
        reason = repr(error) if not str(error) else str(error).splitlines()[0]
        raise ValueError(
            f"{model} is no folder here, and the hub does not give it: {reason}"
        ) from error
