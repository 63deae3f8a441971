"""Roles that a plug-in declares, each in one file: rewarded, weighted, measured and shown."""

import re

import builders
import pytest
import torch
from builders import QUESTION, advantages_of, generation, sample
from small_runs import QUICKSTART
from tables import case_file, cases
from test_plugins import plugin_errors

from comas.config import ConfigError
from comas.interaction.criticism import CRITICISMS
from comas.interaction.schedules import SCHEDULES, UNCRITICISED_SCHEDULES
from comas.policy_optimization.samples import collect_samples
from comas.preflight.configuration import load_config
from comas.preflight.sizes import silent_discussions, silent_rewards
from comas.reward_formulation import REWARD_SCHEMES
from comas.run.guards import check_paid
from comas.run.metrics.reward_effectiveness import reward_effectiveness
from comas.run.metrics.step import rollout_metrics
from comas.types import Request, RewardedDiscussion

REFINER, PLANNER, UNPAID = (case_file("roles")[name] for name in ("REFINER", "PLANNER", "UNPAID"))


@pytest.fixture
def refined(tmp_path) -> str:
    (tmp_path / "refiner.py").write_text(REFINER)
    return f"{tmp_path}/refiner.py:refined"


def rewarded(score: int, **rules: object) -> RewardedDiscussion:
    """A discussion of two agents in which every scoring gives ``score``."""

    async def speak(request: Request):
        return generation(f"{request.turn[1]} <score>{score}</score>")

    rules = {"prompt_reuse": 1, "num_evaluations": 1, "num_rounds": 1} | rules
    [held] = builders.discuss([QUESTION], speak, num_agents=2, **rules)
    [item] = REWARD_SCHEMES["interaction"]([held], dict, seed=0, step=0).discussions
    return item


# r(s) = (score - 1) / 2, r(e) = 1 - r(s), r(t) = 0: of a solution, its evaluation and its scoring.
OF_SCORE = [(1, 0.0, 1.0), (2, 0.5, 0.5), (3, 1.0, 0.0)]


@cases("score, solved, judged", *OF_SCORE)
def test_a_refinement_is_asked_for_scored_rewarded_trained_and_seen(refined, score, solved, judged):
    item = rewarded(score, criticism=refined, num_rounds=2)
    ids = ["s0", "s0.e0", "s0.e0.refinement0", "s0.e0.refinement0.t0"]
    assert [t.turn_id for t in item.discussion.turns] == [f"r{r}.{i}" for r in (0, 1) for i in ids]
    assert item.rewards == (solved, judged, solved, 0.0) * 2

    solution, evaluation, refinement, scoring, later = item.discussion.turns[:5]
    assert refinement.prompt == f"Improve {solution.text} by {evaluation.text}"
    assert scoring.prompt == f"Score {refinement.text}"
    assert refinement.text in later.prompt and solution.text not in later.prompt

    [buffer] = collect_samples([item], policy_of_agent=[0, 0], mask_truncated=True)
    assert [s.reward for s in buffer] == list(item.rewards)
    assert rollout_metrics([item], num_agents=2)["reward/refinement"] == solved


@cases("score, solved, judged", *OF_SCORE)
def test_a_plan_is_rewarded_as_the_solution_that_follows_it(tmp_path, score, solved, judged):
    (tmp_path / "planner.py").write_text(PLANNER)
    item = rewarded(score, schedule=f"{tmp_path}/planner.py:planned")
    ids = ["r0.plan0", "r0.plan0.s0", "r0.plan0.s0.e0", "r0.plan0.s0.e0.t0"]
    assert [t.turn_id for t in item.discussion.turns] == ids
    assert item.rewards == (solved, solved, judged, 0.0)
    plan, solution, _, scoring = item.discussion.turns
    assert solution.prompt == f"Solve ? by {plan.text}"
    assert item.discussion.solutions() == [solution], "a plan is no answer to verify"
    assert item.discussion.scorings(plan) == item.discussion.scorings(solution) == [scoring]


def test_a_score_tells_of_the_solution_that_was_scored_and_rewards_all_above_it(refined):
    item = rewarded(3, criticism=refined)
    solution, _, refinement, scoring = item.discussion.turns
    assert item.discussion.solutions() == [solution, refinement]
    assert item.discussion.scorings(solution) == item.discussion.scorings(refinement) == [scoring]
    assert item.discussion.solution_of(scoring) == refinement
    of_turns = {"r0.s0": "wrong", refinement.turn_id: "correct"}
    verdicts = {("step1/q/copy0", turn_id): verdict for turn_id, verdict in of_turns.items()}
    metrics = reward_effectiveness([item], verdicts=verdicts)
    assert metrics["scoring/confusion/score_3/correct"] == 1
    assert metrics["scoring/confusion/score_3/incorrect"] == 0


def test_weights_may_have_declared_roles_and_no_others(refined):
    weighed = [f"interaction.criticism={refined}", "algorithm.role_weights={refinement: 0.5}"]
    config = load_config(QUICKSTART, weighed)
    roles = ("refinement", "refinement", "scoring", "scoring")
    samples = [sample(role=role, reward=float(i % 2)) for i, role in enumerate(roles)]
    advantages = advantages_of(samples, config.algorithm)
    assert torch.equal(advantages[:2], 0.5 * advantages[2:]) and advantages[3] > 0

    said = "choose among solution, evaluation, scoring; a schedule, criticism or program may"
    with pytest.raises(ConfigError, match=re.escape(said)):
        load_config(QUICKSTART, weighed[1:])


def changed(path, changes: dict[str, str]) -> str:
    text = REFINER + UNPAID
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)
    return f"interaction.criticism={path}:refined"


@cases("scheme, changes, unpaid")
def test_trained_turns_without_a_reward_are_refused_unless_meant(tmp_path, scheme, changes, unpaid):
    path = tmp_path / "refiner.py"
    faults = plugin_errors(changed(path, changes), f"reward.scheme={scheme.format(path)}")
    said = f"gave no reward to turns of the role {unpaid}, so nothing"
    assert len(faults) == (unpaid is not None) and all(said in fault for fault in faults)


@cases("changes, said")
def test_what_is_no_role_is_refused_by_name(tmp_path, changes, said):
    assert said in plugin_errors(changed(tmp_path / "refiner.py", changes))[0]


def test_every_shipped_discussion_rewards_all_that_it_trains():
    shipped = [
        (schedule, criticism, scheme)
        for schedule in SCHEDULES
        for criticism, made in CRITICISMS.items()
        for scheme, wanted in REWARD_SCHEMES.items()
        if wanted.reads == made.outcome
        and scheme != "program"  # which tests/test_program.py tries
        and (schedule not in UNCRITICISED_SCHEDULES or criticism == "none")
    ]
    assert len(shipped) > 40
    for schedule, criticism, scheme in shipped:
        rules = {"schedule": schedule, "criticism": criticism}
        rules["num_evaluations"] = str(CRITICISMS[criticism].min_evaluations)
        settings = [f"interaction.{key}={value}" for key, value in rules.items()]
        config = load_config(QUICKSTART, [*settings, f"reward.scheme={scheme}"])
        rewards = silent_rewards(config, silent_discussions(config, said="<score>2</score>"))
        check_paid(config, rewards.discussions, is_dry_run=True)
