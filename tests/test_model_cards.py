"""A saved model says where it comes from, and its card's own code opens it."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard
from small_runs import REPOSITORY, record, write_records
from tiny_models import save_tiny_model

from comas.data.preparation.manifest import Entry, Manifest
from comas.preflight.configuration import load_config
from comas.preflight.survey import prepare
from comas.run.model_cards import licence_of, write_model_cards
from comas.run.prepared import Prepared

QWEN_LICENCE = {"license": "other", "license_name": "qwen-research", "license_link": "https://x"}
ROWS = [
    {
        "step": 0,
        "validation/accuracy": 0.25,
        "validation/greedy/accuracy": 0.2,
        "validation/accuracy/math": 0.25,
        "agent_0/validation/accuracy": 0.5,
        "agent_1/validation/accuracy": 0.0,
    },
    {"step": 1, "train/accuracy": 0.3},
    {
        "step": 2,
        "validation/accuracy": 0.75,
        "validation/greedy/accuracy": 0.9,
        "agent_0/validation/greedy/accuracy": 0.8,
        "validation/accuracy/math": 0.75,
        "agent_0/validation/accuracy": 0.625,
        "agent_1/validation/accuracy": 0.875,
    },
]


@pytest.fixture
def prepared(tmp_path: Path) -> Prepared:
    """Of a run of two agents: one of a base with a licence, one of a base without."""
    bases = [save_tiny_model(tmp_path / "bases" / family, family) for family in ("tied", "untied")]
    stated = "\n".join(f"{key}: {value}" for key, value in QWEN_LICENCE.items())
    (Path(bases[0]) / "README.md").write_text(f"---\n{stated}\n---\n# A base\n")
    questions = write_records(tmp_path / "mine.jsonl", [record(i) for i in range(3)])
    science = [record(9, task="science")]
    held_out = write_records(tmp_path / "held_out.jsonl", science)
    overrides = [
        *(f"society.models=[{','.join(bases)}]", "rollout.batch_size=2", f"saves={tmp_path}"),
        *(f"data.train={questions}", f"data.validation={held_out}"),
        "data.probe=null",
    ]
    return prepare(load_config(REPOSITORY / "configs/quickstart.yaml", overrides))


def cards(prepared: Prepared, folder: Path) -> list[ModelCard]:
    for agent, family in enumerate(("tied", "untied")):
        save_tiny_model(folder / f"agent_{agent}", family, seed=agent + 1)
    write_model_cards(folder, prepared, rows=ROWS, num_steps=2)
    return [ModelCard.load(folder / f"agent_{agent}/README.md") for agent in range(2)]


def test_a_card_states_base_licence_data_results_and_recipe(prepared, tmp_path):
    first, second = cards(prepared, tmp_path / "models")
    stated = first.data.to_dict()
    assert {key: stated[key] for key in QWEN_LICENCE} == QWEN_LICENCE
    assert "The base model is `tied`. Its licence, and so that of this model: qwen-research" in (
        first.text
    )
    assert second.data.to_dict()["license"] == "unknown"
    assert "The base model is `untied`. It states no licence" in second.text
    for line in (
        "| for training | `mine.jsonl` | 3 | 0 | 0 |",
        "| held out | `held_out.jsonl` | 0 | 1 | 0 |",
        "|  | greedy, at step 0 | greedy, at step 2 | sampled, at step 0 | sampled, at step 2 |",
        "| all agents | 20.0 | 90.0 | 25.0 | 75.0 |",
        "| all agents, math | - | - | 25.0 | 75.0 |",
        "| agent 0 | - | 80.0 | 50.0 | 62.5 |",
        "  name: reinforce_pp",
        "`reward.scheme: interaction`",
    ):
        assert line in first.text
    assert str(tmp_path) not in first.text + second.text  # nobody else's business


def test_a_card_names_the_datasets_behind_prepared_questions(prepared, tmp_path):
    train = Path(prepared.config.data.train)
    dataset = {"dataset": "KodCode/Light", "revision": "dcf78a8b", "licence": "cc-by-nc-4.0"}
    entry = Entry("sha", {}, {}, "hub", {"datasets": {"coding": dataset}})
    Manifest(train.parent, {}).store({train.name: (train.read_text(), entry)})
    first, _ = cards(prepared, tmp_path / "models")
    assert "\n* `KodCode/Light` at `dcf78a8b`, licence: cc-by-nc-4.0\n" in first.text
    assert first.data.to_dict()["datasets"] == ["KodCode/Light"]


def test_a_system_prompt_and_the_templates_variables_are_part_of_the_cards_code(prepared, tmp_path):
    rollout = dataclasses.replace(
        prepared.config.rollout,
        system_prompt='Say "yes".',
        chat_template_kwargs={"enable_thinking": False},
    )
    config = dataclasses.replace(prepared.config, rollout=rollout)
    first, _ = cards(dataclasses.replace(prepared, config=config), tmp_path / "models")
    [chat] = re.findall(r"^messages = (.*)$", first.text, re.M)
    assert eval(chat, {"PROMPT": "1 + 1?"}) == [
        {"role": "system", "content": 'Say "yes".'},
        {"role": "user", "content": "1 + 1?"},
    ]
    assert "return_dict=True, **{'enable_thinking': False}\n" in first.text
    assert "extra_body={'chat_template_kwargs': {'enable_thinking': False}})" in first.text


def test_the_cards_own_code_opens_the_model(prepared, tmp_path, monkeypatch, capsys):
    cards(prepared, tmp_path / "models")
    monkeypatch.chdir(tmp_path / "models")
    text = Path("agent_1/README.md").read_text()
    [opens, asks] = re.findall(r"```python\n(.*?)```", text, re.S)
    names: dict[str, Any] = {}
    exec(compile(opens, "README.md", "exec"), names)
    assert "What is 48 + 23?" in names["PROMPT"] and r"\boxed{}" in names["PROMPT"]
    assert names["inputs"]["input_ids"].shape[1] > len(names["PROMPT"])  # a token is a byte
    assert names["model"].config.model_type == "llama"
    assert capsys.readouterr().out
    compile(asks, "README.md", "exec")


def test_a_frozen_agent_gets_no_card(prepared, tmp_path):
    society = dataclasses.replace(prepared.config.society, update_every=[1, 0])
    config = dataclasses.replace(prepared.config, society=society)
    frozen = dataclasses.replace(prepared, config=config)
    (tmp_path / "models/agent_0").mkdir(parents=True)
    write_model_cards(tmp_path / "models", frozen, rows=ROWS, num_steps=2)
    assert [path.name for path in (tmp_path / "models").iterdir()] == ["agent_0"]


def test_a_model_without_a_card_or_with_a_broken_one_states_no_licence(tmp_path):
    assert licence_of(str(tmp_path)) == {}
    (tmp_path / "README.md").write_text("# no metadata\n")
    assert licence_of(str(tmp_path)) == {}
    assert licence_of("nobody/has-this") == {}
