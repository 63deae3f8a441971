"""The keys of a study's file, and of scripts/reproduce.sh."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from comas.config.errors import Conflict
from comas.config.keys import FOLDER_NAME, FOLDER_NAME_IN_WORDS, key

OF_A_RUN = ("seed=", "name=", "saves=", "resume=")


@dataclass
class Study:
    """Experiments that are trained with every seed, and the metrics to compare."""

    about: str = key("")
    """The beginning of the report, in Markdown."""
    experiments: dict[str, Any] = key({}, example={"mine": "mine.yaml algorithm.kl_coef=0.1"})
    """Name -> arguments of ``scripts/train_comas.sh``: a configuration, looked up beside the study,
    then settings, whose paths start in the current folder."""
    compare_with: str | None = key(None, example="comas")
    """The reference experiment; null: the first."""
    bound: str | None = key(None, example="verifier")
    """The experiment of whose gain the others' are shown as shares; null: none."""
    metrics: list[str] = key(["validation/greedy/accuracy", "validation/accuracy"])
    """Names in metrics.jsonl."""
    seeds: list[int] = key([0, 1, 2, 3, 4])
    """Each experiment is run once per seed."""
    only: list[str] | None = key(None, example=["comas", "muted"])
    """Names of experiments to run; null: all."""
    settings: str = key("")
    """Settings for every experiment, such as ``training.num_steps=5`` to try the study out."""
    saves: str | None = key(None, leads_to="new folder", example="saves/mine")
    """Folder of the runs; null: saves/studies/<name of the study's file>."""
    results: str | None = key(None, leads_to="new folder", example="results/mine")
    """Folder of the results; null: results/studies/<name of the study's file>."""

    @property
    def chosen(self) -> list[str]:
        return [name for name in self.experiments if self.only is None or name in self.only]

    @property
    def reference(self) -> str:
        return self.compare_with or next(iter(self.experiments))

    def words(self, experiment: str) -> list[str]:
        """Return the arguments of an experiment's runs, except seed, name and folder."""
        return [*words_of(self.experiments[experiment]), *words_of(self.settings)]


def find_conflicts(study: Study) -> Iterator[Conflict]:
    """Find errors beyond the types and bounds of single keys."""
    known = ", ".join(study.experiments)
    if not study.experiments:
        yield Conflict(("experiments",), "names none", 'write experiments.mine="mine.yaml"')
    if study.settings and not words_of(study.settings):
        yield Conflict(("settings",), "has a quote that is not closed", "close it")
    settings = {"settings": study.settings} if words_of(study.settings) else {}
    for name, command in {**study.experiments, **settings}.items():
        if not words_of(command):
            remedy = f'write it like experiments.{name}="configs/comas.yaml training.num_steps=9"'
            why = f"{name} must be a command's words, as text, and its name have no dot"
            yield Conflict(("experiments",), why, remedy)
        if own := [word for word in words_of(command) if word.startswith(OF_A_RUN)]:
            what = f"{name} sets {' '.join(own)}, which a study sets for each run"
            yield Conflict(("experiments",), what, "leave it out; seeds=[...] are the study's")
        if not FOLDER_NAME.fullmatch(f"{name}-seed{max(study.seeds, default=0)}"):
            yield Conflict(("experiments",), f"{name}-seed0 {FOLDER_NAME_IN_WORDS}", "rename it")
    named: dict[str, Sequence[str | None]] = {
        "only": study.only or [],
        "compare_with": [study.compare_with],
        "bound": [study.bound],
    }
    for asked, names in named.items():
        if unknown := [str(name) for name in names if name and name not in study.experiments]:
            what = f"names {', '.join(unknown)}, which is no experiment"
            yield Conflict((asked,), what, f"choose from {known}")
    if not study.metrics:
        yield Conflict(("metrics",), "names none", "write metrics=[validation/accuracy]")
    if not study.seeds or len(set(study.seeds)) < len(study.seeds) or min(study.seeds) < 0:
        remedy = "write them like seeds=[0,1,2]"
        yield Conflict(("seeds",), "must hold seeds from 0 on, each once", remedy)


def words_of(command: Any) -> list[str]:
    """Split a command as a shell does; empty if it is invalid."""
    try:
        return shlex.split(command) if isinstance(command, str) else []
    except ValueError:  # a quote is not closed
        return []
