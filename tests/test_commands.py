"""The command line: ``comas`` and its subcommands, and the scripts that start them."""

import os
import shutil
import subprocess
from pathlib import Path
from pkgutil import resolve_name

import pytest
from small_runs import REPOSITORY

from comas.commands import MAINS, start
from comas.utils.invocation import SCRIPTS, help_of, start_of

OTHER_MAINS = {
    "reproduce.sh": "comas.reproduction.__main__:main",
    "prepare_data.sh": "scripts.prepare_data:main",
    "merge_models.sh": "scripts.merge_models:main",
    "get_model.sh": "scripts.get_model:main",
    "golden_run.sh": "scripts.golden_run:main",
}
WRONG = [["--dryrun"], ["x", "y", "--dryrun"], ["x", "y=1", "--dry"], ["-x", "x", "y"]]


@pytest.mark.parametrize("arguments", WRONG, ids=" ".join)
@pytest.mark.parametrize("command", [*MAINS.values(), *OTHER_MAINS.values()])
def test_an_unknown_option_ends_a_command_with_its_usage_and_status_2(command, arguments, capsys):
    with pytest.raises(SystemExit, match="2"):
        resolve_name(command)(arguments)
    said = capsys.readouterr().err
    assert said.startswith("usage: ")
    assert "error: " in said


@pytest.mark.parametrize("command", MAINS)
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_of_a_subcommand_says_what_the_script_says(command, flag, capsys):
    with pytest.raises(SystemExit, match="0"):
        start([command, "x", flag])
    said = capsys.readouterr().out
    script = REPOSITORY / "scripts" / SCRIPTS[command]
    assert said == subprocess.check_output(["bash", script, flag], text=True)
    assert said.startswith(f"usage: bash scripts/{SCRIPTS[command]} ")
    assert max(map(len, said.splitlines())) <= 100


@pytest.mark.parametrize("arguments", [[], ["--dryrun"], ["trian"], ["configs/comas.yaml"]])
def test_what_is_no_subcommand_is_told_those_that_there_are(arguments, capsys):
    with pytest.raises(SystemExit, match="2"):
        start(arguments)
    assert capsys.readouterr().err.startswith("usage: comas [--version] {train,evaluate,view,")


def test_help_names_every_subcommand(capsys):
    with pytest.raises(SystemExit, match="0"):
        start(["--help"])
    said = capsys.readouterr().out
    for command in MAINS:
        assert f"\n  comas {command} " in said
    assert SCRIPTS.keys() == MAINS.keys()


def test_without_a_checkout_messages_name_the_command(monkeypatch, tmp_path):
    monkeypatch.setattr("comas.utils.invocation._SCRIPTS_FOLDER", tmp_path)
    assert start_of("check-data") == "comas check-data"
    assert help_of("evaluate").startswith("usage: comas evaluate NAME PATH [key=value ...]\n")


def test_training_says_which_packages_a_wheel_cannot_bring(monkeypatch, capsys):
    monkeypatch.setattr("comas.commands.find_spec", lambda name: None)
    assert start(["train", "configs/quickstart.yaml"]) == 1
    assert "error: comas train needs openrlhf and vllm" in capsys.readouterr().err


NOT_OURS = {"browser", "environment", "start", "slurm_example", "test", "test_pages", "benchmark"}


@pytest.mark.parametrize(
    "script", sorted({p.stem for p in (REPOSITORY / "scripts").glob("*.sh")} - NOT_OURS)
)
def test_a_script_hands_an_unknown_option_on_or_shows_its_usage(script, tmp_path):
    for folder in ("scripts", "comas/help"):
        shutil.copytree(REPOSITORY / folder, tmp_path / folder)
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\nfor last; do :; done\necho "python: $last"\n')
    python.chmod(0o755)
    (tmp_path / "scripts/environment.sh").write_text(f"PYTHON_BIN={python}\n")
    told = subprocess.run(
        ["bash", tmp_path / f"scripts/{script}.sh", "word", "--dryrun"],
        cwd=Path("/"),
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    if told.returncode == 0:
        assert told.stdout == "python: --dryrun\n"
    else:
        assert told.returncode == 2
        assert told.stderr.startswith("usage: ")
