"""Where names and paths lead, what a resumed run keeps, dry runs, and isolation of programs."""

import dataclasses
import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import huggingface_hub
import pytest
import yaml
from config_errors import errors
from small_runs import (
    FAMILIES,
    QUICKSTART,
    REPOSITORY,
    make_run,
    record,
    tiny_settings,
    write_records,
    written,
)
from tables import cases
from tiny_models import save_tiny_model

from comas.__main__ import main
from comas.config import config_as_yaml, paths, sources
from comas.config.keys import keys_of
from comas.config.loading import read
from comas.config.schema import Config
from comas.data import load_questions
from comas.interaction import wording
from comas.preflight import preparation
from comas.preflight.checks import PreflightError, errors_of, table
from comas.preflight.configuration import load_config
from comas.preflight.inputs import find_model
from comas.preflight.machine import settle_isolation
from comas.preflight.preparation import check_run, prepare
from comas.quickstart import build
from comas.quickstart.probe import probe_records
from comas.reward_formulation import REWARD_SCHEMES
from comas.run.seals import INPUTS, inputs_as_json, read_inputs
from comas.utils.model_folder import context_length, folder_of
from comas.utils.terminal import EXIT_ERROR
from comas.verification.sandbox import Sandbox, SandboxError
from evaluation.models import find_target
from evaluation.tasks import held_out_tasks


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return load_config(QUICKSTART, [f"saves={tmp_path / 'saves'}", "rollout.batch_size=3"])


@pytest.fixture
def run(tmp_path: Path, config: Config) -> Path:
    """A stopped run that began with the society of an earlier recipe."""
    society = tmp_path / "saves/quickstart/0123456789ab"
    for name, family in (("qwen2", "tied"), ("llama", "untied")):
        save_tiny_model(society / "models" / name, family)
    for split in ("train", "validation"):
        write_records(society / f"{split}.jsonl", [record(i) for i in range(3)])
    write_records(society / "probe.jsonl", probe_records(seed=0))
    folder = tmp_path / "saves/20260101-000000-quickstart"
    folder.mkdir()
    (folder / "config.yaml").write_text(config_as_yaml(config))
    assert config.data.probe is not None
    names = [*config.models, config.data.train, config.data.validation, config.data.probe]
    locations = {name: str(society / name.removeprefix("quickstart/")) for name in names}
    (folder / INPUTS).write_text(inputs_as_json(folder, locations))
    return folder


def test_a_resumed_run_keeps_its_society(run, config):
    prepared = prepare(dataclasses.replace(config, resume=str(run), resume_changed=True))
    society = run.parent / "quickstart/0123456789ab"
    assert prepared.models == [str(society / "models/qwen2"), str(society / "models/llama")]
    assert len(prepared.train.questions) == 3
    (link := run.parent.parent / "link").symlink_to(run)
    assert read_inputs(link) == read_inputs(run)
    # Nothing of today's recipe was built for it.
    assert [path.name for path in (run.parent / "quickstart").iterdir()] == ["0123456789ab"]


def test_an_evaluation_uses_the_models_and_questions_that_the_run_began_with(run):
    target = find_target(str(run), weights="untrained")
    society = run.parent / "quickstart/0123456789ab"
    assert [model.folder for model in target.models] == [
        society / "models/qwen2",
        society / "models/llama",
    ]
    assert target.held_out == str(society / "validation.jsonl")


def test_a_society_that_is_gone_is_not_replaced_by_another(run):
    (run.parent / "quickstart/0123456789ab").rename(run.parent / "elsewhere")
    today = build.fingerprint(build.recipe_sources(), seed=0)
    (run.parent / "quickstart" / today / "models/qwen2").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"began with .*0123456789ab.* which is gone"):
        find_target(str(run), weights="untrained")


