"""Where the names of a config lead, and that a run goes on with what it began with."""

import dataclasses
from pathlib import Path

import httpx
import huggingface_hub
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError, RepositoryNotFoundError
from small_runs import REPOSITORY, make_run, record, write_records
from tables import cases
from tiny_models import save_tiny_model

from comas.config import config_as_yaml
from comas.config.schema import Config, Rollout
from comas.preflight.configuration import load_config
from comas.preflight.inputs import check_model, locate
from comas.preflight.survey import prepare
from comas.quickstart import build
from comas.quickstart.probe import probe_records
from comas.run.seals import INPUTS, inputs_as_json, read_inputs
from comas.utils.model_folder import folder_of
from evaluation.models import find_target
from evaluation.tasks import held_out_tasks

QWEN = "quickstart/models/qwen2"


def todays_society(saves: Path) -> Path:
    """Where today's recipe has its society; as the folder is there, nothing is built."""
    folder = saves / "quickstart" / build.fingerprint(build.recipe_sources(), seed=0)
    (folder / "models/qwen2").mkdir(parents=True, exist_ok=True)
    return folder


def earlier_society(saves: Path) -> Path:
    """That of an earlier recipe: whole, with two models and questions."""
    folder = saves / "quickstart/0123456789ab"
    for name, family in (("qwen2", "tied"), ("llama", "untied")):
        save_tiny_model(folder / "models" / name, family)
    for split in ("train", "validation"):
        write_records(folder / f"{split}.jsonl", [record(i) for i in range(3)])
    write_records(folder / "probe.jsonl", probe_records(seed=0))
    return folder


@pytest.fixture
def config(tmp_path: Path) -> Config:
    overrides = [f"saves={tmp_path / 'saves'}", "rollout.batch_size=3"]
    return load_config(REPOSITORY / "configs/quickstart.yaml", overrides)


@pytest.fixture
def run(tmp_path: Path, config: Config) -> Path:
    """A run that began with the society of an earlier recipe, and was stopped."""
    society = earlier_society(tmp_path / "saves")
    folder = tmp_path / "saves/20260101-000000-quickstart"
    folder.mkdir()
    (folder / "config.yaml").write_text(config_as_yaml(config))
    assert config.data.probe is not None
    names = [*config.models, config.data.train, config.data.validation, config.data.probe]
    locations = {name: str(society / name.removeprefix("quickstart/")) for name in names}
    (folder / INPUTS).write_text(inputs_as_json(folder, locations))
    return folder


def test_what_lies_beside_a_run_moves_with_it(tmp_path):
    (tmp_path / "saves/quickstart/ab/models/qwen2").mkdir(parents=True)
    (tmp_path / "saves/run").mkdir()
    (tmp_path / "mine.jsonl").touch()
    locations = {
        QWEN: str(tmp_path / "saves/quickstart/ab/models/qwen2"),
        "Qwen/Qwen2.5-3B-Instruct": "Qwen/Qwen2.5-3B-Instruct",
        "mine.jsonl": str(tmp_path / "mine.jsonl"),
    }
    run = tmp_path / "saves/run"
    (run / INPUTS).write_text(inputs_as_json(run, locations))
    (tmp_path / "saves").rename(tmp_path / "moved")
    assert read_inputs(tmp_path / "moved/run") == {
        QWEN: str(tmp_path / "moved/quickstart/ab/models/qwen2"),
        "mine.jsonl": str(tmp_path / "mine.jsonl"),  # and nothing of the hub
    }


def test_a_resumed_run_goes_on_with_the_society_that_it_began_with(run, config):
    prepared = prepare(dataclasses.replace(config, resume=str(run)))
    society = run.parent / "quickstart/0123456789ab"
    assert prepared.models == [str(society / "models/qwen2"), str(society / "models/llama")]
    assert len(prepared.train.questions) == 3
    # Nothing of today's recipe was built for it.
    assert [path.name for path in (run.parent / "quickstart").iterdir()] == ["0123456789ab"]


def test_an_evaluation_asks_the_models_and_questions_that_a_run_began_with(run):
    target = find_target(str(run), weights="untrained")
    society = run.parent / "quickstart/0123456789ab"
    assert [model.folder for model in target.models] == [
        society / "models/qwen2",
        society / "models/llama",
    ]
    assert target.held_out == str(society / "validation.jsonl")


def test_a_society_that_is_gone_is_not_replaced_by_another(run):
    (run.parent / "quickstart/0123456789ab").rename(run.parent / "elsewhere")
    todays_society(run.parent)
    with pytest.raises(ValueError, match=r"began with .*0123456789ab.* which is gone"):
        find_target(str(run), weights="untrained")


def test_a_run_that_is_moved_alone_finds_the_society_of_the_same_recipe(tmp_path, config):
    society = todays_society(tmp_path / "saves")
    run = tmp_path / "saves/run"
    run.mkdir()
    (run / INPUTS).write_text(inputs_as_json(run, {QWEN: str(society / "models/qwen2")}))
    moved = (tmp_path / "elsewhere/deep/run").resolve()
    moved.parent.mkdir(parents=True)
    run.rename(moved)
    before = read_inputs(moved)
    assert before == {QWEN: f"{tmp_path}/elsewhere/deep/quickstart/{society.name}/models/qwen2"}
    found = locate([QWEN], saves=tmp_path / "saves", seed=0, found_before=before)
    assert found == {QWEN: str(society / "models/qwen2")}
    with pytest.raises(ValueError, match="makes another"):
        locate([QWEN], saves=tmp_path / "saves", seed=1, found_before=before, builds=False)


def test_a_runs_questions_and_system_prompt_are_those_of_its_evaluation(tmp_path):
    own = ["rollout.system_prompt=Be careful.", "data.columns.task=null", "data.domain=science"]
    target = find_target(str(make_run(tmp_path, *own)), weights="trained")
    assert target.held_out is not None and target.system_prompt == "Be careful."
    [task] = held_out_tasks(target.held_out, target.held_out_rules, limit=None)
    assert task.form == "science"  # its own task, math, is not read


@cases(
    "model, remedy",
    ("saves/models/smollm3", r"bash scripts/get_model\.sh smollm3 gets it"),
    ("./smollm3", "Give a folder in Hugging Face format, or a hub name"),
)
def test_a_model_that_is_not_here_is_told_how_to_be_had(model, remedy):
    with pytest.raises(ValueError, match=f"neither a folder here nor a hub name.*{remedy}"):
        check_model(model, is_embedded=False, rollout=Rollout())


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
