"""The pages of finished studies and README.md agree with the numbers in results/."""

import json

import pytest
from small_runs import REPOSITORY
from tables import case_file

from comas.reproduction.report import comparison_table, mean_and_spread
from comas.reproduction.results import pooled, read_records

RESULTS = REPOSITORY / "results"
STUDIES = case_file("committed_report")["STUDIES"]
GREEDY, SAMPLED = "validation/greedy/accuracy", "validation/accuracy"
WHEN = ("before", "after")
PAGES = {"reproduction": "reproduction/report.md", "lasting": "lasting.md"}

Runs = dict[str, dict[int, dict]]
"""Experiment -> seed -> recorded numbers."""


def numbers(study: str) -> Runs:
    found: Runs = {}
    for file in sorted((RESULTS / STUDIES.get(study, study)).glob("*.json")):
        for run in json.loads(file.read_text())["runs"]:
            found.setdefault(run["experiment"], {})[run["seed"]] = run
    return found


def percent(runs: Runs, name: str, when: str, key: str = GREEDY) -> dict[int, float]:
    return {seed: 100 * run[when][key] for seed, run in sorted(runs[name].items())}


@pytest.fixture(scope="module")
def reproduction() -> Runs:
    return numbers("reproduction")


@pytest.mark.parametrize("study", STUDIES)
def test_every_experiment_was_run_with_every_seed_after_it_was_frozen(study):
    frozen = json.loads((RESULTS / "frozen" / f"{study}.json").read_text())
    runs = numbers(study)
    assert set(frozen["settings"]) <= set(runs)
    assert len({tuple(sorted(by_seed)) for by_seed in runs.values()}) == 1


def test_the_table_of_the_readme_is_of_the_numbers(reproduction):
    readme = (REPOSITORY / "README.md").read_text()
    rows = [line.split(" | ") for line in readme.splitlines() if line.startswith("| `")]
    shown = {cells[0].strip("| `"): cells[2:] for cells in rows if cells[0][3:-1] in reproduction}
    assert "comas" in shown
    for name, cells in shown.items():
        ends = [percent(reproduction, name, w, k) for k in (GREEDY, SAMPLED) for w in WHEN]
        assert [c.strip(" |*") for c in cells] == [mean_and_spread(e.values()) for e in ends]


@pytest.mark.parametrize(("study", "page"), PAGES.items())
def test_tables_of_finished_studies_are_of_the_numbers(study, page):
    text = (RESULTS / page).read_text()
    records = read_records(RESULTS / STUDIES[study])
    results = pooled(records, numbers(study), range(20))
    reference = "comas" if study == "reproduction" else "long_live_joint"
    table = comparison_table(results, GREEDY, reference=reference).splitlines()
    assert table[0] in text
    shown = [row for row in table[2:] if row in text]
    assert len(shown) == {"reproduction": 16, "lasting": 9}[study]
