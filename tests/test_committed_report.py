"""The reports in results/ follow from their numbers, and README.md from both."""

from __future__ import annotations

import json

import pytest
from small_runs import REPOSITORY

from comas.reproduction.claims import claims_of
from comas.reproduction.experiments import LONG_BOUND, LONG_MAIN, MAIN, NUM_SEEDS, PLANS
from comas.reproduction.frozen import FROZEN
from comas.reproduction.lasting import SHARE, standing
from comas.reproduction.lasting_page import standings_table, stops_table
from comas.reproduction.report import claims_section
from comas.reproduction.results import Results, as_table, read_records
from comas.reproduction.tables import (
    accuracy_table,
    answers_table,
    course_table,
    domains_table,
    effectiveness_table,
    habits_table,
    mean_and_spread,
    probe_table,
)

FOLDER = REPOSITORY / "results/reproduction"
PLAN = PLANS["quickstart"]
REPORT = (FOLDER / "report.md").read_text()


@pytest.fixture(scope="module")
def results() -> Results:
    [record] = read_records(FOLDER).values()
    assert record.machine in REPORT
    return as_table(record.runs)


def test_every_experiment_was_run_with_every_seed(results: Results):
    expected = {(e.name, seed) for e in PLAN.experiments for seed in range(NUM_SEEDS)}
    assert set(results.index) == expected
    assert "Not finished" not in REPORT


def test_every_claim_is_decided_as_the_numbers_say(results: Results):
    for source in ("paper", "ours"):
        claims = [claim for claim in claims_of(PLAN) if claim.source == source]
        for part in claims_section(claims, results, seeds=range(NUM_SEEDS)):
            assert part in REPORT


@pytest.mark.parametrize(
    "table", [accuracy_table, domains_table, course_table, probe_table, effectiveness_table]
)
def test_every_table_is_of_the_numbers(table, results: Results):
    assert table(results, PLAN.experiments) in REPORT


def test_what_agents_were_asked_is_of_the_numbers(results: Results):
    assert answers_table(results, ("T=0.7", "T=1", "pass@8")) in REPORT


def test_the_study_was_frozen_before_its_report():
    frozen = json.loads((FOLDER / FROZEN).read_text())
    assert f"were frozen on {frozen['date']}" in REPORT


def test_the_table_of_the_readme_is_of_the_numbers(results: Results):
    readme = (REPOSITORY / "README.md").read_text()
    rows = [line.split(" | ") for line in readme.splitlines() if line.startswith("| `")]
    known = {e.name for e in PLAN.experiments}
    shown = [cells for cells in rows if cells[0].strip("| `") in known]
    assert [cells[0].strip("| `") for cells in shown][:1] == [MAIN]
    for name, _, *cells in shown:
        runs = results.loc[name.strip("| `")]
        columns = ("untrained", "trained", "sampled_untrained", "sampled_trained")
        assert [c.strip(" |*") for c in cells] == [mean_and_spread(runs[c]) for c in columns]


# ---------------------------------------------------------------- what lasts


def numbers(folder: str) -> Results:
    records = read_records(REPOSITORY / "results" / folder).values()
    return as_table(run for record in records for run in record.runs)


@pytest.fixture(scope="module")
def lasting() -> Results:
    return numbers("lasting")


@pytest.mark.parametrize(
    ("study", "folder", "page"),
    [
        ("lasting", "lasting", "lasting/report.md"),
        ("lasting", "lasting", "lasting.md"),
        ("combined", "lasting/combined", "lasting/combined/report.md"),
        ("combined", "lasting/combined", "lasting.md"),
        ("voted", "lasting/voted", "lasting/voted/report.md"),
        ("voted", "lasting/voted", "lasting.md"),
    ],
)
def test_the_pages_of_what_lasts_are_of_the_numbers(study: str, folder: str, page: str):
    plan, results = PLANS[study], numbers(folder)
    text = (REPOSITORY / "results" / page).read_text()
    known = [e for e in plan.experiments if e.name in results.index.unique("experiment")]
    assert standings_table(results, known, plan.main) in text
    for table in (probe_table, effectiveness_table, stops_table):
        assert table(results, known) in text
    if (study, page) != ("lasting", "lasting.md"):  # which tells of it
        assert habits_table(results, known, plan.main) in text


