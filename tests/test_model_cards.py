"""Exported models: cards, configurations, merged adapters."""

import json
import re
from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard
from peft import LoraConfig, PeftModel
from small_runs import QUICKSTART, record, write_records
from tables import case_file
from tiny_models import byte_tokenizer, random_model, save_tiny_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from comas.engines.policy.weights import save_model
from comas.preflight.configuration import load_config
from comas.preflight.preparation import prepare
from comas.run import model_cards
from comas.run.model_cards import licence_of, write_model_cards
from comas.run.prepared import Prepared
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


def test_a_card_states_base_licence_data_results_and_recipe(prepared, tmp_path):
    folders = [tmp_path / f"models/agent_{agent}" for agent in range(2)]
    for folder, family in zip(folders, ("tied", "untied"), strict=True):
        save_tiny_model(folder, family)
    write_model_cards(tmp_path / "models", prepared, rows=ROWS, num_steps=2)
    first, second = (ModelCard.load(folder / "README.md") for folder in folders)
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


def test_a_merged_model_is_whole_and_says_what_its_adapter_says(tmp_path, caplog):
    base, folder = tmp_path / "base", tmp_path / "run/models/agent_1"
    save_tiny_model(base, "tied")
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    config = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
    adapted = PeftModel(model, config)
    torch.manual_seed(3)
    for name, weight in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.1)
    adapted.peft_config["default"].base_model_name_or_path = str(base)
    adapted.save_pretrained(str(folder))
    for name in ("tokenizer.json", "tokenizer_config.json"):  # beside it, as a run saves it
        (folder / name).write_bytes((base / name).read_bytes())
    template = (Path(model_cards.__file__).parent / "model_card.md").read_text()
    [*_, about] = re.findall("{% if config.policy.lora.rank %}(.*?){% endif %}", template, re.S)
    card = f"---\nlibrary_name: peft\nlicense: mit\n---\n# Agent 1\n\n{about}## Data\n"
    (folder / "README.md").write_text(card)
    assert main([str(tmp_path / "run")]) == 0 == main([str(tmp_path / "run")])
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
    base.rename(tmp_path / "moved")
    assert main([str(tmp_path / "run"), str(tmp_path / "again")]) == 1
    assert f"was moved, correct base_model_name_or_path in {folder}/adapter_" in caplog.text
    (folder / "adapter_model.safetensors").write_bytes(b"of another step")
    for to, said in ("merged", "was not merged from"), ("models", "is the adapter itself"):
        assert main([str(tmp_path / "run"), str(tmp_path / "run" / to)]) == 1
        assert said in caplog.text


@pytest.mark.parametrize("name", ["dtype", "torch_dtype"])
def test_an_exported_model_is_described_in_the_words_of_its_base(tmp_path, name):
    base, output = tmp_path / "base", tmp_path / "agent_0"
    random_model("untied", seed=0).save_pretrained(base)
    byte_tokenizer().save_pretrained(base)
    config = json.loads((base / "config.json").read_text())
    config[name] = config.pop("dtype")
    (base / "config.json").write_text(json.dumps(config | {"transformers_version": "4.43.1"}))
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16)
    save_model(model, output, base=base, rank=0)
    found = json.loads((output / "config.json").read_text())
    assert found.pop("dtype") == "bfloat16" and "torch_dtype" not in found
    assert found.items() <= json.loads((base / "config.json").read_text()).items()
    before, after = (AutoTokenizer.from_pretrained(path) for path in (base, output))
    text = "So 48 + 23 = 71.\n<|im_end|>Ünïcode"
    assert after(text).input_ids == before(text).input_ids
    assert after.chat_template == before.chat_template
