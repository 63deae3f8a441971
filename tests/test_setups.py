"""Setups against a scripted model: who is asked what, in which order; a question discussed live."""

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from builders import discussion, turn
from runner_process import run
from scripted_server import Body, ScriptedServer
from small_runs import REPOSITORY
from tables import case_file, cases

from comas.commands.discuss import discuss_task, final_answer, how_scored, main, setup_of
from comas.interaction.prompts import EVALUATION, SCORING, SOLUTION, HistoryItem, fill
from comas.interaction.setup_prompts import (
    AGGREGATION,
    ASSISTANT_SYSTEM_PROMPT,
    DEBATE_OPENING,
    DEBATE_REPLY,
    assistant,
    user,
)
from comas.types import Chat
from comas.utils.client import MAX_SEED, Endpoint, RefusedPromptError, RequestOptions
from comas.utils.seeds import sampling_seed
from comas.utils.terminal import EXIT_ERROR
from evaluation.models import Target
from evaluation.setups import SETUPS
from evaluation.setups.discussion import best_solution
from evaluation.types import Answer, Ask, BenchmarkTask, Call

QUESTION = "What is 48 + 23?"
TASK = BenchmarkTask("gsm8k/17", "math", QUESTION, f"{QUESTION}\n\nBox the result.", "71")


class Script(Ask):
    """Models that answer each call by its label, and keep the calls in their order."""

    def __init__(self, reply: Callable[[str], str] = str, *, num_models: int = 1) -> None:
        self._reply = reply
        self.num_models = num_models
        self.chats: dict[str, list[dict[str, str]]] = {}
        self.speakers: dict[str, int] = {}
        self.max_in_flight = self._num_in_flight = 0

    async def answer(self, chat: Chat, *, label: str, speaker: int) -> Call:
        assert label not in self.chats
        self.chats[label], self.speakers[label] = list(chat.messages), speaker
        self._num_in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self._num_in_flight)
        await asyncio.sleep(0.01)
        self._num_in_flight -= 1
        return Call(label, speaker, (), self._reply(label), "stop", 1, 1)


def answer(setup_name: str, script: Script, task: BenchmarkTask = TASK) -> str:
    return asyncio.run(SETUPS[setup_name].flow(task, script))


def aggregated(*solutions: str) -> list[dict[str, str]]:
    """The call that makes one answer of several solutions, each under its number."""
    numbered = [f"# Solution {i}\n{text}" for i, text in enumerate(solutions, start=1)]
    listed = "\n\n".join(numbered)
    return [user(AGGREGATION.format(query=TASK.query, count=len(solutions), solutions=listed))]


def test_vanilla_sends_the_task_as_the_one_message_with_the_published_settings(tmp_path):
    with ScriptedServer(lambda body: "71") as server:
        run(server.base_url, tmp_path, 1)
    assert server.requests == [
        {
            "model": "m",
            "messages": [user("What is 0 + 1? Box it.")],
            "temperature": 0.7,
            "max_tokens": 2048,
            "seed": sampling_seed(0, "gsm8k/0", "answer") & MAX_SEED,
        }
    ]


def test_the_system_prompt_of_a_run_comes_before_a_chat_that_has_none(tmp_path):
    with ScriptedServer(lambda body: "TERMINATE") as server:
        for name in ("vanilla", "autogen"):
            told = {"setup_name": name, "system_prompt": "You are careful."}
            run(server.base_url, tmp_path / name, 1, **told)
    plain, autogen = (body["messages"] for body in server.requests)
    assert [m["content"] for m in plain] == ["You are careful.", "What is 0 + 1? Box it."]
    assert [m["role"] for m in plain] == [m["role"] for m in autogen] == ["system", "user"]
    assert autogen[0]["content"] == ASSISTANT_SYSTEM_PROMPT


def test_consistency_samples_five_times_and_lets_the_model_aggregate():
    script = Script(lambda label: {"summary": "final"}.get(label, f"text of {label}"))
    assert answer("consistency", script) == "final"
    samples = [f"sample {i}" for i in range(5)]
    assert script.chats == {
        **{label: [user(TASK.query)] for label in samples},
        "summary": aggregated(*(f"text of {label}" for label in samples)),
    }


