"""``comas train --trial``: its statistics, and a trial of a whole society."""

import re
from bisect import bisect
from collections import Counter
from itertools import accumulate, combinations_with_replacement
from math import factorial, prod, sqrt
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from builders import discussion, generation, sample
from scripted_agents import ScriptedAgents
from small_runs import FAMILIES, QUICKSTART, tiny_settings
from tables import cases

from comas import __main__ as command
from comas.config.schema import Dpo, Grpo, ReinforcePP
from comas.engines.cluster.supervision import EngineError
from comas.policy_optimization.update_stats import UpdateStats
from comas.preflight.configuration import load_config
from comas.preflight.preparation import prepare
from comas.trial import Trial
from comas.trial.costs import Costs
from comas.trial.judging import Estimate, Opinion, Source, assess, auc, value_said
from comas.trial.signal import Batch, gate, learnable, sight, verdict
from comas.types import Generation, Request, RewardedDiscussion, Rewards


def opinions(*values: tuple[str, float | None, bool | None]) -> list[Opinion]:
    return [Opinion((f"d{i}", "r0.s0"), *value) for i, value in enumerate(values)]


def test_the_auc_is_the_share_of_pairs_in_the_right_order_a_tie_counting_half():
    known = opinions(("a", 1.0, True), ("a", 0.5, True), ("b", 0.5, False), ("b", 0.0, False))
    # 1 > 0.5, 1 > 0, 0.5 = 0.5, 0.5 > 0
    assert auc(known, seed=0).value == (1 + 1 + 0.5 + 1) / 4
    assert auc([of._replace(value=-(of.value or 0.0)) for of in known], seed=0).value == 0.125


def test_the_interval_of_an_auc_is_that_of_all_samples_of_questions():
    """All samples of 7 questions with replacement, each with its AUC counted pair by pair."""
    values = [(9, 3), (8, 2), (7, 5), (4, 1), (0, 13), (10, 6), (12, 11)]
    chances = Counter[float]()
    for drawn in combinations_with_replacement(values, 7):
        pairs = [(right, wrong) for right, _ in drawn for _, wrong in drawn]
        orders = factorial(7) / prod(factorial(drawn.count(one)) for one in values)
        chances[fmean(right > wrong for right, wrong in pairs)] += orders / 7**7
    ranked = sorted(chances)
    reached = list(accumulate(chances[share] for share in ranked))
    # t(0.025, 6) = -2.4469, times sqrt(7 / 6) is -2.643: 0.411 % of a normal distribution.
    low, high = (ranked[bisect(reached, quantile)] for quantile in (0.00411, 1 - 0.00411))
    known = opinions(*((str(i), pair[k], k == 0) for i, pair in enumerate(values) for k in (0, 1)))
    assert auc(known, seed=0)[1:] == pytest.approx((low, high), abs=0.001)


def test_an_interval_counts_the_questions_that_are_compared():
    """5 questions with right solutions and 60 with wrong ones: t(0.025, 4) times sqrt(5 / 4) is
    3.104, 0.095 % of a normal distribution; with 65 questions it would be 2.2 %."""
    values = [*np.linspace(0.2, 0.9, 5), *np.linspace(0, 1, 60)]
    known = opinions(*((str(i), float(v), i < 5) for i, v in enumerate(values)))
    drawn = np.random.default_rng(1).multinomial(65, np.full(65, 1 / 65), 40_000)
    won = np.greater.outer(values[:5], values[5:])
    pairs = drawn[:, :5].sum(axis=1) * drawn[:, 5:].sum(axis=1)
    shares = ((drawn[:, :5] @ won) * drawn[:, 5:]).sum(axis=1)[pairs > 0] / pairs[pairs > 0]
    assert auc(known, seed=0).high == pytest.approx(np.quantile(shares, 1 - 0.00095), abs=0.02)
    own = opinions(*((str(i % 9), i % 5, i < 9) for i in range(18)))
    others = opinions(*((f"one-sided {i}", 9.0, i < 20) for i in range(40)))
    assert auc([*own, *others], seed=0, within=True) == auc(own, seed=0, within=True)


