"""Claims, the rules that decide them, and the tables of a report, by results made by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from made_results import results, run
from small_runs import REPOSITORY

from comas.preflight.configuration import load_config
from comas.reproduction.claims import (
    Claim,
    claims_of,
    decide,
    ends_above,
    every,
    keeps,
    learns,
    learns_more,
    leaves_less_than_half,
    no_gain,
    rises,
)
from comas.reproduction.experiments import PLANS
from comas.reproduction.report import claims_section, write_tuning
from comas.reproduction.results import (
    GREEDY,
    SAMPLED,
    Record,
    as_table,
    read_records,
    read_result,
    write_record,
)
from comas.reproduction.tables import (
    accuracy_table,
    effectiveness_table,
    machines_table,
    probe_table,
)
from comas.utils.files import FileError

LEARNS = Claim("it learns", "it does", needs=("comas",), decide=learns)
MORE = Claim(
    "it learns more",
    "in pairs",
    needs=("comas", "muted", "exchanged"),
    decide=learns_more("comas", "muted"),
)
HALF_RUN = {"comas": [30, 31, 32], "muted": [0, 0], "exchanged": [0]}


@pytest.fixture(autouse=True)
def in_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)


# ---------------------------------------------------------------- rules


@pytest.mark.parametrize(
    ("rule", "gains", "outcome"),
    [
        # 19.5 ± 4.303 * 0.5 / sqrt(3) lies above 0.
        (learns, {"comas": [19, 19.5, 20]}, "reproduced"),
        (learns, {"comas": [0, 20, 40]}, "undecided"),
        (learns, {"comas": [-19, -19.5, -20]}, "contradicted"),
        # Each seed is compared with its own: differences 10, 11, 12 though gains differ by 30.
        (learns_more("a", "b"), {"a": [40, 25, 10], "b": [30, 14, -2]}, "reproduced"),
        (learns_more("b", "a"), {"a": [40, 25, 10], "b": [30, 14, -2]}, "contradicted"),
        (learns_more("a", "b"), {"a": [40, 25, 10], "b": [30, 45, -2]}, "undecided"),
        # Half of the gain is 20, 15, 10: more by 15, 14, 13.
        (leaves_less_than_half("a"), {"comas": [40, 30, 20], "a": [5, 1, -3]}, "reproduced"),
        (leaves_less_than_half("a"), {"comas": [40, 30, 20], "a": [19, 16, 9]}, "undecided"),
        (leaves_less_than_half("a"), {"comas": [-40, -40.5, -41], "a": [0, 0, 0]}, "contradicted"),
        # Accuracy was 60 after step 60; it may end 5 points lower.
        (keeps("a", since=60), {"a": [17, 18, 19]}, "reproduced"),
        (keeps("a", since=60), {"a": [13, 15, 18]}, "undecided"),
        (keeps("a", since=60), {"a": [12, 13, 12]}, "contradicted"),
        (no_gain("a", "b"), {"a": [1, 0, -1], "b": [2, 1, 0]}, "reproduced"),
        (no_gain("a", "b"), {"a": [1, 0, -1], "b": [9, 0, -9]}, "undecided"),
        (no_gain("a", "b"), {"a": [1, 0, -1], "b": [-9, -10, -11]}, "contradicted"),
        (
            every(learns, learns_more("comas", "a")),
            {"comas": [9, 9, 9], "a": [9, 0, 5]},
            "undecided",
        ),
    ],
)
def test_a_rule_decides_by_the_interval(rule, gains: dict[str, list[float]], outcome: str):
    assert rule(results(**gains))[0] == outcome


def test_a_rule_says_what_it_has_found_in_pairs_of_a_seed():
    found = as_table([run(seed=0), run(seed=1, trained=60.0), run("muted", 1, trained=41.0)])
    assert learns_more("comas", "muted")(found) == (
        "undecided",
        "comas over muted +19.0 [-inf, +inf]",
    )


def test_rewards_fall_rise_and_saturate_by_their_intervals():
    falling = as_table([run("a", 0, reward=(0.9, 0.8)), run("a", 1, reward=(0.9, 0.799))])
    key = "reward/solution"
    assert rises("a", key, falls=True)(falling)[0] == "reproduced"
    assert rises("a", key)(falling)[0] == "contradicted"
    assert rises("a", key)(falling)[1].startswith("solution -10.0")
    assert ends_above("a", key, bound=0.7)(falling)[0] == "reproduced"
    assert ends_above("a", key, bound=0.7995)(falling)[0] == "undecided"


@pytest.mark.parametrize(
    ("claim", "gains", "seeds", "outcome", "evidence"),
    [
        (LEARNS, {"comas": [30, 30]}, [0, 1], "reproduced", "gain +30.0 [+30.0, +30.0]"),
        (Claim("times", "needs GPUs"), {"comas": [30]}, [0], "not testable here", None),
        (MORE, {"comas": [30]}, [0], "not run", "missing: muted, exchanged"),
        (MORE, HALF_RUN, [0], "reproduced", None),
        (MORE, HALF_RUN, [0, 1, 2], "not run", "missing: muted (seed 2), exchanged (seeds 1, 2)"),
        (
            replace(LEARNS, by_construction="it must"),
            {"comas": [30, 30]},
            [0],
            "by construction",
            "gain +30.0 [+30.0, +30.0]; it must",
        ),
    ],
)
def test_a_claim_is_decided_when_every_seed_has_run(claim, gains, seeds, outcome, evidence):
    found, said = decide(claim, results(**gains), seeds=seeds)
    assert found == outcome
    assert evidence in (None, said)


def test_claims_of_the_paper_and_ours_are_counted_apart():
    found = results(comas=[30, 31])
    counted, table = claims_section([LEARNS, MORE], found, seeds=[0, 1])
    assert counted == "Of 2: 1 reproduced, 1 not run."
    assert "| it learns | it does | **reproduced** | gain +30.5 [+24.1, +36.9] |" in table
    assert {claim.source for claim in claims_of(PLANS["quickstart"])} == {"paper", "ours"}


# ---------------------------------------------------------------- numbers


def test_the_ends_of_a_run_are_means_of_ten_steps(tmp_path: Path):
    rows = [{"step": i, "reward/solution": float(i)} for i in range(31)]
    rows[0] |= {SAMPLED: 0.1, GREEDY: 0.0, "probe/names": 0.5, "time/validation_s": 2.0}
    rows[30] |= {SAMPLED: 0.4, GREEDY: 0.8, "probe/names": 0.6, "time/step_s": 3.0}
    rows[1]["reward/solution"] = None
    for step, value in ((4, 0.2), (5, None), (30, 0.4)):
        rows[step]["instruments/diversity"] = value
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    git = {"commit": "0123456789", "dirty": False}
    (tmp_path / "versions.json").write_text(json.dumps([{"git": git}]))
    found = read_result(tmp_path, PLANS["quickstart"].experiments[0], seed=3)
    assert found.first["reward/solution"] == 6.0  # of 2 to 10
    assert found.last["reward/solution"] == 25.5
    assert found.last["train/accuracy"] is None
    assert found.before == {SAMPLED: 0.1, GREEDY: 0.0, "probe/names": 0.5}
    assert (found.after[GREEDY], found.num_steps, found.seconds) == (0.8, 30, 5.0)
    assert found.along["probe/names"] == {0: 0.5, 30: 0.6}
    assert found.along["instruments/diversity"] == {30: pytest.approx(0.3)}
    assert found.commits == ["0123456"]
    assert found.course == {0: 0.0, 30: 0.8}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(rows[0]) + "\n")
    with pytest.raises(ValueError, match="holds 1 validations; two"):
        read_result(tmp_path, PLANS["quickstart"].experiments[0], seed=3)


@pytest.mark.parametrize("study", PLANS)
def test_every_experiment_has_a_configuration_and_every_claim_its_experiments(study):
    plan = PLANS[study]
    for experiment in plan.experiments:
        assert load_config(REPOSITORY / experiment.config, experiment.overrides).seed == 0
    known = {experiment.name for experiment in plan.experiments}
    for claim in claims_of(plan):
        assert set(claim.needs) <= known, claim.statement
    assert {*plan.by_number, *filter(None, plan.by_diversity), plan.main} <= known


def test_numbers_survive_their_file(tmp_path: Path):
    runs = [run(), run("muted", 2, reward=(None, 0.1))]
    record = Record("A", "2026-01-01", runs)
    write_record(tmp_path, record)
    assert read_records(tmp_path) == {"a.json": record}
    pd.testing.assert_frame_equal(as_table(read_records(tmp_path)["a.json"].runs), as_table(runs))
    (tmp_path / "a.json").write_text('{"machine": "A", "runs": []}')
    with pytest.raises(FileError, match=r"a\.json is damaged: date: Field required"):
        read_records(tmp_path)


def test_a_run_that_was_made_again_replaces_the_earlier_one():
    before = Record("A", "2026-01-01", [run("comas", 0), run("muted", 0)])
    again = replace(before, date="2026-02-02", runs=[run("muted", 0, trained=50.0)])
    merged = again.with_earlier(before)
    assert merged.date == "2026-02-02"
    assert merged.runs == [run("comas", 0), run("muted", 0, trained=50.0)]


def test_a_row_has_means_and_what_comas_gains_more():
    found = results(comas=[30, 20, 25], muted=[2, 1, 3])
    known = [e for e in PLANS["quickstart"].experiments if e.name in ("comas", "muted")]
    table = accuracy_table(found, known).splitlines()
    assert "| 40.0 ± 0.0 | 65.0 ± 5.0 | +25.0 ± 5.0 |  | 20.0 ± 0.0 | 32.5 ± 2.5 | 3 |" in table[2]
    # 28, 19, 22: mean 23, standard deviation 4.58.
    assert "| +2.0 ± 1.0 | +23.0 [+11.6, +34.4] |" in table[3]
    assert "| comas | 60 -> 60 |" in probe_table(found, known)
    assert "| 50 -> 60 |" in effectiveness_table(found, known)


def test_the_best_learning_rate_is_kept():
    ended = {"comas": {5e-5: [60.0, 70.0], 1e-4: [80.0, 40.0]}, "srlm": {1e-4: [10.0]}}
    page = write_tuning(ended, heading="here")
    # Variances 50 and 800: 20.6 points; 5 seeds find (2.776 + 0.941) / sqrt(5) times that.
    assert "| comas | 65.0 ± 7.1 | 60.0 ± 28.3 | 5e-05 | 20.6 | 34 |" in page
    assert "| srlm |  | 10.0 | 0.0001 | 0.0 | 34 |" in page


def test_machines_stand_side_by_side():
    here, there = results(comas=[30, 20]), results(comas=[26, 21])
    known = list(PLANS["quickstart"].experiments[:1])
    assert machines_table(here, {"B": there}, known).splitlines()[2] == (
        "| comas | 65.0 ± 7.1 | 63.5 ± 3.5 | 4.0 |"
    )
    assert "Nothing was run on two machines" in machines_table(here, {}, known)
