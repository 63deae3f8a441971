"""Validation by own answers, by discussions, and by the probe of planted solutions."""

import asyncio
import json
from typing import Any
from unittest.mock import Mock

import pytest
from builders import discussion, generation, turn
from tables import case_file, cases

from comas.config.schema import Config, Interaction, Society
from comas.data import QuestionSet
from comas.data.probe import ProbeItem, load_probe
from comas.data.rows import DataError
from comas.run import validation
from comas.run.metrics.judge_probe import ask_probe
from comas.types import Discussion, Generate, Generation, Question, Request, TurnKey

QUESTIONS = [Question(f"q{i}", "math", f"What is {i} + {i}?") for i in range(3)]


def ask(*, num_agents: int = 2, seed: int = 0, overlong: str = "") -> list[list[str]]:
    async def generate(request: Request) -> Generation | None:
        question = next(q for q in QUESTIONS if q.text in request.prompt)
        if question.question_id == overlong:
            return None
        agent, name = request.agent_index, question.question_id
        return generation(f"agent {agent}, {name}, seed {request.seed}")

    settings = {"num_agents": num_agents, "seed": seed}
    texts = asyncio.run(validation.answer_alone(QUESTIONS, generate=generate, **settings))
    return [texts[i : i + len(QUESTIONS)] for i in range(0, len(texts), len(QUESTIONS))]


def test_every_agent_answers_every_question_itself_under_seeds_that_stay():
    assert [[text.rpartition(", ")[0] for text in of_agent] for of_agent in ask()] == [
        ["agent 0, q0", "agent 0, q1", "agent 0, q2"],
        ["agent 1, q0", "agent 1, q1", "agent 1, q2"],
    ]
    assert ask() == ask()
    seeds = {text.rpartition(" ")[2] for run in (0, 1) for row in ask(seed=run) for text in row}
    assert len(seeds) == 2 * 2 * 3
    assert [row[1] for row in ask(overlong="q1")] == ["", ""]


def test_each_way_of_sampling_has_accuracies_of_its_own():
    """Agent 0 is right about q0 when it samples and about all greedily, agent 1 about none."""
    asked: list[TurnKey] = []

    def agents(right: set[str]) -> Generate:
        async def say(request: Request) -> Generation:
            asked.append(request.turn)
            is_right = request.agent_index == 0 and request.turn[0].rpartition("/")[2] in right
            return generation("right" if is_right else "false")

        return say

    ids = [question.question_id for question in QUESTIONS]
    metrics, answers = validation.validate(
        QuestionSet(tuple(QUESTIONS), dict.fromkeys(ids, "right")),
        Config(society=Society(num_agents=2)),
        generate={validation.SAMPLED: agents({ids[0]}), validation.GREEDY: agents(set(ids))},
        verifier=Judge(),  # type: ignore[arg-type]
    )
    num_questions = len(ids)
    assert metrics["validation/accuracy"] == 1 / (2 * num_questions)
    assert metrics["agent_0/validation/accuracy"] == 1 / num_questions
    assert metrics["validation/greedy/accuracy"] == 1 / 2
    assert metrics["agent_0/validation/greedy/accuracy"] == 1
    assert metrics["agent_1/validation/greedy/accuracy"] == 0
    assert len(asked) == len(set(asked)) == len(answers) == 2 * 2 * num_questions
    right = [each["sampling"] for each in answers if each["verdict"] == "correct"]
    assert right == ["validation", *["validation/greedy"] * num_questions]


def test_agents_that_are_not_trained_are_asked_once():
    asked: list[int] = []

    async def say(request: Request) -> Generation:
        asked.append(request.agent_index)
        return generation(f"right {len(asked)}")

    config = Config(society=Society(num_agents=2, update_every=[1, 0]))
    held_out = QuestionSet(tuple(QUESTIONS), dict.fromkeys(("q0", "q1", "q2"), "right"))
    prepared, agents, judge = Mock(config=config, validation=held_out, probe=[]), Mock(), Judge()
    agents.generate, known, kept = say, validation.Known(), Mock()
    for _ in range(2):
        validation.validate_agents(prepared, agents, judge, known=known, keep=kept)  # type: ignore[arg-type]
    assert [asked.count(agent) for agent in (0, 1)] == [12, 6]
    first, second = (call.args[0] for call in kept.call_args_list)
    assert [a == b for a, b in zip(first, second, strict=True)] == [*[False] * 3, *[True] * 3] * 2


class Judge:
    """A verifier for which a solution is correct if it contains the answer."""

    def submit(self, items: Any, on_verdict: object = None) -> Mock:
        verdicts = ["correct" if gold in text else "wrong" for _, text, gold in items]
        return Mock(**{"result.return_value": verdicts})


