"""A judge at an endpoint: its requests, its answers, and how it fails."""

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from threading import Timer
from typing import Any

import pytest
import scripted_server
from scripted_agents import KilledAgents, play
from scripted_server import Body, ScriptedServer
from small_runs import QUICKSTART, record, scripted_settings, write_records
from tables import cases

from comas.__main__ import exit_status
from comas.config.schema import Config
from comas.engines import judge as judging
from comas.engines.cluster.agents import Agents
from comas.engines.cluster.supervision import JudgeError
from comas.engines.judge import JudgeClient
from comas.policy_optimization.update_stats import UpdateStats
from comas.preflight.configuration import load_config
from comas.preflight.preparation import check_run, describe_run
from comas.preflight.sizes import derive_sizes
from comas.run.pages.discussions import read_threads
from comas.run.records import read_rows, read_tokens
from comas.types import Generation, Metrics, Request, TrainingSample
from comas.utils.terminal import EXIT_MACHINE

KEY = "sk-0123456789"
REQUEST = Request(1, "Is 48 + 23 = 71?", ("step1/q/copy0", "r0.s0.e0.t0"), "scoring", seed=7)


@pytest.fixture(autouse=True)
def quickly(monkeypatch):
    monkeypatch.setattr(judging, "PAUSE_S", 0.05)
    monkeypatch.setattr(judging, "NUM_RETRIES", 0)
    monkeypatch.setenv("JUDGES_KEY", KEY)


def fatal(body: Body) -> str:
    return "<score>1</score>"


def config_of(base_url: str, *overrides: str, model: str = "scripted") -> Config:
    judge = f"society.judge={{base_url: '{base_url}', model: {model}, api_key_env: JUDGES_KEY}}"
    return load_config(QUICKSTART, [judge, "society.judge.roles=[scoring]", *overrides])


def client_of(base_url: str, *overrides: str) -> JudgeClient:
    config = config_of(base_url, *overrides)
    assert config.judge is not None
    return JudgeClient(config.judge, config)


def ask(client: JudgeClient, *requests: Request) -> list[Generation | None]:
    async def ask_all() -> list[Generation | None]:
        return await asyncio.gather(*map(client.generate, requests))

    return asyncio.run(ask_all())


def failing(times: int, fault: Any) -> ScriptedServer:
    """A judge that fails as often before it answers."""
    return ScriptedServer(fatal, fault_of=lambda _, attempt: fault if attempt < times else None)


def test_the_judge_is_asked_as_the_agent_would_be_and_its_answer_is_no_sample():
    with ScriptedServer(fatal) as server:
        client = client_of(server.base_url)
        at_0 = REQUEST._replace(temperature=0.0)
        said = [*ask(client, REQUEST), *ask(client, at_0)]  # in two event loops
    assert server.requests[0] == {
        "model": "scripted",
        "messages": [{"role": "user", "content": REQUEST.prompt}],
        "temperature": 1.0,
        "max_tokens": 48,  # configs/quickstart.yaml
        "seed": 7,
    }
    assert [body["temperature"] for body in server.requests] == [1.0, 0.0]
    assert {each["Authorization"] for each in server.headers} == {f"Bearer {KEY}"}
    assert said[0] == Generation((), (), fatal({}), (), "stop", 0, author="scripted")
    assert client.take_metrics() == {
        "judge/requests": 2,
        "judge/prompt_tokens": 2 * 7,  # as the server counts
        "judge/response_tokens": 2 * 3,
        "judge/waited_s": 0,
        "judge/refused": 0,
        "judge/truncated_rate": 0,
    }
    assert client.take_metrics()["judge/requests"] == 0


def test_what_it_is_sent_can_be_changed_and_left_out():
    own = "{max_completion_tokens: 9, max_tokens: null, temperature: null, seed: null}"
    with ScriptedServer(fatal) as server:
        ask(client_of(server.base_url, f"society.judge.extra_body={own}"), REQUEST)
        long = client_of(server.base_url, "society.judge.max_tokens=4096")
        ask(long, REQUEST._replace(seed=2**40 + 7))
    changed, usual = server.requests
    assert changed.keys() == {"model", "messages", "max_completion_tokens"}
    assert (usual["max_tokens"], usual["seed"]) == (4096, 7)  # some servers read 32 bits