@pytest.mark.parametrize(
    ("study", "folder"),
    [("lasting", "lasting"), ("combined", "lasting/combined"), ("voted", "lasting/voted")],
)
def test_the_page_of_what_lasts_says_how_much_of_it_was_run(study: str, folder: str):
    total = NUM_SEEDS * len(PLANS[study].experiments)
    said = f"{len(numbers(folder))} of {total} runs"
    assert said in (REPOSITORY / "results/lasting.md").read_text()


def test_combined_are_the_three_changes_that_the_rules_choose(lasting: Results):
    plan, [*_, combined] = PLANS["lasting"], PLANS["combined"].experiments
    [main] = [e for e in plan.experiments if e.name == LONG_MAIN]
    frozen = json.loads((REPOSITORY / "results/lasting" / FROZEN).read_text())["settings"]
    changes = {
        e.name: [o for o in e.overrides if o not in main.overrides]
        for e in plan.experiments
        if e.config == main.config and e is not main and e.name in frozen
    }
    by_share = sorted(changes, key=lambda name: -standing(lasting, name).shares.mean())
    # It trains none of those whom the best, long_consistency, pays.
    by_share.remove("long_solutions_alone")
    assert by_share[:3] == ["long_consistency", "long_kl", "long_slow_scoring"]
    chosen = [override for name in by_share[:3] for override in changes[name]]
    assert [o for o in combined.overrides if o not in main.overrides] == chosen


KEPT = "llama/math/ones left out"
NOT_DISCUSSED = ("long_srlm", "long_confident_majority")
UNLEARN_ALL = (LONG_BOUND, "long_scored_majority")


@pytest.mark.parametrize("folder", ["lasting", "lasting/combined", "lasting/voted"])
def test_discussions_without_labels_unlearn_all_habits_but_one(folder: str):
    """Unlearnt: made less than half as often in the last 10 steps as in the first 10."""
    results = numbers(folder)
    habits = [key.split(".")[2] for key in results if key.startswith("habits.first.")]
    assert len(habits) == 18
    for experiment, runs in results.groupby("experiment"):
        mean = {h: [runs[f"habits.{end}.{h}"].mean() for end in ("first", "last")] for h in habits}
        kept = [habit for habit, (first, last) in mean.items() if last >= first / 2]
        if experiment not in NOT_DISCUSSED:
            assert kept == ([] if experiment in UNLEARN_ALL else [KEPT])


def test_without_coding_the_vote_keeps_up_with_three_seeds_of_five():
    results = numbers("lasting/voted")
    keys = [f"validation/greedy/accuracy/{domain}" for domain in ("math", "science")]
    before, after = (results[[f"{at}.{key}" for key in keys]] for at in ("before", "after"))
    gains = after.mean(axis="columns") - before.mean(axis="columns")
    shares = gains["long_scored_majority"] / gains[LONG_BOUND]
    assert sum(shares >= SHARE) == 3
    *shown, last = [f"{100 * share:.1f}" for share in shares]
    said = f"{', '.join(shown)} and {last} % of the verifier's gain"
    assert said in " ".join((REPOSITORY / "results/lasting.md").read_text().split())


@pytest.mark.parametrize("page", ["README.md", "results/lasting.md"])
def test_gains_of_rewards_that_say_nothing_stand_beside_those_of_comas(page: str, results: Results):
    text = (REPOSITORY / page).read_text()
    for name in ("constant", "approving", "shuffled", MAIN):
        assert f"{results.loc[name, 'gain'].mean():.1f}" in text
