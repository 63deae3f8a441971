"""Model folders in Hugging Face format, and names of models on the hub."""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError, safe_open

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
