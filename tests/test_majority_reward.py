"""TTRL: pseudo-labels by majority, computed by hand, and no way by which an answer reaches them."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import json
from pathlib import Path

import pytest

from comas.config.schema import Interaction
from comas.data import load_questions
from comas.interaction import run_discussions
from comas.policy_optimization.samples import collect_samples
from comas.reward_formulation import REWARD_SCHEMES
from comas.run.metrics.step import rollout_metrics
from comas.types import Discussion, Domain, Generation, Question, Turn

SCHEME = REWARD_SCHEMES["majority"]
SECRET = "31337"


def discussion(question_id: str, copy: int, *texts: str, domain: Domain = "math") -> Discussion:
    turns = tuple(
        Turn(
            f"r0.s{i}", None, 0, "solution", 0, "", Generation((1,), (2,), text, (-1.0,), "stop", 0)
        )
        for i, text in enumerate(texts)
    )
    return Discussion(f"{question_id}/{copy}", Question(question_id, domain, "?"), turns)


def boxed(answer: str) -> str:
    return f"So it is \\boxed{{{answer}}}."


def rewards(*discussions: Discussion) -> list[tuple[float | None, ...]]:
    return [item.rewards for item in SCHEME(discussions, evidence={}).discussions]


def test_a_box_too_long_to_be_an_answer_is_counted_as_it_is():
    nested = "{" * 50_000 + "7" + "}" * 50_000  # hours, if its braces were taken off
    assert rewards(discussion("q", 0, boxed(nested), boxed(nested), boxed("7"))) == [
        (1.0, 1.0, 0.0)
    ]


def test_the_majority_of_all_copies_is_the_label():
    copies = [discussion("q", i, boxed(answer)) for i, answer in enumerate("78797")]
    assert rewards(*copies) == [(1.0,), (0.0,), (1.0,), (0.0,), (1.0,)]  # 7 has 3 of 5 votes
    # Rounds and agents vote as copies do: 8 has 2 of 3.
    assert rewards(discussion("q", 0, boxed("7"), boxed("8")), discussion("q", 1, boxed("8"))) == [
        (0.0, 1.0),
        (1.0,),
    ]


def test_every_question_has_a_majority_of_its_own():
    assert (
        rewards(
            discussion("a", 0, boxed("1")),
            discussion("b", 0, boxed("2")),
            discussion("a", 1, boxed("1")),
            discussion("b", 1, boxed("2")),
        )
        == [(1.0,)] * 4
    )


def test_the_first_given_wins_a_tie_and_what_has_no_box_has_no_vote():
    tied = [discussion("q", i, boxed(answer)) for i, answer in enumerate("8778")]
    assert rewards(*tied) == [(1.0,), (0.0,), (0.0,), (1.0,)]
    silent = [discussion("q", i, text) for i, text in enumerate(["7", "7", boxed("8")])]
    assert rewards(*silent) == [(0.0,), (0.0,), (1.0,)]
    assert rewards(discussion("q", 0, "no idea"), discussion("q", 1, "\\boxed{}")) == [(None,)] * 2


def test_answers_that_are_spelled_alike_are_one():
    texts = [boxed(r"\dfrac{1}{2}"), boxed(r" \frac 12 "), boxed("3")]
    assert rewards(*(discussion("q", i, text) for i, text in enumerate(texts))) == [
        (1.0,),
        (1.0,),
        (0.0,),
    ]


def test_the_share_of_the_majority_is_a_mean_over_questions_that_voted():
    metrics = SCHEME(
        [
            *(
                discussion("a", i, text)
                for i, text in enumerate([boxed("7"), boxed("7"), "x", "y"])
            ),
            discussion("b", 0, boxed("1")),
            discussion("c", 0, "no idea"),
            discussion("d", 0, boxed("1"), domain="science"),
        ],
        evidence={},
    ).metrics
    assert metrics == {"majority/share": (2 / 4 + 1 / 1) / 2}


@pytest.mark.parametrize("domain", ["coding", "science"])
def test_coding_and_science_contribute_no_gradient(domain: Domain):
    """No sample, so no advantage: a constant reward beside those of math would become one."""
    discussions = [
        discussion("other", 0, boxed("7"), domain=domain),
        discussion("math", 0, boxed("7"), boxed("8")),
    ]
    rewarded = SCHEME(discussions, evidence={}).discussions
    assert rewarded[0].rewards == (None,)
    [buffer] = collect_samples(rewarded, policy_of_agent=[0], mask_truncated=True)
    assert {sample.question_id for sample in buffer} == {"math"}
    assert collect_samples(rewarded[:1], policy_of_agent=[0], mask_truncated=True) == [[]]
    metrics = rollout_metrics(rewarded[:1], num_agents=1)
    assert metrics["reward/solution"] is None and metrics["response_length"] == 1


# ---------------------------------------------------------------- the answer key


def test_the_scheme_is_handed_discussions_and_nothing_else():
    assert SCHEME.needs == () and not SCHEME.sees_verdicts
    assert list(inspect.signature(SCHEME.formulate).parameters) == ["discussions"]

    def refuse():
        raise AssertionError("the scheme asked for more than the discussions")

    evidence = {"verdicts": refuse, "rng": refuse}
    assert SCHEME([discussion("q", 0, boxed("7"))], evidence=evidence).discussions


def test_a_question_holds_no_answer():
    fields = {field.name for field in dataclasses.fields(Question)}
    assert fields == {"question_id", "domain", "text"}


@pytest.mark.parametrize("answer", [SECRET, "7"])
def test_the_answer_key_never_reaches_a_reward(tmp_path: Path, answer: str):
    """From the file to the rewards: the gold answer is in nothing that the scheme could look at,
    and another one changes no reward."""
    record = {"id": "q", "task": "math", "prompt": "?", "answer": answer, "source": "test"}
    (tmp_path / "train.jsonl").write_text(json.dumps(record) + "\n")
    data = load_questions(tmp_path / "train.jsonl")
    assert data.answers["q"] == answer

    async def speak(agent, prompt, *, turn, seed):
        text = boxed("8" if turn[0].endswith("copy0") else "9")
        return Generation((1,), (2,), text, (-1.0,), "stop", 0)

    rules = Interaction(criticism="none", num_rounds=1, prompt_reuse=3)
    discussions = asyncio.run(
        run_discussions(data.questions, generate=speak, num_agents=1, rules=rules, seed=0, step=1)
    )
    assert SECRET not in repr(discussions)
    assert rewards(*discussions) == [(0.0,), (1.0,), (1.0,)]
