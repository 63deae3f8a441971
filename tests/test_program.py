"""Programs that hold discussions: what they ask becomes turns, and none harms another."""

import asyncio
import json
import sys
import threading
import urllib.request
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

import builders
import openai
import pytest
import runner_process
from builders import paid
from config_errors import only_error
from scripted_agents import ScriptedAgents, play
from scripted_server import ScriptedServer, status
from small_runs import QUICKSTART, begun, rows_of, tiny_settings, written
from tables import case_file, cases

from comas.commands.discuss import discuss, parser
from comas.data import QuestionSet
from comas.interaction import program_runs as programs
from comas.interaction.door import MAX_IN_FLIGHT, the_door
from comas.interaction.held import HeldDiscussion
from comas.interaction.program_runs import PROGRAMS
from comas.preflight.configuration import load_config
from comas.preflight.plugins import check_plugins
from comas.run import bookkeeping
from comas.run.pages.discussions import thread_of
from comas.run.pages.page import Thread
from comas.run.records import discussion_record
from comas.types import Generate, Generation, Question, Request, RewardedDiscussion
from comas.utils.client import Client, Endpoint, RequestError, RequestOptions
from evaluation.config import read_command
from evaluation.models import RemoteModel, Target
from evaluation.plan import setups_of
from evaluation.runner import answer_task
from evaluation.setups import SETUPS
from evaluation.setups.program import program_of, setup_of
from evaluation.types import Answer, BenchmarkTask, Setup

OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
PROGRAM, TEAM = (case_file("program")[name] for name in ("PROGRAM", "TEAM"))
QUESTIONS = [Question(f"q{i}", "math", f"What is {i} + 1?", {"gold": "SECRET"}) for i in range(2)]


