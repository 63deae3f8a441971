"""The notebook of the quick-start, and the sweep."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from small_runs import REPOSITORY

from comas.preflight.configuration import load_config


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
