"""scripts/gpu_check: what it counts, plans and refuses, and all of it that a CPU can run."""

import json
import os
import subprocess
import sys
from math import nan
from types import SimpleNamespace

import pytest
from builders import sample
from tables import cases

from comas.engines.cluster.supervision import LostEngineError
from comas.engines.policy import attention
from comas.preflight.machine import Machine
from comas.preflight.memory import GIB, ModelShape
from scripts.gpu_check import measures, run, society
from scripts.gpu_check.checks import CHECKS, Arguments

H100 = Machine("cuda", 1, 79 * GIB, 128 * GIB, has_cuda_compiler=True)
CPU = Machine("cpu", 0, 0, 24 * GIB, has_cuda_compiler=False)


@pytest.fixture
def nvidia_smi(tmp_path, monkeypatch):
    """The program that takes the place of the real one; write a shell script into it."""
    program = tmp_path / "nvidia-smi"
    program.touch(mode=0o700)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return program


@cases(
    "arguments, num_gpus, told",
    (Arguments("cpu", size="70b"), 0, ["size=70b"]),
    (Arguments(), 0, ["torch sees no GPU", "bash scripts/gpu_check.sh device=cpu"]),
    (Arguments(), 1, ["nvidia-smi, which does not work"]),
)
def test_what_cannot_be_checked_is_told(nvidia_smi, monkeypatch, capsys, arguments, num_gpus, told):
    monkeypatch.setattr(run, "count_gpus", lambda: num_gpus)
    nvidia_smi.write_text("#!/bin/sh\nexit 9\n")
    assert run.main(arguments) == 2
    monkeypatch.setenv("PATH", str(nvidia_smi.parent / "empty"))
    assert run.main(arguments) == 2
    for line in capsys.readouterr().err.splitlines():
        assert line.startswith("error: ") and all(part in line for part in told)


def test_what_a_machine_cannot_run_is_known_beforehand():
    refused = {name: run.why_impossible(check, H100) for name, check in CHECKS.items()}
    assert {name for name, reason in refused.items() if reason} == {"ranks", "tensor", "nccl"}
    assert refused["ranks"] == "needs 2 GPUs, and this machine has 1"
    assert [name for name, check in CHECKS.items() if run.why_impossible(check, CPU)] == ["nccl"]


def test_each_row_is_told_and_written_whatever_happens(monkeypatch, tmp_path, capsys):
    lost = LostEngineError("rank 0 of policy 0 is gone")
    lost.__cause__ = RuntimeError("no kernel image, in an engine's process")
    outcomes = iter([None, KeyError("x"), lost, society.NotRunError("too small"), *[None] * 5])
    file = tmp_path / "rows.jsonl"
    file.write_text('{"check": "earlier"}\n')

    def run_check(pair, config, *, machine, **_):
        before = len(file.read_text().splitlines())  # written already
        if (error := next(outcomes)) is not None:
            raise error
        return {"tokens/s": 1234.4, "planned": machine.host_bytes >> 30, "before": before}

    def isolated(function, *_):
        if function is measures.attention_error:
            raise TypeError("varlen_attn() got an unexpected keyword argument")
        return 1.0

    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    monkeypatch.setattr(run, "start_command", lambda name: None)
    monkeypatch.setattr(run, "isolated", isolated)
    monkeypatch.setattr(run, "run_check", run_check)
    status = run.main(Arguments("cpu", out=str(tmp_path), host_gib=128.0))
    rows = {row["check"]: row for row in map(json.loads, file.open())}
    told, error = capsys.readouterr()
    assert status == 1
    assert "|---|\n| one | tiny |  |  | 1234 | " in told and "| 128 |  |  |  |  | ok |\n" in told
    assert told.index("| ranks | tiny | ") < told.index("| FAULT |\n| resume | tiny | ")
    assert "\nnot run: tensor of tiny: too small\n" in told
    assert "\nnot run: nccl of tiny: NCCL runs between GPUs only\n" in told
    assert told.endswith(
        "\nfault: attention: TypeError: varlen_attn() got an unexpected keyword argument"
        "\nfault: lora of tiny: KeyError: 'x'"
        "\nfault: ranks of tiny: LostEngineError: rank 0 of policy 0 is gone\n"
    )
    assert list(rows) == ["earlier", "attention", "matrix product", *CHECKS]
    assert (rows["one"]["before"], rows["resume"]["before"]) == (3, 7)
    assert (rows["one"]["tokens/s"], rows["one"]["verdict"]) == (1234.4, "ok")
    assert (rows["tensor"]["not run"], rows["tensor"]["verdict"]) == ("too small", "not run")
    for text in (rows["ranks"]["traceback"], error):
        assert "RuntimeError: no kernel image, in an engine's process" in text


