"""Small tokenizers with chat templates in the styles of model families."""

# ruff: noqa: RUF002 - marks of DeepSeek have wide letters

import json
from collections.abc import Sequence
from dataclasses import dataclass

from tables import case_file
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)
from transformers import PreTrainedTokenizerFast

CORPUS = [
    "What is 48 + 23? The answer is 45. system user assistant model You are careful.",
    "[INST] [/INST] <<SYS>> <</SYS>> <start_of_turn>user <end_of_turn> <start_of_turn>model",
    "USER: what? ASSISTANT: that. User: what? Assistant: that. <think> </think> <score>3</score>",
] * 9

TEMPLATES = case_file("chat_styles")["TEMPLATES"]
CHATML = TEMPLATES["CHATML"]


def byte_level(normalizer: normalizers.Normalizer | None = None) -> Tokenizer:
    """As of Qwen and Llama 3: bytes, split by a regular expression first."""
    tokenizer = Tokenizer(models.BPE())
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    split = Regex(r" ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(split, behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return _trained(tokenizer, num_tokens=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())


def wide_letters() -> Tokenizer:
    """Reads ``＜`` as ``<``, as some tokenizers of SentencePiece do."""
    return byte_level(normalizers.NFKC())


def qwen() -> Tokenizer:
    """Bytes after NFC."""
    return byte_level(normalizers.NFC())


def metaspace() -> Tokenizer:
    """As of SentencePiece, a space before the first word alone."""
    tokenizer = _pieces()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    return tokenizer


def prepended() -> Tokenizer:
    """As of Llama 2, where each stretch between special tokens begins with a space."""
    tokenizer = _pieces()
    replaced = normalizers.Replace(" ", "▁")
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), replaced])
    return tokenizer


def _pieces() -> Tokenizer:
    """Merges of characters, and bytes for what is unknown."""
    learnt = Tokenizer(models.BPE())
    learnt.normalizer = normalizers.Replace(" ", "▁")
    learnt.pre_tokenizer = pre_tokenizers.Split(Regex("▁?[^▁]+"), behavior="isolated")
    state = json.loads(_trained(learnt, num_tokens=300, initial_alphabet=[]).to_str())["model"]
    num_learnt = len(state["vocab"])
    in_bytes = {f"<0x{byte:02X}>": num_learnt + byte for byte in range(256)}
    merges = [tuple(merge) for merge in state["merges"]]
    pieces = Tokenizer(models.BPE(state["vocab"] | in_bytes, merges, byte_fallback=True))
    pieces.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return pieces


def _trained(tokenizer: Tokenizer, *, num_tokens: int, initial_alphabet: list[str]) -> Tokenizer:
    trainer = trainers.BpeTrainer(
        vocab_size=num_tokens, initial_alphabet=initial_alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


VOCABULARIES = {of.__name__: of for of in (byte_level, wide_letters, qwen, metaspace, prepended)}


@dataclass(frozen=True)
class Style:
    """A model family's way to write a chat: the names of its template and vocabulary, its marks."""

    template: str
    vocabulary: str
    special: list[str]
    added: Sequence[str] = ()
    """Tokens that are not special."""
    written: Sequence[str] = ()
    """Marks that are no special tokens."""
    has_system: bool = True

    @property
    def marks(self) -> list[str]:
        """What tells turns apart."""
        return [*self.special, *self.written]

    def tokenizer(self) -> PreTrainedTokenizerFast:
        """Made anew, as it may learn tokens."""
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=VOCABULARIES[self.vocabulary](), chat_template=TEMPLATES[self.template]
        )
        special = [AddedToken(token, normalized=False, special=True) for token in self.special]
        tokenizer.add_tokens(special, special_tokens=True)
        tokenizer.add_tokens([AddedToken(token, normalized=True) for token in self.added])
        return tokenizer


STYLES = {name: Style(**style) for name, style in case_file("chat_styles")["STYLES"].items()}
