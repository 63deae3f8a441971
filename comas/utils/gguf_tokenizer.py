"""Build the tokenizer of a GGUF file from its metadata.

The one that transformers builds lacks control tokens (Qwen), the end token (Llama) or the
pre-tokenizer (all but Qwen2).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import gguf
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

Metadata = Mapping[str, Any]

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
    """Return the tokenizer that the metadata of a GGUF file describe. Raises ValueError if its kind
    is unknown."""
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
    names = {"bos": "bos", "eos": "eos", "unknown": "unk", "padding": "pad"}
    special = {
        f"{name}_token": tokens[token_id]
        for key, name in names.items()
        if (token_id := _about(metadata, f"{key}_token_id")) is not None
    }
    if _about(metadata, "add_bos_token", False) and (bos := special.get("bos_token")):
        tokenizer.post_processor = processors.TemplateProcessing(
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
    whole_first = pre in _WHOLE_FIRST
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=whole_first))
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
