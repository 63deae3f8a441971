"""Commands, their scripts, notebook and sweep: options, help, progress, exit."""

import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
import yaml
from programs import run_to_end
from small_runs import REPOSITORY
from tables import case_file, cases

from comas.commands import MAINS, start
from comas.config.paths import STARTED_IN
from comas.preflight.configuration import load_config
from comas.utils import progress
from comas.utils.invocation import SCRIPTS, help_of, of_checkout, start_of
from comas.utils.progress import progress_bar
from comas.utils.terminal import printable
from evaluation.models import find_target
from scripts.command import read_arguments

OTHER_MAINS = case_file("commands")["OTHER_MAINS"]
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


@cases("arguments, status")
def test_what_is_no_subcommand_is_told_those_that_there_are(arguments, status, capsys):
    with pytest.raises(SystemExit, match=str(status)):
        start(arguments)
    told = "".join(capsys.readouterr())
    assert told.startswith("usage: comas [--version] {train,evaluate,view,")
    if status == 0:
        assert [name for name in MAINS if f"\n  comas {name} " not in told] == []
        assert SCRIPTS.keys() == MAINS.keys()


def test_without_a_checkout_messages_name_the_command(monkeypatch, tmp_path):
    monkeypatch.setattr("comas.utils.invocation._SCRIPTS_FOLDER", tmp_path)
    assert start_of("check-data") == "comas check-data"
    assert help_of("evaluate").startswith("usage: comas evaluate NAME PATH [key=value ...]\n")
    command = "bash scripts/get_model.sh x"
    assert of_checkout(command) == f"{command} (in a checkout of CoMAS: pip does not install it)"
    monkeypatch.undo()
    assert of_checkout(command) == command
    monkeypatch.chdir(tmp_path)
    assert of_checkout(command) == f"bash {REPOSITORY}/scripts/get_model.sh x"
    with pytest.raises(ValueError, match="saves/gone is no folder; tried: "):
        find_target("saves/gone", weights="trained")


def test_training_says_which_packages_a_wheel_cannot_bring(monkeypatch, capsys):
    monkeypatch.setattr("comas.commands.find_spec", lambda name: None)
    assert start(["train", "configs/quickstart.yaml"]) == 1
    assert "error: comas train needs openrlhf and vllm" in capsys.readouterr().err


TAKES_PATHS = {
    *("check_data", "discuss", "evaluate_model", "prepare_data", "reproduce", "serve"),
    *("train_comas", "view"),
}
"""Scripts whose arguments are paths from the folder that they are started in."""
NOT_OURS = {"browser", "environment", "start", "slurm_example", "test", "test_pages", "benchmark"}
"""Scripts that others source, or whose arguments are pytest's, Slurm's or a benchmark's."""


@pytest.mark.parametrize(
    "script", sorted({p.stem for p in (REPOSITORY / "scripts").glob("*.sh")} - NOT_OURS)
)
def test_a_script_hands_on_an_option_and_where_it_started_or_shows_its_usage(script, tmp_path):
    for folder in ("scripts", "comas/help"):
        shutil.copytree(REPOSITORY / folder, tmp_path / folder)
    python = tmp_path / "python"
    told = f'echo "python: $last, started in ${STARTED_IN}"'
    python.write_text(f"#!/bin/sh\nfor last; do :; done\n{told}\n")
    python.chmod(0o755)
    (tmp_path / "scripts/environment.sh").write_text(f"PYTHON_BIN={python}\n")
    command = ["bash", tmp_path / f"scripts/{script}.sh", "word", "--dryrun"]
    done = run_to_end(*command, cwd="/", env=os.environ | {STARTED_IN: ""})
    if done.returncode == 0:
        place = "/" if script in TAKES_PATHS else ""
        assert done.stdout == f"python: --dryrun, started in {place}\n"
    else:
        assert script not in TAKES_PATHS
        assert done.returncode == 2 and done.stderr.startswith("usage: ")


@cases(
    "words",
    *(["-m", "comas.commands", name] for name in ("train", "evaluate", "check-data")),
    *(["-m", name] for name in ("comas", "comas.reproduction")),
    ["-m", "scripts", "get_model"],
)
def test_ctrl_c_during_imports_ends_a_command_with_a_line(words, tmp_path):
    # Importing it presses Ctrl-C.
    (tmp_path / "pydantic.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\n")
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{REPOSITORY}"}
    ended = run_to_end(sys.executable, *words, cwd=REPOSITORY, env=environment)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "interrupted\n")


@cases("text, shown")
def test_what_a_model_says_moves_no_cursor(text, shown):
    assert printable(text) == shown


@dataclass
class Arguments:
    num: int = 3
    path: str | None = None