def test_a_runs_questions_and_system_prompt_are_those_of_its_evaluation(tmp_path):
    own = ["rollout.system_prompt=Be careful.", "data.columns.task=null", "data.domain=science"]
    target = find_target(str(make_run(tmp_path, *own)), weights="trained")
    assert target.held_out is not None and target.system_prompt == "Be careful."
    [task] = held_out_tasks(target.held_out, target.held_out_rules, limit=None)
    assert task.form == "science"  # its own task, math, is not read


def test_a_folder_leads_to_itself_and_a_hub_name_to_the_download(tmp_path, monkeypatch):
    name = "somebody/model"
    save_tiny_model(tmp_path / "model", "qwen2")
    download = Mock(return_value=str(tmp_path / "model"))
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert folder_of(str(tmp_path)) == tmp_path
    assert not download.called
    assert folder_of(name) == tmp_path / "model"
    assert download.call_args.args == (name,)
    patterns = download.call_args.kwargs["allow_patterns"]
    assert "*.safetensors" in patterns and not any("bin" in pattern for pattern in patterns)
    (tmp_path / "model/model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"lacks .*safetensors"):
        folder_of(name)


@cases("changes, tokens")
def test_the_context_of_a_model_is_read_unless_it_is_stretched(changes, tokens):
    config = {"max_position_embeddings": 512, "rope_parameters": None}
    assert context_length(config | changes) == tokens


def test_the_embedded_models_read_1024_tokens_also_before_they_are_built(config):
    config.rollout.max_prompt_tokens = 2000
    with pytest.raises(ValueError, match=r"'.*qwen2': its context is 1024 tokens; lower"):
        find_model(config, config.models[0])


FOUND = {n: k for n, k in keys_of(Config()).items() if k.leads_to not in (None, "new folder")}
FOUND["verification.verifiers.math"] = FOUND.pop("verification.verifiers")
MISSING = "my/own"


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders of a YAML file, of the user, and a stand-in for the repository."""
    folders = [tmp_path / name for name in ("yaml", "here", "repository")]
    for folder in folders:
        (folder / "my").mkdir(parents=True)
    monkeypatch.chdir(folders[1])
    for module in (paths, sources, wording):
        monkeypatch.setattr(module, "REPOSITORY", folders[2])
    return folders


def as_value(name: str, path: str) -> Any:
    """The value of a key of ``FOUND`` that names the file ``path``."""
    text = f"{path}.py:thing" if FOUND[name].leads_to == "plug-in" else path
    return [text] if isinstance(FOUND[name].default, list) else text


@pytest.mark.parametrize("name", FOUND)
def test_a_path_leads_to_the_first_of_three_places_that_has_it(places, name):
    file, tree = places[0] / "mine.yaml", as_value(name, MISSING)
    for part in reversed(name.split(".")):
        tree = {part: tree}
    file.write_text(yaml.safe_dump(tree))
    based = written(places[1] / "based.yaml", "base: ../yaml/mine.yaml\n")
    for last in (2, 1, 0):  # each new file is found before the old ones
        suffix = ".py" if FOUND[name].leads_to == "plug-in" else ""
        (places[last] / f"{MISSING}{suffix}").touch()
        for path in (file, based):
            found, wrong = read(Config, path, [])
            assert wrong == []
            for part in name.split("."):
                found = found[part] if isinstance(found, dict) else getattr(found, part)
            assert found == as_value(name, str(places[last] / MISSING))


def test_the_files_of_a_command_are_found_beside_its_yaml(places):
    text = "interaction: {program: {command: [python, mine.py, my, my/../mine.py]}}\n"
    file, own = written(places[0] / "mine.yaml", text), written(places[0] / "mine.py", "")
    config, _ = read(Config, file, [])
    assert config.interaction.program == {"command": ["python", str(own), "my", str(own)]}


@cases("name")
def test_a_name_that_is_no_path_is_kept(places, name):
    (places[1] / "reasoning_gym").mkdir()
    config, _ = read(Config, None, [f"society.models=['{name}']", f"data.train='{name}'"])
    assert config.society.models == [name] and config.data.train == name


def test_a_base_and_a_config_are_found_in_the_same_way(places):
    for number, place in enumerate(places):
        (place / "base.yaml").write_text(f"seed: {number}\n")
    assert read(Config, written(places[0] / "mine.yaml", "base: base.yaml\n"), [])[0].seed == 0
    assert read(Config, Path("base.yaml"), [])[0].seed == 1
    (places[1] / "base.yaml").unlink()
    assert read(Config, Path("base.yaml"), [])[0].seed == 2


def test_the_error_for_a_missing_file_names_all_places(places):
    mine = places[0] / "mine.yaml"
    mine.write_text(
        "data: {train: ./my/own}\nreward: {scheme: 'my/own.py:x'}\nsociety: {models: [my/own/m]}\n"
        "interaction: {prompts: my/own.yaml}\n"
    )
    config, _ = read(Config, mine, [])
    where = r"tried: \S+/yaml/my/own\S*, \S+/here/my/own\S*, \S+/repository/my/own"
    for look in (
        lambda: load_questions(config.data.train),
        lambda: find_model(config, config.models[0]),
        lambda: wording.wording_of(config.interaction.prompts),
        lambda: REWARD_SCHEMES[config.reward.scheme],
    ):
        with pytest.raises(ValueError, match=where):
            look()
    [error] = [f for f in errors("resume=my/own") if "resume" in f]
    assert f"tried: {places[1] / 'my/own'}, {places[2] / 'my/own'}" in error


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    """A run that would start: two tiny models and enough questions."""
    return [str(QUICKSTART), *tiny_settings(tmp_path, families=FAMILIES)]


def test_a_dry_run_reports_everything_and_writes_nothing(arguments, tmp_path, caplog):
    arguments = ["--dry-run", *arguments, "rollout.vllm_options.enforce_eager=true"]
    assert main(arguments) == 0
    said = ["needed", "a step: 2 questions x 1 copies", "passed on to vLLM: {enforce_eager: true}"]
    assert all(words in caplog.text for words in said)
    assert "dry run: no errors, no warnings; no run was started or written" in caplog.text
    caplog.clear()
    invalid = ["data.validation=nowhere.jsonl", "rollout.batch_size=7", "cluster.device=cuda"]
    invalid += [f"society.models=[{tmp_path / 'tied'},./nowhere]"]
    assert main([*arguments, *invalid]) == EXIT_ERROR
    said = ["nowhere.jsonl cannot", "6 questions, fewer than"]
    said += ["'./nowhere', which is neither", "cluster.device=cuda, but", "dry run: 4 errors, "]
    assert [words for words in said if words not in caplog.text] == []
    caplog.clear()
    assert main([*arguments, f"data.validation={tmp_path / 'questions.jsonl'}"]) == 0
    assert "warning: data.validation: 6 of 6 questions are among those of data.train" in caplog.text
    assert "dry run: no errors, 1 warning;" in caplog.text
    assert not (tmp_path / "saves").exists()


def test_a_dry_run_does_not_build_the_society(tmp_path, caplog):
    config = load_config(QUICKSTART, [f"saves={tmp_path}"])
    found = check_run(config)
    assert not found.inputs.is_built and errors_of(found.checks) == []
    assert "built at the start" in "\n".join(table(found.checks))
    config.data.validation = config.data.train
    [warning] = [check.warning for check in check_run(config).checks if check.warning is not None]
    assert "2400 of 2400 questions are among those of data.train" in warning
    assert found.sizes is not None and found.sizes.num_questions == 2400
    assert not list(tmp_path.iterdir())
    typo = load_config(QUICKSTART, [f"saves={tmp_path}", "society.models=[quickstart/models/gpt]"])
    [error] = errors_of(check_run(typo).checks)
    assert "choose one of quickstart/models/qwen2, quickstart/models/llama" in error
    hangs = "interaction.program={command: [sleep, '9'], timeout_s: 1}"  # and is not asked twice
    found = check_run(load_config(QUICKSTART, [hangs, f"saves={tmp_path}"]))
    assert "did not end within 1 s" in errors_of(found.checks)[0] and found.sizes is None


def test_nothing_is_built_if_the_key_that_seals_runs_cannot_be_written(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/x")
    with pytest.raises(PreflightError, match=r"1 error:\n1\. the key .*Set XDG_STATE_HOME to a"):
        prepare(load_config(QUICKSTART, [f"saves={tmp_path}"]))
    assert not list(tmp_path.iterdir())


def test_memory_is_checked_without_model_data_and_gpus(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    paper = str(REPOSITORY / "configs/comas_7b.yaml")
    missing = [f"data.train={tmp_path}/none.jsonl", f"saves={tmp_path / 'saves'}"]
    assert main(["--dry-run", paper, *missing]) == EXIT_ERROR
    said = ["none.jsonl cannot be read", "GPU memory, update", "GPU memory, sampling"]
    said += ["Qwen/Qwen2.5-7B-Instruct", "update: ZeRO-3, Adam's states in host memory"]
    assert [words for words in said if words not in caplog.text] == []


def test_a_dry_run_looks_for_the_adapted_layers(tmp_path):
    settings = tiny_settings(tmp_path, "policy.lora.rank=4", "policy.lora.target_modules=[q_prj]")
    checks = check_run(load_config(QUICKSTART, settings)).checks
    [error] = [check.error for check in checks if check.error]
    assert "policy.lora.target_modules: q_prj is no linear layer of" in error and "q_proj" in error


@cases("name, content, said")
def test_a_damaged_model_is_named_with_its_error(arguments, caplog, tmp_path, name, content, said):
    path = tmp_path / "untied" / name
    if isinstance(content, dict):
        content = json.dumps(json.loads(path.read_text()) | content)
    path.unlink(missing_ok=True)
    if content is not None:
        path.write_text(content)
    assert main(arguments) == EXIT_ERROR
    assert not (tmp_path / "saves/latest").exists()
    said = [part.format(path=path, folder=path.parent) for part in said]
    assert [part for part in said if part not in caplog.text] == []


KEY = "verification.sandbox"


@pytest.mark.parametrize("has_namespaces", [True, False])
def test_isolation_is_required_wherever_the_machine_has_it(monkeypatch, has_namespaces):
    def launch(self, mode, missing):
        if mode == "isolated" and not has_namespaces:
            raise SandboxError("[Errno 1] unshare: Operation not permitted")

    monkeypatch.setattr(Sandbox, "_launch", launch)
    expected = "require_namespaces" if has_namespaces else "allow_degraded"
    assert settle_isolation(None, key=KEY) == expected
    assert settle_isolation("allow_degraded", key=KEY) == "allow_degraded"
    if has_namespaces:
        return
    said = f"(?s){KEY}=require_namespaces, but .* cannot run here.*{KEY}=allow_degraded"
    with pytest.raises(ValueError, match=said):
        settle_isolation("require_namespaces", key=KEY)


@pytest.mark.parametrize("domain", ["math", "coding"])
def test_a_run_without_coding_questions_asks_for_no_isolation(tmp_path, monkeypatch, domain):
    monkeypatch.setattr(preparation, "settle_isolation", lambda wanted, key: (wanted, key))
    answer = "assert f() == 1" if domain == "coding" else "1"
    questions = write_records(tmp_path / "questions.jsonl", [record(1, task=domain, answer=answer)])
    files = [f"data.train={questions}", f"data.validation={questions}", f"saves={tmp_path}"]
    config = load_config(QUICKSTART, [*files, "verification.sandbox=allow_degraded"])
    assert check_run(config).isolation == (("allow_degraded", KEY) if domain == "coding" else None)
