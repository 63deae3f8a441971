"""One rule for relative paths: the folder of the YAML file, that of the user, the repository."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from config_faults import every_key, faults
from small_runs import REPOSITORY
from tables import cases

from comas.__main__ import main
from comas.config import paths, sources
from comas.config.keys import keys_of
from comas.config.loading import read
from comas.config.schema import Config
from comas.data import load_questions
from comas.preflight.plugins import PLUGIN_KEYS
from comas.utils.terminal import EXIT_FAULT
from evaluation.config import read_command
from evaluation.models import find_target

PATHS = {name: key for name, key in keys_of(Config).items() if key.rules.leads_to}
PATHS["verification.verifiers.math"] = PATHS.pop("verification.verifiers")
FOUND = {name: key for name, key in PATHS.items() if key.rules.leads_to != "new folder"}
MISSING = "my/own"


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folder of a YAML file, where the user stands, and what stands for the repository."""
    folders = [tmp_path / name for name in ("yaml", "here", "repository")]
    for folder in folders:
        (folder / "my").mkdir(parents=True)
    monkeypatch.chdir(folders[1])
    for module in (paths, sources):
        monkeypatch.setattr(module, "REPOSITORY", folders[2])
    return folders


def as_value(name: str, path: str) -> Any:
    """What a key of ``FOUND`` holds that names a file."""
    text = f"{path}.py:thing" if FOUND[name].rules.leads_to == "plug-in" else path
    return [text] if isinstance(FOUND[name].default, list) else text


def value_of(name: str, config: Any) -> Any:
    for part in name.split("."):
        config = config[part] if isinstance(config, dict) else getattr(config, part)
    return config


def write_yaml(path: Path, name: str, value: Any) -> Path:
    for part in reversed(name.split(".")):
        value = {part: value}
    path.write_text(yaml.safe_dump(value))
    return path


def test_every_key_that_names_files_is_known():
    plug_ins = {n for n, key in every_key().items() if key.rules.leads_to == "plug-in"}
    assert plug_ins == PLUGIN_KEYS.keys()
    assert FOUND.keys() - plug_ins - {"verification.verifiers.math"} == {
        *("resume", "society.models", "society.cold_start", "interaction.prompts"),
        *("data.train", "data.validation", "data.probe"),
    }
    assert PATHS.keys() - FOUND.keys() == {"saves"}


@pytest.mark.parametrize("name", FOUND)
def test_a_path_leads_to_the_first_of_three_places_that_has_it(places, name):
    file = write_yaml(places[0] / "mine.yaml", name, as_value(name, MISSING))
    based = places[1] / "based.yaml"
    based.write_text("base: ../yaml/mine.yaml\n")
    for last in reversed(range(3)):  # found later and later, until nothing is before it
        suffix = ".py" if FOUND[name].rules.leads_to == "plug-in" else ""
        (places[last] / f"{MISSING}{suffix}").touch()
        for path in (file, based):
            config, wrong = read(Config, path, [])
            assert wrong == []
            assert value_of(name, config) == as_value(name, str(places[last] / MISSING))


@cases(
    "name", "quickstart/models/qwen2", "Qwen/Qwen2.5-3B-Instruct", "hub:a/b", "reasoning_gym", ""
)
def test_a_name_that_is_no_path_stays(places, name):
    (places[1] / "reasoning_gym").mkdir()
    config, _ = read(Config, None, [f"society.models=['{name}']", f"data.train='{name}'"])
    assert config.society.models == [name] and config.data.train == name


@pytest.mark.parametrize("name", PATHS)
@cases(
    "path, said",
    ("~no-such-user/x", "starts at the home of ~no-such-user, and there is no such user"),
    ('"a\\0b"', "holds a NUL byte"),
)
def test_a_path_that_cannot_be_followed_is_a_fault_of_its_key(places, name, path, said):
    if PATHS[name].rules.leads_to == "plug-in":
        path = f'{path[:-1]}.py:x"' if path.endswith('"') else f"{path}.py:x"
    value = f"[{path}]" if isinstance(PATHS[name].default, list) else path
    [fault] = read(Config, None, [f"{name}={value}"])[1]
    assert fault.settings[0].key == name and said in fault.constraint


def test_a_base_and_a_config_are_looked_for_likewise(places):
    for number, place in enumerate(places):
        (place / "base.yaml").write_text(f"seed: {number}\n")
    mine = places[0] / "mine.yaml"
    mine.write_text("base: base.yaml\n")
    assert read(Config, mine, [])[0].seed == 0
    assert read(Config, Path("base.yaml"), [])[0].seed == 1
    (places[1] / "base.yaml").unlink()
    assert read(Config, Path("base.yaml"), [])[0].seed == 2
    mine.write_text("base: nothing.yaml\n")
    [fault] = read(Config, mine, [])[1]
    tried = ", ".join(str(place / "nothing.yaml") for place in places)
    assert fault.settings[0].key == "base" and f"tried: {tried}" in fault.constraint
    for odd in ("~no-such-user/x.yaml", "a\0b"):
        [fault] = read(Config, Path(odd), [])[1]
        assert fault.settings[0].key == "CONFIG"


def test_what_is_found_nowhere_is_refused_with_all_places(places):
    mine = places[0] / "mine.yaml"
    mine.write_text("data: {train: my/own}\nreward: {scheme: 'my/own.py:x'}\n")
    config, _ = read(Config, mine, [])
    with pytest.raises(ValueError, match=r"tried: \S+/here/my/own, \S+/repository"):
        load_questions(config.data.train)
    with pytest.raises(ValueError, match=r"tried: \S+/here/my own, \S+/repository/my own"):
        find_target("my own", weights="trained")
    [fault] = [f for f in faults("resume=my/own") if "resume" in f]
    assert f"tried: {places[1] / 'my/own'}, {places[2] / 'my/own'}" in fault


def test_a_file_that_exists_is_no_override(places, caplog):
    config = write_yaml(places[1] / "seed=x.yaml", "no_such_key", 1)
    assert main(["--dry-run", config.name]) == EXIT_FAULT
    assert f"no_such_key = 1  ({config.name}, line 1)" in caplog.text or str(config) in caplog.text
    (places[1] / "lr=1").mkdir()
    command = read_command(["name", "lr=1", "limit=5"])
    assert (command.path, command.config.limit) == ("lr=1", 5)


def test_a_script_says_where_it_was_started(tmp_path):
    """From the repository, where scripts go, and from nowhere else."""
    said = "from comas.config.paths import here; print(here())"
    environment = os.environ | {paths.STARTED_IN: str(tmp_path), "PYTHONPATH": str(REPOSITORY)}
    for folder, expected in ((REPOSITORY, tmp_path), (tmp_path.parent, tmp_path.parent)):
        command = [sys.executable, "-c", said]
        done = subprocess.check_output(command, cwd=folder, env=environment, text=True)
        assert done.strip() == str(expected)


@pytest.mark.parametrize("name", ["train_comas", "evaluate_model", "view", "discuss", "check_data"])
def test_every_script_that_takes_paths_hands_on_where_it_was_started(tmp_path, name):
    shutil.copytree(REPOSITORY / "scripts", tmp_path / "scripts")
    (tmp_path / "scripts/environment.sh").write_text(f"PYTHON_BIN={tmp_path}/python\n")
    (tmp_path / "python").write_text(f'#!/bin/sh\necho "${paths.STARTED_IN}"\n')
    (tmp_path / "python").chmod(0o755)
    script = tmp_path / f"scripts/{name}.sh"
    assert subprocess.check_output(["bash", script, "x"], cwd="/usr", text=True) == "/usr\n"
