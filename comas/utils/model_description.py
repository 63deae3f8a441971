"""Write a model's config and tokenizer files such that transformers 4 and 5 can read them.

Version 5 moves RoPE's base into ``rope_parameters``, which version 4 ignores, and names a tokenizer
class that version 4 lacks.
"""

import json
import shutil
from pathlib import Path
from typing import Any

from comas.utils.files import write_text

COPIED_FILES = (
    "tokenizer*",
    "vocab.*",
    "merges.txt",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template*",
    "generation_config.json",
)
"""Files of the base model to copy unchanged."""

Json = dict[str, Any]


def describe_as(base: Path, folder: Path) -> None:
    """Complete the model that ``save_pretrained`` wrote to ``folder`` with the tokenizer and the
    generation config of ``base`` and, if the architecture is the same, with its config, so that
    any program that reads the base can read the model."""
    written = json.loads((folder / "config.json").read_text())
    base_config = json.loads((base / "config.json").read_text())
    is_same = base_config.get("architectures") == written["architectures"]
    config = {**base_config, "dtype": written["dtype"]} if is_same else written
    _write_json(folder / "config.json", for_both_versions(config))
    copy_tokenizer(base, folder)


def copy_tokenizer(base: Path, folder: Path) -> None:
    """Copy ``base``'s tokenizer files and generation config. ``tokenizer_config.json`` gets names
    that both versions of transformers read."""
    for pattern in COPIED_FILES:
        for source in base.glob(pattern):
            shutil.copyfile(source, folder / source.name)
    path = folder / "tokenizer_config.json"
    if path.is_file():
        said = json.loads(path.read_text())
        if said.get("tokenizer_class") == "TokenizersBackend":
            said["tokenizer_class"] = "PreTrainedTokenizerFast"
        if isinstance(said.get("extra_special_tokens"), list):
            said["additional_special_tokens"] = said.pop("extra_special_tokens")
        _write_json(path, said)


def for_both_versions(config: Json) -> Json:
    """Add the keys of transformers 4 to a ``config.json`` of version 5.

    Example: ``{"rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}}`` gains
    ``"rope_theta": 1e6`` and ``"rope_scaling": None``.
    """
    changed = dict(config)
    if "dtype" in config:
        changed["torch_dtype"] = config["dtype"]
    rope = config.get("rope_parameters")
    if rope is not None and "rope_theta" in rope:  # one for all kinds of layers
        scaling = dict(rope)
        for key in ("rope_theta", "partial_rotary_factor"):
            if key in scaling:
                changed[key] = scaling.pop(key)
        changed["rope_scaling"] = None if rope.get("rope_type", "default") == "default" else scaling
    return changed


def _write_json(path: Path, value: Json) -> None:
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")