def test_a_judge_that_dies_is_waited_for_and_that_is_said_once_in_a_while(caplog):
    with ScriptedServer(fatal) as server:
        address = server.base_url
    port = int(address.rpartition(":")[2].removesuffix("/v1"))
    client, again = client_of(address), ScriptedServer(fatal)
    again.port = port
    timer = Timer(1, again.__enter__)
    timer.start()
    try:
        answers = ask(client, *(REQUEST._replace(seed=seed) for seed in range(4)))
    finally:
        timer.join()
        again.__exit__()
    assert [said and said.response_text for said in answers] == ["<score>1</score>"] * 4
    waits, returns = caplog.messages  # though each of four was tried about ten times
    assert waits.startswith(f"the run waits for its judge scripted: no reply from {address}")
    assert returns.startswith("the judge answers again after")
    assert 0 < (client.take_metrics()["judge/waited_s"] or 0) < 20


CUT_OFF = {"choices": [{"message": {"content": "<think>1"}, "finish_reason": "length"}]}


@cases(
    "fault, num_tries",
    (scripted_server.status(400, "content_filter"), 1),
    (scripted_server.replies("<html>"), 3),
    ids=["refused", "no answer"],
)
def test_a_prompt_without_an_answer_loses_its_turn_alone(fault, num_tries, caplog):
    def fault_of(body: Body, attempt: int) -> Any:
        return fault if body["seed"] == 7 else None

    with ScriptedServer(fatal, fault_of=fault_of) as server:
        client = client_of(server.base_url)
        lost, said = ask(client, REQUEST, REQUEST._replace(seed=8))
    assert lost is None and said is not None and len(server.requests) == num_tries + 1
    assert client.take_metrics()["judge/refused"] == 1
    assert "step1/q/copy0 r0.s0.e0.t0: " in caplog.text and "turn is left out" in caplog.text


def test_a_judge_that_answers_no_prompt_ends_the_run():
    with failing(99, scripted_server.status(422, "temperature?")) as server:
        requests = [REQUEST._replace(seed=seed) for seed in range(32)]
        assert ask(client_of(server.base_url), *requests[1:]) == 31 * [None]
        with pytest.raises(JudgeError, match=r"32 turns in a row unanswered: .*temperature"):
            ask(client_of(server.base_url), *requests)


@cases(
    "fault",
    scripted_server.status(
        401, f"{488 * '.'}{KEY}"
    ),  # the key lies across the end of what is shown
    scripted_server.status(429, f"insufficient_quota {KEY}"),
)
def test_a_refusal_of_all_prompts_ends_the_run_without_the_key_that_it_repeats(fault):
    with failing(9, fault) as server, pytest.raises(JudgeError) as caught:
        ask(client_of(server.base_url), REQUEST)
    assert len(server.requests) == 1 and KEY[:5] not in str(caught.value)
    assert exit_status(caught.value) == EXIT_MACHINE


def table_of(config: Config) -> str:
    return "\n".join(describe_run(check_run(config)))


def test_a_dry_run_says_what_is_asked_of_the_judge_and_samples_are_those_of_agents():
    with ScriptedServer(fatal) as server:
        table = table_of(config_of(server.base_url))
    assert f"at {server.base_url}" in table and KEY not in table
    # 24 discussions of 2 rounds with 2 solutions, of which 2 x 2 scorings are the judge's.
    assert "the judge (scripted): 96 requests per step, for scoring" in table
    assert "a discussion: 4 solutions, 4 evaluations (parallel)" in table
    sizes = derive_sizes(config_of("http://127.0.0.1:9/v1"), num_questions=2400)
    assert (sizes.num_turns, sizes.samples_per_policy) == (24 * 12, (96, 96))


@cases(
    "change, said",
    ({"society.judge.model": "other"}, "does not serve it. Name one of scripted"),
    ({"society.judge.base_url": "http://127.0.0.1:9/v1"}, "Is the server running"),
    ({"society.judge.base_url": "http://a:b@h/v1"}, "contains a user name or a password"),
    ({"society.judge.api_key_env": "NOT_THERE"}, "there is no such environment variable"),
    (
        {"interaction.criticism": "no_evaluation", "society.judge.roles": "[evaluation]"},
        "nobody is asked for evaluation where interaction.criticism=no_evaluation",
    ),
)
def test_a_judge_that_cannot_be_asked_is_a_fault_before_the_run(change, said):
    with ScriptedServer(fatal) as server:
        settings = [f"{name}={value}" for name, value in change.items()]
        assert said in table_of(config_of(server.base_url, *settings))


def test_a_judge_that_refuses_the_key_is_a_fault_that_does_not_show_it():
    with ScriptedServer(fatal) as server:
        server.list_by = scripted_server.status(401, f"unknown key {KEY}")
        table = table_of(config_of(server.base_url))
    assert "unknown key ***" in table and "society.judge.api_key_env names hold its key" in table
    assert KEY not in table


@cases(
    "fault, said",
    (
        scripted_server.status(400, "use max_completion_tokens"),
        "use max_completion_tokens.*society.judge.extra_body changes",
    ),
    (scripted_server.replies(json.dumps(CUT_OFF)), "was cut off before it said anything"),
)
def test_a_judge_that_answers_no_question_is_a_fault_before_the_run(fault, said):
    with failing(1, fault) as server:
        assert re.search(said, table_of(config_of(server.base_url)))


class JudgedAgents(KilledAgents):
    """The society without engines, with the judge of the real one."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self._roles = config.judged_roles
        self._judged = Agents(config, models=["", ""], device="cpu")

    async def generate(self, request: Request) -> Any:
        judged = request.role in self._roles
        return await (self._judged.generate if judged else super().generate)(request)

    def judge_metrics(self) -> Metrics:
        return self._judged.judge_metrics()

    def begin_update(
        self, buffers: Mapping[int, Sequence[TrainingSample]], *, step: int
    ) -> Callable[[], dict[int, UpdateStats]]:
        roles = {sample.role for samples in buffers.values() for sample in samples}
        assert roles == {"solution", "evaluation"}
        return super().begin_update(buffers, step=step)


@pytest.mark.stack
def test_a_judged_run_trains_on_what_agents_said(saves, tmp_path, monkeypatch):
    questions = write_records(tmp_path / "questions.jsonl", map(record, range(4)))
    settings = scripted_settings(
        *(saves, questions, "rollout.batch_size=2", "training.num_steps=3"),
        *("training.save_every=1", "validation.discussions=true", "name=whole"),
    )
    with ScriptedServer(lambda body: f"<score>{1 + body['seed'] % 3}</score>") as server:
        config = config_of(server.base_url, *settings)
        whole = play(monkeypatch, config, JudgedAgents(config))
        num_asked = len(server.requests)

    turns = [
        turn
        for step in (1, 2, 3)
        for thread in read_threads(step, whole / f"discussions/step_{step:04d}.jsonl")
        for turn in thread.turns
    ]
    # 3 steps of 2 discussions of 2 rounds with 2 solutions each, every one with its scoring.
    judged = [turn for turn in turns if turn.role == "scoring"]
    assert len(judged) == 3 * 2 * 4 and len(turns) == 3 * len(judged)
    assert {(turn.agent, turn.author, turn.reward) for turn in judged} == {(None, "scripted", None)}
    assert {turn.author for turn in turns if turn.role != "scoring"} == {""}
    tokens = read_tokens(whole / "tokens")
    assert len(tokens) == len(turns) - len(judged)  # none of the judge's

    rows = read_rows(whole / "metrics.jsonl")
    # Four held-out questions are discussed before the first step and after the last.
    assert [row["judge/requests"] for row in rows] == [4 * 4, 2 * 4, 2 * 4, 2 * 4 + 4 * 4]
    # One question is asked before the run.
    assert sum(row["judge/prompt_tokens"] for row in rows) == 7 * (num_asked - 1)
    assert "reward/scoring" not in rows[1] and rows[1]["scoring/invalid_rate"] == 0
    files = [path for path in whole.rglob("*") if path.is_file()]
    assert len(files) > 10
    assert [path for path in files if KEY.encode() in path.read_bytes()] == []