def test_attention_is_compared_with_plain_attention(monkeypatch):
    assert measures.attention_error("cpu") < measures.MAX_ERROR["cpu"]
    exact = attention.packed_attention

    def attends_to_others(*states, key_places, **others):
        return exact(*states, key_places=key_places.roll(1), **others)

    monkeypatch.setattr(attention, "packed_attention", attends_to_others)
    assert measures.attention_error("cpu") > 0.1


def test_operations_are_counted_by_weights_tokens_and_pairs_of_tokens():
    shape = ModelShape(16, 1, 3, 0, 3, 0, 2)  # a head of 2 x 3 weights and 10 others
    one, two = (sample(prompt_token_ids=of, response_token_ids=of) for of in ((0,), (0, 0)))
    assert measures.model_flops(shape, [one]) == 6 * 10 * 2 + 6 * 6 * 1 + 6 * 3 * 2**2
    assert measures.model_flops(shape, [one, two]) == 228 + 6 * 40 + 6 * 12 + 6 * 3 * 16


def test_the_fullest_usable_gpu_counts(nvidia_smi, monkeypatch):
    answers = 'case "$*" in *--id=1,2*) echo 30; echo 20;; *) echo 90; echo 30; echo 20;; esac'
    nvidia_smi.write_text(f"#!/bin/sh\n{answers}\n")
    assert (measures.gpu_bytes("cuda"), measures.gpu_bytes("cpu")) == (90 << 20, 0)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,2")
    assert measures.gpu_bytes("cuda") == 30 << 20


def found(*mismatches, moved=0.5):
    stats = [{0: SimpleNamespace(mismatch_mean=mismatch)} for mismatch in mismatches]
    return society.Found(stats=stats, moved=[moved]).all_faults()


def resumed(*after):
    return society.resume_faults([0.5, 0.9], list(after))


@cases(
    "faults, told",
    *[(none, []) for none in (found(0.004, 0.006), resumed(0.505, 0.895))],
    (found(0.004, 0.5), ["policy and engine differ by 0.5000 a token in step 2"]),
    (found(nan), ["policy and engine differ by nan a token in step 1"]),
    (found(0.0, moved=0.001), ["an update changed a log-prob by 0.0010 only"]),
    # The optimiser has forgotten.
    (resumed(0.5, 0.6), ["update 4 moved a log-prob by 0.9000, and by 0.6000 after a resume"]),
    (resumed(nan, 0.9), ["update 3 moved a log-prob by 0.5000, and by nan after a resume"]),
)
def test_what_is_a_fault(faults, told):
    assert faults == told


@pytest.mark.stack
@pytest.mark.slow
def test_agents_take_the_same_steps_on_a_cpu(tmp_path):
    """All checks but nccl, which needs GPUs: each starts a society of its own."""
    command = [sys.executable, "-m", "scripts.gpu_check", "device=cpu", f"out={tmp_path}"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    for name in CHECKS.keys() - {"nccl"}:
        assert f"\n| {name} | tiny | {'3' if name == 'zero3' else '0'} | " in result.stdout
    assert result.stdout.endswith("all checks that ran passed\n")
    rows = map(json.loads, (tmp_path / "rows.jsonl").open())
    bare = next(row for row in rows if row["check"] == "bare")
    assert min(bare[name] for name in ("vLLM alone", "plain loop s", "send s")) > 0
    assert bare["phases"]["backward"] > 0 and len(bare["operations"]) == 20
