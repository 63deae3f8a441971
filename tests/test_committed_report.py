"""The pages of finished studies and README.md agree with the numbers in results/."""

import json
import re
from statistics import fmean

import pytest
from small_runs import REPOSITORY
from tables import case_file, cases

from comas.config import load
from comas.reproduction.intervals import interval
from comas.reproduction.report import (
    comparison_table,
    mean_and_spread,
    part_table,
    questions_more,
    share_table,
)
from comas.reproduction.results import paired_runs, pooled, read_records
from comas.reproduction.study import Study

RESULTS = REPOSITORY / "results"
STUDIES = case_file("committed_report")["STUDIES"]
GREEDY, SAMPLED = "validation/greedy/accuracy", "validation/accuracy"
WHEN = ("before", "after")
FIRST = f"agent_0/{GREEDY}"
SAME_AGENT = [("comas", "srlm"), ("comas", "agents_2")]
"""Comparisons with experiments of the first agent's model alone, by that agent's accuracy."""
REWARD = "reward_effectiveness/from_score_2"
PAGES = {"reproduction": "reproduction/report.md", "lasting": "lasting.md"}
DOMAINS = ("math", "science", "coding")

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


def gains(runs: Runs, name: str, key: str = GREEDY) -> dict[int, float]:
    before, after = (percent(runs, name, when, key) for when in WHEN)
    return {seed: after[seed] - before[seed] for seed in after}


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


def test_the_page_of_the_first_study_is_of_the_numbers(reproduction):
    page = " ".join((RESULTS / "reproduction/report.md").read_text().split())
    said = re.findall(r"(\w+) over (\w+) ([+-][\d.]+ \[[^]]+\])", page)
    assert len(said) == 8
    for ours, theirs, value in said:
        key = FIRST if (ours, theirs) in SAME_AGENT else GREEDY
        more, less = gains(reproduction, ours, key), gains(reproduction, theirs, key)
        assert value == str(interval([more[seed] - less[seed] for seed in more])), (ours, theirs)
    assert str(interval(list(gains(reproduction, "comas").values()))) in page
    assert mean_and_spread(percent(reproduction, "long_live_joint", "after").values()) in page
    reward = [run["last"]["reward/solution"] for run in reproduction["no_scoring"].values()]
    truth = [run["last"][f"{REWARD}/accuracy"] for run in reproduction["comas"].values()]
    first = [run["first"][f"{REWARD}/accuracy"] for run in reproduction["comas"].values()]
    assert f"ends at {fmean(reward):.2f}" in page
    assert f"falls from {100 * fmean(first):.0f} to {100 * fmean(truth):.0f} %" in page


@cases(
    "study, reward, domains, said",
    ("combined", "long_combined", DOMAINS, "94.1 to 95.3 %"),
    ("voted", "long_scored_majority", DOMAINS, "101.2, 96.1, 97.0, 98.9 and 100.4 %"),
    ("voted", "long_scored_majority", DOMAINS[:2], "101.9, 93.6, 94.8, 98.4 and 100.6 %"),
)
def test_shares_of_the_verifiers_gain_are_of_the_numbers(study, reward, domains, said):
    runs = numbers(study)
    ours, bound = (
        [gains(runs, name, f"{GREEDY}/{domain}").values() for domain in domains]
        for name in (reward, "long_verifier")
    )
    sums = zip(map(sum, zip(*ours, strict=True)), map(sum, zip(*bound, strict=True)), strict=True)
    shares = [f"{100 * one / other:.1f}" for one, other in sums]
    told = re.findall(r"[\d.]+", said)
    assert told == (shares if len(told) == len(shares) else [min(shares), max(shares)])
    assert said in " ".join((RESULTS / "lasting.md").read_text().split())


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
    if study == "reproduction":  # Gains of rewards that say nothing stand beside that of CoMAS.
        lasting = (RESULTS / "lasting.md").read_text()
        for name in ("constant", "approving", "shuffled", "comas"):
            assert f"{fmean(gains(numbers(study), name).values()):.1f}" in lasting


def test_the_page_of_votes_is_of_the_numbers():
    page = (RESULTS / "votes.md").read_text()
    runs = numbers("studies/votes")
    study = load(Study, REPOSITORY / "configs/studies/votes.yaml", [])
    results = pooled(read_records(RESULTS / "studies/votes"), study.chosen, study.seeds)
    assert f"**{sum(map(len, results.values()))} of 95 runs" in page
    sampled = dict(
        row.split(" | ") for row in part_table(results, [SAMPLED], bound="verifier").splitlines()
    )
    for row in share_table(results, GREEDY, bound="verifier").splitlines()[2:]:
        name, *shares, _ = row.split(" | ")
        if name.split("_")[-1] not in "3 9 model" and "policy" not in name:
            assert " | ".join([name, *shares, sampled[name]]) in page
    for habits, ending in (("none", ""), ("3 of 9", "_shared_3"), ("9 of 9", "_shared_9")):
        [row] = [line for line in page.splitlines() if line.startswith(f"| {habits} |")]
        for reward in ("verifier", "paper", "plain_vote", "scored_vote"):
            if reward + ending in results:
                ends = percent(runs, reward + ending, "after", f"{GREEDY}/math")
                shown = [value for seed, value in ends.items() if seed < 20]
                assert f"| {mean_and_spread(shown)} " in row
    for ending, paired in (("_shared_3", "(+4.5, +9.0)"), ("_shared_9", "+9.2 [+1.1, +17.3]")):
        both = paired_runs(results, f"scored_vote{ending}", f"paper{ending}")
        more = [100 * (a.after[f"{GREEDY}/math"] - b.after[f"{GREEDY}/math"]) for a, b in both]
        told = "({:+.1f}, {:+.1f})".format(*more) if len(more) == 2 else str(interval(more))
        assert told == paired and paired in page
    of_three = [f"{reward}_shared_3" for reward in ("verifier", "scored_vote")]
    ten = pooled(read_records(RESULTS / "studies/votes"), of_three, range(15, 25))
    for metric in (GREEDY, f"{GREEDY}/math", SAMPLED):
        [row] = share_table(ten, metric, bound=of_three[0]).splitlines()[2:]
        assert "{} {}".format(*row.split(" | ")[1:3]) in page
    for policies, key in (("one", GREEDY), ("per_agent", GREEDY), ("per_role", FIRST)):
        name = "one_policy" if policies == "one" else f"policy_{policies}"
        assert f"| {mean_and_spread(percent(runs, name, 'after', key).values())} " in page


def test_the_page_of_smollm2_is_of_the_numbers():
    page = (RESULTS / "smollm2.md").read_text()
    in_float32, in_bfloat16 = (
        pooled(read_records(RESULTS / "studies" / folder), numbers(f"studies/{folder}"), (0, 1))
        for folder in ("smollm2", "smollm2_bfloat16")
    )
    for name, runs in in_float32.items():
        [row] = [line for line in page.splitlines() if line.startswith(f"| `{name}`: ")]
        cells = list(map(str.strip, row.split("|")[2:-1]))
        assert cells[:2] == [f"{100 * run.after[SAMPLED]:.1f}" for run in runs.values()]
        for cell, results in ((cells[2], in_float32), (cells[4], in_bfloat16)):
            more = questions_more(results, name, "shuffled") if name != "shuffled" else ""
            assert cell == str(more or "").replace("+", "")
