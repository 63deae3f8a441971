"""What a user may get wrong: one clear error, a non-zero exit, no run directory, nothing left."""

from __future__ import annotations

import json
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError
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


def test_a_missing_model_is_named(arguments, caplog):
    text = failure([*arguments, "society.models=[./nowhere]"], caplog)
    assert "'./nowhere'" in text
    assert "Hugging Face format" in text


def test_an_incomplete_model_folder_says_what_it_lacks(arguments, caplog, tmp_path):
    (tmp_path / "tied" / "model.safetensors").unlink()
    assert "lacks *.safetensors" in failure(arguments, caplog)


def test_damaged_weights_are_named(arguments, caplog, tmp_path):
    (tmp_path / "untied" / "model.safetensors").write_bytes(b"not weights")
    text = failure(arguments, caplog)
    assert "model.safetensors cannot be read" in text
    assert str(tmp_path / "untied") in text


def test_a_model_that_nobody_can_give_is_named_with_the_command_that_helps(
    arguments, caplog, monkeypatch
):
    def unreachable(name: str, **_: object) -> None:
        raise LocalEntryNotFoundError("no connection")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", unreachable)
    text = failure([*arguments, "society.models=[nobody/nothing]"], caplog)
    assert "society.models names 'nobody/nothing'" in text
    assert "Run hf download nobody/nothing --local-dir FOLDER" in text


def test_a_model_without_a_chat_template_is_named(arguments, caplog, tmp_path):
    (tmp_path / "untied/chat_template.jinja").unlink()
    text = failure(arguments, caplog)
    assert f"the tokenizer in {tmp_path / 'untied'} has no chat template" in text
    assert "add chat_template.jinja" in text


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "config.json"])
@pytest.mark.parametrize("damaged", ["", "{", "[1]"])
def test_a_damaged_file_of_a_model_is_named(arguments, caplog, tmp_path, name: str, damaged: str):
    (tmp_path / "tied" / name).write_text(damaged)
    text = failure(arguments, caplog)
    assert f"{tmp_path / 'tied' / name} is damaged: " in text
    assert "Get the model again" in text


def test_a_tokenizer_that_is_none_is_named(arguments, caplog, tmp_path):
    (tmp_path / "tied/tokenizer.json").write_text('{"version": "1.0"}')
    text = failure(arguments, caplog)
    assert f"the tokenizer in {tmp_path / 'tied'} cannot be read" in text


def test_a_tokenizer_of_another_model_is_told_with_the_numbers(arguments, caplog, tmp_path):
    path = tmp_path / "tied/config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"vocab_size": 100}))
    text = failure(arguments, caplog)
    assert "has token 258, but the model knows those below 100 (vocab_size in config.json)" in text


def test_more_validation_questions_than_there_are_is_an_error_with_the_numbers(arguments, caplog):
    text = failure([*arguments, "validation.num_questions=31"], caplog)
    assert "data.validation holds 30 questions, fewer than validation.num_questions = 31" in text


def test_a_line_that_is_no_record_is_named_with_its_file(arguments, caplog, tmp_path):
    broken = tmp_path / "broken.jsonl"
    broken.write_text(json.dumps(RECORD) + "\n{not json\n")
    assert f"{broken}, line 2" in failure([*arguments, f"data.train={broken}"], caplog)


def test_a_choice_question_is_refused_with_the_reason(arguments, caplog, tmp_path):
    questions = tmp_path / "choice.jsonl"
    questions.write_text(json.dumps(RECORD | {"task": "choice", "answer": "A"}) + "\n")
    text = failure([*arguments, f"data.train={questions}"], caplog)
    assert "line 1: task: choice questions can be evaluated on, but not trained on" in text


def test_an_empty_dataset_is_an_error(arguments, caplog, tmp_path):
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    assert f"{empty} holds no record" in failure([*arguments, f"data.validation={empty}"], caplog)


def test_a_missing_dataset_is_named(arguments, caplog):
    assert "nowhere.jsonl" in failure([*arguments, "data.train=nowhere.jsonl"], caplog)


def test_a_batch_larger_than_the_dataset_is_an_error_with_the_numbers(arguments, caplog):
    text = failure([*arguments, "rollout.batch_size=31"], caplog)
    assert "30 questions" in text
    assert "31" in text


def test_a_gpu_run_without_a_gpu_says_what_to_do(arguments, caplog):
    assert "cluster.device=cpu" in failure([*arguments, "cluster.device=cuda"], caplog)


def test_every_fault_of_a_config_is_listed(arguments, caplog):
    text = failure([*arguments, "rollout.temprature=1", "seed=-1"], caplog)
    assert "rollout.temperature" in text
    assert "seed" in text


def test_an_unknown_reward_scheme_lists_the_known_ones(arguments, caplog):
    assert "interaction" in failure([*arguments, "reward.scheme=labels"], caplog)


def test_a_saves_folder_that_cannot_be_made_is_an_error(arguments, caplog, tmp_path):
    blocked = tmp_path / "file"
    blocked.touch()
    assert main([*arguments, f"saves={blocked}/saves"]) == EXIT_FAULT
    assert str(blocked) in caplog.text
