"""Models, given as a folder in Hugging Face format or as a name on the hub."""

from pathlib import Path

import huggingface_hub
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from safetensors import SafetensorError, safe_open

MODEL_FILES = ("*.safetensors", "*.json", "*.jinja", "*.model", "*.txt")
"""Weights, tokenizer and configuration: all that is downloaded, and all that decides what a
model says."""
NEEDED = {
    "config.json": ("config.json",),
    "tokenizer.json or tokenizer_config.json": ("tokenizer.json", "tokenizer_config.json"),
    "*.safetensors": ("*.safetensors",),
}
"""What a folder needs, in words -> patterns of files, any of which will do."""


def check_model_folder(folder: Path) -> None:
    """Raise ValueError, with what is missing or damaged, unless ``folder`` holds a model."""
    missing = [
        wanted
        for wanted, patterns in NEEDED.items()
        if not any(path.is_file() for pattern in patterns for path in folder.glob(pattern))
    ]
    if missing:
        held = ", ".join(sorted(path.name for path in folder.iterdir())[:8]) or "nothing"
        raise ValueError(
            f"{folder} lacks {', '.join(missing)}: it is not a complete model folder in Hugging "
            f"Face format (it holds: {held})"
        )
    for weights in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(weights, framework="np"):
                pass
        except SafetensorError as error:
            raise ValueError(
                f"{weights} cannot be read ({error}): the file is damaged or incomplete; get it "
                "again"
            ) from error


def may_be_hub_name(name: str) -> bool:
    """Whether ``name`` has the form of a hub name, such as Qwen/Qwen2.5-3B-Instruct.

    ``saves/typo`` is none where there is a folder ``saves``.
    """
    owner, _, model = name.partition("/")
    is_path = name.startswith((".", "~")) or Path(owner).is_dir()
    return bool(owner and model) and "/" not in model and not is_path


def is_here(model: str) -> bool:
    """Whether a model is a folder here or already in the hub's cache."""
    if Path(model).is_dir():
        return True
    return isinstance(huggingface_hub.try_to_load_from_cache(model, "config.json"), str)


def folder_of(model: str) -> Path:
    """The folder of a model on this machine: its own, or that of the hub's cache, into which
    what is missing there is downloaded.

    Raises ValueError with the reason when there is no such model or it cannot be downloaded.
    """
    if Path(model).is_dir():
        return Path(model)
    try:
        folder = Path(huggingface_hub.snapshot_download(model, allow_patterns=list(MODEL_FILES)))
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
    check_model_folder(folder)
    return folder
