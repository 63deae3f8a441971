"""Convert models from GGUF, the format of llama.cpp, to Hugging Face format."""

import hashlib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from comas.utils.files import locked, written_aside

log = logging.getLogger(__name__)

GGUF_SUFFIX = ".gguf"
_WRITER = b"2"
"""Version of the conversion, part of the folder's digest."""


def converted(gguf: Path, *, saves: Path) -> Path:
    """Return the Hugging Face folder of a GGUF file, named after the file's content:
    ``saves/models/SmolLM2-135M-Instruct.Q4_1-3f2a...``. It is created if it does not exist.

    Raises ValueError if the file does not exist, or does not hold a complete, readable model.
    """
    if not gguf.is_file():
        raise ValueError(f"{gguf.parent} lacks {gguf.name}: there is no such file")
    digest = hashlib.sha256(_WRITER)
    for path in (gguf, _template(gguf)):
        if path.is_file():
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    folder = saves / "models" / f"{gguf.stem}-{digest.hexdigest()[:12]}"
    with locked(folder.parent, remedy="it writes one model at a time", waits=True):
        if not folder.is_dir():
            write_model(gguf, folder)
    return folder


def write_model(gguf: Path, output: Path) -> None:
    """Write the model of a GGUF file, dequantised to bfloat16, with
    tokenizer and chat template, to ``output`` atomically. A template beside the file
    (``NAME.jinja``) takes precedence over the file's own.

    Raises ValueError if the model is damaged, incomplete or unsupported.
    """
    from comas.utils.gguf_tokenizer import make_tokenizer
    from comas.utils.gguf_weights import read_file, read_model

    template = _template(gguf)
    try:
        metadata, tensors = read_file(gguf)
        _check_metadata(metadata, template)
        chat_template = template.read_text() if template.is_file() else metadata[_TEMPLATE]
        num_tokens = len(metadata["tokenizer.ggml.tokens"])
        log.info("reading the %d tokens and %d tensors of %s", num_tokens, len(tensors), gguf)
        tokenizer = make_tokenizer(metadata, chat_template)
        with written_aside(output) as partial:
            model = read_model(metadata, tensors, partial)
            log.info("writing the model, dequantised, as %s", output)
            model.save_pretrained(partial)
            tokenizer.save_pretrained(partial)
    except Exception as error:  # gguf and transformers raise nothing narrower
        reason = " ".join(str(error).split())
        raise ValueError(f"{gguf} cannot be read as a model: {reason}") from error


_TEMPLATE = "tokenizer.chat_template"


def _template(gguf: Path) -> Path:
    """Return the path of the user's chat template."""
    return gguf.with_suffix(".jinja")


def _check_metadata(metadata: Mapping[str, Any], template: Path) -> None:
    """Raise ValueError if the metadata show that the model cannot be used."""
    if (kind := metadata.get("general.type", "model")) != "model":
        raise ValueError(
            f"it is not a complete model but a file of type {kind} (general.type); merge it into "
            "its model first, or name the model's own file"
        )
    if (num_shards := metadata.get("split.count", 1)) > 1:
        raise ValueError(
            f"it is one of {num_shards} shards: merge them with llama-gguf-split --merge, or get "
            "the model in Hugging Face format"
        )
    if "tokenizer.ggml.eos_token_id" not in metadata:
        raise ValueError(
            "it has no end token (tokenizer.ggml.eos_token_id), so no response would ever end; get "
            "another file of the model"
        )
    if _TEMPLATE not in metadata and not template.is_file():
        raise ValueError(
            "it has no chat template, but every prompt is a chat message: choose an "
            f"instruction-tuned model, or write a template to {template}"
        )