def test_debate_keeps_each_agents_dialogue_and_shows_it_the_others_answers():
    script = Script(lambda label: {"summary": "final"}.get(label, label.replace("round ", "")))
    assert answer("debate", script) == "final"
    assert script.chats.pop("summary") == aggregated(*(f"1, agent {i}" for i in range(3)))
    for agent, others in enumerate(((1, 2), (0, 2), (0, 1))):
        shown = [f"# Another answer {i}\n0, agent {k}" for i, k in enumerate(others, start=1)]
        assert script.chats[f"round 1, agent {agent}"] == [
            user(DEBATE_OPENING.format(query=TASK.query)),
            assistant(f"0, agent {agent}"),
            user(DEBATE_REPLY.format(answers="\n\n".join(shown), query=TASK.query)),
        ]
    labels = (*(f"round 0, agent {i}" for i in range(3)), "summary")
    assert [script.speakers[label] for label in labels] == [0, 1, 2, 3]


def test_autogen_flips_the_roles_for_the_user_proxy_and_ends_after_three_turns():
    replies = case_file("setups")["REPLIES_TO_AUTOGEN"]
    script = Script(replies.__getitem__)
    assert answer("autogen", script) == "71"
    task, system = TASK.query, {"role": "system", "content": ASSISTANT_SYSTEM_PROMPT}
    said = [user(task), assistant("is it 70?"), user("count again"), assistant("is it 72?")]
    assert list(script.chats) == list(replies)
    assert list(script.chats.values()) == [
        [system, user(task)],
        [assistant(task), user("is it 70?")],
        [system, *said[:3]],
        [assistant(task), user("is it 70?"), assistant("count again"), user("is it 72?")],
        [system, *said, user("too much")],
    ]


@cases("ending, num_calls, response")
def test_either_side_ends_autogen_and_the_assistants_last_word_answers(ending, num_calls, response):
    script = Script(lambda label: f"{label} TERMINATE" if label == ending else label)
    assert answer("autogen", script) == response
    assert len(script.chats) == num_calls


def test_discussion_solves_criticises_and_scores_with_the_prompts_of_training():
    scores = {"r0.s0": 1, "r0.s1": 3, "r1.s0": 2, "r1.s1": 2}

    def reply(label: str) -> str:
        return f"<score>{scores[label[:5]]}</score>" if label.endswith(".t0") else f"text {label}"

    script = Script(reply, num_models=2)
    assert answer("discussion", script) == "text r0.s1"
    history = [HistoryItem(f"text r0.s{i}", f"text r0.s{i}.e0") for i in range(2)]
    expected = {}
    for name in scores:
        said = {"question": TASK.question, "solution": f"text {name}"}
        shown = history if name.startswith("r1") else []
        expected[name] = fill(SOLUTION, "math", question=TASK.question, history=shown)
        expected[f"{name}.e0"] = fill(EVALUATION, "math", **said)
        expected[f"{name}.e0.t0"] = fill(SCORING, "math", **said, evaluation=f"text {name}.e0")
    assert script.chats == {label: [user(prompt)] for label, prompt in expected.items()}
    # Every agent solves in every round, and evaluates and scores as often as the other.
    assert [script.speakers[name] for name in scores] == [0, 1, 0, 1]
    for role in (".e0", ".t0"):
        speakers = [agent for label, agent in script.speakers.items() if label.endswith(role)]
        assert sorted(speakers) == [0, 0, 1, 1]


def test_a_discussion_without_any_score_is_a_refusal():
    def reply(label: str) -> str:
        if label.endswith(".e0"):
            raise RefusedPromptError("too long")
        return "<score>1</score>"

    with pytest.raises(RefusedPromptError, match="no solution was scored"):
        answer("discussion", Script(reply))


def test_discussion_asks_by_the_prompts_of_choice_for_a_letter():
    task = BenchmarkTask("gsm8k/17", "choice", "Which?", "Which? Box its letter.", "A")
    script = Script()
    # No score can be read: the first of the latest round answers.
    assert answer("discussion", script, task) == "r1.s0"
    assert len(script.chats) == 24  # 2 rounds x 4 agents x (solve, evaluate, score)
    prompts = [chat[0]["content"] for chat in script.chats.values()]
    assert all("Which?" in prompt and "Box its letter" not in prompt for prompt in prompts)
    assert all(("letter" in p) == p.startswith("You and other experts") for p in prompts)


