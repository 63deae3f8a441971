"""The command line of evaluations, the tasks that they draw, and the models of a run."""

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from peft import LoraConfig
from scripted_server import Body, ScriptedServer, status
from small_runs import make_run, record, write_records, written
from tables import case_file, cases, parts
from tiny_models import save_tiny_model

from comas.config import ConfigError
from comas.interaction.setup_prompts import CONSISTENCY_SAMPLES, aggregation
from comas.utils.files import locked
from comas.utils.terminal import EXIT_ERROR
from evaluation import execution
from evaluation.command import main
from evaluation.config import read_command
from evaluation.models import CONTEXT_SHARE_OF_REPLY, find_remote, find_target, read_model
from evaluation.plan import make_plan
from evaluation.server import Servers
from evaluation.tasks import benchmark_tasks, draw, held_out_tasks


def knows_half(body: Body) -> str:
    """Answers every other question correctly, in any setup that quotes it."""
    number = int(body["messages"][0]["content"].split("What is ")[1].split(" + ")[0])
    return f"\\boxed{{{number + 1 if number % 2 else 0}}}"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder with a benchmark of 8 tasks."""
    write_records(tmp_path / "data/benchmarks/gsm8k.jsonl", [record(i) for i in range(8)])
    return tmp_path / "data"


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer(knows_half) as server:
        yield server


@pytest.fixture
def arguments(tmp_path: Path, data: Path, server: ScriptedServer) -> list[str]:
    """Arguments of a valid evaluation."""
    return [
        *("scripted", f"--base-url={server.base_url}", "model=half-right", "benchmarks=[gsm8k]"),
        *("setups=[vanilla, consistency]", f"data={data}", f"results={tmp_path / 'results'}"),
    ]


def test_an_evaluation_tells_and_writes_its_results(arguments, server, tmp_path, caplog, capsys):
    own = "extra_body={max_completion_tokens: 9, max_tokens: null}"
    assert main([*arguments, "seeds=2", own]) == 0
    assert server.requests[0]["max_completion_tokens"] == 9
    assert "max_tokens" not in server.requests[0]
    first = caplog.messages[0]
    assert "half-right" in first
    assert "gsm8k (8 tasks) with vanilla, consistency; 2 seeds: 32 answers into " in first
    assert len(server.requests) == 8 * 2 * (1 + 6)
    folder = tmp_path / "results/scripted"
    evaluation = json.loads((folder / "gsm8k/vanilla/evaluation.json").read_text())
    assert evaluation["graders"]["strict"]["accuracy"] == 0.5
    assert {path.name for path in folder.iterdir()} == {
        *("gsm8k", "subject.json", "versions.json", ".lock", "summary.md"),
    }
    printed = capsys.readouterr().out
    assert "50.00" in printed
    assert printed.splitlines()[-1] == str(folder / "summary.md")


def test_what_is_done_is_not_asked_again_and_a_setup_is_added(arguments, server, capsys):
    for setups, num_requests in (("vanilla", 8), ("vanilla", 8), ("vanilla, consistency", 56)):
        assert main([*arguments, f"setups=[{setups}]"]) == 0
        assert len(server.requests) == num_requests
    capsys.readouterr()
    assert main(["compare", "scripted", "scripted", arguments[-1]]) == 0
    printed = capsys.readouterr().out
    assert "vanilla" in printed and "consistency" in printed and "(+0.00)" in printed


def test_a_setup_of_ones_own_has_the_answers_of_its_text(arguments, server, tmp_path, caplog):
    own_setup = case_file("evaluation_cli")["OWN_SETUP"]
    own = [*arguments, f"setups=[{written(tmp_path / 'mine.py', own_setup)}:SHORT]"]
    silent = written(tmp_path / "silent.py", own_setup.replace("return ", ""))
    told = failure([*arguments, f"setups=[{silent}:SHORT]"], caplog)
    assert "returned None; return the answer" in told
    assert main([*arguments, "setups=[vanilla]"]) == main(own) == 0
    said = [body["messages"][0]["content"] for body in server.requests[8:]]
    assert len(said) == 8 and all(text.startswith("Shortly: ") for text in said)
    assert "SHORT" in (tmp_path / "results/scripted/summary.md").read_text()
    edited = written(tmp_path / "edited.py", own_setup.replace("Shortly", "Long"))
    changed = re.compile(r"setup_files.SHORT: \w+ there, \w+ now")
    assert changed.search(failure([*arguments, f"setups=[{edited}:SHORT]"], caplog))


def test_a_server_reads_what_prompts_and_replies_can_need_and_no_more(arguments, tmp_path):
    folder = Path(save_tiny_model(tmp_path / "model", "qwen2", max_position_embeddings=32768))

    def context(*changes: str) -> int:
        own = ["local", str(folder), *arguments[3:], *changes]
        [model] = make_plan(read_command(own)).target.models
        return model.context_length

    # 5 samples of 2048 tokens, one a byte, and what is said around them; and the reply.
    [summary] = aggregation("What is 7 + 1?", ["x" * 2048] * CONSISTENCY_SAMPLES)
    needed = len(summary["content"]) + 2048
    assert needed < context("setups=[vanilla, consistency]") < needed + 200
    assert context("setups=[vanilla]") == 4096
    # A later solution quotes two solutions and their evaluations.
    assert 5 * 2048 < context("setups=[discussion]") < 5 * 2048 + 500
    assert 6 * 4096 < context("max_tokens=100000") < 6 * 4096 + 500  # an eighth of the context


def test_equal_agents_are_asked_as_one(arguments, tmp_path):
    four = ("society.num_agents=4", f"society.models=[{tmp_path / 'tied'}]")
    run = make_run(tmp_path, *four, num_trained=4)
    for weights, num in (("untrained", 1), ("trained", 5)):  # agents, and their society
        own = ["x", str(run), f"weights={weights}", *arguments[3:]]
        assert len(make_plan(read_command(own)).target.subjects) == num
    three = str(make_run(tmp_path / "three", "society.num_agents=3", four[1]))
    own = ["x", three, "weights=untrained", *arguments[3:], "setups=[vanilla, debate]"]
    asked = {(subject, column.setup) for subject, column in make_plan(read_command(own)).cells}
    assert asked == {("agent_0", "vanilla"), ("agent_0", "debate"), ("society", "debate")}


@cases("listing, context_length")
def test_a_named_model_has_the_context_that_is_listed(arguments, server, listing, context_length):
    server.listing = listing
    plan = make_plan(read_command(arguments))
    [remote] = plan.target.models
    assert (remote.endpoint.model, remote.context_length) == ("half-right", context_length)
    assert plan.requests.max_tokens == (2048 if context_length is None else 4096 // 8)


def failure(arguments: list[str], caplog: pytest.LogCaptureFixture) -> str:
    """The message of an evaluation that must fail."""
    assert main(arguments) == EXIT_ERROR
    return caplog.messages[-1]


@pytest.mark.parametrize("changes", parts("config", "a command"), ids=lambda row: row[0])
def test_bad_input_is_named_with_its_remedy(arguments, data, server, caplog, changes):
    settings, *said = changes
    server.listing = {"data": [{"id": "a"}, {"id": "b"}]}
    damaged = write_records(data / "benchmarks/mmlu.jsonl", [record(0) | {"task": "poetry"}])
    said = [part.replace("DAMAGED", f"{damaged} is damaged: line 1") for part in said]
    text = failure([*arguments, *settings.split()], caplog)
    assert [part for part in said if part not in text] == []
    assert server.requests == []
    assert not Path(arguments[-1].removeprefix("results=")).exists()
    assert read_command(["name", "--greedy", "path"]).config.temperature == 0


@pytest.mark.parametrize("password", ["hunter2", "hunter2/x", "hunter2" * 99])
def test_a_password_in_an_address_is_shown_to_nobody(arguments, server, caplog, capfd, password):
    address = f"https://me:{password}@host/v1"
    text = failure([*arguments, f"base_url={address}", "weights=best"], caplog)
    assert "base_url = https://***@host/v1" in text
    with pytest.raises(ValueError, match="base_url ") as error:
        find_remote(address, model="m")
    assert "hunter2" not in caplog.text + "".join(capfd.readouterr()) + str(error.value)
    assert not Path(arguments[-1].removeprefix("results=")).exists()


@cases("arguments, said")
def test_arguments_that_are_incomplete_are_shown_how_to_be_written(arguments, said):
    with pytest.raises(ConfigError, match=said):
        read_command(arguments)


@cases("path, setting, said")
def test_a_path_without_a_model_says_what_is_there(caplog, tmp_path, path, setting, said):
    save_tiny_model(tmp_path / "model", "tied")
    (tmp_path / "model/model.safetensors").unlink()
    text = failure(["name", str(tmp_path / path), setting], caplog)
    assert [part for part in said if part not in text] == []


def test_results_of_another_model_or_settings_are_left_alone(arguments, data, tmp_path, caplog):
    folder = tmp_path / "results/scripted"
    assert main(arguments) == 0
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    changes = {"model=other": "models", "temperature=1": "temperature", "limit=4": "limit"}
    for change, named in changes.items():
        text = failure([*arguments, change], caplog)
        assert re.search(rf"{named}: .* there, .* now", text) and "Choose another NAME" in text
    write_records(data / "benchmarks/gsm8k.jsonl", [record(i + 8) for i in range(8)])
    assert re.search("tasks.gsm8k: .* there, .* now", failure(arguments, caplog))
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_an_evaluation_without_an_answer_is_no_success(arguments, tmp_path, caplog):
    with ScriptedServer(knows_half, fault_of=lambda body, attempt: status(400)) as broken:
        text = failure([*arguments, f"base_url={broken.base_url}", "setups=[vanilla]"], caplog)
    assert "every task failed; the reasons are in" in text
    failures = (tmp_path / "results/scripted/gsm8k/vanilla/failures.jsonl").read_text()
    assert len(failures.splitlines()) == 8


def test_two_evaluations_do_not_share_a_name(arguments, server, tmp_path, caplog):
    folder = tmp_path / "results/scripted"
    with locked(folder, remedy="wait"):
        assert "another name for the results" in failure(arguments, caplog)
    assert server.requests == []
    assert [path.name for path in folder.iterdir()] == [".lock"]


def test_a_server_that_dies_ends_it_and_no_answer_is_lost(arguments, server, monkeypatch, caplog):
    class Dying(Servers):
        async def watch(self) -> NoReturn:
            while len(server.requests) < 4:
                await asyncio.sleep(0.001)
            raise RuntimeError("it died")

    with monkeypatch.context() as patched:
        patched.setattr(execution, "Servers", Dying)
        patched.setattr(server, "_delay_s", 0.5)  # or all were answered before it dies
        said = failure([*arguments, "concurrency=2", "setups=[vanilla]"], caplog)
    assert said == "error: it died\nAll answers so far are kept. Rerun the command to resume."
    num_asked = len(server.requests)
    assert main([*arguments, "setups=[vanilla]"]) == 0
    assert 4 <= num_asked < 8 and len(server.requests) - num_asked <= 8 - num_asked + 2


def test_a_smaller_draw_is_part_of_a_larger_one_and_keeps_the_order():
    numbers = list(range(100))
    ten, fifty = (draw(numbers, limit, name="gsm8k") for limit in (10, 50))
    assert len(ten) == 10
    assert ten == sorted(ten)
    assert set(ten) < set(fifty)
    assert draw(numbers, 10, name="gsm8k") == ten
    assert draw(numbers, 10, name="mmlu") != ten
    assert draw(numbers, 1000, name="gsm8k") == numbers


def test_tasks_are_asked_with_a_sentence_or_as_in_training(tmp_path):
    write_records(tmp_path / "benchmarks/gsm8k.jsonl", [record(0), record(1)])
    (task,) = benchmark_tasks("gsm8k", data=tmp_path, limit=1)
    assert task.query.startswith(f"{task.question}\n\n")
    assert task.query.endswith("\\boxed{}.")
    (task,) = held_out_tasks(write_records(tmp_path / "held.jsonl", [record(0)]), limit=None)
    assert task.gold == "1"
    assert task.query.endswith("# Problem\nWhat is 0 + 1?\n\n# Discussion so far\n(empty)")


SHARED = ("society.num_agents=3", "society.policy_of_agent=[0,0,1]")
FROZEN = ("society.update_every=[1,0]",)
EACH = {"agent_0": (0,), "agent_1": (1,), "society": (0, 1)}
OF_SHARED = {"agent_0": (0,), "agent_2": (1,), "society": (0, 0, 1)}


@cases(
    "overrides, num_trained, weights, folders, subjects",
    ((), 2, "trained", ["agent_0", "agent_1"], EACH),
    ((), 2, "untrained", ["tied", "untied"], EACH),
    (SHARED, 3, "trained", ["agent_0", "agent_2"], OF_SHARED),  # a server for each policy
    (FROZEN, 1, "trained", ["agent_0", "untied"], EACH),  # it ended as it began
    (FROZEN, 1, "untrained", ["tied", "untied"], EACH),
)
def test_a_run_has_its_subjects(tmp_path, overrides, num_trained, weights, folders, subjects):
    run = make_run(tmp_path, *overrides, num_trained=num_trained)
    target = find_target(str(run), weights=weights)
    assert [model.folder.name for model in target.models] == folders
    assert target.subjects == subjects
    assert target.max_tokens(2048) == 1024 // CONTEXT_SHARE_OF_REPLY
    assert not target.is_quickstart


def test_a_run_that_has_not_ended_says_how_to_end_it(tmp_path):
    folder = make_run(tmp_path, num_trained=1)
    with pytest.raises(ValueError, match=rf"agent_1 does not exist.*resume={folder}"):
        find_target(str(folder), weights="trained")


def test_a_model_is_known_by_its_weights_and_its_context_has_a_limit(tmp_path):
    for seed in (0, 1):
        save_tiny_model(tmp_path / str(seed), "tied", seed=seed)
    first, second = (read_model(tmp_path / str(seed)) for seed in (0, 1))
    assert first == read_model(tmp_path / "0") and first.context_length == 1024
    assert first.fingerprint != second.fingerprint
    config = json.loads((tmp_path / "0/config.json").read_text())
    large = json.dumps(config | {"max_position_embeddings": 131072})
    (tmp_path / "0/config.json").write_text(large)
    assert read_model(tmp_path / "0").context_length == 32768
    config = LoraConfig(base_model_name_or_path="/moved/away", r=4, task_type="CAUSAL_LM")
    config.save_pretrained(str(tmp_path / "adapter"))
    (tmp_path / "adapter/adapter_model.safetensors").touch()
    found = read_model(tmp_path / "adapter", str(tmp_path / "1"))
    assert (found.folder, found.adapter) == (tmp_path / "1", tmp_path / "adapter")
