"""Run directories with tiny models, and record files."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from tiny_models import save_tiny_model

from comas.config import config_as_yaml
from comas.config.schema import Config, Data
from comas.data import DataError, load_questions
from comas.preflight.configuration import load_config
from comas.preflight.plugins import user_sources
from comas.run import RunDirectory

REPOSITORY = Path(__file__).parents[1]
QUICKSTART = REPOSITORY / "configs/quickstart.yaml"
FAMILIES = ("tied", "untied")


def record(number: int, **changes: str) -> dict[str, str]:
    """A question, what ``number`` + 1 is, with its answer."""
    known = {
        "id": f"gsm8k-{number}",
        "task": "math",
        "prompt": f"What is {number} + 1?",
        "answer": str(number + 1),
        "source": "gsm8k",
    }
    return known | changes


def write_records(path: Path, records: Iterable[object]) -> Path:
    """Write JSON lines, texts unchanged; returns the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [row if isinstance(row, str) else json.dumps(row) for row in records]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def data_error(path: str | Path, rules: Data | None = None) -> str:
    """What is said of a file of questions that cannot be read."""
    with pytest.raises(DataError) as caught:
        load_questions(path, *filter(None, [rules]))
    return str(caught.value)


def contents(folder: Path) -> dict[Path, bytes]:
    """Return path -> content of all files in a folder but locks."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {path.relative_to(folder): path.read_bytes() for path in files}


def tiny_settings(folder: Path, *settings: str, families=("tied",), num_questions=6) -> list[str]:
    """Overrides for a run of tiny models, with some questions and 2 held-out ones."""
    models = [save_tiny_model(folder / f, f, max_position_embeddings=4096) for f in families]
    questions = write_records(folder / "questions.jsonl", [record(i) for i in range(num_questions)])
    held_out = write_records(folder / "held_out.jsonl", [record(i) for i in (998, 999)])
    return [
        *(f"saves={folder / 'saves'}", f"society.models=[{','.join(models)}]"),
        *(f"data.train={questions}", f"data.validation={held_out}", "data.probe=null"),
        *("cluster.device=cpu", "rollout.batch_size=2", *settings),
    ]


def make_run(root: Path, *overrides: str, num_trained: int = 2, num_held_out: int = 1) -> Path:
    """Make a finished run of two tiny agents with different base models; returns its directory."""
    models = [root / family for family in FAMILIES]
    for folder in models:
        save_tiny_model(folder, folder.name)
    questions = write_records(root / "held_out.jsonl", [record(i) for i in range(num_held_out)])
    named = f"society.models=[{models[0]},{models[1]}]"
    config = load_config(QUICKSTART, [named, f"data.validation={questions}", *overrides])
    run = root / "saves/20260101-000000-test"
    (run / "models").mkdir(parents=True)
    (run / "config.yaml").write_text(config_as_yaml(config))
    for agent in range(num_trained):
        family = FAMILIES[agent % len(FAMILIES)]
        save_tiny_model(run / f"models/agent_{agent}", family, seed=agent + 1)
    return run


def begun(config: Config) -> Path:
    """The folder of a run that began with the plug-ins of ``config``."""
    with RunDirectory.create(config) as run:
        run.keep_settings({}, user_sources(config))
    return run.path


def reopened(path: Path, *overrides: str) -> RunDirectory:
    return RunDirectory.open(load_config(None, [f"resume={path}", *overrides]))


def save_checkpoint(run: RunDirectory, step: int) -> None:
    with run.checkpoint_folder(step) as folder:
        (folder / "weights").write_text(f"of step {step}")


def steps_in(folder: Path) -> list[int]:
    return sorted(int(path.name[5:].partition(".")[0]) for path in folder.iterdir())


def rows_of(folder: Path, name: str = "metrics.jsonl") -> list[dict[str, Any]]:
    """The rows of a file of JSON lines."""
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def untimed(run: Path) -> list[dict[str, Any]]:
    """The metrics of a run, but for times."""
    return [{k: v for k, v in row.items() if not k.startswith("time/")} for row in rows_of(run)]