def test_accuracy_is_that_of_the_last_round_and_effectiveness_is_over_all_solutions():
    scores = {"r0.s0": 1, "r0.s1": 2, "r1.s0": 3, "r1.s1": 2}

    async def talk(request: Request) -> Generation:
        """Agent 0 is right from round 1 on, agent 1 never."""
        solution = request.turn[1][:5]
        if request.role == "scoring":
            return generation(f"<score>{scores[solution]}</score>")
        return generation("right" if solution == "r1.s0" else "false")

    metrics = validation.validate_discussions(
        QuestionSet(tuple(QUESTIONS), {question.question_id: "right" for question in QUESTIONS}),
        Config(
            society=Society(num_agents=2),
            interaction=Interaction(schedule="parallel", num_rounds=2, prompt_reuse=4),
        ),
        generate=talk,
        verifier=Judge(),  # type: ignore[arg-type]
    )
    assert metrics["validation/discussion/accuracy"] == 1 / 2  # of two solutions in round 1
    assert metrics["validation/discussion/accuracy/math"] == 1 / 2
    assert metrics["validation/discussion/verifier_failures"] == 0
    prefix = "validation/discussion/reward_effectiveness"
    # Of each discussion 1 solution is correct. From score 2 on 3 are said to be, from 3 on 1.
    assert metrics[f"{prefix}/from_score_2/precision"] == pytest.approx(1 / 3)
    assert metrics[f"{prefix}/from_score_2/balanced_accuracy"] == pytest.approx((1 + 1 / 3) / 2)
    assert metrics[f"{prefix}/from_score_3/balanced_accuracy"] == 1
    assert metrics[f"{prefix}/auc"] is None  # of three correct solutions
    assert metrics["validation/discussion/scoring/confusion/score_2/incorrect"] == 2 * 3


@pytest.mark.parametrize("num_solvers", [1, 2])
def test_a_discussion_that_could_not_be_held_is_as_many_unanswered_solutions(num_solvers):
    def held(name: str, *rounds: int) -> Discussion:
        turns = (turn(f"r{r}.s{i}") for r in rounds for i in range(num_solvers))
        return discussion(*turns, name=name)

    discussions = [held("a", 0, 1), held("b"), held("c", 0)]
    verdicts = {(d.discussion_id, t.turn_id): "correct" for d in discussions for t in d.turns}
    assert validation.last_solutions(discussions, verdicts) == [  # type: ignore[arg-type]
        *[("math", "correct")] * num_solvers,
        *[("math", "unanswered")] * 2 * num_solvers,
    ]


LINE = case_file("validation")["LINE"]
WRONG = ProbeItem(**LINE)
RIGHT = ProbeItem("right", "math", "What is 1 + 1?", "\\boxed{2}", None, None, "a carry is lost")

SAYS = case_file("validation")["SAYS"]
"""Agent -> item -> what it says in each role."""


def probe(*, overlong: str = "") -> tuple[dict[str, float | None], list[tuple[str, int]]]:
    asked = []

    async def generate(request: Request) -> Generation | None:
        item, role = request.turn[0].removeprefix("probe/"), request.turn[1].rpartition("/")[0]
        asked.append((request.prompt, request.seed))
        if item == overlong:
            return None
        text = SAYS[request.agent_index][item][role]
        return Generation((1,), (2,), text, (-0.5,), "stop", policy_version=0)

    config = Config(society=Society(num_agents=2), seed=7)
    return ask_probe([RIGHT, WRONG], config, generate=generate), asked


def test_every_measure_is_a_share_of_what_could_show_it():
    metrics, _ = probe()
    of_all = {k: v for k, v in metrics.items() if not k.startswith("agent")}
    # Agent 1 does not score the true accusation.
    ones = ["accepts_true", "accepts_true/math/carry lost"]
    halves = ["names", "names/math/carry lost", "overlooks", "accuses", "accepts_false"]
    shares = dict.fromkeys(ones, 1.0) | dict.fromkeys([*halves, "accepts_approval"], 0.5)
    assert of_all == {f"probe/{name}": value for name, value in shares.items()}
    assert metrics["agent_0/probe/names"] == 1 and metrics["agent_1/probe/names"] == 0
    assert metrics["agent_0/probe/accepts_false"] == 0
    assert metrics["agent_1/probe/accepts_approval"] == 0


def test_each_judge_is_asked_the_same_five_times_at_every_validation():
    _, asked = probe()
    prompts = [prompt for prompt, _ in asked]
    assert len(asked) == 10 and len({seed for _, seed in asked}) == 10
    weighed = [text.rpartition("# Evaluation\n")[2] for text in prompts if "# Evaluation\n" in text]
    assert sorted(weighed[:3]) == ["No mistakes.", "a carry is lost", "a carry is lost"]
    assert probe() == probe()
    metrics, _ = probe(overlong="wrong")
    assert metrics["probe/names"] == 0 and "probe/accepts_true" not in metrics


@cases("change, said")
def test_a_faulty_line_is_named_with_its_place(tmp_path, change, said):
    path = tmp_path / "probe.jsonl"
    path.write_text(json.dumps(LINE) + "\n" + json.dumps(LINE | {"id": "b"} | change) + "\n")
    with pytest.raises(DataError, match=f"line 2.*{said}"):
        load_probe(path)
