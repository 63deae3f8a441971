"""Models in GGUF, the one-file format of llama.cpp, written as folders in Hugging Face format."""

import hashlib
import logging
from pathlib import Path

from comas.utils.files import locked, written_aside

log = logging.getLogger(__name__)

GGUF_SUFFIX = ".gguf"


def converted(gguf: Path, *, saves: Path) -> Path:
    """The folder in Hugging Face format of a GGUF file, named by the file's contents:
    ``saves/models/SmolLM2-135M-Instruct.Q4_1-3f2a...``. It is written if it is not there.

    Raises ValueError when there is no such file, or it holds no model that transformers can read.
    """
    if not gguf.is_file():
        raise ValueError(f"{gguf}: there is no such file")
    with gguf.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    folder = saves / "models" / f"{gguf.stem}-{digest[:12]}"
    with locked(folder.parent, remedy="it writes one model at a time", waits=True):
        if not folder.is_dir():
            log.info("writing the model of %s, dequantised, as %s", gguf, folder)
            write_model(gguf, folder)
    return folder


def write_model(gguf: Path, output: Path) -> None:
    """Write the model of a GGUF file, dequantised to bfloat16, with its tokenizer and chat
    template, to ``output``, whole or not at all. Raises ValueError when it cannot be read."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    where = {"pretrained_model_name_or_path": gguf.parent, "gguf_file": gguf.name}
    try:
        tokenizer = AutoTokenizer.from_pretrained(**where)
        read = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    except Exception as error:  # gguf and transformers raise nothing narrower
        reason = " ".join(str(error).split())
        raise ValueError(f"{gguf} cannot be read as a model ({reason})") from error
    # Trap: transformers takes the end token from what opens a turn, and the configuration from
    # what the file says; and it saves no model that it has read from a quantised file as such.
    tokenizer.eos_token_id = read.config.eos_token_id
    tokenizer.pad_token_id = read.config.pad_token_id
    tokenizer.clean_up_tokenization_spaces = False  # made for WordPiece; it eats spaces of text
    if hasattr(read.config, "quantization_config"):  # else transformers 5.17 saves it never again
        del read.config.quantization_config
    model = AutoModelForCausalLM.from_config(read.config, dtype=torch.bfloat16)
    model.load_state_dict(read.state_dict())
    with written_aside(output) as partial:
        model.save_pretrained(partial)
        tokenizer.save_pretrained(partial)
