"""Every metric of a run has one meaning."""

import re
from typing import Any

from page_runs import discussion, verdicts_of
from small_runs import REPOSITORY
from tables import cases

from comas.preflight.configuration import load_config
from comas.run.metrics.meanings import as_regex, meanings
from comas.run.metrics.step import step_metrics
from comas.types import Rewards, UpdateStats


def meanings_of(name: str) -> list[str]:
    return [each.text for each in meanings() if re.fullmatch(as_regex(each.pattern), name)]


@cases(
    "name, begins",
    ("agent_1/validation/greedy/accuracy/choice", ["Correct held-out answers, each agent alone"]),
    ("agent_0/probe/names/coding/off by one", ["Planted wrong solutions whose mistake the eval"]),
    ("agent_12/policy/kl", ["Mean k1 estimate of KL(policy, reference) "]),
    ("policy/kl", []),  # which no run writes
    ("train/accuracy/music", []),
)
def test_a_metric_is_found_by_the_pattern_that_its_name_fits(name, begins):
    assert [text[:42] for text in meanings_of(name)] == [text[:42] for text in begins]


def test_every_line_of_the_table_is_whole():
    for each in meanings():
        assert each.text and not each.text.endswith("."), each
        assert each.better in ("higher", "lower", ""), each
    names = [name for each in meanings() for name in re.findall(r"<(\w+)>", as_regex(each.pattern))]
    assert names == []


def test_every_metric_of_a_step_has_exactly_one_meaning():
    item = discussion(1)
    rows: dict[str, Any] = step_metrics(
        Rewards([item], {"scoring/invalid_rate": 0.0}),
        {0: [], 1: []},
        {policy: UpdateStats(learning_rate=0.1) for policy in (0, 1)},
        verdicts_of(item),
        config=load_config(REPOSITORY / "configs/quickstart.yaml", []),
    )
    assert len(rows) > 80
    assert [name for name in rows if len(meanings_of(name)) != 1] == []