def test_too_few_opinions_give_no_number():
    few = opinions(*((str(i), 1.0, i < 4) for i in range(40)))
    said = "4 questions with right and 36 with wrong solutions are too few"
    assert assess("x", few, seed=0).untold == said
    alike = opinions(*((str(i % 9), 1.0, i % 9 < 4) for i in range(90)))
    assert assess("x", alike, seed=0).untold.startswith("4 questions with right and 5 with wrong")
    unread = opinions(*((str(i), None, i < 20) for i in range(40)))
    found = assess("x", unread, seed=0, nothing="nobody votes")
    assert (found.auc, found.untold) == (None, "nobody votes")


def test_an_interval_is_never_narrower_than_that_of_values_by_chance():
    known = opinions(*((str(i), 1 - i / 96, i < 48) for i in range(96)))
    assert auc(known, seed=0) == pytest.approx((1, 1 - 1.96 * sqrt(97 / (12 * 48 * 48)), 1))
    # Five right ones that share a value with 54 of 60 wrong ones: (60^3 - 60 ...) / (65 * 64).
    few = opinions(*((str(i), float(i < 59), i < 5) for i in range(65)))
    ties = (59**3 - 59 + 6**3 - 6) / (65 * 64)
    reach = 1.96 * sqrt((66 - ties) / (12 * 5 * 60))
    assert auc(few, seed=0)[:2] == pytest.approx((0.55, 0.55 - reach))
    blind = Source(
        "paid", few * 9, auc(opinions(*((str(i), 1.0, i < 9) for i in range(65))), seed=0)
    )
    checks = gate(blind, right=[True, False], readable=[], learnt=[True], is_all=True)
    assert verdict(blind, checks).startswith("not worth training (AUC, paid); paid: cannot tell")


def test_pairs_of_one_question_can_be_counted_alone():
    """Of ten questions with three solutions, every other one has two right ones, else one."""
    easy = opinions(*((str(i), float(i % 2), j <= i % 2) for i in range(10) for j in range(3)))
    assert auc(easy, seed=0).value == (10 * 10 + (10 * 5 + 5 * 10) / 2) / 15**2
    assert assess("x", easy, seed=0, within=True).auc == (0.5, 0.5, 0.5)
    own = [of._replace(value=-i % 3 - 9 * (of.value or 0)) for i, of in enumerate(easy, start=1)]
    reach = 1.96 * sqrt(10 * 2 * 4 / 12) / 20  # two pairs of three solutions in each
    assert auc(own, seed=0, within=True) == pytest.approx((1, 1 - reach, 1))
    said = "4 questions with right and 5 with wrong solutions, 4 of them with both, are too few"
    assert assess("x", [*easy[:12], easy[14]], seed=0, within=True).untold == said


def test_what_could_be_found_goes_by_the_width_of_the_interval():
    assert source("x", 0.55, 0.5, 0.696).detectable == pytest.approx(0.5 + 2.8 * 0.05)
    assert source("x", 0.5, 0.0, 1.0).detectable == 1.0


@cases("text, outcome, value")
def test_what_a_judge_says_is_a_value_from_0_to_1(text, outcome, value):
    assert value_said(text, outcome) == value


def source(name: str, *estimate: float) -> Source:
    return Source(name, [], Estimate(*estimate) if estimate else None, untold="too few")


@cases("paid, says")
def test_the_verdict_goes_by_the_interval(paid, says):
    assert says in sight(source("the reward", *paid))


def passed(*estimate: float, **changes: Any) -> dict[str, bool | None]:
    of = {"right": [True, False], "readable": [True] * 9, "learnt": [True], "is_all": False}
    of |= changes
    return {check.name: check.passes for check in gate(source("paid", *estimate), **of)}


