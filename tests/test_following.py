"""Following runs: what is new, how long they take, and who may look."""

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from page_runs import add_step, discussion, verdicts_of, write_run

from comas.preflight.configuration import load_config
from comas.run import RunDirectory
from comas.run.pages.discussions import thread_of
from comas.run.pages.live import LiveRun, duration, news_of, progress_in_words, seconds_left
from comas.run.pages.server import LiveServer
from comas.run.records import discussion_record
from comas.types import Generation, RewardedDiscussion


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path, "small", {1: [discussion(1)]})


def news_since(known: str, run: LiveRun) -> dict[str, Any]:
    news = run.news(known)
    assert news is not None
    return dict(news)


def mark(run: LiveRun) -> str:
    """Up to where somebody knows ``run`` who has all that there is."""
    live = run.source().live
    assert live is not None
    return str(live["mark"])


def test_what_is_new_is_what_came_since_the_mark_and_nothing_else(run):
    live = LiveRun(run)
    known = mark(live)
    nothing = news_since(known, live)
    assert (nothing["rows"], nothing["threads"]) == ([], [])
    item = discussion(2)
    with RunDirectory.open(load_config(None, [f"resume={run}"])) as directory:
        directory.save_discussions(2, [item], verdicts=verdicts_of(item))
    assert live.news(known)["threads"] == []  # until its metrics are there
    assert [thread.step for thread in live.source().threads] == [1]
    add_step(run, 2)
    news = news_since(known, live)
    assert news["live"]["progress"].startswith("step 2 of 4, about 7 s left")
    assert [of["step"] for of in news["rows"]] == [2]
    assert [thread["id"] for thread in news["threads"]] == ["step2/math/17/copy0"]
    assert news["live"]["mark"] == mark(live) != known
    assert live.details(2)["step2/math/17/copy0"]["r0.s0"]["tokens"] == ["71"]
    assert live.details(3) == {}


def test_a_run_that_went_back_is_loaded_again(run):
    live = LiveRun(run)
    add_step(run, 2)
    known = mark(live)
    with RunDirectory.open(load_config(None, [f"resume={run}"])) as directory:
        directory.go_back_to(1)
        directory.log_metrics(2, {"a": 1.0})
    assert live.news(known) is None
    for marks in ([known], [], ["x"]):
        assert news_of([live], marks) == {"reload": True}


def test_a_run_is_followed_from_before_its_first_step(tmp_path):
    source = LiveRun(write_run(tmp_path, "empty", {})).source()
    assert source.live is not None
    assert source.live["progress"] == "no step yet: the engines are starting"
    assert not source.rows and not source.threads
    with pytest.raises(ValueError, match="is no run directory"):
        LiveRun(tmp_path)


def test_the_time_left_is_that_of_the_steps_and_validations_to_come():
    rows: list[dict[str, Any]] = [{"step": 0, "time/validation_s": 4.0}]
    rows += [
        {"step": step, "time/step_s": seconds} for step, seconds in ((1, 60.0), (2, 6), (3, 5))
    ]
    # 7 steps at the median of 6 s; of the validations after 5 and 10 both are to come: 42 + 8.
    assert seconds_left(rows, num_steps=10, validate_every=5) == 50
    assert seconds_left(rows, num_steps=3, validate_every=3) == 0
    assert seconds_left(rows, num_steps=None, validate_every=5) is None
    assert seconds_left(rows[:1], num_steps=10, validate_every=5) is None


def test_where_a_run_is_is_said_in_words():
    rows = [{"step": 3, "time/step_s": 60.0}]
    known = {"num_steps": 10, "validate_every": 10, "age_s": 7.0}
    assert progress_in_words(rows, **known, is_over=False) == (
        "step 3 of 10, about 7 min left; step 3 ended 7 s ago"
    )
    assert progress_in_words(rows, **known, is_over=True) == "ended after step 3 of 10"
    assert [duration(s) for s in (5, 99, 840, 12600)] == ["5 s", "99 s", "14 min", "3.5 h"]


