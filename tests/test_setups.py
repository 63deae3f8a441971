"""Setups against a scripted model: who is asked what, in which order and with which roles."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from builders import discussion, turn
from scripted_server import ScriptedServer

from comas.interaction.prompts import EVALUATION, SCORING, SOLUTION, HistoryItem, fill
from comas.interaction.setup_prompts import (
    AGGREGATION,
    ASSISTANT_SYSTEM_PROMPT,
    DEBATE_OPENING,
    DEBATE_REPLY,
    assistant,
    user,
)
from evaluation.client import Endpoint, RequestOptions
from evaluation.inference_log import read_inference
from evaluation.runner import request_seed, run_inference
from evaluation.setups import SETUPS
from evaluation.setups.discussion import best_solution
from evaluation.setups.majority_vote import BALLOTS, elect
from evaluation.types import Answer, BenchmarkTask

TASK = BenchmarkTask(
    "gsm8k/17", "math", "What is 48 + 23?", "What is 48 + 23?\n\nBox the result.", "71"
)


class Script:
    """A model that answers each call of TASK by its label, and keeps the order of the calls."""

    def __init__(self, replies: Mapping[str, str] | Callable[[str], str]) -> None:
        self._reply = replies if callable(replies) else replies.__getitem__
        self._label_of_seed = {
            request_seed(0, task_id=TASK.task_id, label=label): label for label in LABELS
        }
        self.labels: list[str] = []
        self.models: list[str] = []

    def __call__(self, body: dict) -> str:
        label = self._label_of_seed[body["seed"]]
        self.labels.append(label)
        self.models.append(body["model"])
        return self._reply(label)


LABELS = [
    "answer",
    "summary",
    *(f"sample {i}" for i in range(5)),
    *(f"round {r}, agent {a}" for r in range(2) for a in range(3)),
    *(f"turn {t}, {who}" for t in range(3) for who in ("assistant", "user proxy")),
    *(f"r{r}.s{s}{rest}" for r in range(2) for s in range(4) for rest in ("", ".e0", ".e0.t0")),
]


def answer(
    folder: Path,
    setup_name: str,
    model: Callable[[dict], str],
    *,
    task: BenchmarkTask = TASK,
    num_models: int = 1,
    gather: int = 1,
    **options,
) -> tuple[Answer, list[dict]]:
    """Put a task through a setup; returns the answer and the requests that came.

    With one request in flight, they come in the order in which the setup makes them.
    """
    with ScriptedServer(model, gather=gather) as server:
        inference = asyncio.run(
            run_inference(
                [task],
                setup=SETUPS[setup_name],
                models=[Endpoint(server.base_url, f"agent_{i}") for i in range(num_models)],
                seeds=[0],
                options=RequestOptions(**({"concurrency": 1} | options)),
                folder=folder / "gsm8k" / setup_name,
            )
        )
    assert inference.num_done == 1
    [answered] = read_inference(folder / "gsm8k" / setup_name / "inference.jsonl")
    return answered, server.requests


def aggregated(*solutions: str) -> list[dict[str, str]]:
    """The call that makes one answer of several solutions, each under its number."""
    numbered = [f"# Solution {i}\n{text}" for i, text in enumerate(solutions, start=1)]
    listed = "\n\n".join(numbered)
    return [user(AGGREGATION.format(query=TASK.query, count=len(solutions), solutions=listed))]


def test_vanilla_sends_the_task_as_the_one_message_with_the_published_settings(tmp_path):
    answered, requests = answer(tmp_path, "vanilla", Script({"answer": "71"}))
    assert requests == [
        {
            "model": "agent_0",
            "messages": [user("What is 48 + 23?\n\nBox the result.")],
            "temperature": 0.7,
            "max_tokens": 2048,
            "seed": request_seed(0, task_id="gsm8k/17", label="answer"),
        }
    ]
    assert answered.response == "71"
    [call] = answered.calls
    assert (call.prompt_tokens, call.completion_tokens, call.finish_reason) == (7, 3, "stop")


def test_the_system_prompt_of_a_run_comes_before_a_chat_that_has_none(tmp_path):
    told = {"system_prompt": "You are careful."}
    _, [request] = answer(tmp_path / "a", "vanilla", Script({"answer": "71"}), **told)
    assert request["messages"] == [
        {"role": "system", "content": "You are careful."},
        user("What is 48 + 23?\n\nBox the result."),
    ]
    said, [first, *_] = answer(tmp_path / "b", "autogen", Script(lambda _: "TERMINATE"), **told)
    assert said.response == "TERMINATE"  # as published, where that is all of a message
    assert [m["role"] for m in first["messages"]].count("system") == 1
    assert first["messages"][0]["content"] != "You are careful."


def test_consistency_samples_five_times_and_lets_the_model_aggregate(tmp_path):
    script = Script(lambda label: {"summary": "final"}.get(label, f"text of {label}"))
    answered, requests = answer(tmp_path, "consistency", script)
    assert script.labels == [*(f"sample {i}" for i in range(5)), "summary"]
    assert [request["messages"] for request in requests] == [
        *([user(TASK.query)] for _ in range(5)),
        aggregated(*(f"text of sample {i}" for i in range(5))),
    ]
    assert answered.response == "final"


def test_majority_vote_counts_the_samples_of_consistency(tmp_path):
    votes = ["1", "71", "2", "71.", "3"]
    script = Script({f"sample {i}": rf"text {i} \boxed{{{vote}}}" for i, vote in enumerate(votes)})
    answered, requests = answer(tmp_path, "majority_vote", script)
    assert answered.response == r"text 1 \boxed{71}"
    of_consistency = answer(tmp_path, "consistency", Script(lambda label: label))[1]
    assert requests == of_consistency[:5]


def test_debate_keeps_each_agents_dialogue_and_shows_it_the_others_answers(tmp_path):
    script = Script(lambda label: {"summary": "final"}.get(label, label.replace("round ", "")))
    answered, requests = answer(tmp_path, "debate", script)
    opening = user(DEBATE_OPENING.format(query=TASK.query))

    def reply(first: str, second: str) -> dict[str, str]:
        answers = f"# Another answer 1\n{first}\n\n# Another answer 2\n{second}"
        return user(DEBATE_REPLY.format(answers=answers, query=TASK.query))

    assert script.labels == [
        *(f"round {r}, agent {a}" for r in range(2) for a in range(3)),
        "summary",
    ]
    assert [request["messages"] for request in requests] == [
        *([opening] for _ in range(3)),
        [opening, assistant("0, agent 0"), reply("0, agent 1", "0, agent 2")],
        [opening, assistant("0, agent 1"), reply("0, agent 0", "0, agent 2")],
        [opening, assistant("0, agent 2"), reply("0, agent 0", "0, agent 1")],
        aggregated(*(f"1, agent {i}" for i in range(3))),
    ]
    assert answered.response == "final"


def test_autogen_flips_the_roles_for_the_user_proxy_and_ends_after_three_turns(tmp_path):
    replies = {
        "turn 0, assistant": "is it 70?",
        "turn 0, user proxy": "count again",
        "turn 1, assistant": "is it 72?",
        "turn 1, user proxy": "too much",
        "turn 2, assistant": "71",
    }
    script = Script(replies)
    answered, requests = answer(tmp_path, "autogen", script)
    task, system = TASK.query, {"role": "system", "content": ASSISTANT_SYSTEM_PROMPT}
    said = [user(task), assistant("is it 70?"), user("count again"), assistant("is it 72?")]
    assert script.labels == list(replies)
    assert [request["messages"] for request in requests] == [
        [system, user(task)],
        [assistant(task), user("is it 70?")],
        [system, *said[:3]],
        [assistant(task), user("is it 70?"), assistant("count again"), user("is it 72?")],
        [system, *said, user("too much")],
    ]
    assert answered.response == "71"


@pytest.mark.parametrize(
    ("ending", "num_calls", "response"),
    [
        ("turn 0, assistant", 1, "turn 0, assistant TERMINATE"),
        ("turn 0, user proxy", 2, "turn 0, assistant"),
        ("turn 1, assistant", 3, "turn 1, assistant TERMINATE"),
        ("turn 1, user proxy", 4, "turn 1, assistant"),
        ("turn 2, assistant", 5, "turn 2, assistant TERMINATE"),
    ],
)
def test_either_side_ends_autogen_and_the_assistants_last_message_answers(
    tmp_path, ending, num_calls, response
):
    script = Script(lambda label: f"{label} TERMINATE" if label == ending else label)
    answered, requests = answer(tmp_path, "autogen", script)
    assert (len(requests), answered.response) == (num_calls, response)


def test_discussion_solves_criticises_and_scores_with_the_prompts_of_training(tmp_path):
    scores = {"r0.s0": 1, "r0.s1": 3, "r1.s0": 2, "r1.s1": 2}

    def reply(label: str) -> str:
        return f"<score>{scores[label[:5]]}</score>" if label.endswith(".t0") else f"text {label}"

    script = Script(reply)
    answered, requests = answer(tmp_path, "discussion", script, num_models=2)
    history = [HistoryItem(f"text r0.s{i}", f"text r0.s{i}.e0") for i in range(2)]
    expected = {}
    for r in range(2):
        for s in range(2):
            turn = f"r{r}.s{s}"
            said = {"question": TASK.question, "solution": f"text {turn}"}
            expected[turn] = fill(
                SOLUTION, "math", question=TASK.question, history=history if r else []
            )
            expected[f"{turn}.e0"] = fill(EVALUATION, "math", **said)
            expected[f"{turn}.e0.t0"] = fill(SCORING, "math", **said, evaluation=f"text {turn}.e0")
    by_label = dict(zip(script.labels, requests, strict=True))
    assert {label: by_label[label]["messages"] for label in script.labels} == {
        label: [user(prompt)] for label, prompt in expected.items()
    }
    assert answered.response == "text r0.s1"
    # Every agent solves in every round, and evaluates and scores as often as the other.
    solvers = [by_label[turn]["model"] for turn in ("r0.s0", "r0.s1", "r1.s0", "r1.s1")]
    assert solvers == ["agent_0", "agent_1"] * 2
    for role in (".e0", ".t0"):
        models = [by_label[label]["model"] for label in by_label if label.endswith(role)]
        assert sorted(models) == ["agent_0", "agent_0", "agent_1", "agent_1"]


def test_discussion_asks_by_the_prompts_of_choice_for_a_letter(tmp_path):
    task = BenchmarkTask("gsm8k/17", "choice", "Which?", "Which? Box its letter.", "A")
    answered, requests = answer(tmp_path, "discussion", Script(lambda label: label), task=task)
    assert len(requests) == 24  # 2 rounds x 4 agents x (solve, evaluate, score)
    prompts = [r["messages"][0]["content"] for r in requests]
    assert all("Which?" in prompt and "Box its letter" not in prompt for prompt in prompts)
    assert all(("letter" in p) == p.startswith("You and other experts") for p in prompts)
    assert answered.response == "r1.s0"  # no score can be read: the first of the latest round


@pytest.mark.parametrize(
    ("setup_name", "num_in_flight"),
    [("consistency", 5), ("majority_vote", 5), ("debate", 3), ("discussion", 4)],
)
def test_calls_that_need_nothing_of_each_other_are_made_at_once(
    tmp_path, setup_name, num_in_flight
):
    together = {"concurrency": 16, "timeout_s": 10, "num_retries": 0}
    script = Script(lambda label: label)
    # The server replies to nobody before so many wait, and each waits 10 s at most.
    answered, _ = answer(tmp_path, setup_name, script, gather=num_in_flight, **together)
    assert len(answered.calls) >= num_in_flight


@pytest.mark.parametrize("num_models", [2, 3, 4])
def test_in_a_society_each_speaker_is_another_agent(tmp_path, num_models):
    script = Script(lambda label: label)
    answered, _ = answer(tmp_path, "debate", script, num_models=num_models)
    speakers = {call.label: call.speaker for call in answered.calls}
    assert [speakers[f"round 0, agent {i}"] for i in range(3)] == [0, 1, 2]
    assert script.models == [f"agent_{speakers[label] % num_models}" for label in script.labels]
    assert len(set(script.models)) == num_models


@pytest.mark.parametrize("setup_name", SETUPS)
def test_the_transcript_is_in_the_order_of_the_flow(tmp_path, setup_name):
    answered, _ = answer(tmp_path, setup_name, reply_of_its_own, concurrency=8)
    calls = answered.calls
    assert [call.label for call in calls] == sorted(call.label for call in calls)
    # No call quotes a reply that stands after it.
    for i, call in enumerate(calls):
        quoted = json.dumps(call.messages)
        assert not any(later.response in quoted for later in calls[i:])


def reply_of_its_own(body: dict) -> str:
    return f"reply {body['seed']}"


def test_a_vote_goes_to_the_earliest_of_equals_and_no_answer_has_none():
    responses = ["no box", r"\boxed{8}", r"\boxed{9}", r"\boxed{9.0}", r"\boxed{8}"]
    math, science = BALLOTS["math"], BALLOTS["science"]
    assert elect(responses, ballot=math) == r"\boxed{8}"  # 8: 2 votes, 9: 1, 9.0: 1
    assert elect(responses[:4], ballot=science) == r"\boxed{9}"  # 9 and 9.0 agree
    assert elect(["none", "at all"], ballot=science) == "none"
    # Two boxes joined by "or" are no vote for the second.
    joined = [r"\boxed{1} or \boxed{2}"] * 2 + [r"\boxed{3}"]
    assert elect(joined, ballot=science) == r"\boxed{3}"
    # Within 5 %, 100 agrees with 103 and 97, which do not agree with each other: 3 votes.
    samples = [r"\boxed{97}", r"\boxed{100}", r"\boxed{103}", r"\boxed{7}", r"\boxed{7}"]
    assert elect(samples, ballot=science) == r"\boxed{100}"


@pytest.mark.parametrize(
    ("form", "one", "other", "agree"),
    [
        ("math", r"\dfrac 12", r"\frac{1}{2}", True),
        ("math", "0.5", r"\frac{1}{2}", False),
        ("science", "2.5", "2.51", True),
        ("science", "2.5", "2.7", False),
        ("science", "north", "north", False),
        ("choice", r"(\text{B})", "b.", True),
        ("choice", "A", "B", False),
        ("choice", "none of these", "none of these", False),
        ("coding", "def f(x):\n    return x + 1\n", "\ndef f(x):\n\n    return x + 1  ", True),
        ("coding", "def f(x):\n    return x + 1\n", "def f(x):\nreturn x + 1", False),
    ],
)
def test_answers_are_compared_as_their_form_is_written(form, one, other, agree):
    assert BALLOTS[form].agree(one, other) is agree


def test_programs_are_voted_on_by_their_last_block():
    def response(*programs: str) -> str:
        return "".join(f"Here:\n```python\n{program}\n```\n" for program in programs)

    other, twice = "def f(x):\n    return x", "def f(x):\n    return 2 * x"
    samples = [response(other), response(other, twice), "none", response(twice), response("x = 1")]
    assert elect(samples, ballot=BALLOTS["coding"]) == samples[1]
    # All differ: nothing is known, and the first answers.
    assert elect(samples[2:], ballot=BALLOTS["coding"]) == samples[3]


@pytest.mark.parametrize(
    ("scores", "best"),
    [
        # Means 2, (3 + 1) / 2 = 2 and, of the one that can be read, 2: the later round wins.
        ([(0, "2"), (0, "3", "1"), (1, "2", "?")], "solution 2"),
        ([(0, "3"), (1, "2"), (1, "2", "2")], "solution 0"),
        # Neither contradicting scores nor words count; a 1 is better than nothing.
        ([(0, "1"), (1, "1</score> or <score>3"), (1, "four")], "solution 0"),
        ([(0, "?"), (0, "?")], "solution 0"),
    ],
)
def test_the_best_mean_score_answers_and_a_later_round_wins_a_tie(scores, best):
    turns = []
    for i, (round_index, *own) in enumerate(scores):
        solution = f"r{round_index}.s{i}"
        turns.append(turn(solution, f"solution {i}"))
        for j, score in enumerate(own):
            turns.append(turn(f"{solution}.e{j}", "flawed"))
            turns.append(turn(f"{solution}.e{j}.t0", f"<score>{score}</score>"))
    assert best_solution(discussion(*turns)) == best


def test_a_query_with_braces_reaches_the_model_as_it_is(tmp_path):
    task = BenchmarkTask("gsm8k/17", "math", r"{x} \frac{1}{2}", r"{x} \boxed{}", "1")
    for setup_name in SETUPS:
        answered, _ = answer(tmp_path, setup_name, lambda body: "{y}", task=task)
        sent = json.dumps([call.messages for call in answered.calls])
        assert "{x}" in sent and "{{" not in sent
