"""A question discussed while somebody watches, against a scripted model."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

import pytest
from scripted_server import Body, ScriptedServer

from evaluation.client import Endpoint, RequestOptions
from evaluation.execution import watched
from evaluation.server import ServerError, Servers
from scripts.discuss import discuss_question, final_answer, turn_text

REPOSITORY = Path(__file__).parents[1]
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
        solution = asyncio.run(
            discuss_question(
                QUESTION,
                domain="math",
                models=[Endpoint(server.base_url, f"agent_{i}") for i in (0, 1)],
                options=RequestOptions(),
                seed=0,
                show=shown.append,
            )
        )
    assert final_answer(solution, "math") == "71"
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


def test_a_turn_has_its_lines_under_its_heading():
    solution = turn_text("r1.s0", 2, "1 + 1\n= 2")
    assert solution == "round 1, agent 2: solution 0\n    1 + 1\n    = 2"
    scoring = turn_text("r0.s1.e0.t0", 0, "3")
    assert scoring == "round 0, agent 0: scoring of solution 1, score unreadable\n    3"


def test_the_final_answer_is_what_is_boxed_and_the_whole_of_what_boxes_nothing():
    assert final_answer("4 + 2, so \\boxed{6}", "math") == "6"
    assert final_answer("six", "science") == "six"
    assert final_answer("print('\\boxed{6}')", "coding") == "print('\\boxed{6}')"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "scripts/discuss.py", *arguments]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)


@pytest.mark.stack
def test_the_command_asks_an_endpoint_and_ends_with_the_answer():
    with ScriptedServer(model) as server:
        done = run("--base-url", server.base_url, "--name", "agent_1", QUESTION)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "final answer: 71"
    assert done.stdout.count("agent 3: solution 3") == 2  # one model plays four agents


@pytest.mark.stack
def test_without_a_model_the_command_says_what_to_give():
    done = run(QUESTION)
    assert done.returncode == 1
    assert "--base-url URL and QUESTION" in done.stderr


@pytest.mark.stack
def test_an_empty_question_is_refused_before_anything_is_asked():
    with ScriptedServer(model) as server:
        done = run("--base-url", server.base_url, "--name", "agent_1", " ")
        assert not server.requests
    assert done.returncode == 1
    assert "error: QUESTION is empty" in done.stderr and done.stdout == ""


@pytest.mark.stack
def test_an_endpoint_that_is_not_there_is_named_soon():
    began = time.monotonic()
    run(QUESTION)  # which asks nobody
    start_s = time.monotonic() - began
    done = run("--base-url", "http://127.0.0.1:9/v1", "--name", "agent_1", QUESTION)
    took_s = time.monotonic() - began - start_s
    assert done.returncode == 1
    assert "error: agent_1 at http://127.0.0.1:9/v1 gave no reply: " in done.stderr
    assert took_s < start_s + 20  # with the retries of an evaluation 31 s of pauses alone
    done = run("--base-url", "http://127.0.0.1:9/v1", QUESTION)
    assert "does not list its models" in done.stderr and "--name NAME" in done.stderr


def test_a_discussion_ends_as_soon_as_its_server_does():
    class Dying(Servers):
        async def watch(self) -> NoReturn:
            raise ServerError("it died")

    async def never() -> str:
        await asyncio.Event().wait()
        return "an answer"

    with pytest.raises(ServerError, match="it died"):
        asyncio.run(watched(never(), Dying([])))
