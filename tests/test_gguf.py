"""A GGUF file becomes a model folder like any other, or is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from tables import cases
from tiny_models import CHAT_TEMPLATE, END_OF_TURN, byte_tokenizer, random_model
from transformers import AutoModelForCausalLM, PreTrainedModel

from comas.preflight.locations import locate
from comas.utils.gguf import converted, make_tokenizer
from comas.utils.model_folder import check_model_folder, load_tokenizer

NAMES = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN2, 2)
CHAT = [{"role": "user", "content": "What is 1 + 1?"}]


def write_gguf(
    path: Path, model: PreTrainedModel, *, change=lambda metadata, tensors: None
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
    writer = gguf.GGUFWriter(path, "qwen2")
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


def test_a_gguf_file_becomes_a_model_folder_once(tmp_path):
    write_gguf(tmp_path / "tiny.gguf", tiny())
    file = str(tmp_path / "tiny.gguf")
    folder = Path(locate(file, saves=tmp_path, seed=0, found_before={file: "/moved/away"}))
    check_model_folder(folder)
    tokenizer = load_tokenizer(folder)
    assert tokenizer.eos_token_id == END_OF_TURN and tokenizer.pad_token_id == 0
    assert tokenizer.apply_chat_template(CHAT) == byte_tokenizer().apply_chat_template(CHAT)
    assert tokenizer.decode(tokenizer.encode("Naïve 日本 🙂")) == "Naïve 日本 🙂"
    read = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for name, weight in tiny().named_parameters():  # but for the rounding to bfloat16
        torch.testing.assert_close(read.get_parameter(name), weight.bfloat16().float())
    before = (folder / "model.safetensors").stat().st_mtime_ns
    assert converted(tmp_path / "tiny.gguf", saves=tmp_path) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == before


def without(key: str) -> Callable[..., None]:
    return lambda metadata, tensors: (metadata if key in metadata else tensors).pop(key)


def having(key: str, value: Any) -> Callable[..., None]:
    is_tensor = isinstance(value, np.ndarray)
    return lambda metadata, tensors: (tensors if is_tensor else metadata).update({key: value})


MORE = having("blk.1.attn_output.bias", np.ones(64, np.float32))
REFUSED = {
    "a tensor is missing": (without("blk.1.ffn_up.weight"), r"lacks 1 weights .*1\.mlp\.up"),
    "a tensor too many": (MORE, "hold 99392 numbers, but transformers reads only 99328 of a qwen2"),
    "no end token": (without("tokenizer.ggml.eos_token_id"), "it has no end token"),
    "no template": (without("tokenizer.chat_template"), r"no chat template.*write .*tiny\.jinja"),
    "a shard": (having("split.count", 2), "one of 2 shards: merge them with llama-gguf-split"),
    "SentencePiece": (having("tokenizer.ggml.model", "llama"), "is llama, but only gpt2 .*Hugging"),
    "a way to split": (having("tokenizer.ggml.pre", "tekken"), "is tekken, but only gpt-2, smollm"),
    "scaled RoPE": (having("qwen2.rope.scaling.type", "yarn"), r"scaled \(yarn\); get .*Hugging"),
    "a longer RoPE": (having("qwen2.rope.scale_linear", 4.0), r"scaled \(linear\)"),
    "Llama 3's RoPE": (
        having("rope_freqs.weight", np.linspace(1, 8, 16, dtype=np.float32)),
        r"scaled \(rope_freqs\.weight\)",
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


@cases("pre, pieces")
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
