"""Exported models: cards, configurations for transformers 4 and 5, merged adapters."""

import json
import re
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard
from peft import LoraConfig, PeftModel
from small_runs import QUICKSTART, record, write_records
from tables import case_file
from tiny_models import byte_tokenizer, random_model, save_tiny_model
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from comas.engines.policy.weights import save_model
from comas.preflight.configuration import load_config
from comas.preflight.preparation import prepare
from comas.run import model_cards
from comas.run.model_cards import licence_of, write_model_cards
from comas.run.prepared import Prepared
from comas.utils.model_description import copy_tokenizer
from comas.utils.model_folder import check_model_folder
from scripts.merge_models import main

QWEN_LICENCE = {"license": "other", "license_name": "qwen-research", "license_link": "https://x"}
ROWS = case_file("model_cards")["ROWS"]


@pytest.fixture
def prepared(tmp_path: Path) -> Prepared:
    """Two agents, of which only the first one's base model states a licence."""
    bases = [save_tiny_model(tmp_path / "bases" / family, family) for family in ("tied", "untied")]
    stated = "\n".join(f"{key}: {value}" for key, value in QWEN_LICENCE.items())
    (Path(bases[0]) / "README.md").write_text(f"---\n{stated}\n---\n# A base\n")
    questions = write_records(tmp_path / "mine.jsonl", [record(i) for i in range(3)])
    choice = record(8, task="choice", prompt="What is 1 + 1?\n\n(A) 2\n(B) 3", answer="A")
    held_out = write_records(tmp_path / "held_out.jsonl", [record(9, task="science"), choice])
    overrides = [
        *(f"society.models=[{','.join(bases)}]", "rollout.batch_size=2", f"saves={tmp_path}"),
        *(f"data.train={questions}", f"data.validation={held_out}", "data.probe=null"),
    ]
    return prepare(load_config(QUICKSTART, overrides))


def cards(prepared: Prepared, folder: Path) -> list[ModelCard]:
    for agent, family in enumerate(("tied", "untied")):
        save_tiny_model(folder / f"agent_{agent}", family, seed=agent + 1)
    write_model_cards(folder, prepared, rows=ROWS, num_steps=2)
    return [ModelCard.load(folder / f"agent_{agent}/README.md") for agent in range(2)]


def test_a_card_states_base_licence_data_results_and_recipe(prepared, tmp_path):
    first, second = cards(prepared, tmp_path / "models")
    stated = first.data.to_dict()
    assert {key: stated[key] for key in QWEN_LICENCE} == QWEN_LICENCE
    assert "`tied`. Its licence, and so that of this model: qwen-research" in first.text
    assert second.data.to_dict()["license"] == "unknown"
    assert "The base model is `untied`. It states no licence" in second.text
    for line in (
        "  train: mine.jsonl",
        "|  | greedy, at step 0 | greedy, at step 2 | sampled, at step 0 | sampled, at step 2 |",
        "| all agents | 20.0 | 90.0 | 25.0 | 75.0 |",
        "| agent 0 | - | 80.0 | 50.0 | 62.5 |",
        "  name: reinforce_pp",
        "`reward.scheme: interaction`",
    ):
        assert line in first.text
    assert str(tmp_path) not in first.text + second.text  # no private paths


def test_a_frozen_agent_gets_no_card(prepared, tmp_path):
    prepared.config.society.update_every = [1, 0]
    (tmp_path / "models/agent_0").mkdir(parents=True)
    write_model_cards(tmp_path / "models", prepared, rows=ROWS, num_steps=2)
    assert [path.name for path in (tmp_path / "models").iterdir()] == ["agent_0"]


def test_a_model_without_a_card_or_with_a_broken_one_states_no_licence(tmp_path):
    assert licence_of(str(tmp_path)) == {}
    (tmp_path / "README.md").write_text("# no metadata\n")
    assert licence_of(str(tmp_path)) == {}
    assert licence_of("nobody/has-this") == {}


def save_adapter(base: Path, folder: Path) -> PeftModel:
    """A random adapter with the base's tokenizer beside it, as a run saves it."""
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    config = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
    adapted = PeftModel(model, config)
    torch.manual_seed(3)
    for name, weight in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.1)
    adapted.peft_config["default"].base_model_name_or_path = str(base)
    adapted.save_pretrained(str(folder))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((base / name).read_bytes())
    return adapted


def test_a_merged_model_is_whole_and_says_what_its_adapter_says(tmp_path):
    base = Path(save_tiny_model(tmp_path / "base", "tied"))
    adapted = save_adapter(base, tmp_path / "run/models/agent_1")
    template = (Path(model_cards.__file__).parent / "model_card.md").read_text()
    [*_, about] = re.findall("{% if config.policy.lora.rank %}(.*?){% endif %}", template, re.S)
    card = f"---\nlibrary_name: peft\nlicense: mit\n---\n# Agent 1\n\n{about}## Data\n"
    (tmp_path / "run/models/agent_1/README.md").write_text(card)
    assert main([str(tmp_path / "run")]) == 0
    output = tmp_path / "run/merged/agent_1"
    assert (output / "README.md").read_text() == (
        "---\nlibrary_name: transformers\nlicense: mit\n---\n"
        "# Agent 1\n\nA LoRA adapter of rank 4 is merged into it.\n\n## Data\n"
    )
    check_model_folder(output)
    assert (output / "tokenizer.json").is_file()
    assert not list(output.glob("adapter_*"))
    merged = AutoModelForCausalLM.from_pretrained(output, dtype=torch.float32)
    ids = torch.arange(3, 40)[None]
    with torch.no_grad():
        assert torch.allclose(merged(ids).logits, adapted(ids).logits, atol=1e-4)
        plain = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)(ids).logits
        assert (plain - merged(ids).logits).abs().max() > 0.1


LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0} | {
    "original_max_position_embeddings": 256,
    "rope_type": "llama3",
}
ROPE = {"rope_theta": 5e5, **LLAMA3}
OLDER_NAMES = {"rope_theta": 5e5, "rope_scaling": LLAMA3}
"""``ROPE`` as transformers 4 writes it."""
TEXT = "So 48 + 23 = 71.\n<|im_end|>Ünïcode"


def save_base(folder: Path, *, version: int = 5) -> Path:
    """Save a base model as that version of transformers writes it."""
    model = random_model("untied", seed=0, rope_parameters=ROPE)  # type: ignore[arg-type]
    model.save_pretrained(folder)
    tokenizer = byte_tokenizer()
    tokenizer.add_special_tokens({"extra_special_tokens": ["<|im_start|>"]})
    tokenizer.save_pretrained(folder)
    if version == 4:
        config = read(folder / "config.json")
        del config["rope_parameters"], config["dtype"]
        older = config | OLDER_NAMES | {"torch_dtype": "float32"}
        (folder / "config.json").write_text(json.dumps(older | {"transformers_version": "4.43.1"}))
    return folder


def save_whole(base: Path, output: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16)
    save_model(model, output, base=base, rank=0)


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


@pytest.mark.parametrize("version", [4, 5])
def test_an_exported_model_is_described_in_the_words_of_both_versions(tmp_path, version):
    base, output = save_base(tmp_path / "base", version=version), tmp_path / "agent_0"
    save_whole(base, output)
    config = read(output / "config.json")
    assert {key: config[key] for key in OLDER_NAMES} == OLDER_NAMES
    assert config["torch_dtype"] == config["dtype"] == "bfloat16"
    assert read(output / "tokenizer_config.json")["tokenizer_class"] == "PreTrainedTokenizerFast"
    before, after = (AutoConfig.from_pretrained(path).to_dict() for path in (base, output))
    assert {key for key in before if before[key] != after[key]} <= {"_name_or_path", "dtype"}
    assert after["rope_parameters"] == ROPE
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


SAY = case_file("model_cards")["SAY"]


@pytest.fixture(scope="module")
def older_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with transformers 4.57 from the package index, and this environment's torch."""
    venv = tmp_path_factory.mktemp("older") / "venv"
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    subprocess.run([venv / "bin/pip", "install", "-q", "transformers==4.57.*"], check=True)
    [packages] = venv.glob("lib/python3*/site-packages")
    (packages / "zz_torch.pth").write_text(sysconfig.get_path("purelib"))
    return venv / "bin/python"


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["", "qwen2", "llama"])
def test_transformers_4_57_says_the_same(older_python, society, tmp_path, agent):
    base = society / "models" / agent if agent else save_base(tmp_path / "base")
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
