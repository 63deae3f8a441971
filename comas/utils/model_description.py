"""Configuration and tokenizer files beside a model's weights, in a form that transformers 4 and 5
read alike.

Version 5 moves RoPE's base into ``rope_parameters``, where version 4 does not look, and names
tokenizers by a class that version 4 does not have.
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
"""Files of the base model that training does not change."""

Json = dict[str, Any]


def describe_as(base: Path, folder: Path) -> None:
    """Complete the model that ``save_pretrained`` has written into ``folder``: with the tokenizer
    and generation settings of ``base`` and, where the architecture is the same, its configuration,
    so that whatever can read the base can read the model."""
    written = json.loads((folder / "config.json").read_text())
    base_config = json.loads((base / "config.json").read_text())
    is_same = base_config.get("architectures") == written["architectures"]
    config = {**base_config, "dtype": written["dtype"]} if is_same else written
    _write_json(folder / "config.json", for_both_versions(config))
    copy_tokenizer(base, folder)


def copy_tokenizer(base: Path, folder: Path) -> None:
    """Copy ``base``'s tokenizer files and generation settings; ``tokenizer_config.json`` under
    names that transformers 4 knows and version 5 still reads."""
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
    """``config.json`` with the keys of transformers 4 beside those of version 5.

    Example: ``{"rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}}`` gains
    ``"rope_theta": 1e6`` and ``"rope_scaling": None``.
    """
    changed = dict(config)
    if "dtype" in config:
        changed["torch_dtype"] = config["dtype"]
    rope = config.get("rope_parameters")
    if rope is not None and "rope_theta" in rope:  # not one for each kind of layer
        scaling = dict(rope)
        for key in ("rope_theta", "partial_rotary_factor"):
            if key in scaling:
                changed[key] = scaling.pop(key)
        changed["rope_scaling"] = None if rope.get("rope_type", "default") == "default" else scaling
    return changed


def _write_json(path: Path, value: Json) -> None:
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")
