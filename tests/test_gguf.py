"""A GGUF file becomes a model folder like any other, or is refused."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import sentencepiece
import torch
from sentencepiece import sentencepiece_model_pb2
from tables import cases
from tiny_models import CHAT_TEMPLATE, END_OF_TURN, byte_tokenizer, random_model
from transformers import AutoModelForCausalLM, PreTrainedModel

from comas.preflight.locations import locate
from comas.utils.gguf import converted
from comas.utils.gguf_tokenizer import check_written, make_tokenizer
from comas.utils.model_folder import check_model_folder, load_tokenizer

NAMES = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN2, 2)
CHAT = [{"role": "user", "content": "What is 1 + 1?"}]


def write_gguf(
    path: Path,
    model: PreTrainedModel,
    *,
    change: Callable[..., None] = lambda metadata, tensors: None,
    tensors_of_a_shard: int = 0,
) -> None:
    """As llama.cpp writes a Qwen2, in float32. Its first special token is no end, and yet
    transformers takes a token that opens turns for it."""
    config = model.config
    vocabulary = byte_tokenizer().get_vocab()
    metadata: dict[str, Any] = {
        "general.type": "model",
        "qwen2.block_count": config.num_hidden_layers,
        "qwen2.context_length": config.max_position_embeddings,
        "qwen2.embedding_length": config.hidden_size,
        "qwen2.feed_forward_length": config.intermediate_size,
        "qwen2.attention.head_count": config.num_attention_heads,
        "qwen2.attention.head_count_kv": config.num_key_value_heads,
        "qwen2.attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "qwen2.rope.freq_base": float(config.rope_parameters["rope_theta"]),
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": [*sorted(vocabulary, key=vocabulary.__getitem__), "~}", "}~"],
        "tokenizer.ggml.token_type": [
            *[gguf.TokenType.CONTROL] * 3,
            *[gguf.TokenType.NORMAL] * 258,
        ],
        "tokenizer.ggml.merges": ["~ }", "} ~"],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": END_OF_TURN,
        "tokenizer.ggml.padding_token_id": 0,
        "tokenizer.chat_template": CHAT_TEMPLATE,
    }
    tensors = {
        NAMES.get_name(name, (".weight", ".bias")): weight.detach().numpy()
        for name, weight in model.named_parameters()
    }
    change(metadata, tensors)
    writer = gguf.GGUFWriter(path, "qwen2", split_max_tensors=tensors_of_a_shard)
    for key, value in metadata.items():
        kind = gguf.GGUFValueType.get_type(value)
        whole = kind == gguf.GGUFValueType.INT32
        writer.add_key_value(key, value, gguf.GGUFValueType.UINT32 if whole else kind)
    for name, weight in tensors.items():
        writer.add_tensor(name, weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def tiny(**changes: Any) -> PreTrainedModel:
    return random_model("tied", seed=3, vocab_size=261, **changes)


def assert_same_weights(folder: Path, model: PreTrainedModel) -> None:
    read = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for name, weight in model.named_parameters():  # but for the rounding to bfloat16
        torch.testing.assert_close(read.get_parameter(name), weight.bfloat16().float())


def test_a_gguf_file_becomes_a_model_folder_once(tmp_path):
    write_gguf(tmp_path / "tiny.gguf", tiny())
    name = str(tmp_path / "tiny.gguf")
    folder = Path(locate([name], saves=tmp_path, seed=0, found_before={})[name])
    check_model_folder(folder)
    tokenizer = load_tokenizer(folder)
    assert tokenizer.eos_token_id == END_OF_TURN and tokenizer.pad_token_id == 0
    prompt = tokenizer.apply_chat_template(CHAT)
    assert prompt == byte_tokenizer().apply_chat_template(CHAT)
    assert_same_weights(folder, tiny())
    before = (folder / "model.safetensors").stat().st_mtime_ns
    assert converted(tmp_path / "tiny.gguf", saves=tmp_path) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == before


def test_shards_are_joined_and_one_that_is_absent_is_named(tmp_path):
    write_gguf(tmp_path / "tiny.gguf", tiny(), tensors_of_a_shard=10)
    shards = sorted(tmp_path.glob("*.gguf"))
    assert [path.name for path in shards] == [f"tiny-0000{n}-of-00003.gguf" for n in (1, 2, 3)]
    folder = converted(shards[1], saves=tmp_path)
    assert folder.name.startswith("tiny-") and "of" not in folder.name
    assert_same_weights(folder, tiny())
    shards[2].rename(tmp_path / "kept")
    with pytest.raises(ValueError, match=r"lacks tiny-00003-of-00003\.gguf: there is no such file"):
        converted(shards[0], saves=tmp_path)
    shards[0].rename(tmp_path / "alone.gguf")
    with pytest.raises(ValueError, match="one of 3 shards with 26 tensors, but 1 with 10 are"):
        converted(tmp_path / "alone.gguf", saves=tmp_path)


def without(key: str) -> Callable[..., None]:
    return lambda metadata, tensors: (metadata if key in metadata else tensors).pop(key)


def having(key: str, value: Any) -> Callable[..., None]:
    is_tensor = isinstance(value, np.ndarray)
    return lambda metadata, tensors: (tensors if is_tensor else metadata).update({key: value})


REFUSED = {
    "a tensor is missing": (without("blk.1.ffn_up.weight"), r"lacks 1 weights .*1\.mlp\.up"),
    "a tensor too many": (
        having("blk.1.attn_output.bias", np.ones(64, np.float32)),
        r"hold 99392 numbers, but transformers knows a place .* for 99328 only",
    ),
    "no end token": (without("tokenizer.ggml.eos_token_id"), "it has no end token"),
    "no template": (without("tokenizer.chat_template"), r"no chat template.*write .*tiny\.jinja"),
    "a kind of tokenizer": (having("tokenizer.ggml.model", "rwkv"), "is rwkv, but only llama and"),
    "a way to split": (having("tokenizer.ggml.pre", "viking"), "is viking, but only gpt-2"),
    "unknown scaling": (
        having("rope_freqs.weight", np.linspace(1, 8, 16, dtype=np.float32)),
        "scaled by rope_freqs.weight",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_file_that_is_not_a_whole_known_model_is_refused(case, tmp_path):
    change, message = REFUSED[case]
    write_gguf(tmp_path / "tiny.gguf", tiny(), change=change)
    for _ in range(2):  # nothing is left of the first time
        with pytest.raises(ValueError, match=rf"tiny\.gguf cannot be read as a model: .*{message}"):
            converted(tmp_path / "tiny.gguf", saves=tmp_path)
    assert [path.name for path in (tmp_path / "models").iterdir()] == [".lock"]


def test_a_chat_template_beside_the_file_comes_before_its_own(tmp_path):
    write_gguf(tmp_path / "tiny.gguf", tiny(), change=without("tokenizer.chat_template"))
    prompts = []
    for template in ("{{ messages[0]['content'] }}", "<|im_start|>{{ messages[0]['content'] }}"):
        (tmp_path / "tiny.jinja").write_text(template)
        tokenizer = load_tokenizer(converted(tmp_path / "tiny.gguf", saves=tmp_path))
        prompts.append(tokenizer.apply_chat_template(CHAT, tokenize=False))
    assert prompts == ["What is 1 + 1?", "<|im_start|>What is 1 + 1?"]


def llama_3_factors(size: int, theta: float, factor: float) -> np.ndarray:
    """What llama.cpp writes as rope_freqs.weight: 1 for waves below 8192 / 4 tokens, ``factor`` for
    those above 8192, between them a mixture."""
    waves = [2 * math.pi * theta ** (2 * i / size) for i in range(size // 2)]
    shares = [min(1.0, max(0.0, (8192 / wave - 1) / 3)) for wave in waves]
    return np.array([1 / ((1 - s) / factor + s) for s in shares], np.float32)


SCALED = {
    "linear": {"factor": 4.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 256, "beta_fast": 16.0},
    "llama3": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
}


@pytest.mark.parametrize("kind", SCALED)
def test_scaling_of_rope_is_carried_over(kind, tmp_path):
    rope = {"rope_type": kind, "rope_theta": 10000.0, **SCALED[kind]}
    model = tiny(rope_parameters=rope)
    for weight in model.parameters():  # not the frequencies
        weight.data = weight.data.bfloat16().float()

    def change(metadata: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
        if kind == "llama3":
            tensors["rope_freqs.weight"] = llama_3_factors(32, 10000.0, 8.0)
            return
        metadata["qwen2.rope.scaling.type"] = kind
        metadata["qwen2.rope.scaling.factor"] = 4.0
        if kind == "yarn":
            metadata["qwen2.rope.scaling.original_context_length"] = 256
            metadata["qwen2.rope.scaling.yarn_beta_fast"] = 16.0

    write_gguf(tmp_path / "tiny.gguf", model, change=change)
    folder = converted(tmp_path / "tiny.gguf", saves=tmp_path)
    read = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokens = torch.randint(3, 250, (1, 600), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(read(tokens).logits, model(tokens).logits)


TEXT = (
    "The capital of France is Paris, and  two   spaces\n\n\tmake 3 more. Naïve 日本 🙂 x = {a: 1}\n"
)


def sentence_piece(*, prefix: bool) -> sentencepiece.SentencePieceProcessor:
    """A vocabulary like Llama 2's, with a ``prefix``, or Gemma's."""
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(Path(__file__).read_text().splitlines()),
        model_writer=written,
        model_type="bpe",
        vocab_size=700,
        byte_fallback=True,
        control_symbols=["<start_of_turn>", "<end_of_turn>"],
        user_defined_symbols=[] if prefix else ["\n\n", "▁▁", "▁▁▁"],
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=prefix,
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=written.getvalue())


def metadata_of(processor: sentencepiece.SentencePieceProcessor, *, prefix: bool) -> dict[str, Any]:
    """As llama.cpp writes them, with plain spaces in user-defined tokens."""
    proto = sentencepiece_model_pb2.ModelProto()  # type: ignore[attr-defined]
    proto.ParseFromString(processor.serialized_model_proto())
    user_defined = gguf.TokenType.USER_DEFINED
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [
            piece.piece.replace("▁", " ") if piece.type == user_defined else piece.piece
            for piece in proto.pieces
        ],
        "tokenizer.ggml.scores": [piece.score for piece in proto.pieces],
        "tokenizer.ggml.token_type": [piece.type for piece in proto.pieces],
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_space_prefix": prefix,
    }


@cases("model_type, prefix", ("llama", True), ("mistral", True), ("gemma3_text", False))
def test_a_vocabulary_of_sentence_piece_is_read_as_sentence_piece_reads_it(
    model_type, prefix, tmp_path
):
    processor = sentence_piece(prefix=prefix)
    metadata = metadata_of(processor, prefix=prefix)
    template = "{{ bos_token }}<start_of_turn>{{ messages[0]['content'] }}<end_of_turn>"
    made = make_tokenizer(metadata, template)
    made.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type, "vocab_size": 700}))
    check_written(tmp_path, made)
    loaded = load_tokenizer(tmp_path)
    for line in [TEXT, *Path(__file__).read_text().splitlines()]:
        if "_of_turn" in line or "▁" in line:  # text to SentencePiece, and the space itself
            continue
        ids = loaded.encode(line, add_special_tokens=False)
        assert ids == processor.encode(line) and loaded.decode(ids) == line
    assert len(loaded.encode(TEXT)) == len(processor.encode(TEXT)) + 1  # the first token, once
    start, end = map(processor.piece_to_id, ("<start_of_turn>", "<end_of_turn>"))
    chat = loaded.apply_chat_template(CHAT, return_dict=False)
    assert chat == [1, start, *processor.encode("What is 1 + 1?"), end]
    assert loaded.eos_token_id == 2


@cases(
    "pre, pieces",
    ("gpt-2", "aB Ġ 12345 Ġ z q ! Ċ"),
    ("smollm", "aB Ġ 1 2 3 4 5 Ġ z q ! Ċ"),
    ("qwen2", "aB Ġ 1 2 3 4 5 Ġ z q !Ċ"),
    ("llama-bpe", "aB Ġ 123 4 5 Ġzq !Ċ"),
    ("tekken", "a B Ġ 1 2 3 4 5 Ġzq !Ċ"),
)
def test_text_is_split_before_it_is_merged_as_the_file_says(pre, pieces):
    merges = ["a B", "1 2", "12 3", "123 4", "1234 5", "! Ċ"]
    tokens = [*byte_tokenizer().get_vocab(), *(merge.replace(" ", "") for merge in merges), "Ġzq"]
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [gguf.TokenType.NORMAL] * len(tokens),
        "tokenizer.ggml.merges": merges,
    }
    assert make_tokenizer(metadata, "").tokenize("aB 12345 zq!\n") == pieces.split()
