"""What is exported says the same to transformers 4 as to version 5."""

import json
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tiny_models import byte_tokenizer, random_model
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from comas.engines.policy.weights import save_model
from comas.run import model_cards
from comas.utils.model_description import copy_tokenizer

LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0} | {
    "original_max_position_embeddings": 256,
    "rope_type": "llama3",
}
ROPE = {
    "tied": {"rope_theta": 1e6, "rope_type": "default"},
    "untied": {"rope_theta": 5e5, **LLAMA3},
}
"""By family of ``random_model``."""
OLDER_NAMES: dict[str, dict[str, object]] = {
    "tied": {"rope_theta": 1e6, "rope_scaling": None},
    "untied": {"rope_theta": 5e5, "rope_scaling": LLAMA3},
}
"""The same as ``ROPE``, as transformers 4 writes it."""
TEXT = "So 48 + 23 = 71.\n<|im_end|>Ünïcode"
FAMILIES = pytest.mark.parametrize("family", list(ROPE))


def save_base(folder: Path, family: str, *, version: int = 5) -> Path:
    """A base model whose configuration and tokenizer were written by that version."""
    model = random_model(family, seed=0, rope_parameters=ROPE[family])  # type: ignore[arg-type]
    model.save_pretrained(folder)
    tokenizer = byte_tokenizer()
    tokenizer.add_special_tokens({"extra_special_tokens": ["<|im_start|>"]})
    tokenizer.save_pretrained(folder)
    if version == 4:
        config = read(folder / "config.json")
        del config["rope_parameters"], config["dtype"]
        older = config | OLDER_NAMES[family] | {"torch_dtype": "float32"}
        (folder / "config.json").write_text(json.dumps(older | {"transformers_version": "4.43.1"}))
    return folder


def save_whole(base: Path, output: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16)
    save_model(model, output, base=base, rank=0)


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


@FAMILIES
@pytest.mark.parametrize("version", [4, 5])
def test_an_exported_model_is_described_in_the_words_of_both_versions(tmp_path, family, version):
    base, output = save_base(tmp_path / "base", family, version=version), tmp_path / "agent_0"
    save_whole(base, output)
    config = read(output / "config.json")
    assert {key: config[key] for key in OLDER_NAMES[family]} == OLDER_NAMES[family]
    assert config["torch_dtype"] == config["dtype"] == "bfloat16"
    assert read(output / "tokenizer_config.json")["tokenizer_class"] == "PreTrainedTokenizerFast"
    before, after = (AutoConfig.from_pretrained(path).to_dict() for path in (base, output))
    assert {key for key in before if before[key] != after[key]} <= {"_name_or_path", "dtype"}
    assert after["rope_parameters"] == ROPE[family]
    written, found = (AutoTokenizer.from_pretrained(path) for path in (base, output))
    assert found(TEXT).input_ids == written(TEXT).input_ids
    assert found.extra_special_tokens == written.extra_special_tokens == ["<|im_start|>"]
    assert found.chat_template == written.chat_template


def test_a_tokenizer_that_version_4_wrote_stays_as_it_is(tmp_path):
    said = {
        "tokenizer_class": "Qwen2Tokenizer",
        "additional_special_tokens": ["<|im_start|>"],
        "extra_special_tokens": {"image_token": "<image>"},
    }
    base, folder = tmp_path / "base", tmp_path / "copy"
    for each in (base, folder):
        each.mkdir()
    (base / "tokenizer_config.json").write_text(json.dumps(said))
    copy_tokenizer(base, folder)
    assert json.loads((folder / "tokenizer_config.json").read_text()) == said


def test_a_card_names_the_versions_that_were_tried():
    """After an upgrade of the pins: run the slow test below, then change the card."""
    card = (Path(model_cards.__file__).parent / "model_card.md").read_text()
    assert f"tried with 4.57.6 and {transformers.__version__}" in card


SAY = """
import sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer, __version__
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], torch_dtype="auto").double()
ids = torch.tensor([tokenizer(sys.argv[2]).input_ids * 8])
chat = tokenizer.apply_chat_template([{"role": "user", "content": sys.argv[2]}], tokenize=False)
torch.save((__version__, ids, chat, model(ids).logits.log_softmax(-1)), sys.argv[3])
"""


@pytest.fixture(scope="module")
def older_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with transformers 4.57, from the package index, and this environment's torch."""
    venv = tmp_path_factory.mktemp("older") / "venv"
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    subprocess.run([venv / "bin/pip", "install", "-q", "transformers==4.57.*"], check=True)
    [packages] = venv.glob("lib/python3*/site-packages")
    (packages / "zz_torch.pth").write_text(sysconfig.get_path("purelib"))
    return venv / "bin/python"


@pytest.mark.slow
@pytest.mark.parametrize("agent", [*ROPE, "qwen2", "llama"])
def test_transformers_4_57_says_the_same(older_python, society, tmp_path, agent):
    """Of models with other positions than the default, and of the quick-start's."""
    base = save_base(tmp_path / "base", agent) if agent in ROPE else society / "models" / agent
    save_whole(base, tmp_path / "agent_0")
    said = []
    for python in (Path(sys.executable), older_python):
        command = [python, "-c", SAY, tmp_path / "agent_0", TEXT, tmp_path / "said.pt"]
        subprocess.run(command, check=True)
        said.append(torch.load(tmp_path / "said.pt"))
    (here, *ours), (there, *theirs) = said
    assert here.startswith("5.") and there.startswith("4.57.")
    assert torch.equal(ours[0], theirs[0]) and ours[1] == theirs[1]
    torch.testing.assert_close(theirs[2], ours[2])