def test_each_condition_of_the_gate_has_its_threshold():
    names = ("right solutions", "groups with something to learn", "readable judgments")
    assert passed(0.7, 0.6, 0.8) == dict.fromkeys((*names, "AUC, paid"), True)
    assert passed(0.5, 0.4, 0.55, readable=[]).keys() == {*names[:2], "AUC, paid"}
    assert passed(0.5, 0.4, 0.55)["AUC, paid"] is passed(0, 0, 0.2)["AUC, paid"] is False
    assert passed(0.55, 0.4, 0.7)["AUC, paid"] is passed()["AUC, paid"] is None  # left open
    assert passed(0.63, 0.57, 0.69)["AUC, paid"] is passed(0.6, 0.48, 0.69)["AUC, paid"] is False
    assert passed(0.68, 0.6, 0.75)["AUC, paid"] is None and passed(0.7, 0.51, 0.9)["AUC, paid"]
    rarely = [True] + [False] * 199
    assert passed(right=rarely)[names[0]] is False
    assert passed(right=[not of for of in rarely])[names[0]] is False
    assert passed(right=rarely[:30])[names[0]] is passed(right=rarely[1:9])[names[0]] is None
    assert passed(right=[])[names[0]] is None
    assert passed(learnt=rarely)[names[1]] is False
    assert passed(learnt=[False] * 6)[names[1]] is None  # of many in a run
    assert passed(learnt=[False] * 2, is_all=True)[names[1]] is False
    assert passed(right=[True] * 19 + [False])[names[0]] is True
    assert passed(readable=[True] * 7 + [False] * 3)[names[2]] is None
    assert passed(readable=[True] * 70 + [False] * 30)[names[2]] is False
    paid = source("paid", 0.55, 0.4, 0.7)
    checks = gate(paid, right=rarely, readable=[], learnt=[True], is_all=True)
    assert verdict(paid, checks).startswith("not worth training (right solutions); paid: may or")
    assert verdict(paid, checks[1:]).startswith("left open (AUC, paid; a longer --trial=")


@cases(
    "algorithm, expected", (Grpo(), [True, False]), (ReinforcePP(), [True]), (Dpo(), [True, False])
)
def test_the_groups_in_which_there_is_something_to_learn_are_counted(algorithm, expected):
    paid = [("q", 1.0, 1), ("q", 0.0, 1), ("qq", 1.0, 2), ("qq", 1.0, 2)]
    own = [sample(question_id=q, reward=r, prompt_token_ids=(token,)) for q, r, token in paid]
    buffers = {0: own}
    advantages = () if isinstance(algorithm, Dpo) else ((0.7, 0.7), (-0.7, -0.7), (0, 0), (0, 0))
    stats = {0: UpdateStats(learning_rate=0.1, advantages=advantages)}
    assert learnable(buffers, stats, algorithm) == expected


def costs(**changes: Any) -> Costs:
    measured = {
        **{"rollout_s": 10.0, "sampled_tokens": 100, "update_s": 8.0, "trained_tokens": 500},
        **{"sync_s": 1.0, "validation_s": 10.0, "overlaps": False},
    }
    return Costs(**(measured | changes))


def test_a_step_and_a_run_take_what_was_measured_of_their_parts():
    assert costs().step_s == 10 + 8 + 1
    assert costs(overlaps=True).step_s == 10 + 1
    assert costs().run_s(SimpleNamespace(num_steps=10, num_validations=3)) == 10 * 19 + 3 * 10


class TimedTrial(Trial):
    """A trial on its own clock, whose discussions take 0.5 s and are right and wrong by turns."""

    def sample(self, questions, *, step):
        num = len(questions) * self.prepared.config.interaction.prompt_reuse
        Clock.now += num / 2
        batch = [RewardedDiscussion(discussion(), ()) for _ in range(num)]
        verdicts = {(f"step{step}", str(i)): ("correct", "wrong")[i % 2] for i in range(len(batch))}
        return Batch(Rewards(batch, {}), rollout_s=num / 2, verdicts=verdicts)


class Clock:
    now = 0.0


