"""Dry runs, errors of users, and isolation of programs."""

import json
from pathlib import Path

import pytest
from small_runs import FAMILIES, QUICKSTART, REPOSITORY, record, tiny_settings, write_records
from tables import cases

from comas.__main__ import main
from comas.preflight import preparation
from comas.preflight.checks import PreflightError, errors_of, table
from comas.preflight.configuration import load_config
from comas.preflight.machine import settle_isolation
from comas.preflight.preparation import check_run, prepare
from comas.utils.terminal import EXIT_ERROR
from comas.verification.sandbox import Sandbox, SandboxError


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    """A run that would start: two tiny models and enough questions."""
    return [str(QUICKSTART), *tiny_settings(tmp_path, families=FAMILIES)]


def test_a_dry_run_reports_everything_and_writes_nothing(arguments, tmp_path, caplog):
    arguments = ["--dry-run", *arguments]
    assert main(arguments) == 0
    said = ["needed", "a step: 2 questions x 1 copies"]
    assert all(words in caplog.text for words in said)
    assert "dry run: no errors, no warnings; no run was started or written" in caplog.text
    caplog.clear()
    invalid = ["data.validation=nowhere.jsonl", "rollout.batch_size=7", "cluster.device=cuda"]
    invalid += [f"society.models=[{tmp_path / 'tied'},./nowhere]"]
    assert main([*arguments, *invalid]) == EXIT_ERROR
    said = ["nowhere.jsonl cannot", "6 questions, fewer than"]
    said += ["'./nowhere', which is neither", "cluster.device=cuda, but", "dry run: 4 errors, "]
    assert [words for words in said if words not in caplog.text] == []
    caplog.clear()
    assert main([*arguments, f"data.validation={tmp_path / 'questions.jsonl'}"]) == 0
    assert "warning: data.validation: 6 of 6 questions are among those of data.train" in caplog.text
    assert "dry run: no errors, 1 warning;" in caplog.text
    assert not (tmp_path / "saves").exists()


def test_a_dry_run_does_not_build_the_society(tmp_path, caplog):
    config = load_config(QUICKSTART, [f"saves={tmp_path}"])
    found = check_run(config)
    assert not found.inputs.is_built and errors_of(found.checks) == []
    assert "built at the start" in "\n".join(table(found.checks))
    config.data.validation = config.data.train
    [warning] = [check.warning for check in check_run(config).checks if check.warning is not None]
    assert "2400 of 2400 questions are among those of data.train" in warning
    assert found.sizes is not None and found.sizes.num_questions == 2400
    assert not list(tmp_path.iterdir())
    typo = load_config(QUICKSTART, [f"saves={tmp_path}", "society.models=[quickstart/models/gpt]"])
    [error] = errors_of(check_run(typo).checks)
    assert "choose one of quickstart/models/qwen2, quickstart/models/llama" in error


def test_nothing_is_built_if_the_key_that_seals_runs_cannot_be_written(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/x")
    with pytest.raises(PreflightError, match=r"1 error:\n1\. the key .*Set XDG_STATE_HOME to a"):
        prepare(load_config(QUICKSTART, [f"saves={tmp_path}"]))
    assert not list(tmp_path.iterdir())


def test_memory_is_checked_without_model_data_and_gpus(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    paper = str(REPOSITORY / "configs/comas_7b.yaml")
    missing = [f"data.train={tmp_path}/none.jsonl", f"saves={tmp_path / 'saves'}"]
    assert main(["--dry-run", paper, *missing]) == EXIT_ERROR
    said = ["none.jsonl cannot be read", "GPU memory, update", "GPU memory, sampling"]
    said += ["Qwen/Qwen2.5-7B-Instruct", "update: ZeRO-3, Adam's states in host memory"]
    assert [words for words in said if words not in caplog.text] == []


def test_a_dry_run_looks_for_the_adapted_layers(tmp_path):
    settings = tiny_settings(tmp_path, "policy.lora.rank=4", "policy.lora.target_modules=[q_prj]")
    checks = check_run(load_config(QUICKSTART, settings)).checks
    [error] = [check.error for check in checks if check.error]
    assert "policy.lora.target_modules: q_prj is no linear layer of" in error and "q_proj" in error


def failure(arguments: list[str], caplog: pytest.LogCaptureFixture) -> str:
    """The log of a run that fails before it begins a run directory."""
    assert main(arguments) == EXIT_ERROR
    saves = Path(arguments[1].removeprefix("saves="))
    assert not (saves / "latest").exists()
    return caplog.text


@cases("name, content, said")
def test_a_damaged_model_is_named_with_its_error(arguments, caplog, tmp_path, name, content, said):
    path = tmp_path / "untied" / name
    if isinstance(content, dict):
        content = json.dumps(json.loads(path.read_text()) | content)
    path.unlink(missing_ok=True)
    if content is not None:
        path.write_text(content)
    text = failure(arguments, caplog)
    said = [part.format(path=path, folder=path.parent) for part in said]
    assert [part for part in said if part not in text] == []


KEY = "verification.sandbox"


@pytest.fixture(params=[True, False], ids=["namespaces", "no namespaces"])
def has_namespaces(request, monkeypatch):
    def launch(self, mode, missing):
        if mode == "isolated" and not request.param:
            raise SandboxError("[Errno 1] unshare: Operation not permitted")

    monkeypatch.setattr(Sandbox, "_launch", launch)
    return request.param


def test_isolation_is_required_wherever_the_machine_has_it(has_namespaces):
    expected = "require_namespaces" if has_namespaces else "allow_degraded"
    assert settle_isolation(None, key=KEY) == expected
    assert settle_isolation("allow_degraded", key=KEY) == "allow_degraded"
    if has_namespaces:
        return
    said = f"(?s){KEY}=require_namespaces, but .* cannot run here.*{KEY}=allow_degraded"
    with pytest.raises(ValueError, match=said):
        settle_isolation("require_namespaces", key=KEY)


@pytest.mark.parametrize("domain", ["math", "coding"])
def test_a_run_without_coding_questions_asks_for_no_isolation(tmp_path, monkeypatch, domain):
    monkeypatch.setattr(preparation, "settle_isolation", lambda wanted, key: (wanted, key))
    answer = "assert f() == 1" if domain == "coding" else "1"
    questions = write_records(tmp_path / "questions.jsonl", [record(1, task=domain, answer=answer)])
    files = [f"data.train={questions}", f"data.validation={questions}", f"saves={tmp_path}"]
    config = load_config(QUICKSTART, [*files, "verification.sandbox=allow_degraded"])
    expected = ("allow_degraded", KEY) if domain == "coding" else None
    assert check_run(config).isolation == expected
