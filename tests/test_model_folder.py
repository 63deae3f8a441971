"""Models by name: one way to a folder, for training, sampling and evaluation alike."""

from pathlib import Path

import httpx
import huggingface_hub
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError, RepositoryNotFoundError
from tables import cases
from tiny_models import save_tiny_model

from comas.utils.model_folder import folder_of

NAME = "somebody/model"


def hub_that(monkeypatch: pytest.MonkeyPatch, result: Path | Exception) -> list[object]:
    """Let the hub give a folder, or raise; returns the names that are asked for."""
    asked: list[object] = []

    def snapshot_download(name: str, *, allow_patterns: list[str]) -> str:
        asked.append(name)
        assert "*.safetensors" in allow_patterns
        assert not any("bin" in pattern for pattern in allow_patterns)
        if isinstance(result, Exception):
            raise result
        return str(result)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    return asked


def test_a_folder_is_itself_and_a_hub_name_leads_to_what_was_downloaded(tmp_path, monkeypatch):
    save_tiny_model(tmp_path / "model", "qwen2")
    asked = hub_that(monkeypatch, tmp_path / "model")
    assert folder_of(str(tmp_path)) == tmp_path
    assert not asked
    assert folder_of(NAME) == tmp_path / "model"
    assert asked == [NAME]


NOT_FOUND = httpx.Response(404, request=httpx.Request("GET", "https://huggingface.co"))


@cases(
    "error, said",
    (LocalEntryNotFoundError("no connection"), f"hub cannot be reached. Run hf download {NAME} "),
    (
        RepositoryNotFoundError("404: no such thing\nsecond", response=NOT_FOUND),
        f"{NAME} is no folder .* 404: no such thing$",
    ),
)
def test_a_hub_that_does_not_give_the_model_is_told(monkeypatch, error, said):
    hub_that(monkeypatch, error)
    with pytest.raises(ValueError, match=said):
        folder_of(NAME)


def test_a_cache_that_holds_only_a_part_is_told(tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text("{}")
    hub_that(monkeypatch, tmp_path)
    with pytest.raises(ValueError, match=r"lacks .*safetensors"):
        folder_of(NAME)