class Society:
    """Agents that answer with what they are asked for and their seed; scorings give 3."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    async def __call__(self, request: Request) -> Generation:
        self.requests.append(request)
        await asyncio.sleep(0)
        told = f"{request.turn[1]}:{request.seed % 997}"
        text = "<score>3</score>" if request.role == "scoring" else told
        number = len(self.requests)
        return Generation((number,), (number, 0), text, (-0.5, -0.1), "stop", 7)


def hold(
    monkeypatch, solve, generate: Generate | None = None, *, questions=QUESTIONS[:1], **settings
):
    """Let two agents be asked by a program, a function or the words of a command."""
    if callable(solve):
        monkeypatch.setitem(PROGRAMS, "test", solve)
        program: dict[str, Any] = {"function": "test"}
    else:
        program = {"command": list(solve)}
    rules = {"program": program | settings, "prompt_reuse": 1}
    held = builders.discuss(questions, generate or Society(), num_agents=2, **rules)
    return [discussion for discussion in held if isinstance(discussion, HeldDiscussion)]


def ask(url: str, *messages: str, agent: int = 0, **body: Any) -> str:
    """Ask an agent, as the protocol says; users and assistants take turns."""
    chat = [{"role": ("user", "assistant")[i % 2], "content": m} for i, m in enumerate(messages)]
    return post(url, {"model": f"agent_{agent}", "messages": chat} | body)["message"]["content"]


def post(url: str, body: Any) -> Any:
    """Return the first choice of a completion."""
    request = urllib.request.Request(f"{url}/chat/completions", json.dumps(body).encode())
    with OPENER.open(request, timeout=60) as reply:
        return json.load(reply)["choices"][0]


def test_a_team_of_openai_calls_becomes_a_chain_of_turns_that_the_score_rewards(monkeypatch):
    async def solve(question: Question, base_url: str) -> str:
        async with openai.AsyncOpenAI(base_url=base_url, api_key="any") as client:
            said = "Plan: "
            for agent, role in ((0, "plan"), (1, "solution")):
                reply = await client.chat.completions.create(
                    model=f"agent_{agent}",
                    messages=[{"role": "user", "content": said + question.text}],
                    metadata={"role": role},
                )
                said = reply.choices[0].message.content or ""
            return said

    [held] = hold(monkeypatch, solve, roles={"plan": "helps"})
    plan, solution, evaluation, _ = held.turns
    assert [turn.turn_id for turn in held.turns] == ["r0.plan0", "r0.s1", "r0.s1.e0", "r0.s1.e0.t0"]
    assert (plan.parent_turn_id, solution.parent_turn_id) == (None, "r0.plan0")
    assert plan.prompt == "Plan: What is 0 + 1?" and solution.prompt.startswith("r0.plan0:")
    assert held.solutions() == [solution] and evaluation.role == "evaluation"
    said = solution.generation
    assert (said.response_token_ids, said.rollout_logprobs) == ((2, 0), (-0.5, -0.1))
    assert said.policy_version == 7
    # Score 3: r(s) = 1 of all that led to the solution, r(e) = 0, r(t) = 0.
    assert paid("interaction", held) == [(1.0, 1.0, 0.0, 0.0)]


def test_an_answer_that_no_completion_is_stands_as_a_given_turn_that_is_judged(monkeypatch):
    def solve(question: Question, base_url: str) -> str:
        ask(base_url, "One", metadata={"role": "plan"})
        return "composed"

    [held] = hold(monkeypatch, solve, roles={"plan": "helps"})
    plan, given, *_ = held.turns
    assert (given.turn_id, given.text, given.is_given) == ("r0.plan0.s0", "composed", True)
    assert paid("interaction", held) == [(1.0, None, 0.0, 0.0)] and plan.role == "plan"


def test_the_answer_is_the_solution_that_says_it_before_a_stop_sequence(monkeypatch):
    async def generate(request: Request) -> Generation:
        text = "<score>3</score>" if request.role == "scoring" else "71 END"
        return replace(await Society()(request), response_text=text)

    def solve(question: Question, base_url: str) -> str:
        ask(base_url, "One", stop=["END"])
        return ask(base_url, "Is it?", agent=1, stop=["END"], metadata={"role": "check"})

    [held] = hold(monkeypatch, solve, generate, roles={"check": "helps"})
    assert [(turn.turn_id, turn.text) for turn in held.solutions()] == [("r0.s0", "71 ")]


def test_a_scoring_that_the_program_asks_for_itself_decides_no_reward(monkeypatch):
    def solve(question: Question, base_url: str) -> str:
        answer = ask(base_url, "One")
        ask(base_url, "Score it", agent=1, metadata={"role": "scoring"})
        return answer

    [held] = hold(monkeypatch, solve)
    assert paid("interaction", held) == [(1.0, 0.0, 0.0, 0.0)]


@pytest.mark.parametrize("own, critics, form", [("3", "3", 0.0), ("3", "-", 0.0), ("-", "3", -1.0)])
def test_a_scoring_of_the_program_is_paid_for_its_own_form(monkeypatch, own, critics, form):
    def solve(question: Question, base_url: str) -> str:
        ask(base_url, "One")
        ask(base_url, "Score it", agent=1, metadata={"role": "scoring"})
        return ask(base_url, "Two")

    async def generate(request: Request) -> Generation:
        score = own if request.prompt == "Score it" else critics
        return replace(await Society()(request), response_text=f"<score>{score}</score>")

    [held] = hold(monkeypatch, solve, generate)
    solved, scored = (0.0, -1.0) if critics == "-" else (1.0, 0.0)
    assert [turn.turn_id for turn in held.turns[:3]] == ["r0.s0", "r0.t1", "r1.s0"]
    assert paid("interaction", held) == [(solved, form, solved, 0.0, scored)]


def test_a_chat_that_goes_on_keeps_the_ids_and_one_that_was_changed_begins_anew(monkeypatch):
    def solve(question: Question, base_url: str) -> None:
        first = ask(base_url, "One")
        second = ask(base_url, "One", f" {first}\n", "Two")  # white space around it does not count
        ask(base_url, "One", first, "Two", second, "Three")
        ask(base_url, "One", f"not {first}", "Two")
        ask(base_url, "One", first, "Two", agent=1)  # which did not say it

    society = Society()
    [held] = hold(monkeypatch, solve, society)
    chats = [request.chat for request in society.requests[:5]]
    answers = {turn.turn_id: turn.generation for turn in held.turns}
    continued = [answers[turn_id] for turn_id in ("r0.s0", "r1.s0")]
    ids = [[*said.prompt_token_ids, *said.response_token_ids] for said in continued]
    assert [list(chat.follows) for chat in chats if chat is not None] == [[], *ids, [], []]
    held_before = [(len(c.messages), c.num_followed) for c in chats if c is not None]
    assert held_before == [(1, 0), (3, 2), (5, 4), (3, 0), (3, 0)]
    assert [t.prompt for t in held.turns if t.turn_id == "r2.s0"] == ["Three"]
    assert held.outcome.num_rewritten == 2


def test_a_repeat_is_equal_digit_by_digit_and_a_clients_seed_changes_it(monkeypatch):
    def solve(question: Question, base_url: str, *, seed: int | None) -> None:
        with ThreadPoolExecutor() as pool:
            for agent in range(2):
                pool.submit(ask, base_url, "One", agent=agent, n=3)
        ask(base_url, "Two", seed=seed)

    def texts(seed: int | None) -> list[tuple[str, str]]:
        held = hold(monkeypatch, partial(solve, seed=seed), questions=QUESTIONS)
        return [(turn.turn_id, turn.text) for each in held for turn in each.turns]

    first = texts(None)
    assert texts(None) == first and len({text for _, text in first if "score" not in text}) == 16
    changed = [a[0] for a, b in zip(first, texts(5), strict=True) if a != b]
    assert set(changed) >= {"r3.s0"} and not {"r0.s0", "r2.s1"} & set(changed)


def test_rewards_that_a_program_returns_are_paid_by_turn_then_agent_then_all(monkeypatch):
    def solve(question: Question, base_url: str) -> dict[str, float]:
        for agent in (0, 0, 1):
            ask(base_url, "Play", agent=agent)
        return {"r1.s0": 0.25, "agent_0": 1, "*": -1}

    [held] = hold(monkeypatch, solve, roles={})
    [rewards] = paid("program", held)
    by_turn = dict(zip((t.turn_id for t in held.turns), rewards, strict=True))
    assert by_turn.items() >= {"r0.s0": 1.0, "r1.s0": 0.25, "r0.s1": -1.0}.items()


def page_of(held: HeldDiscussion) -> Thread:
    item = RewardedDiscussion(held, (None,) * len(held.turns))
    return thread_of(json.loads(json.dumps(discussion_record(item, verdicts={}))), step=1)


def test_the_page_shows_requests_in_their_order_with_what_each_asked_and_continues(monkeypatch):
    tool = {"type": "function", "function": {"name": "add"}}

    def solve(question: Question, base_url: str) -> Any:
        first = ask(base_url, "One", agent=1, tools=[tool])
        ask(base_url, "Two")
        ask(base_url, "One", first, "Three", agent=1)
        if question.question_id == "q0":
            return "composed"
        raise ValueError("no")

    answered, failed = map(page_of, hold(monkeypatch, solve, questions=QUESTIONS))
    asked = [t.asked and (t.asked["continues"], t.asked["tools"]) for t in answered.turns]
    assert asked == [(None, ["add"]), (None, []), ("r0.s1", []), None, None, None]
    names = ["r0.s1", "r0.s0", "r1.s1", "r1.s1.s0", "r1.s1.s0.e0", "r1.s1.s0.e0.t0"]
    assert [turn.id for turn in answered.turns] == names
    assert [turn.parent for turn in answered.turns] == [None] * 4 + names[3:5]
    assert answered.turns[2].asked["messages"] == [{"role": "user", "content": "Three"}]
    assert answered.program == {"answer": "r1.s1.s0", "returned": "composed", "error": ""}
    assert failed.program == {"answer": None, "returned": "", "error": "ValueError: no"}
    assert answered.labels | failed.labels == {"program": "program failed"} != answered.labels
    [asked_nobody] = map(page_of, hold(monkeypatch, lambda question, base_url: None))
    assert asked_nobody.program["error"] == "it asked no agent for anything"


OVER = threading.Event()
"""Ends the programs that do not end by themselves."""


def spin(url: str) -> None:
    while not OVER.is_set():
        pass


def catch_all(url: str) -> None:
    while not OVER.is_set():
        try:
            ask(url, "Again")
        except BaseException:
            OVER.wait(0.05)


def flood(url: str) -> None:
    def one(number: int) -> None:
        with suppress(URLError, ConnectionError):
            ask(url, "Flood")

    with ThreadPoolExecutor(200) as pool:
        pool.map(one, range(200))
    raise RuntimeError("flooded")


def gorge(url: str) -> None:
    for _ in range(100):
        ask(url, "More", max_tokens=100_000)


HOSTILE: dict[str, tuple[Callable[[str], Any], str]] = {
    "spins": (spin, "did not end within 2 s"),
    "catches everything": (catch_all, "did not end within 2 s"),
    "floods": (flood, "RuntimeError: flooded"),
    "gorges": (gorge, "HTTP Error 403: Forbidden"),
    "dies": (lambda url: 1 / 0, "ZeroDivisionError"),
    "waits": (lambda url: Future[None]().result(timeout=0), "TimeoutError: "),
    "exits": (lambda url: sys.exit(3), "SystemExit: 3"),
    "names nobody": (lambda url: ask(url, "x", agent=2), "HTTP Error 404: Not Found"),
    "returns nonsense": (lambda url: {"agent_7": 1.0}, "agent_7, which is no turn or agent"),
}


SECONDS = pytest.mark.stack
"""Of what waits for seconds, which is no quick test."""


@pytest.mark.parametrize(
    "harm", [pytest.param(h, marks=[SECONDS] * ("within" in HOSTILE[h][1])) for h in HOSTILE]
)
def test_a_program_harms_its_own_discussion_and_what_it_wrote_stands(monkeypatch, caplog, harm):
    do, fault = HOSTILE[harm]

    def solve(question: Question, base_url: str) -> Any:
        ask(base_url, "First")
        return do(base_url) if question.question_id == "q0" else None

    monkeypatch.setattr(programs, "GRACE_S", 0.1)
    timeout_s = 2.0 if "within 2 s" in fault else 60.0
    OVER.clear()
    try:
        limits = {"timeout_s": timeout_s, "max_tokens": 40}
        harmed, other = hold(monkeypatch, solve, questions=QUESTIONS, **limits)
    finally:
        OVER.set()
    assert fault in harmed.outcome.error and not other.outcome.error
    kept = discussion_record(RewardedDiscussion(harmed, (None,) * len(harmed.turns)), verdicts={})
    assert kept["program"]["error"] == harmed.outcome.error
    assert kept["turns"][0]["response"].startswith("r0.s0") and harmed.solutions() == []
    assert [turn.turn_id for turn in other.turns] == ["r0.s0", "r0.s0.e0", "r0.s0.e0.t0"]
    of_harmed, of_other = paid("interaction", harmed, other)
    assert set(of_harmed) == {None} and of_other == (1.0, 0.0, 0.0)
    [said] = caplog.messages[:1]
    assert said.startswith("interaction.program, in step1/q0/copy0, ") or "goes on beyond" in said
    if harm == "gorges":  # 2 tokens an answer: the 20th uses up the 40
        assert len(harmed.turns) == 20


def test_no_more_requests_are_answered_at_a_time_than_a_key_may_have(monkeypatch):
    at_once = most = 0

    async def generate(request: Request) -> Generation:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.2)
        at_once -= 1
        return Generation((1,), (2,), "x", (-0.1,), "stop", 0)

    hold(monkeypatch, lambda question, base_url: flood(base_url), generate, timeout_s=60.0)
    assert 1 < most <= MAX_IN_FLIGHT


def test_a_request_that_is_not_answered_when_the_program_ends_is_cancelled(monkeypatch):
    cancelled, asked = [], threading.Event()

    async def generate(request: Request) -> Generation:
        asked.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(request.turn[1])
            raise
        raise AssertionError

    def solve(question: Question, base_url: str) -> None:
        threading.Thread(target=ask_in_vain, args=(base_url,), daemon=True).start()
        asked.wait()

    def ask_in_vain(url: str) -> None:
        with pytest.raises(HTTPError, match="403"):
            ask(url, "x")

    [held] = hold(monkeypatch, solve, generate)
    assert cancelled == ["r0.s0"] and held.turns == ()
    assert held.outcome.error == "it asked no agent for anything"


def test_an_engines_error_is_the_runs_and_no_programs(monkeypatch):
    async def generate(request: Request) -> Generation:
        raise RuntimeError("the engine is lost")

    def solve(question: Question, base_url: str) -> None:
        with suppress(HTTPError):
            ask(base_url, "x")

    with pytest.raises(RuntimeError, match="the engine is lost"):
        hold(monkeypatch, solve, generate, questions=QUESTIONS)


def test_a_program_sees_no_answer_and_a_key_ends_with_its_discussion(monkeypatch):
    seen = []

    def solve(question: Question, base_url: str) -> str:
        seen.append((question, base_url))
        return ask(base_url, "x")

    hold(monkeypatch, solve)
    [(question, url)] = seen
    assert question.columns == {} and "SECRET" not in str(question)
    with pytest.raises(HTTPError, match="401"):
        ask(url, "x")
    with pytest.raises(HTTPError, match="401"):
        ask(f"{the_door().url}/v1", "x")


def command(tmp_path: Path, text: str) -> list[str]:
    return [sys.executable, str(written(tmp_path / "program.py", PROGRAM + text))]


def test_a_command_has_the_question_and_its_key_and_not_the_runs_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("WANDB_API_KEY", "secret of the run")
    told = "ask(question); print(json.dumps(sorted(os.environ))); print('{\"agent_1\": 0.5}')"
    [held] = hold(monkeypatch, command(tmp_path, told))
    assert not held.outcome.error and held.outcome.rewards == {"r0.s1": 0.5}
    assert held.turns[0].prompt == "What is 0 + 1?"
    variables = json.loads(held.solutions()[0].text)
    assert "OPENAI_API_KEY" in variables and "WANDB_API_KEY" not in variables
    assert set(variables) <= {
        *programs.KEPT_VARIABLES,
        *("OPENAI_BASE_URL", "OPENAI_API_KEY", "COMAS_QUESTION_ID", programs.MARK_VARIABLE),
        "LC_CTYPE",  # Python's own
    }


@cases("text, fault")
def test_a_command_harms_its_own_discussion_alone(monkeypatch, tmp_path, text, fault):
    timeout_s = 2.0 if "within 2 s" in fault else 60.0
    [held] = hold(monkeypatch, command(tmp_path, f"ask('x');{text}"), timeout_s=timeout_s)
    assert fault in held.outcome.error
    assert [turn.turn_id for turn in held.turns] == ["r0.s1"]


def test_a_command_is_killed_with_all_that_it_started(monkeypatch, tmp_path):
    pid = tmp_path / "pid"
    text = (
        "import subprocess\n"
        "child = subprocess.Popen(['sleep', '60'], start_new_session=True)\n"
        f"open({str(pid)!r}, 'w').write(str(child.pid))\n"
        "print(ask('x'))"
    )
    [held] = hold(monkeypatch, command(tmp_path, text))
    assert not held.outcome.error
    assert not Path(f"/proc/{pid.read_text()}/exe").exists()


def test_a_command_that_is_not_there_is_an_error_of_its_discussion(monkeypatch):
    for name, why in {"/nowhere/program": "No such file", "a\0b": "embedded null"}.items():
        [held] = hold(monkeypatch, [name])
        assert f"cannot be started: {why}" in held.outcome.error


@pytest.mark.stack
def test_a_killed_run_repeats_a_step_of_its_program_digit_by_digit(monkeypatch, tmp_path):
    measured = {f"{name}validation/accuracy": 0.5 for name in ("", "agent_0/", "agent_1/")}
    monkeypatch.setattr(bookkeeping, "validate_agents", lambda *_, **__: measured)
    team = written(tmp_path / "team.py", TEAM)
    settings = tiny_settings(
        tmp_path,
        f"interaction.program={{function: {team}:solve, roles: {{plan: helps}}}}",
        *("rollout.max_prompt_tokens=4000", "rollout.max_response_tokens=16"),
        *("training.num_steps=4", "training.save_every=2", "validation.num_questions=1"),
    )

    def kept(path: Path) -> dict[str, bytes]:
        folders = [path / "discussions", path / "tokens"]
        return {file.name: file.read_bytes() for folder in folders for file in folder.iterdir()}

    def played(name: str, *killed_in: int) -> Path:
        config = load_config(QUICKSTART, [*settings, f"name={name}"])
        return play(monkeypatch, config, ScriptedAgents([*killed_in]))

    whole, killed = played("whole"), played("killed", 4)
    assert len(kept(killed)) == 6
    play(monkeypatch, load_config(None, [f"resume={killed}"]), ScriptedAgents())
    assert kept(killed) == kept(whole) and len(kept(whole)) == 8
    rows = rows_of(whole)
    assert [row["program/failed"] for row in rows[-4:]] == [0] * 4
    assert rows[-1]["reward/plan"] is not None


@cases("settings, said")
def test_a_program_that_cannot_be_one_is_refused(settings, said):
    assert said in only_error(*settings, file=QUICKSTART)


def test_a_program_whose_rewards_nobody_reads_or_that_fails_is_an_error_of_the_dry_run(tmp_path):
    def fault(text: str, *settings: str) -> str:
        path = written(tmp_path / f"team{len([*tmp_path.iterdir()])}.py", f"{TEAM}\n{text}")
        rules = f"interaction.program={{function: {path}:own, roles: {{plan: helps}}}}"
        asked = QuestionSet((Question("q", "math", "?"),), {"q": "71"})
        *_, check = check_plugins(load_config(QUICKSTART, [rules, *settings]), asked)
        return check.error or ""

    own = "def own(question, base_url):\n    "
    paid = f"{own}solve(question, base_url); return 1"
    assert fault(f"{own}return solve(question, base_url)") == ""
    assert "ZeroDivisionError" in fault(f"{own}1 / 0")
    assert "returns rewards, and reward.scheme=interaction" in fault(paid)
    assert fault(paid, "reward.scheme=program") == ""


def finished_run(tmp_path: Path, program: str) -> Path:
    """Return a run of two agents whose program was ``program``, in YAML."""
    return begun(load_config(QUICKSTART, [f"saves={tmp_path}", f"interaction.program={program}"]))


async def answered(setup: Setup, server: ScriptedServer, *, num_models: int = 2) -> Answer:
    """Ask models named agent_0, ... for the answer to a task."""
    task = BenchmarkTask("t", "math", "Why?", "Why? Box it.", "42")
    models = [Endpoint(server.base_url, f"agent_{i}") for i in range(num_models)]
    async with Client(models, RequestOptions(num_retries=0)) as client:
        return await answer_task(task, seed=0, setup=setup, client=client)


def test_a_run_is_evaluated_by_its_program_as_it_was_even_if_the_file_is_gone(tmp_path):
    team = written(tmp_path / "team.py", TEAM)
    run = finished_run(tmp_path, f"{{function: {team}:solve, roles: {{plan: helps}}}}")
    digest = program_of(run).program
    team.unlink()
    setup = program_of(run)
    assert setup is not None and (setup.program, setup.num_speakers) == (digest, 2)
    with ScriptedServer(lambda body: f"{body['messages'][-1]['content']}!") as server:
        answer = asyncio.run(answered(setup, server))
    assert answer.response == "Why?!!"
    asked = [(call.label, call.speaker) for call in answer.calls]
    assert asked == [("r0.plan0", 0), ("r0.plan1", 1)]
    assert [body["model"] for body in server.requests] == ["agent_0", "agent_1"]


def test_what_a_run_would_execute_must_be_this_users_and_as_it_was(tmp_path, monkeypatch):
    script = written(tmp_path / "team.sh", "echo 1")
    run = finished_run(tmp_path, f"{{command: [sh, {script}]}}")
    assert program_of(run) is not None
    script.write_text("echo 2")
    with pytest.raises(ValueError, match=r"is not run: .*team.sh: sha256 \w+ -> sha256 \w+"):
        program_of(run)
    script.write_text("echo 1")
    seal = json.loads((run / "seal.json").read_text())
    (run / "seal.json").write_text(json.dumps(seal | {"signature": "0"}))
    with pytest.raises(ValueError, match="was not sealed with the key"):
        program_of(run)
    monkeypatch.syspath_prepend(tmp_path)
    team = written(tmp_path / "own_team.py", TEAM)
    run = finished_run(tmp_path, "own_team:solve")
    assert program_of(run) is not None
    written(team, f"{TEAM}# edited\n")
    monkeypatch.setattr("comas.config.plugins._texts", {})  # as in another process
    with pytest.raises(ValueError, match=r"own_team.py: the run's own -> sha256 \w+"):
        program_of(run)


def test_a_program_sends_whole_chats_with_tools_in_words_within_its_limits(tmp_path):
    tool = {"type": "function", "function": {"name": "add", "parameters": {}}}
    call = '<tool_call>{"name": "add", "arguments": {}}</tool_call>'

    def solve(question: Question, base_url: str) -> str:
        body = {"model": "agent_9", "max_tokens": 7, "stop": ["END"], "tools": [tool]}
        chat = [{"role": "system", "content": "Add."}, {"role": "user", "content": question.text}]
        said = post(base_url, body | {"messages": chat, "metadata": {"role": "sums"}})
        assert said["finish_reason"] == "tool_calls" and not said["message"]["content"]
        chat += [said["message"], {"role": "tool", "tool_call_id": "1", "content": "71"}]
        return post(base_url, body | {"messages": chat})["message"]["content"]

    with ScriptedServer(lambda body: call if len(body["messages"]) == 2 else "71") as server:
        answer = asyncio.run(answered(setup_of(solve), server, num_models=1))
    first, last = server.requests
    assert answer.response == "71" and [c.label for c in answer.calls] == ["r0.sums9", "r1.s9"]
    assert (first["max_tokens"], first["stop"]) == (7, ["END"])
    assert first["messages"][-1]["content"].endswith("</tool_call>\n\nWhy?")
    assert last["messages"][:2] == [*first["messages"][:1], {"role": "user", "content": "Why?"}]
    assert last["messages"][2] == {"role": "assistant", "content": call}
    assert last["messages"][3]["content"].endswith("<tool_response>\n71\n</tool_response>")


@cases(
    "solve, said",
    (lambda question, base_url: 1 / 0, "the program failed: ZeroDivisionError"),
    (lambda question, base_url: ask(base_url, "x", agent=2), "HTTP Error 404"),
    (lambda question, base_url: ask(base_url, "lost"), "status 400: .*lost"),
)
def test_a_program_that_fails_or_whose_endpoint_does_loses_its_task(
    monkeypatch, tmp_path, solve, said
):
    monkeypatch.setitem(SETUPS, "failing", setup_of(solve))
    with ScriptedServer(str, fault_of=lambda body, attempt: status(400, "lost")) as server:
        with pytest.raises(RequestError, match=said):
            asyncio.run(answered(SETUPS["failing"], server))
        assert runner_process.run(server.base_url, tmp_path, 2, setup_name="failing") == (0, 2)


def test_a_run_without_a_program_has_none_to_be_evaluated_by(tmp_path):
    run = begun(load_config(QUICKSTART, [f"saves={tmp_path}"]))
    assert program_of(run) is None
    target = Target("a model", (), {}, run=run)
    for each in (target, replace(target, run=None)):
        with pytest.raises(ValueError, match="a model has none: name a function of yours"):
            setups_of(["vanilla", "program"], each)
    assert read_command(["name", "path", "setups=[program]"]).config.setups == ["program"]


def discussed(run: Path, base_url: str) -> None:
    """Do what ``comas discuss`` does with two models on a server in place of a run's agents."""
    models = tuple(RemoteModel(Endpoint(base_url, f"agent_{i}"), None) for i in range(2))
    target = Target("the agents", models, {"society": (0, 1)}, run=run)
    discuss(target, parser().parse_args(["run", "Why?"]))


def test_a_question_is_discussed_by_the_program_of_a_run_and_its_turns_are_shown(tmp_path, capsys):
    team = written(tmp_path / "team.py", TEAM)
    run = finished_run(tmp_path, f"{{function: {team}:solve, roles: {{plan: helps}}}}")
    with ScriptedServer(lambda body: f"{body['messages'][-1]['content']}!") as server:
        discussed(run, server.base_url)
    assert capsys.readouterr().out.splitlines() == [
        *("request 0 of agent 0: plan", "    Why?!", "request 0 of agent 1: plan", "    Why?!!"),
        *("final answer: Why?!!", "(the answer of the program, which asked 2 times)"),
    ]
    refuses = ScriptedServer(str, fault_of=lambda body, attempt: status(400))
    with refuses as server, pytest.raises(RequestError, match="status 400"):
        discussed(run, server.base_url)