@pytest.fixture
def server(run: Path) -> Iterator[LiveServer]:
    with LiveServer([LiveRun(run)]) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def asked(
    server: LiveServer, path: str, *, method: str = "GET", host: str = "127.0.0.1"
) -> tuple[int, str, http.client.HTTPMessage]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=30)
    connection.request(method, path, headers={"Host": f"{host}:{server.server_address[1]}"})
    answer = connection.getresponse()
    return answer.status, answer.read().decode(), answer.headers


def test_the_page_is_served_to_this_machine_alone(server):
    assert server.server_address[0] == "127.0.0.1"
    status, text, headers = asked(server, f"/{server.key}/")
    assert (status, "connect-src" in text) == (200, True)
    assert headers["Cache-Control"] == "no-store" and headers["Referrer-Policy"] == "no-referrer"
    assert server.address.endswith(f":{server.server_address[1]}/{server.key}/")
    assert len(server.key) >= 32
    with LiveServer([]) as other:
        assert other.key != server.key


def test_who_does_not_know_the_key_or_comes_by_another_name_sees_nothing(server):
    key = server.key
    others = ("/", "/new", "/details?run=0&step=1", f"/{key}/metrics.jsonl", f"/{key[:-1]}/")
    for path in others:
        assert asked(server, path)[:2] == (404, "not found"), path
    assert asked(server, f"/{key}/", host="evil.example")[0] == 404
    assert asked(server, f"/{key}/", host="localhost")[0] == 200
    assert asked(server, f"/{key}/", method="POST")[0] == 501


def test_news_are_asked_for_by_marks(server, run):
    known = mark(server.runs[0])
    add_step(run, 2)
    status, text, _ = asked(server, f"/{server.key}/new?have={known}")
    assert status == 200
    assert [of["step"] for of in json.loads(text)["sources"][0]["rows"]] == [2]
    assert json.loads(asked(server, f"/{server.key}/new")[1]) == {"reload": True}
    (run / "metrics.jsonl").write_text("no JSON\n")
    assert asked(server, f"/{server.key}/new?have={known}")[0] == 503


def test_a_browser_that_takes_no_answer_holds_up_no_other(server):
    request = f"GET /{server.key}/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
    address = ("127.0.0.1", server.server_address[1])
    waiting = [socket.create_connection(address, timeout=30) for _ in range(4)]
    for connection in waiting:
        connection.sendall(request)  # and never reads
    assert asked(server, f"/{server.key}/")[0] == 200
    for connection in waiting:
        connection.close()


def test_the_tokens_of_a_step_are_asked_for_when_they_are_looked_at(server):
    where = f"/{server.key}/details"
    status, text, _ = asked(server, f"{where}?run=0&step=1")
    assert status == 200
    assert json.loads(text)["step1/math/17/copy0"]["r0.s0"]["prompt"] == "What is 48 + 23"
    for query in ("", "?run=1&step=1", "?run=0&step=x"):
        assert asked(server, where + query)[0] == 503
    assert asked(server, f"{where}?run=0&step=9")[:2] == (200, "{}")


def signs(item: RewardedDiscussion) -> dict[str, tuple[str, ...]]:
    thread = thread_of(discussion_record(item, verdicts=verdicts_of(item)), step=1)
    return {turn.role: turn.signs for turn in thread.turns}


def test_turns_have_the_signs_of_what_one_looks_for():
    assert signs(discussion(1, answer="61"))["scoring"] == ("approved though wrong",)
    assert signs(discussion(1, score="1"))["scoring"] == ("accused though right",)
    assert signs(discussion(1, answer="61", score="1"))["scoring"] == ()
    assert signs(discussion(1, score="7"))["scoring"] == ("unparsable",)
    item = discussion(1)
    assert signs(item) == {"solution": (), "evaluation": (), "scoring": ()}
    marked = Generation((1,), (2,), "<|im_end|>", (-0.1,), "length", 1, spells_mark=True)
    object.__setattr__(item.discussion.turns[0], "generation", marked)
    assert signs(item)["solution"] == ("truncated", "special tokens")
