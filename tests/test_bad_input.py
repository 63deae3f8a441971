"""What a user may get wrong: one clear error, a non-zero exit, no run directory, nothing left."""

import json
from pathlib import Path

import pytest
from tables import cases
from tiny_models import save_tiny_model

from comas.__main__ import main
from comas.utils.terminal import EXIT_FAULT

RECORD = {"id": "q/1", "task": "math", "prompt": "1 + 1?", "answer": "2", "source": "test"}


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    """A run that would start: two tiny models and enough questions."""
    models = [save_tiny_model(tmp_path / family, family) for family in ("tied", "untied")]
    questions = tmp_path / "questions.jsonl"
    questions.write_text("".join(json.dumps(RECORD | {"id": f"q/{i}"}) + "\n" for i in range(30)))
    return [
        "configs/quickstart.yaml",
        f"saves={tmp_path / 'saves'}",
        f"society.models=[{','.join(models)}]",
        f"data.train={questions}",
        f"data.validation={questions}",
    ]


def failure(arguments: list[str], caplog: pytest.LogCaptureFixture) -> str:
    """What a run that must fail says; it must not have begun a run directory."""
    assert main(arguments) == EXIT_FAULT
    saves = Path(arguments[1].removeprefix("saves="))
    assert not (saves / "latest").exists()
    return caplog.text


SETTINGS: list[tuple[list[str], list[str]]] = [
    (["society.models=[./nowhere]"], ["'./nowhere'", "Hugging Face format"]),
    (["validation.num_questions=31"], ["holds 30 questions", "validation.num_questions = 31"]),
    (["rollout.batch_size=31"], ["holds 30 questions", "31"]),
    (["data.train=nowhere.jsonl"], ["nowhere.jsonl"]),
    (["cluster.device=cuda"], ["cluster.device=cpu"]),
    (["rollout.temprature=1", "seed=-1"], ["rollout.temperature", "seed"]),
]


@pytest.mark.parametrize(("settings", "said"), SETTINGS, ids=[" ".join(s) for s, _ in SETTINGS])
def test_a_setting_that_cannot_be_is_named_with_the_numbers_or_what_to_do(
    arguments, caplog, settings, said
):
    text = failure([*arguments, *settings], caplog)
    assert [part for part in said if part not in text] == []


@cases(
    "name, content, said",
    ("model.safetensors", None, ["{folder}", "lacks *.safetensors"]),
    ("model.safetensors", "not weights", ["{path} cannot be read"]),
    ("chat_template.jinja", None, ["{folder} has no chat template", "add chat_template.jinja"]),
    ("tokenizer.json", '{"version": "1.0"}', ["the tokenizer in {folder} cannot be read"]),
    ("config.json", "[1]", ["{folder}", "get the model again"]),
)
def test_a_damaged_model_is_named_with_its_fault(arguments, caplog, tmp_path, name, content, said):
    path = tmp_path / "untied" / name
    path.unlink()
    if content is not None:
        path.write_text(content)
    text = failure(arguments, caplog)
    said = [part.format(path=path, folder=path.parent) for part in said]
    assert [part for part in said if part not in text] == []


def test_a_tokenizer_of_another_model_is_told_with_the_numbers(arguments, caplog, tmp_path):
    path = tmp_path / "tied/config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"vocab_size": 100}))
    text = failure(arguments, caplog)
    assert "has token 258, but the model knows those below 100 (vocab_size in config.json)" in text
