"""scripts/benchmark.sh: the list of benchmarks, how their keys are read, and their harness."""

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from scripts.benchmarks._turns import Ratio, Report, take_turns
from scripts.command import read_arguments

REPOSITORY = Path(__file__).parents[1]


def benchmark(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", str(REPOSITORY / "scripts/benchmark.sh"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_help_lists_every_benchmark_with_a_line():
    listed = benchmark("--help").stdout
    files = {path.stem for path in (REPOSITORY / "scripts/benchmarks").glob("[!_]*.py")}
    assert {"society", "peers"} <= files
    for name in files:
        assert f"\n  {name} " in listed


@pytest.mark.parametrize("name", ["speed", "__init__", "../prepare_data"])
def test_an_unknown_benchmark_is_an_error_that_lists_the_known_ones(name):
    result = benchmark(name)
    assert result.returncode == 2
    assert f"no benchmark is named {name}" in result.stderr
    assert "\n  peers " in result.stderr


@dataclass
class Arguments:
    num: int = 3
    path: str | None = None


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Arguments]:
    def read(*arguments: str) -> Arguments:
        monkeypatch.setattr("sys.argv", ["benchmark", *arguments])
        return read_arguments(Arguments, about="Measures nothing.")

    return read


def test_keys_replace_defaults(read):
    assert read() == Arguments(3, None)
    assert read("num=5", "path=a") == Arguments(5, "a")


@pytest.mark.parametrize("argument", ["count=5", "num=five", "num", "--num=5"])
def test_what_is_no_key_or_no_value_for_it_is_an_error_with_the_keys(read, capsys, argument):
    with pytest.raises(SystemExit, match="2"):
        read(argument)
    error = capsys.readouterr().err
    assert error.startswith(f"error: {argument}: ")
    assert "\n  num=3\n" in error


def test_help_of_a_benchmark_names_its_keys(read, capsys):
    with pytest.raises(SystemExit, match="0"):
        read("--help")
    said = "Measures nothing.\nKeys and their defaults:\n  num=3\n  path=None\n"
    assert capsys.readouterr().out == said


def test_ways_take_turns_in_an_order_that_is_reversed_each_time():
    taken = []
    ways = {name: partial(taken.append, name) for name in "ab"}
    turns = take_turns(ways, repeats=2, measure=lambda way: way() or {"seconds": len(taken)})
    assert taken == ["a", "b", "b", "a"]
    assert turns == {"a": [{"seconds": 1}, {"seconds": 4}], "b": [{"seconds": 2}, {"seconds": 3}]}


def test_ratios_are_taken_turn_by_turn_and_a_missed_mark_is_the_exit_status(capsys):
    turns = {
        "one": [{"seconds": 2.0}, {"seconds": 6.0}, {"seconds": 9.0}],
        "other": [{"seconds": 1.0}, {"seconds": 4.0}, {"seconds": 3.0}],
    }
    for at_most, status, verdict in ((2.0, 0, "reached"), (1.9, 1, "MISSED")):
        report = Report()
        report.add("Two ways", turns, ratios=[Ratio("one", "other", at_most=at_most)])
        assert report.end() == status
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == "Two ways; median of 3"
        assert lines[2].split() == ["one", "6"] and lines[3].split() == ["other", "3"]
        # Ratios 2, 1.5 and 3; not 6 / 3.
        assert lines[4] == (
            f"one : other, seconds: 2.00 x (1.50 to 3.00) (at most {at_most:g}: {verdict})"
        )
