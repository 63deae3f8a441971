"""Which questions are asked depends on how much the society's solutions agreed on them before."""

import json
from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest
from builders import discussion, turn
from scripted_agents import KilledAgents, play
from small_runs import QUICKSTART, record, scripted_settings, write_records
from test_scripted_runs import left_by

from comas.ideas.curriculum import LEAST_WEIGHT, agreement, choose, weight
from comas.preflight.configuration import load_config
from comas.run.batches import NOTED
from comas.run.records import read_rows
from comas.types import Domain, Generation, Question, Request, RewardedDiscussion


def answered(*copies: Sequence[str], domain: Domain = "math") -> list[RewardedDiscussion]:
    """A question's discussions with these answers."""
    question = Question("q", domain, "?")
    said = [[turn(f"r0.s{i}", rf"\boxed{{{a}}}") for i, a in enumerate(c)] for c in copies]
    held = [discussion(*turns, turn("r0.s0.e0"), question=question) for turns in said]
    return [RewardedDiscussion(each, (None,) * len(each.turns)) for each in held]


def test_agreement_is_the_share_of_pairs_of_all_copies_that_say_the_same():
    assert agreement(answered("778")) == pytest.approx(1 / 3)
    # Of 7 7 7 8: three pairs of six.
    assert agreement(answered("77", "78")) == 0.5
    assert (agreement(answered("77")), agreement(answered("78"))) == (1, 0)
    assert agreement(answered("7")) is None
    assert agreement(answered("77", domain="coding")) is None


def test_questions_are_drawn_by_weight_without_repetition():
    assert [weight(a) for a in (0, 0.5, 1)] == [LEAST_WEIGHT, 1, LEAST_WEIGHT]
    assert weight(0.25) == pytest.approx(0.05 + 0.95 * 0.75)
    questions = [Question(name, "math", "?") for name in "abc"]
    agreed = {"a": 1.0, "b": 0.25}  # c is not known
    first = Counter(choose(questions, agreed, 1, Random(i))[0].question_id for i in range(4000))
    total = 0.05 + 0.7625 + 1
    for name, share in (("a", 0.05 / total), ("b", 0.7625 / total), ("c", 1 / total)):
        assert first[name] / 4000 == pytest.approx(share, abs=0.03)
    for i in range(20):
        assert len({q.question_id for q in choose(questions, agreed, 3, Random(i))}) == 3


class DividedAgents(KilledAgents):
    """A society that agrees about some questions, and about others not."""

    async def generate(self, request: Request) -> Generation:
        number = int(request.turn[0].partition("gsm8k-")[2].partition("/")[0])
        said = rf"\boxed{{{request.seed % 2 if number % 2 else 0}}} <score>2</score>"
        return Generation((1,), (2, 3), said, (-0.1, -0.2), "stop", self.served)


@pytest.mark.stack
def test_a_run_with_a_curriculum_that_is_killed_ends_as_one_that_nobody_disturbed(
    saves, tmp_path, monkeypatch
):
    questions = write_records(tmp_path / "questions.jsonl", map(record, range(8)))
    settings = scripted_settings(
        *(saves, questions, "training.num_steps=6", "training.save_every=2"),
        *("training.max_staleness=1", "algorithm.rollout_correction=tis"),
        "reward.scheme=comas.ideas.curriculum:curriculum",
    )
    whole = play(monkeypatch, load_config(QUICKSTART, [*settings, "name=whole"]), DividedAgents())
    config = load_config(QUICKSTART, [*settings, "name=killed"])
    killed = play(monkeypatch, config, DividedAgents(killed_in=4))
    play(monkeypatch, load_config(None, [f"resume={killed}"]), DividedAgents())
    assert left_by(whole) == left_by(killed)
    [_, first, *rows] = read_rows(whole / "metrics.jsonl")
    assert first["curriculum/known_share"] == 0 and rows[-1]["curriculum/known_share"] > 0
    [noted] = [json.loads(p.read_bytes()) for p in (whole / "checkpoints").glob(f"*6/{NOTED}")]
    assert {name for name, agreed in noted.items() if agreed == 1} >= {"gsm8k-0"}
