"""The runner against a scripted server: no failure or kill loses answers."""

import hashlib
import json
import signal
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import scripted_server
from runner_process import kill_after, run, start
from scripted_server import ScriptedServer, replies, status
from small_runs import written
from tables import case_file

from comas.utils.client import MAX_SEED
from comas.utils.seeds import sampling_seed
from evaluation.models import find_remote
from evaluation.results import read_failures, read_inference


def model(body: dict) -> str:
    """Answer by a hash of the request."""
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    return rf"\boxed{{{digest[:8]}}}"


def results(folder: Path) -> list[str]:
    return sorted((folder / "inference.jsonl").read_text().splitlines())


@pytest.mark.stack
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_ends_early_keeps_what_was_finished_and_asks_only_the_rest(tmp_path, number):
    with ScriptedServer(model, delay_s=0.02) as server:
        kill_after(start(run, server.base_url, tmp_path, 50, concurrency=4), server, 20, number)
        num_done = len(read_inference(tmp_path))
        # When the 20th request came, the 16 before those in flight had their answers on disk.
        assert 16 <= num_done < 50
        before = len(server.requests)
        # More seeds and more tasks are added to what is there.
        assert run(server.base_url, tmp_path, 51, seeds=(0, 1)).num_done == 102
        assert len(server.requests) - before == 102 - num_done
        assert len(results(tmp_path)) == 102


ANSWER = {"choices": [{"message": {"content": "71"}, "finish_reason": "stop"}]}
RETRIED = {
    "503": status(503),
    "no reply": scripted_server.never_replies,
    "half a reply": scripted_server.cuts_the_reply_off,
}


@pytest.mark.parametrize("name", RETRIED)
def test_what_may_pass_is_asked_again_in_the_same_run(tmp_path, name):
    def fault_of(body, attempt):
        return RETRIED[name] if attempt == 0 and "2 + 1" in body["messages"][0]["content"] else None

    with ScriptedServer(model, fault_of=fault_of) as server:
        inference = run(server.base_url, tmp_path, timeout_s=4.0 if name == "no reply" else 60.0)
    assert (inference.num_done, inference.num_failed) == (4, 0)
    assert len(server.requests) == 5
    assert read_failures(tmp_path) == {}


def test_retries_end(tmp_path, monkeypatch):
    with ScriptedServer(model, fault_of=lambda *_: status(500, "ill")) as server:
        inference = run(server.base_url, tmp_path, 1, num_retries=1)
    assert (inference.num_failed, len(server.requests)) == (1, 2)
    [error] = read_failures(tmp_path).values()
    assert error.startswith("status 500: ") and "ill" in error
    # A server that is gone fails all tasks, and loses none.
    inference = run(server.base_url, tmp_path, num_retries=1)
    assert (inference.num_done, inference.num_failed) == (0, 4)
    monkeypatch.setattr("comas.utils.client.RequestOptions.longest_s", 0.5)
    with ScriptedServer(model, fault_of=lambda *_: scripted_server.never_replies) as server:
        assert run(server.base_url, tmp_path, 1).num_failed == 1


