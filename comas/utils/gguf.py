"""Convert models from GGUF, the format of llama.cpp, to Hugging Face format."""

import hashlib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gguf
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.processors import TemplateProcessing

from comas.utils.files import locked, written_aside

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

log = logging.getLogger(__name__)

GGUF_SUFFIX = ".gguf"
TEMPLATE_SUFFIX = ".jinja"
_WRITER = b"2"
"""Version of the conversion, part of the folder's digest."""
_TEMPLATE = "tokenizer.chat_template"
_FREQUENCIES = "rope_freqs.weight"
"""The divisor of each RoPE frequency, by which Llama 3.1 is scaled."""

Metadata = Mapping[str, Any]
Tensors = Mapping[str, gguf.ReaderTensor]


def converted(path: Path, *, saves: Path) -> Path:
    """Return the Hugging Face folder of a GGUF file, named after the file's content:
    ``saves/models/SmolLM2-135M-Instruct.Q4_1-3f2a...``. It is created if it does not exist.

    Raises ValueError if the file does not exist, or does not hold a complete, readable model.
    """
    if not path.is_file():
        raise ValueError(f"{path.parent} lacks {path.name}: there is no such file")
    digest = hashlib.sha256(_WRITER)
    for each in (path, path.with_suffix(TEMPLATE_SUFFIX)):
        if each.is_file():
            with each.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    folder = saves / "models" / f"{path.stem}-{digest.hexdigest()[:12]}"
    with locked(folder.parent, remedy="it writes one model at a time", waits=True):
        if not folder.is_dir():
            write_model(path, folder)
    return folder


def write_model(path: Path, output: Path) -> None:
    """Write the model of a GGUF file, dequantised to bfloat16, with
    tokenizer and chat template, to ``output`` atomically. A template beside the file
    (``NAME.jinja``) takes precedence over the file's own.

    Raises ValueError if the model is damaged, incomplete or unsupported.
    """
    template = path.with_suffix(TEMPLATE_SUFFIX)
    try:
        reader = gguf.GGUFReader(path)
        metadata = {key: field.contents() for key, field in reader.fields.items()}
        tensors = {tensor.name: tensor for tensor in reader.tensors}
        _check_metadata(metadata, template)
        chat_template = template.read_text() if template.is_file() else metadata[_TEMPLATE]
        num_tokens = len(metadata["tokenizer.ggml.tokens"])
        log.info("reading the %d tokens and %d tensors of %s", num_tokens, len(tensors), path)
        tokenizer = make_tokenizer(metadata, chat_template)
        with written_aside(output) as partial:
            model = read_model(metadata, tensors, partial)
            log.info("writing the model, dequantised, as %s", output)
            model.save_pretrained(partial)
            tokenizer.save_pretrained(partial)
    except Exception as error:  # gguf and transformers raise nothing narrower
        reason = " ".join(str(error).split())
        raise ValueError(f"{path} cannot be read as a model: {reason}") from error


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


def read_model(metadata: Metadata, tensors: Tensors, scratch: Path) -> "PreTrainedModel":
    """Return the model in bfloat16, as transformers reads it. ``scratch`` is a folder for a
    temporary file of the tensors' size.

    Raises ValueError if the tensors do not match the model, or its RoPE is scaled.
    """
    import torch
    from transformers import AutoModelForCausalLM

    _check_rope(metadata, tensors)
    plain = scratch / "plain.gguf"
    _write_plain(plain, metadata, tensors)
    read, found = AutoModelForCausalLM.from_pretrained(
        scratch, gguf_file=plain.name, dtype=torch.bfloat16, output_loading_info=True
    )
    plain.unlink()
    if missing := sorted(found["missing_keys"]):
        raise ValueError(
            f"it lacks {len(missing)} weights of the model, first {missing[0]!r}: get it again"
        )
    held = sum(int(tensor.n_elements) for tensor in tensors.values())
    if held != read.num_parameters():
        raise ValueError(
            f"its tensors hold {held} numbers, but transformers reads only "
            f"{read.num_parameters()} of a {read.config.model_type}; get the model in Hugging Face "
            "format"
        )
    if hasattr(read.config, "quantization_config"):  # transformers 5.17 would refuse to save it
        del read.config.quantization_config
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(read.config, dtype=torch.bfloat16)
    model.load_state_dict(read.state_dict(), assign=True)
    model.tie_weights()
    ends = (metadata.get(f"tokenizer.ggml.{end}_token_id") for end in ("eos", "eot"))
    model.generation_config.eos_token_id = [*{end: None for end in ends if end is not None}]
    return model