@cases("seconds, batch_size, copies, held")
def test_discussions_are_held_while_there_is_time(
    arguments, monkeypatch, seconds, batch_size, copies, held
):
    monkeypatch.setattr("comas.trial.time.monotonic", lambda: Clock.now)
    Clock.now = 0.0
    settings = [f"rollout.batch_size={batch_size}", f"interaction.prompt_reuse={copies}"]
    settings = [*arguments[1:], *settings]
    trial = TimedTrial(prepare(load_config(arguments[0], settings)), None, None, None)
    assert [len(b.rewards.discussions) for b in trial.sample_until(seconds)] == held


class SeeingAgents(ScriptedAgents):
    """Two agents that solve half of the questions; the first judges correctly, the second gives all
    the same score."""

    async def generate(self, request: Request) -> Generation:
        [number] = re.findall(r"What is (\d+) \+ 1\?", request.prompt)
        gold = rf"\boxed{{{int(number) + 1}}}"
        if request.role == "evaluation":
            return generation("As you say.")
        if request.role == "scoring":
            sees = request.agent_index == 0
            score = (3 if gold in request.prompt else 1) if sees else 2
            return generation(f"<score>{score}</score>")
        is_right = request.seed % 2
        text = gold if is_right else r"\boxed{0}"
        return Generation((5,), (7, 1), text, (is_right - 2.0,) * 2, "stop", 0)


@pytest.fixture
def arguments(tmp_path) -> list[str]:
    size = "rollout.batch_size=24"
    return [str(QUICKSTART), *tiny_settings(tmp_path, size, families=FAMILIES, num_questions=30)]


def test_a_trial_tells_who_sees_and_keeps_nothing(arguments, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(command, "agents_of", lambda *_: SeeingAgents())
    assert command.main(["--trial=50s", *arguments]) == 0
    rows = {line[:30].strip(): line[30:].split() for line in caplog.messages}
    assert re.match(r"1.00 \[0.[89]\d, 1.00\]", " ".join(rows["agent 0 as a judge"]))
    assert rows["agent 1 as a judge"][:3] == ["0.50", "[0.50,", "0.50]"]
    assert rows["likelihood"][0] == "1.00"
    assert rows["readable as a judge"] == ["100%", "100%", "100%"]
    assert "trial: about 50 s once the engines are up" in caplog.text
    assert "discussions of 30 questions" in caplog.text
    assert re.search(r"groups with something to learn +0% of 2 +10% or more +fails", caplog.text)
    [told] = [line for line in caplog.messages if line.startswith("verdict on reward.scheme=")]
    assert told.startswith("verdict on reward.scheme=interaction: not worth training (groups with")
    assert "the reward as paid: tells right from wrong" in told
    assert "memory, ranks      2 of up to 1.5 GiB" in caplog.text
    assert not (tmp_path / "saves").exists()


def test_a_validation_that_fails_loses_nothing_that_a_trial_has_learnt(
    arguments, monkeypatch, caplog
):
    def fails(*_):
        raise EngineError("engine 0 is gone")

    monkeypatch.setattr(command, "agents_of", lambda *_: SeeingAgents())
    monkeypatch.setattr(Trial, "validate_until", fails)
    assert command.main(["--trial=50s", *arguments]) != 0
    assert "verdict on reward.scheme=" in caplog.text and "engine 0 is gone" in caplog.text


@cases("overrides, says", ids=["ttrl", "verifier", "maporl", "one agent"])
def test_each_societys_verdict_names_what_decided(arguments, monkeypatch, caplog, overrides, says):
    model = arguments[2].partition("[")[2].partition(",")[0]
    monkeypatch.setattr(command, "agents_of", lambda *_: SeeingAgents())
    assert command.main(["--trial", *arguments, *(o.format(model=model) for o in overrides)]) == 0
    [told] = [line for line in caplog.messages if line.startswith("verdict on ")]
    assert says in told


@cases("time", "10", "0m", "m", "1.5h", "10 m", "-5m")
def test_an_invalid_time_is_refused_with_examples(time, capsys):
    with pytest.raises(SystemExit):
        command.main([f"--trial={time}", str(QUICKSTART)])
    assert f"{time} is no time: write it like 90s, 10m or 2h" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        command.main(["--trial", "10m", str(QUICKSTART)])
    assert "write --trial=10m, with an equals sign" in capsys.readouterr().err
