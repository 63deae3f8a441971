"""Another harness is asked for a second opinion: as its own task, by its own client."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import yaml
from scripted_server import ScriptedServer

from evaluation.client import Endpoint, RequestOptions
from evaluation.harness import TASK, by_harness, by_us, compare, write_task
from evaluation.models import Target
from evaluation.types import BenchmarkTask

TASKS = [
    BenchmarkTask(f"m/{i}", "math", f"What is {i} + 1?", f"Box it: {i} + 1?", str(i + 1))
    for i in range(4)
]
ENDPOINT = Endpoint("http://127.0.0.1:9/v1", "saves/agent_0", "its key")


def test_the_task_holds_our_prompts_and_answers_and_is_sampled_greedily(tmp_path):
    write_task(tmp_path, TASKS, max_tokens=64)
    task = yaml.safe_load((tmp_path / f"{TASK}.yaml").read_text())
    questions = Path(task["dataset_kwargs"]["data_files"]["test"]).read_text().splitlines()
    assert [json.loads(line) for line in questions][3] == {"query": "Box it: 3 + 1?", "gold": "4"}
    assert task["generation_kwargs"] == {
        **{"until": [], "do_sample": False, "temperature": 0.0, "max_gen_toks": 64}
    }


def test_its_client_is_told_the_endpoint_and_its_result_is_read(tmp_path):
    fake = tmp_path / "lm_eval"
    fake.write_text(
        f"#!{sys.executable}\n"
        "import json, os, pathlib, sys\n"
        "given = dict(zip(sys.argv[1::1], sys.argv[2::1]))\n"
        "output = pathlib.Path(given['--output_path'], 'model')\n"
        "output.mkdir(parents=True)\n"
        "(output / 'arguments').write_text(' '.join(sys.argv[1:]))\n"
        "(output / 'key').write_text(os.environ['OPENAI_API_KEY'])\n"
        "results = {'results': {given['--tasks']: {'exact_match,boxed': 0.75}}}\n"
        "(output / 'results_2026.json').write_text(json.dumps(results))\n"
    )
    fake.chmod(0o755)
    output = tmp_path / "output"
    assert by_harness(ENDPOINT, tmp_path, output=output, lm_eval=str(fake)) == 0.75
    told = (output / "model/arguments").read_text()
    assert (output / "model/key").read_text() == "its key"
    assert "its key" not in told
    assert "model=saves/agent_0,base_url=http://127.0.0.1:9/v1/chat/completions," in told


def test_a_harness_that_fails_is_told(tmp_path):
    with pytest.raises(RuntimeError, match="lm-evaluation-harness failed"):
        by_harness(ENDPOINT, tmp_path, output=tmp_path / "output", lm_eval="/bin/false")


def test_we_ask_the_same_questions_as_one_message_and_count_what_is_correct(tmp_path):
    def model(body: dict) -> str:
        [message] = body["messages"]
        assert body["temperature"] == 0.0
        return r"\boxed{2}" if message["content"] == "Box it: 1 + 1?" else r"\boxed{0}"

    options = RequestOptions(temperature=0.0)
    with ScriptedServer(model) as server:
        endpoint = Endpoint(server.base_url, "agent_0")
        assert by_us(endpoint, TASKS, options=options, folder=tmp_path / "a/b/c") == 0.25


def test_a_model_by_itself_has_no_questions_to_compare():
    with pytest.raises(ValueError, match="name such a run"):
        list(compare(Target("a model", (), {".": (0,)}), lm_eval="lm_eval"))
