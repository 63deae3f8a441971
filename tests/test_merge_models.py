"""Adapters become whole models that say the same."""

import re
import shutil
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel
from tiny_models import save_tiny_model
from transformers import AutoModelForCausalLM

from comas.run import model_cards
from comas.utils.model_folder import check_model_folder
from comas.utils.terminal import EXIT_FAULT, EXIT_INTERRUPTED
from scripts.merge_models import main


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
    [about] = re.findall("{% if adapter_rank %}(.*?){% endif %}", template, re.DOTALL)
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


def test_an_interrupted_merge_leaves_no_half_model_and_goes_on(tmp_path, monkeypatch, caplog):
    base = Path(save_tiny_model(tmp_path / "base", "tied"))
    run, merged = tmp_path / "run", tmp_path / "run/merged"
    for agent in range(2):
        save_adapter(base, run / f"models/agent_{agent}")
        (run / f"models/agent_{agent}/README.md").write_text(f"---\n---\n# Agent {agent}\n")
    copy = shutil.copyfile

    def interrupted(source: Path, target: Path) -> None:
        if source.parent.name == "agent_1":
            raise KeyboardInterrupt
        copy(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "copyfile", interrupted)
        assert main([str(run)]) == EXIT_INTERRUPTED
    assert [path.name for path in merged.iterdir()] == ["agent_0"]
    check_model_folder(merged / "agent_0")
    made_at = (merged / "agent_0/model.safetensors").stat().st_mtime_ns
    card = merged / "agent_0/README.md"
    card.write_text(card.read_text().replace("library_name", "license: mit\nlibrary_name"))
    assert main([str(run)]) == 0
    check_model_folder(merged / "agent_1")
    assert (merged / "agent_0/model.safetensors").stat().st_mtime_ns == made_at
    assert f"{merged}/agent_0 (kept)" in caplog.text
    assert f"{merged}/agent_1 (kept)" not in caplog.text


def test_what_is_not_the_adapter_s_whole_model_is_not_kept(tmp_path, caplog):
    base = Path(save_tiny_model(tmp_path / "base", "tied"))
    run, output = tmp_path / "run", tmp_path / "merged"
    save_adapter(base, run / "models/agent_0")
    (run / "models/agent_0/README.md").write_text("---\n---\n# Agent 0 after step 5\n")
    assert main([str(run), str(output)]) == 0
    (run / "models/agent_0/README.md").write_text("---\n---\n# Agent 0 after step 9\n")
    assert main([str(run), str(output)]) == EXIT_FAULT
    assert "models/agent_0 did not become it: remove it, or name another folder" in caplog.text
    (output / "agent_0/tokenizer.json").unlink()
    (output / "agent_0/tokenizer_config.json").unlink()
    assert main([str(run), str(output)]) == EXIT_FAULT
    assert "agent_0 is there already, and not whole" in caplog.text


def test_a_run_without_adapters_has_nothing_to_merge(tmp_path, caplog):
    save_tiny_model(tmp_path / "models/agent_0", "tied")
    assert main([str(tmp_path)]) != 0
    assert "holds no LoRA adapters" in caplog.text