@cases("setup_name, num_in_flight", ("consistency", 5), ("debate", 3), ("discussion", 4))
def test_calls_that_need_nothing_of_each_other_are_made_at_once(setup_name, num_in_flight):
    script = Script()
    answer(setup_name, script)
    assert script.max_in_flight >= num_in_flight


@pytest.mark.parametrize("setup_name", SETUPS)
def test_calls_are_sorted_by_label_as_they_are_made_and_braces_stay_as_they_are(setup_name):
    script = Script(lambda label: f"{{reply {hash(label)}}}")
    answer(setup_name, script, BenchmarkTask("q", "math", r"{x} \frac{1}{2}", r"{x} \boxed{}", "1"))
    labels = sorted(script.chats)
    for i, label in enumerate(labels):  # none quotes a reply that stands after it
        quoted = json.dumps(script.chats[label])
        assert not any(f"reply {hash(later)}" in quoted for later in labels[i:])
        assert "{x}" in quoted and "{{" not in quoted


@cases("scores, best")
def test_the_best_mean_score_answers_and_a_later_round_wins_a_tie(scores, best):
    turns = []
    for i, (round_index, *own) in enumerate(scores):
        solution = f"r{round_index}.s{i}"
        turns.append(turn(solution, f"solution {i}"))
        for j, score in enumerate(own):
            turns.append(turn(f"{solution}.e{j}", "flawed"))
            turns.append(turn(f"{solution}.e{j}.t0", f"<score>{score}</score>"))
    assert best_solution(discussion(*turns)) == best


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


def discussed(server: ScriptedServer, *names: str, show: Any, **options: Any) -> Answer:
    """Let the models of these names discuss the question."""
    models = [Endpoint(server.base_url, name) for name in names]
    return asyncio.run(discuss_task(TASK, models, RequestOptions(), seed=0, show=show, **options))


def test_every_turn_is_shown_after_what_it_answers_and_the_best_score_answers():
    shown: list[str] = []
    with ScriptedServer(model) as server:
        answer = discussed(server, "agent_0", "agent_1", show=shown.append)
    assert final_answer(answer.response, "math") == "71"
    assert how_scored(answer.calls) == "score 3 of 3, the best of 4 solutions"
    headings = [text.splitlines()[0].split(", agent ") for text in shown]
    # 2 agents, and the turns about each solution.
    assert [round_ for round_, _ in headings] == ["round 0"] * 6 + ["round 1"] * 6
    about = [what for _, what in headings[:6]]
    assert {"0: solution 0", "1: solution 1"} <= set(about)
    answered = [what.partition(": ")[2] for what in about if "solution 1" in what]
    assert answered == ["solution 1", "evaluation of solution 1", "scoring of solution 1, score 3"]


def test_the_agents_of_a_run_discuss_in_its_own_words():
    prompts = str(REPOSITORY / "configs/prompts/taught.yaml")
    with ScriptedServer(lambda body: "\\boxed{71} <score>3</score>") as server:
        discussed(server, "agent", show=len, setup=setup_of(Target("", (), {}, prompts=prompts)))
    [first, *_] = [request["messages"][0]["content"] for request in server.requests]
    assert first.startswith(f"Problem: {QUESTION}\n")


@cases("said, domain, answer")
def test_the_final_answer_is_what_is_boxed_or_the_whole(said, domain, answer):
    assert final_answer(said, domain) == answer


@cases("scorings, said")
def test_it_is_said_how_the_judges_scored_the_final_answer(scorings, said):
    calls = [
        Call(label, 0, (), f"<score>{score}</score>", "stop", 1, 1)
        for i, score in enumerate(scorings)
        for label in (f"r0.s{i}", f"r0.s{i}.e0", f"r0.s{i}.e0.t0")
    ]
    assert how_scored(calls) == said


@cases("arguments, said")
def test_what_cannot_be_asked_is_told_soon(caplog, arguments, said):
    began = time.monotonic()
    with ScriptedServer(model) as server:
        values = {"server": server.base_url, "question": QUESTION}
        arguments = [argument.format(**values) for argument in arguments]
        assert main(arguments) == EXIT_ERROR
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