def _write_plain(path: Path, metadata: Metadata, tensors: Tensors) -> None:
    """Write the model again without its vocabulary, which transformers takes minutes to parse."""
    architecture = metadata["general.architecture"]
    writer = gguf.GGUFWriter(path, architecture)
    left_out = ("GGUF.", "split.", "general.")
    for key, value in metadata.items():
        is_vocabulary = key.startswith("tokenizer.") and isinstance(value, list)
        if not (is_vocabulary or key.startswith(left_out)):
            writer.add_key_value(key, value, gguf.GGUFValueType.get_type(value))
    if f"{architecture}.vocab_size" not in metadata:
        writer.add_vocab_size(len(metadata["tokenizer.ggml.tokens"]))
    for tensor in tensors.values():
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _check_rope(metadata: Metadata, tensors: Tensors) -> None:
    """Raise ValueError if RoPE is scaled, which transformers does not read from GGUF files."""
    rope = f"{metadata['general.architecture']}.rope."
    factor = metadata.get(f"{rope}scaling.factor", metadata.get(f"{rope}scale_linear", 1.0))
    kind = metadata.get(f"{rope}scaling.type", "linear")  # the default of llama.cpp
    if _FREQUENCIES in tensors:
        kind = _FREQUENCIES
    elif kind == "none" or (kind == "linear" and factor in (0.0, 1.0)):
        return
    raise ValueError(f"its RoPE is scaled ({kind}); get the model in Hugging Face format")


_ENDING = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_WORD = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_QWEN2 = rf"{_WORD}|\p{{N}}|{_ENDING}"
_LLAMA3 = rf"{_WORD}|\p{{N}}{{1,3}}|{_ENDING}"
_SPLITS = {
    ("gpt-2",): (_GPT2,),
    ("smollm", "starcoder", "refact"): (r"\p{N}", _GPT2),
    ("qwen2", "stablelm2", "deepseek-r1-qwen"): (_QWEN2,),
    ("llama-bpe", "llama3", "llama-v3", "dbrx", "smaug-bpe"): (_LLAMA3,),
}
"""``tokenizer.ggml.pre`` -> the patterns by which llama.cpp splits a text."""
_WHOLE_FIRST = ("llama-bpe", "llama3", "llama-v3")
"""Pre-tokenizers for which a word in the vocabulary is one token, regardless of merges."""


def make_tokenizer(metadata: Metadata, chat_template: str) -> "PreTrainedTokenizerFast":
    """Return the tokenizer that the metadata of a GGUF file describe. The one that transformers
    builds lacks control tokens (Qwen), the end token (Llama) or the pre-tokenizer (all but Qwen2).

    Raises ValueError if its kind is unknown.
    """
    from transformers import PreTrainedTokenizerFast

    if (kind := _about(metadata, "model")) != "gpt2":
        raise ValueError(
            f"its tokenizer.ggml.model is {kind}, but only gpt2 (byte-level BPE) can be read; get "
            "the model in Hugging Face format"
        )
    tokens: list[str] = _about(metadata, "tokens")
    tokenizer = _byte_level(metadata, tokens)
    types = gguf.TokenType
    added = {types.CONTROL: True, types.UNKNOWN: True, types.USER_DEFINED: False}
    tokenizer.add_tokens(
        [
            AddedToken(token, normalized=False, special=added[of_type])
            for token, of_type in zip(tokens, _about(metadata, "token_type"), strict=True)
            if of_type in added
        ]
    )
    special = {
        f"{name}_token": tokens[token_id]
        for key, name in {"bos": "bos", "eos": "eos", "unknown": "unk", "padding": "pad"}.items()
        if (token_id := _about(metadata, f"{key}_token_id")) is not None
    }
    if _about(metadata, "add_bos_token", False) and (bos := special.get("bos_token")):
        tokenizer.post_processor = TemplateProcessing(
            single=[bos, "$A"], special_tokens=[(bos, _about(metadata, "bos_token_id"))]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        chat_template=chat_template,
        clean_up_tokenization_spaces=False,  # for WordPiece; it removes spaces of the text
        **special,
    )


def _about(metadata: Metadata, key: str, default: Any = None) -> Any:
    return metadata.get(f"tokenizer.ggml.{key}", default)


def _byte_level(metadata: Metadata, tokens: list[str]) -> Tokenizer:
    """Byte-level BPE: GPT-2, Qwen, Llama 3."""
    pre = _about(metadata, "pre")
    known = {name: patterns for names, patterns in _SPLITS.items() for name in names}
    if pre not in known:
        raise ValueError(
            f"its tokenizer.ggml.pre, by which text is split before it is merged, is {pre}, but "
            f"only {', '.join(known)} are known; get the model in Hugging Face format"
        )
    merges = [tuple(merge.split(" ")) for merge in _about(metadata, "merges")]
    vocabulary = {token: token_id for token_id, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=pre in _WHOLE_FIRST))
    if known[pre] == (_QWEN2,):
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            *(pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in known[pre]),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer
