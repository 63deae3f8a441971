"""scripts/benchmark.sh: the list of benchmarks, and how their keys are read."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from scripts.benchmarks.discussions import undelayed_steps
from scripts.command import read_arguments

REPOSITORY = Path(__file__).parents[1]


@dataclass
class Arguments:
    num: int = 3
    path: str | None = None


def benchmark(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", str(REPOSITORY / "scripts/benchmark.sh"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def read(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Arguments:
    monkeypatch.setattr("sys.argv", ["benchmark", *arguments])
    return read_arguments(Arguments, about="Measures nothing.")


def test_help_lists_every_benchmark_with_a_line():
    listed = benchmark("--help").stdout
    files = {path.stem for path in (REPOSITORY / "scripts/benchmarks").glob("[!_]*.py")}
    assert {"discussions", "sandbox"} <= files
    for name in files:
        assert f"\n  {name} " in listed


@pytest.mark.parametrize("name", ["speed", "__init__", "../prepare_data"])
def test_an_unknown_benchmark_is_an_error_that_lists_the_known_ones(name):
    result = benchmark(name)
    assert result.returncode == 2
    assert f"no benchmark is named {name}" in result.stderr
    assert "\n  sandbox " in result.stderr


def test_keys_replace_defaults(monkeypatch):
    assert read(monkeypatch) == Arguments(3, None)
    assert read(monkeypatch, "num=5", "path=a") == Arguments(5, "a")


@pytest.mark.parametrize("argument", ["count=5", "num=five", "num", "--num=5"])
def test_what_is_no_key_or_no_value_for_it_is_an_error_with_the_keys(monkeypatch, capsys, argument):
    with pytest.raises(SystemExit, match="2"):
        read(monkeypatch, argument)
    error = capsys.readouterr().err
    assert error.startswith(f"error: {argument}: ")
    assert "\n  num=3\n" in error


def test_help_of_a_benchmark_names_its_keys(monkeypatch, capsys):
    with pytest.raises(SystemExit, match="0"):
        read(monkeypatch, "--help")
    assert capsys.readouterr().out == (
        "Measures nothing.\nKeys and their defaults:\n  num=3\n  path=None\n"
    )


@pytest.mark.parametrize(
    ("chains", "capacity", "num_steps"),
    [
        ([], 1, 0),
        ([[2, 1], [4]], 2, 4),
        ([[2, 1], [4]], 1, 7),
        # The second request of the first chain waits behind the third, until the second ends.
        ([[2, 1], [4], [3]], 2, 5),
        ([[2, 1], [6], [3]], 2, 6),
    ],
)
def test_steps_without_delay_are_those_of_first_come_first_served(chains, capacity, num_steps):
    assert undelayed_steps(chains, capacity=capacity) == num_steps
