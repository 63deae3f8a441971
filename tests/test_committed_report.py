"""The pages of finished studies, and README.md, say what the numbers in results/ say."""

from __future__ import annotations

import json
import re
from statistics import fmean

import pytest
from small_runs import REPOSITORY

from comas.reproduction.intervals import interval
from comas.reproduction.report import mean_and_spread

RESULTS = REPOSITORY / "results"
STUDIES = {
    "reproduction": "reproduction",
    "lasting": "lasting",
    "combined": "lasting/combined",
    "voted": "lasting/voted",
}
GREEDY, SAMPLED = "validation/greedy/accuracy", "validation/accuracy"
WHEN = ("before", "after")
FIRST = f"agent_0/{GREEDY}"
SAME_AGENT = {
    ("comas", "srlm"): FIRST,
    ("comas", "agents_2"): FIRST,
    ("comas", "ttrl"): f"{FIRST}/math",
    ("comas", "ttrl_on_test"): f"{FIRST}/math",
}
"""Comparisons with experiments of the first agent alone: by what is compared."""
SHARE = 0.95
"""Of the verifier's gain, with which a reward keeps up."""

Runs = dict[str, dict[int, dict]]
"""Experiment -> seed -> numbers, as they are on record."""


def numbers(study: str) -> Runs:
    found: Runs = {}
    for file in sorted((RESULTS / STUDIES[study]).glob("*.json")):
        for run in json.loads(file.read_text())["runs"]:
            found.setdefault(run["experiment"], {})[run["seed"]] = run
    return found


def percent(runs: Runs, name: str, when: str, key: str = GREEDY) -> dict[int, float]:
    return {seed: 100 * run[when][key] for seed, run in sorted(runs[name].items())}


def gains(runs: Runs, name: str, key: str = GREEDY) -> dict[int, float]:
    before, after = (percent(runs, name, when, key) for when in WHEN)
    return {seed: after[seed] - before[seed] for seed in after}


@pytest.fixture(scope="module")
def reproduction() -> Runs:
    return numbers("reproduction")


@pytest.mark.parametrize("study", STUDIES)
def test_every_experiment_was_run_with_every_seed_after_it_was_frozen(study: str):
    frozen = json.loads((RESULTS / "frozen" / f"{study}.json").read_text())
    runs = numbers(study)
    assert set(frozen["settings"]) <= set(runs)
    assert len({tuple(sorted(by_seed)) for by_seed in runs.values()}) == 1


def test_the_table_of_the_readme_is_of_the_numbers(reproduction: Runs):
    readme = (REPOSITORY / "README.md").read_text()
    rows = [line.split(" | ") for line in readme.splitlines() if line.startswith("| `")]
    shown = {cells[0].strip("| `"): cells[2:] for cells in rows if cells[0][3:-1] in reproduction}
    assert "comas" in shown
    for name, cells in shown.items():
        ends = [percent(reproduction, name, w, k) for k in (GREEDY, SAMPLED) for w in WHEN]
        assert [c.strip(" |*") for c in cells] == [mean_and_spread(e.values()) for e in ends]


def test_differences_of_the_first_study_are_of_the_numbers(reproduction: Runs):
    page = (RESULTS / "reproduction/report.md").read_text()
    said = re.findall(r"(\w+) over (\w+) ([+-][\d.]+ \[[^]]+\])", page)
    assert len(said) > 10
    for ours, theirs, value in said:
        key = SAME_AGENT.get((ours, theirs), GREEDY)
        more, less = gains(reproduction, ours, key), gains(reproduction, theirs, key)
        assert value == str(interval([more[seed] - less[seed] for seed in more])), (ours, theirs)


KEPT = "llama/math/ones left out"
NOT_DISCUSSED = ("long_srlm", "long_confident_majority")
UNLEARN_ALL = ("long_verifier", "long_scored_majority")


@pytest.mark.parametrize("study", ["lasting", "combined", "voted"])
def test_discussions_without_labels_unlearn_all_habits_but_one(study: str):
    """Unlearnt: made less than half as often in the last 10 steps as in the first 10."""
    for experiment, runs in numbers(study).items():
        ends = [[run["habits"][end] for run in runs.values()] for end in ("first", "last")]
        first, last = ({h: fmean(e[h] for e in end) for h in end[0]} for end in ends)
        if experiment not in NOT_DISCUSSED:
            assert len(first) == 18
            kept = [habit for habit in first if last[habit] >= first[habit] / 2]
            assert kept == ([] if experiment in UNLEARN_ALL else [KEPT])


def test_without_coding_the_vote_keeps_up_with_three_seeds_of_five():
    runs = numbers("voted")
    found = {
        name: [gains(runs, name, f"{GREEDY}/{domain}") for domain in ("math", "science")]
        for name in ("long_scored_majority", "long_verifier")
    }
    ours, bound = ({seed: one[seed] + two[seed] for seed in one} for one, two in found.values())
    shares = [ours[seed] / bound[seed] for seed in ours]
    assert sum(share >= SHARE for share in shares) == 3
    *shown, last = [f"{100 * share:.1f}" for share in shares]
    said = f"{', '.join(shown)} and {last} % of the verifier's gain"
    assert said in " ".join((RESULTS / "lasting.md").read_text().split())


@pytest.mark.parametrize("page", ["README.md", "results/lasting.md"])
def test_gains_of_rewards_that_say_nothing_stand_beside_those_of_comas(page, reproduction: Runs):
    text = (REPOSITORY / page).read_text()
    for name in ("constant", "approving", "shuffled", "comas"):
        assert f"{fmean(gains(reproduction, name).values()):.1f}" in text
