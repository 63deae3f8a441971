"""The page of a run: its contents, live runs, and access to the server."""

import base64
import gzip
import http.client
import json
import logging
import re
import shutil
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from evaluation_cases import evaluation, write
from page_runs import add_step, discussion, served, verdicts_of, write_run
from pydantic import TypeAdapter
from small_runs import reopened
from tables import cases

from comas.commands import view
from comas.run.pages.discussions import NEAR, disagreements, thread_of
from comas.run.pages.live import LiveRun, news_of
from comas.run.pages.page import PageSource, page_text
from comas.run.pages.run_report import report_source, result_in_words, run_source
from comas.run.pages.server import LiveServer
from comas.run.provenance import version_of
from comas.run.records import discussion_record
from comas.types import Generation, Question, RewardedDiscussion
from comas.utils.files import FileError, append_lines
from evaluation.results import ANSWERS
from evaluation.transcripts import results_source
from evaluation.types import Answer, Call

WRONG = discussion(2, answer="61")
"""A wrong answer that was approved."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("saves"), "small", {1: [discussion(1)], 2: [WRONG]})


@pytest.fixture(scope="module")
def source(run: Path) -> PageSource:
    return run_source(run)


def thread(item: RewardedDiscussion):
    return thread_of(discussion_record(item, verdicts=verdicts_of(item)), step=1)


def embedded(text: str) -> dict[str, Any]:
    """Return script element id -> unpacked data."""
    packed = re.findall(r'<script type="text/plain" id="(.*?)">(.*?)</script>', text)
    return {name: json.loads(gzip.decompress(base64.b64decode(of))) for name, of in packed}


def test_every_turn_has_the_verdict_on_its_solution_and_the_scores_that_it_led_to():
    turns = thread(WRONG).turns
    assert [turn.verdict for turn in turns] == ["wrong"] * 3
    assert [turn.scores for turn in turns] == [(3,)] * 3
    assert thread(discussion(1, score="7")).turns[2].scores == ("unreadable",)  # and not none


@cases("said, scores, signs")
def test_a_judgment_or_a_rating_is_no_score_but_may_be_unreadable(said, scores, signs):
    record = discussion_record(WRONG, verdicts=verdicts_of(WRONG))
    solution, judged = record["turns"][:2]
    record |= {"turns": [solution, judged | {"response": said}]}
    shown = thread_of(record, step=1, is_scored=False)
    assert (shown.turns[0].scores, shown.turns[1].signs) == (tuple(scores), tuple(signs))
    assert thread_of(record, step=1).turns[0].scores == ()  # where a scorer decides


def test_the_disagreements_are_the_latest_about_different_questions(tmp_path):
    def about(number: int, step: int, answer: str, score: str) -> RewardedDiscussion:
        question = Question(f"math/{number}", "math", f"What is {number} ?")
        return discussion(step, answer=answer, score=score, question=question)

    steps = {
        1: [about(1, 1, "61", "3"), about(2, 1, "61", "3"), about(3, 1, "71", "1")],
        2: [about(1, 2, "61", "3"), about(4, 2, "71", "3"), about(5, 2, "61", "1")],
    }
    assert [thread.id for thread in disagreements(write_run(tmp_path, "run", steps))] == [
        "step2/math/1/copy0",  # wrong and rewarded
        "step1/math/2/copy0",
        "step1/math/3/copy0",  # correct and not rewarded
    ]


def test_a_page_needs_nothing_from_elsewhere_and_is_not_broken_by_what_a_model_says(source):
    attack = Question("math/1", "math", "</script><script>alert(1)</script>{{page.css}}")
    hostile = thread(discussion(1, question=attack))
    text = page_text([source, PageSource("other", "/other", [hostile])])
    assert "alert(1)" not in text
    assert embedded(text)["page-data"][1]["threads"][0]["question"] == attack.text
    assert not re.findall(r"""(?:src|href)=["'](?!data:)""", text)
    assert "default-src 'none'" in text


def test_a_run_on_a_page_has_every_discussion_with_prompts_tokens_and_their_numbers(source):
    data = embedded(page_text([source]))
    [shown] = data["page-data"]
    assert [thread["step"] for thread in shown["threads"]] == [1, 2]
    assert [row["step"] for row in shown["rows"]] == [1, 2]
    said = data["details-0-1"]["step1/math/17/copy0"]
    assert said["r0.s0"] == {
        "prompt": "What is 48 + 23",
        "tokens": ["71"],
        "logprobs": [-0.25],
        "advantages": [1.5],
    }
    assert set(said) == {"r0.s0", "r0.s0.e0", "r0.s0.e0.t0"}


def test_a_number_that_is_not_finite_is_null_on_a_page_and_another_record_is_named(tmp_path):
    folder = write_run(tmp_path, "odd", {1: [discussion(1)]})
    file = folder / "discussions/step_0001.jsonl"
    file.write_text(file.read_text().replace('"reward": 1.0', '"reward": NaN'))
    [shown] = embedded(page_text([run_source(folder)]))["page-data"]
    assert shown["threads"][0]["turns"][0]["reward"] is None
    file.write_text('{"turns": [{}]}\n')
    with pytest.raises(FileError, match=r"step_0001.jsonl is of another version \(KeyError"):
        run_source(folder)


def test_a_page_without_tokens_or_tokenizer_says_why_there_are_none(tmp_path, caplog):
    folder = write_run(tmp_path, "none", {1: [discussion(1)]})
    shutil.move(tmp_path / "tokenizer", tmp_path / "gone")
    source = run_source(folder)
    assert [thread.step for thread in source.threads] == [1] and source.details == {}
    assert source.without_details.startswith("they cannot be read (")
    assert source.without_details in caplog.text
    shutil.rmtree(folder / "tokens")
    source = run_source(folder)
    assert (source.details, source.without_details) == ({}, "the run's folder has no tokens/")


def test_a_page_shows_what_is_asked_for_and_no_more_than_it_must(run, monkeypatch, caplog):
    source = run_source(run, steps={1})
    assert [thread.step for thread in source.threads] == [1, 2]  # and those of the report
    assert source.path == str(run)
    with pytest.raises(ValueError, match="none of these steps; it has 1 to 2"):
        run_source(run, steps={7})
    monkeypatch.chdir(run.parents[1])
    assert run_source(run).path == f"{run.parent.name}/{run.name}"
    assert view.main([str(run), "--output", "~nobody-here/x"]) == 1
    assert "starts at the home of ~nobody-here, and there is no such user" in caplog.text


def test_the_report_names_settings_versions_and_what_to_look_at(run):
    source = report_source(run)
    settings, versions = source.tables
    assert ("society.num_agents", "4", "2") in settings.rows
    assert {"commit", "Python", "torch", "vllm"} <= {name for name, _ in versions.rows}
    assert source.featured == [WRONG.discussion.discussion_id]


@cases("measured, questions, said")
def test_a_sentence_says_what_a_run_came_to_of_how_many_questions(measured, questions, said):
    steps = enumerate(zip(*measured.values(), strict=True))
    rows = [{"step": 60 * i, **dict(zip(measured, of, strict=True))} for i, of in steps]
    assert result_in_words(rows, num_questions=lambda metric, step: questions) == said


@cases("packages, version")
def test_a_package_has_the_version_of_the_distribution_that_it_came_with(packages, version):
    assert version_of("vllm", packages) == version


def test_answers_of_an_evaluation_are_threads_with_the_messages_of_every_call(tmp_path):
    subject = write(tmp_path / "quick" / "agent_0", evaluation(["c"], name="gsm8k", setup="debate"))
    asked = ({"role": "user", "content": "What is 48 + 23?"},)
    labels = ("r0.s0", "r0.s0.e0", "r1.s0")
    calls = tuple(Call(label, 1, asked, "71", "stop", 6, 2) for label in labels)
    answer = Answer("gsm8k/0", 0, "71", calls)
    append_lines(subject / "gsm8k" / "debate" / ANSWERS, [TypeAdapter(Answer).dump_json(answer)])
    source = results_source(tmp_path / "quick")
    [shown] = source.threads
    assert (shown.question, shown.labels["setup"]) == ("What is 48 + 23?", "debate")
    assert [(turn.role, turn.agent, turn.parent, turn.is_solution) for turn in shown.turns] == [
        ("solution", 1, None, False),
        ("evaluation", 1, "r0.s0", False),  # under what it answers
        ("solution", 1, None, True),
    ]
    prompt = {"prompt": "[user]\nWhat is 48 + 23?"}
    assert source.details[shown.chunk][shown.id] == dict.fromkeys(labels, prompt)
    assert source.tables[0].rows == [("gsm8k", "debate", "100.0")]


@pytest.fixture
def followed(tmp_path: Path) -> Path:
    return write_run(tmp_path, "small", {1: [discussion(1)]})


def mark(run: LiveRun) -> str:
    """Return the current mark of ``run``."""
    return run.source().live["mark"]


def test_what_is_new_is_what_came_since_the_mark_and_nothing_else(followed):
    live = LiveRun(followed)
    known = mark(live)
    nothing = live.news(known)
    assert (nothing["rows"], nothing["threads"], "featured" in nothing) == ([], [], False)
    item = discussion(2)
    with reopened(followed) as directory:
        directory.save_discussions(2, [item], verdicts=verdicts_of(item))
        assert live.news(known)["threads"] == []  # until its metrics are there
        assert [thread.step for thread in live.source().threads] == [1]
        add_step(directory, 2)
        news = live.news(known)
    assert news["live"]["progress"].startswith("step 2 of 4, about 7 s left")
    assert [of["step"] for of in news["rows"]] == [2]
    assert news["featured"] == []
    assert [thread["id"] for thread in news["threads"]] == ["step2/math/17/copy0"]
    assert news["live"]["mark"] == mark(live) != known
    assert live.details(2)["step2/math/17/copy0"]["r0.s0"]["tokens"] == ["71"]
    assert live.details(3) == {}


def test_a_run_that_went_back_is_loaded_again(followed):
    live = LiveRun(followed)
    with reopened(followed) as directory:
        add_step(directory, 2)
        known = mark(live)
        directory.go_back_to(1)
        directory.log_metrics(2, {"a": 1.0})
    assert live.news(known) is None
    for marks in ([known], [], ["x"]):
        assert news_of([live], marks) == {"reload": True}


def test_a_run_is_followed_from_before_its_first_step(tmp_path):
    run = write_run(tmp_path, "empty", {})
    with reopened(run):
        source = LiveRun(run).source()
    assert source.live is not None
    assert source.live["progress"] == "no step yet: the engines are starting"
    assert not source.rows and not source.threads
    with pytest.raises(ValueError, match=r"is no run: .* Training writes runs to saves"):
        LiveRun(tmp_path)


@cases(
    "error, reason",
    (ValueError("reward.py failed"), "error: reward.py failed"),
    (KeyboardInterrupt(), "interrupted"),
    (None, "no reason is on record: it may have been killed"),
)
def test_a_page_says_that_and_why_a_run_stopped_early(followed, error, reason):
    live, log = LiveRun(followed), logging.getLogger("comas.tests")
    with suppress(ValueError, KeyboardInterrupt), reopened(followed) as directory:
        add_step(directory, 2)
        log.warning("look at this")
        logging.getLogger("ray").warning("somebody else's")
        log.warning("look at this")
        assert live.news(mark(live))["notes"] == ["look at this"]
        if error is not None:
            raise error
    told = re.compile(rf"stopped after step 2 of 4 \(\d{{4}}-\d\d-\d\d \d\d:\d\d\): {reason}")
    news = live.news(mark(live))
    assert told.fullmatch(news["live"]["progress"])
    assert told.search(news["notes"][0]) and news["notes"][1:] == ["look at this"]
    assert report_source(followed).notes == news["notes"]
    with reopened(followed) as directory:  # a resume
        assert live.news(mark(live))["live"]["progress"].startswith("step 2 of 4")
        with directory.models_folder(2):
            directory.note_num_steps(1)  # a resume to fewer steps
    assert live.news(mark(live))["live"]["progress"] == "ended after step 2 of 1"


@cases("domain, gold, answer, is_near")
def test_a_verdict_that_comes_from_a_tolerance_says_so(domain, gold, answer, is_near):
    text = rf"\boxed{{{answer}}}"
    record = discussion_record(discussion(1), verdicts={}) | {"domain": domain, "gold": gold}
    verdict = "wrong" if answer == "400" else "correct"
    solution, *others = record["turns"]
    turns = [solution | {"response": text, "verdict": verdict}, *others]
    shown = thread_of(record | {"turns": turns}, step=1).turns
    assert [NEAR in turn.signs for turn in shown] == [is_near, False, False]


@pytest.fixture
def server(followed: Path) -> Iterator[LiveServer]:
    with served(followed) as server:
        yield server


def asked(server: LiveServer, path: str, *, method="GET", host="127.0.0.1"):
    """Status, text and headers of the answer to a request."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request(method, path, headers={"Host": f"{host}:{server.port}"})
    answer = connection.getresponse()
    return answer.status, answer.read().decode(), answer.headers


def test_the_page_is_served_on_this_machine_to_who_knows_the_key_alone(server):
    status, text, headers = asked(server, f"/{server.key}/")
    assert (status, "connect-src" in text) == (200, True)
    assert headers["Cache-Control"] == "no-store" and headers["Referrer-Policy"] == "no-referrer"
    assert server.address == f"http://127.0.0.1:{server.port}/{server.key}/"
    assert len(server.key) >= 32
    assert LiveServer([]).key != server.key
    with pytest.raises(OSError, match="in use"):
        LiveServer([], port=server.port)
    key = server.key
    for path in ("/", "/new", "/details?run=0&step=1", f"/{key}", f"/{key}/x", f"/{key[:-1]}/"):
        assert asked(server, path)[:2] == (404, "Not Found"), path
    assert asked(server, f"/{key}/", host="evil.example")[0] == 400
    assert asked(server, f"/{key}/", host="localhost")[0] == 200
    assert asked(server, f"/{key}/", method="POST")[0] == 405


def test_news_are_asked_for_by_marks(server, followed):
    known = mark(server.runs[0])
    with reopened(followed) as directory:
        add_step(directory, 2)
    status, text, _ = asked(server, f"/{server.key}/new?have={known}")
    assert status == 200
    assert [of["step"] for of in json.loads(text)["sources"][0]["rows"]] == [2]
    assert json.loads(asked(server, f"/{server.key}/new")[1]) == {"reload": True}
    (followed / "metrics.jsonl").write_text("no JSON\n")
    assert asked(server, f"/{server.key}/new?have={known}")[0] == 503


def test_a_browser_that_takes_no_answer_holds_up_no_other(server):
    request = f"GET /{server.key}/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
    address = ("127.0.0.1", server.port)
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
    return {turn.role: turn.signs for turn in thread(item).turns}


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