def test_a_benchmark_reads_its_keys_and_names_them_where_one_is_wrong(monkeypatch, capsys):
    def read(*arguments: str) -> Arguments:
        monkeypatch.setattr("sys.argv", ["benchmark", *arguments])
        return read_arguments(Arguments)

    assert read() == Arguments(3, None)
    assert read("num=5", "path=a") == Arguments(5, "a")
    for argument in ("count=5", "num=five", "num", "--num=5", "--help"):
        with pytest.raises(SystemExit, match="2"):
            read(argument)
        error = capsys.readouterr().err
        assert error.startswith(f"error: {argument}: ")
        assert error.endswith("Keys and their defaults:\n  num=3\n  path=None\n")


@pytest.mark.stack
def test_a_closed_session_ends_a_command_as_ctrl_c_does_but_not_under_nohup():
    def said(*before: str) -> str:
        waits = case_file("commands")["WAITS"]
        return run_to_end(*before, sys.executable, "-c", waits, check=True).stdout

    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # if these tests are under nohup
    try:
        assert said() == "interrupted\n"
        assert said("nohup") == "went on\n"
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.stack
def test_a_command_leaves_when_all_is_done_and_clears_no_modules():
    left = run_to_end(sys.executable, "-c", case_file("commands")["LEAVES"])
    assert (left.returncode, left.stdout, left.stderr) == (3, "said worked\ntidied\n", "")


HELP = "-m comas.commands --help"
NO_TEMPORARY = "error: no temporary file can be written (No usable temporary directory found"


@pytest.mark.stack
@cases(
    "ending, program, status, out, err",
    ("", "ulimit -f 0; -c", 1, "", NO_TEMPORARY),
    ("", f"ulimit -f 0; {HELP}", 1, "", NO_TEMPORARY),
    ("", "-c", 0, "child\nanswer", "told\n"),
    (">/dev/full", "-c", 1, "", "told\n"),
    (">/dev/full", HELP, 0, "", ""),  # argparse does not mind
)
def test_a_disk_or_an_output_that_is_full_causes_no_traceback(ending, program, status, out, err):
    *limit, program = program.split("; ")
    what = f"-c '{case_file('commands')['ANSWERS']}'" if program == "-c" else program
    told = run_to_end("sh", "-c", "; ".join([*limit, f"{sys.executable} {what} {ending}"]))
    assert told.returncode == status
    assert told.stdout.startswith(out) and bool(told.stdout) == bool(out)
    assert told.stderr.startswith(err)
    assert "Traceback" not in told.stderr
    assert len(re.findall("^error: ", told.stderr, re.MULTILINE)) == (status != 0)


@pytest.mark.parametrize(("initial", "left"), [(0, "03:20"), (24, "04:26"), (75, "?")])
def test_the_time_left_follows_from_what_was_counted_here(monkeypatch, caplog, initial, left):
    for name in ("SECONDS_BETWEEN_LINES", "SECONDS_BETWEEN_LOOKS"):
        monkeypatch.setattr(progress, name, 0.02)
    caplog.set_level(logging.INFO)
    deadline = time.monotonic() + 20
    # A tenth of the rest must have been counted: 21 of 213 are less.
    with progress_bar("rollout", unit="turn", total=288, initial=initial) as bar:
        assert str(bar) == f"rollout: {initial}/288 turns, 00:00 so far, ? left"
        bar.set_postfix(failed=1, refresh=False)
        bar.update(96 - initial)
        said = f"rollout: 96/288 turns, 01:40 so far, {left} left, failed=1"
        while said not in caplog.messages:
            bar.start_t = bar._time() - 100  # seconds, also on a machine that stalls
            assert time.monotonic() < deadline, caplog.messages
            time.sleep(0.005)


@pytest.mark.slow
def test_the_notebook_trains_and_draws_what_came_of_it(monkeypatch, capsys):
    """Run its cells in order, as a kernel does, for two steps."""
    monkeypatch.chdir(REPOSITORY / "scripts")
    monkeypatch.setenv("NUM_STEPS", "2")
    cells = json.loads(Path("quickstart.ipynb").read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert len(cells) == 10
    names: dict[str, Any] = {}
    figures = []
    for source in code:
        *_, last = source.rstrip().splitlines()
        exec(source, names)
        if last.startswith("Figure("):
            figures.append(eval(last, names)._repr_svg_())
    assert [figure.count("<polyline") for figure in figures] == [3, 3]
    assert names["run"].name.endswith("quickstart") and len(names["rows"]) == 3
    assert "agent 1, scoring, reward " in capsys.readouterr().out


def test_a_sweep_starts_runs_with_its_parameters():
    sweep = yaml.safe_load((REPOSITORY / "scripts/sweep.yaml").read_text())
    arguments = [f"{name}={each['values'][-1]}" for name, each in sweep["parameters"].items()]
    [*start, file, tracker, chosen] = sweep["command"]
    assert start == ["bash", "scripts/train_comas.sh"] and chosen == "${args_no_hyphens}"
    config = load_config(REPOSITORY / file, [tracker, *arguments])
    assert (config.optimization.learning_rate, config.seed) == (1.0e-4, 1)
    assert config.logging.trackers == ["wandb"]