@pytest.fixture
def others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment with a .netrc for every machine, a key, and no proxy."""
    file = written(tmp_path / "netrc", "default login somebody password else\n")
    monkeypatch.setenv("NETRC", str(file))
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def test_an_endpoint_is_asked_with_its_key_through_the_proxy(others, monkeypatch, tmp_path):
    with ScriptedServer(model) as server:
        proxy = server.base_url.removesuffix("/v1")
        monkeypatch.setenv("http_proxy", proxy.replace("://", "://me:pass@"))
        [remote] = find_remote("http://models.invalid/v1", model=None).models
        assert remote.endpoint.model == "scripted"
        assert run(remote.endpoint.base_url, tmp_path / "answers", 1, api_key="key").num_done == 1
        told = [(h["Host"], h["Authorization"], h["Proxy-Authorization"]) for h in server.headers]
        assert told == [("models.invalid", "Bearer key", "Basic bWU6cGFzcw==")] * 2
        # Servers on this machine are asked without the proxy.
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
        monkeypatch.setenv("OPENAI_API_KEY", " ")  # set, but to nothing
        [remote] = find_remote(server.base_url, model=None).models
        assert run(remote.endpoint.base_url, tmp_path / "here", 1, num_retries=0).num_done == 1


class RefusingProxy(BaseHTTPRequestHandler):
    def do_CONNECT(self) -> None:
        self.send_error(407)

    def log_message(self, *_: object) -> None:
        pass


def test_the_password_of_a_proxy_is_shown_to_nobody(others, tmp_path, monkeypatch, caplog, capfd):
    with HTTPServer(("127.0.0.1", 0), RefusingProxy) as proxy:
        monkeypatch.setenv("https_proxy", f"http://alice:hunter2@127.0.0.1:{proxy.server_port}")
        serving = threading.Thread(target=proxy.serve_forever)
        serving.start()
        run("https://models.invalid/v1", tmp_path, 1, num_retries=0)
        proxy.shutdown()
        serving.join()
    [error] = read_failures(tmp_path).values()
    assert error.startswith("no reply from https://models.invalid/v1: ")
    assert "407 Proxy Authentication Required" in error
    assert "hunter2" not in error + caplog.text + "".join(capfd.readouterr())


NO_USAGE = json.dumps(ANSWER)
GOOD, OVERLONG = (case_file("runner")[name] for name in ("GOOD", "OVERLONG"))
TOO_LONG = status(400, "This model's maximum context length is 99 tokens.")


@pytest.mark.parametrize("name", GOOD)
def test_a_good_reply_in_another_form_is_an_answer(tmp_path, name):
    said = {"content": r"\boxed{1}", "finish_reason": "stop", "usage": {"prompt_tokens": 7}}
    said |= GOOD[name]
    choice = {"message": {"content": said["content"]}, "finish_reason": said["finish_reason"]}
    replied = replies(json.dumps({"choices": [choice], "usage": said["usage"]}))
    with ScriptedServer(model, fault_of=lambda *_: replied) as server:
        assert run(server.base_url, tmp_path, 1).num_done == 1
    [[call]] = [answer.calls for answer in read_inference(tmp_path)]
    assert call.response == r"\boxed{1}"
    assert call.finish_reason == ("length" if name == "max_tokens" else "stop")
    assert call.prompt_tokens == (0 if "usage" in name else 7) and call.completion_tokens == 0


ELSEWHERE = {"Location": "http://127.0.0.1:9/v1"}
UNUSABLE = {
    "404": (status(404, "no such model"), "no such model"),
    "no content": (replies(NO_USAGE.replace('"71"', "null")), "unusable: it has no content"),
    "an aborted reply": (replies(NO_USAGE.replace('"stop"', '"abort"')), "finish_reason abort"),
    "a redirection": (replies(status=307, headers=ELSEWHERE), "redirects to http://127"),
    "an error within 200": (replies('{"error": "overloaded"}'), "unusable: choices"),
    "a filter": (status(400, "content_filter"), "content_filter"),
    "a page": (replies("<html>", content_type="text/html"), "Invalid JSON"),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_an_unusable_reply_fails_its_task_alone_and_the_next_run_asks_it_again(tmp_path, name):
    fault, message = UNUSABLE[name]
    struck = sampling_seed(0, "gsm8k/2", "sample 3") & MAX_SEED
    is_broken = True

    def fault_of(body, attempt):
        return fault if is_broken and body["seed"] == struck else None

    with ScriptedServer(model, fault_of=fault_of) as server:
        first = run(server.base_url, tmp_path, setup_name="consistency")
        assert (first.num_done, first.num_failed) == (3, 1)
        # Not retried, as the reply would be the same.
        assert [body["seed"] for body in server.requests].count(struck) == 1
        num_requests = len(server.requests)
        [(key, error)] = read_failures(tmp_path).items()
        assert key == ("gsm8k/2", 0) and message in error
        assert len(results(tmp_path)) == 3

        is_broken = False
        second = run(server.base_url, tmp_path, setup_name="consistency")
        assert len(server.requests) == num_requests + 6
    assert (second.num_done, second.num_failed) == (4, 0)


def test_a_server_that_refuses_everything_is_left_alone_after_a_while(tmp_path):
    with ScriptedServer(model, fault_of=lambda *_: status(401, "wrong key")) as server:
        with pytest.raises(RuntimeError, match=r"32 tasks in a row failed, .* 401: .*wrong key"):
            run(server.base_url, tmp_path, 50, concurrency=4)
        assert len(server.requests) <= 32 + 4
    with ScriptedServer(model) as server:
        assert run(server.base_url, tmp_path, 50).num_done == 50


@pytest.mark.parametrize("name", OVERLONG)
def test_an_overlong_prompt_is_known_in_the_words_of_each_server(tmp_path, name):
    refused = status(*OVERLONG[name])
    num_tasks = 40 if name == "vLLM" else 2  # more than 32 in a row
    with ScriptedServer(model, fault_of=lambda *_: refused) as server:
        assert run(server.base_url, tmp_path, num_tasks, num_retries=0).num_failed == num_tasks


def test_failures_between_answers_stop_nothing(tmp_path):
    def unless_30_divides_it(body, attempt):
        return status(400) if int(body["messages"][0]["content"].split()[2]) % 30 else None

    with ScriptedServer(model, fault_of=unless_30_divides_it) as server:
        inference = run(server.base_url, tmp_path, 80, concurrency=1)
    assert inference == (3, 77)


def test_of_an_overlong_prompt_a_discussion_leaves_the_history_out(tmp_path):
    def has_history(body) -> bool:
        return "## Earlier solution" in body["messages"][-1]["content"]

    def fault_of(body, attempt):
        return TOO_LONG if has_history(body) else None

    with ScriptedServer(model, fault_of=fault_of) as server:
        inference = run(server.base_url, tmp_path / "a", 1, setup_name="discussion")
    assert inference.num_done == 1
    # Each of 4 solutions of the second round is asked with 2 past items, with 1, and with none.
    assert Counter(map(has_history, server.requests)) == {True: 8, False: 24}
    [answer] = read_inference(tmp_path / "a")
    assert len(answer.calls) == 24
    with ScriptedServer(model, fault_of=lambda *_: TOO_LONG) as server:
        inference = run(server.base_url, tmp_path / "b", 1, setup_name="discussion")
    assert inference.num_failed == 1


@pytest.mark.parametrize("setup_name", ["vanilla", "consistency"])
def test_no_more_requests_are_in_flight_than_allowed_and_no_fewer(tmp_path, setup_name):
    with ScriptedServer(model, gather=6) as server:
        options = {"setup_name": setup_name, "concurrency": 6, "timeout_s": 10, "num_retries": 0}
        assert run(server.base_url, tmp_path, 12, **options).num_failed == 0
    assert server.max_in_flight == 6


def test_same_seed_same_requests_whatever_the_order_and_concurrency(tmp_path):
    def seeds_of(name: str, **options) -> set[int]:
        with ScriptedServer(model) as server:
            run(server.base_url, tmp_path / name, setup_name="debate", **options)
        seeds = {body["seed"] for body in server.requests}
        assert len(seeds) == len(server.requests) and all(0 <= seed < 2**31 for seed in seeds)
        return seeds

    first = seeds_of("first", concurrency=1)
    assert seeds_of("second", concurrency=16, reverse=True) == first
    assert results(tmp_path / "first") == results(tmp_path / "second")
    assert not seeds_of("third", seeds=(1,)) & first
