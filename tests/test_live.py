"""A question discussed while somebody watches, against a scripted model."""

import asyncio
import time
from typing import NoReturn

import pytest
from scripted_server import Body, ScriptedServer
from tables import cases

from comas.commands.discuss import discuss_question, final_answer, how_scored, main
from comas.utils.terminal import EXIT_FAULT
from evaluation.client import Endpoint, RequestOptions
from evaluation.execution import watched
from evaluation.server import ServerError, Servers
from evaluation.types import Call

NOBODY = "http://127.0.0.1:9/v1"
QUESTION = "What is 48 + 23?"


def model(body: Body) -> str:
    """Agent 1 solves rightly, agent 0 does not, and every scorer sees it."""
    [message] = body["messages"]
    prompt = message["content"]
    if prompt.startswith("You are a strict critic"):
        return "A carry is lost."
    if prompt.startswith("You are a fair judge"):
        is_right = "# Solution\n\\boxed{71}" in prompt
        return f"<score>{3 if is_right else 1}</score>"
    return "\\boxed{71}" if body["model"] == "agent_1" else "\\boxed{61}"


def test_every_turn_is_shown_after_what_it_answers_and_the_best_score_answers():
    shown: list[str] = []
    with ScriptedServer(model) as server:
        answer = asyncio.run(
            discuss_question(
                QUESTION,
                domain="math",
                models=[Endpoint(server.base_url, f"agent_{i}") for i in (0, 1)],
                options=RequestOptions(),
                seed=0,
                show=shown.append,
            )
        )
    assert final_answer(answer.response, "math") == "71"
    assert how_scored(answer.calls) == "score 3 of 3, the best of 4 solutions"
    assert len(shown) == 2 * 2 * 3  # rounds, agents, and the turns about each solution
    headings = [text.splitlines()[0] for text in shown]
    rounds, about = zip(*(heading.split(", agent ") for heading in headings), strict=True)
    assert rounds == ("round 0",) * 6 + ("round 1",) * 6
    assert sorted(what for what in about[:6] if ": solution" in what) == [
        "0: solution 0",
        "1: solution 1",
    ]
    answered = [what.partition(": ")[2] for what in about[:6] if "solution 1" in what]
    assert answered == ["solution 1", "evaluation of solution 1", "scoring of solution 1, score 3"]


def test_the_final_answer_is_what_is_boxed_and_the_whole_of_what_boxes_nothing():
    assert final_answer("4 + 2, so \\boxed{6}", "math") == "6"
    assert final_answer("six", "science") == "six"
    assert final_answer("print('\\boxed{6}')", "coding") == "print('\\boxed{6}')"


@cases(
    "scorings, said",
    (("1", "1"), "the judges reject it: no solution of 2 has a better score than 1 of 3"),
    (("?", "4"), "none of the 2 solutions has a score that can be read"),
    (("2", "?"), "score 2 of 3, the best of 2 solutions"),
)
def test_it_is_said_how_the_judges_scored_the_final_answer(scorings, said):
    calls = [
        Call(label, 0, (), f"<score>{score}</score>", "stop", 1, 1, 0.1)
        for i, score in enumerate(scorings)
        for label in (f"r0.s{i}", f"r0.s{i}.e0", f"r0.s{i}.e0.t0")
    ]
    assert how_scored(calls) == said


@cases(
    "arguments, said",
    ([QUESTION], "--base-url URL and QUESTION"),
    (["--base-url", "{server}", "--name", "agent_1", " "], "QUESTION is empty"),
    (["--base-url", NOBODY, QUESTION], "does not list its models"),
    (["--base-url", NOBODY, "--name", "agent_1", QUESTION], f"agent_1 at {NOBODY} gave no re"),
)
def test_what_cannot_be_asked_is_told_soon(caplog, arguments, said):
    began = time.monotonic()
    with ScriptedServer(model) as server:
        arguments = [argument.format(server=server.base_url) for argument in arguments]
        assert main(arguments) == EXIT_FAULT
        assert not server.requests
    assert said in caplog.text
    # With the retries of an evaluation there would be 31 s of pauses.
    assert time.monotonic() - began < 20


def test_the_command_asks_an_endpoint_and_ends_with_the_answer(capsys):
    with ScriptedServer(model) as server:
        assert main(["--base-url", server.base_url, "--name", "agent_0", QUESTION]) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[-2:] == [
        "final answer: 61",
        "(the judges reject it: no solution of 8 has a better score than 1 of 3)",
    ]
    assert said.count("agent 3: solution 3") == 2  # one model plays four agents


def test_a_discussion_ends_as_soon_as_its_server_does():
    class Dying(Servers):
        async def watch(self) -> NoReturn:
            raise ServerError("it died")

    async def never() -> str:
        await asyncio.Event().wait()
        return "an answer"

    with pytest.raises(ServerError, match="it died"):
        asyncio.run(watched(never(), Dying([])))
