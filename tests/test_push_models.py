"""Models are uploaded when that is asked for, whole and with their cards, and not before."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import create_autospec

import pytest
from huggingface_hub import HfApi
from huggingface_hub.utils import filter_repo_objects
from small_runs import make_run

from scripts import push_models
from scripts.push_models import main, plan

CARD = "---\nlicense: mit\n---\n# An agent\n"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    run = make_run(tmp_path)
    for agent in range(2):
        (run / f"models/agent_{agent}/README.md").write_text(CARD)
    (run / "models/agent_0/notes.bin").write_text("mine")
    return run


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> HfApi:
    """A hub that only takes note; its methods have the library's own parameters."""
    hub = create_autospec(HfApi, instance=True)
    monkeypatch.setattr(push_models, "HfApi", lambda: hub)
    return hub


def test_without_push_it_is_only_said_what_would_be_uploaded(run, hub, caplog, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert main([str(run), "me/society"]) == 0
    assert hub.mock_calls == []
    assert "agent_1 -> https://huggingface.co/me/society-agent_1" in caplog.text
    assert "licence mit" in caplog.text and "README.md" in caplog.text
    assert "Nothing was uploaded" in caplog.text
    assert "hf_secret" not in caplog.text and "notes.bin" not in caplog.text


def test_every_agent_becomes_a_private_model_of_its_own(run, hub):
    assert main([str(run), "me/society", "--push"]) == 0
    names = ["me/society-agent_0", "me/society-agent_1"]
    assert [call.args[0] for call in hub.create_repo.call_args_list] == names
    assert all(call.kwargs["private"] for call in hub.create_repo.call_args_list)
    uploads = [call.kwargs for call in hub.upload_folder.call_args_list]
    assert [upload["repo_id"] for upload in uploads] == names
    assert [upload["folder_path"].name for upload in uploads] == ["agent_0", "agent_1"]


def test_what_is_uploaded_is_what_was_shown(run, hub):
    """Of the files only, and not of folders in the model's folder: the hub's * stands for "/"."""
    model = run / "models/agent_0"
    for other in ("merged/agent_0/model.safetensors", "old/README.md", "runs.json/a.txt"):
        (model / other).parent.mkdir(parents=True)
        (model / other).write_text("mine")
    (model / "a[1].json").write_text("{}")
    [shown, _] = plan(run, "me/society")
    names = {file.name for file in shown.files}
    assert {"README.md", "model.safetensors", "a[1].json"} <= names
    assert not names & {"notes.bin", "runs.json"}
    assert main([str(run), "me/society", "--push"]) == 0
    [upload, _] = [call.kwargs for call in hub.upload_folder.call_args_list]
    held = [str(file.relative_to(model)) for file in model.rglob("*") if file.is_file()]
    patterns = upload["allow_patterns"], upload.get("ignore_patterns")
    travels = filter_repo_objects(held, allow_patterns=patterns[0], ignore_patterns=patterns[1])
    assert set(travels) == names


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("models", "holds no trained models"),
        ("models/agent_1/README.md", "has no model card"),
        ("models/agent_0/model.safetensors", r"lacks \*.safetensors"),
    ],
)
def test_nothing_is_uploaded_of_a_run_that_is_not_whole(run, hub, caplog, broken, said):
    (run / broken).rename(run / "elsewhere")
    with pytest.raises(ValueError, match=said):
        plan(run, "me/society")
    assert main([str(run), "me/society", "--push"]) == 1
    assert hub.mock_calls == []


def test_a_name_that_the_hub_does_not_allow_is_a_fault(run):
    with pytest.raises(ValueError, match="your-account/my-society"):
        plan(run, "a/b/c")
