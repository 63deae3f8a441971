"""scripts/gpu_check.sh: what it counts and refuses, and all of it that a CPU can run."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from waiting import wait_until

from comas.preflight.machine import read_gpus
from comas.preflight.memory import ModelShape, model_shape
from comas.types import TrainingSample
from scripts.gpu_check import SIZES, Arguments, Row, main, model_config, report
from scripts.gpu_measures import gpu_bytes, memory_peak, model_flops

REPOSITORY = Path(__file__).parents[1]
ROW = Row("0.5b", 2, 0, "2", 60.0, 9000.0, 2.5, 0.4, 1.25, "45.0 GiB", 40.0, (0.004, 0.006), 0.5)


@pytest.mark.skipif(read_gpus().num_usable > 0, reason="a GPU is here")
def test_without_a_gpu_it_says_what_a_cpu_can_do(capsys):
    assert main(Arguments()) == 2
    error = capsys.readouterr().err
    assert "no NVIDIA driver" in error
    assert "device=cpu size=tiny" in error


@pytest.mark.parametrize(
    "arguments",
    [
        Arguments(size="70b"),
        Arguments(agents="none"),
        Arguments(agents="0"),
        Arguments(lora_rank="16,all"),
        Arguments("tpu"),
    ],
    ids=str,
)
def test_a_wrong_value_is_an_error(arguments, capsys):
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_operations_are_counted_by_weights_tokens_and_pairs_of_tokens():
    def sample(num_prompt: int, num_response: int) -> TrainingSample:
        prompt, response = (0,) * num_prompt, (0,) * num_response
        return TrainingSample(0, "q", "d", "r0.s0", 0, "solution", prompt, response, (), 1.0)

    # A head of 2 x 3 weights and 10 others.
    shape = ModelShape(16, 1, 3, 0, 0, 2)
    assert model_flops(shape, [sample(1, 1)]) == 6 * 10 * 2 + 6 * 6 * 1 + 6 * 3 * 2**2 == 228
    assert model_flops(shape, [sample(1, 1), sample(2, 2)]) == 228 + 6 * 40 + 6 * 12 + 6 * 3 * 16


@pytest.fixture
def nvidia_smi(tmp_path, monkeypatch):
    """Takes the place of the real one; give it the lines of a shell script."""
    program, aside = tmp_path / "nvidia-smi", tmp_path / "aside"
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def become(lines: str) -> None:
        aside.write_text(f"#!/bin/sh\n{lines}\n")
        aside.chmod(0o700)
        aside.replace(program)  # at once: somebody may be about to run it

    return become


def test_the_fullest_usable_gpu_counts(nvidia_smi, monkeypatch):
    nvidia_smi('case "$*" in *--id=1,2*) echo 30; echo 20;; *) echo 90; echo 30; echo 20;; esac')
    assert gpu_bytes() == 90 << 20
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,2")
    assert gpu_bytes() == 30 << 20


def test_memory_that_cannot_be_seen_is_no_peak_of_zero(nvidia_smi, tmp_path):
    nvidia_smi("exit 9")
    with pytest.raises(subprocess.CalledProcessError), memory_peak("cuda"):
        pytest.fail("the block was entered")
    nvidia_smi("echo 5")
    with pytest.raises(subprocess.CalledProcessError), memory_peak("cuda") as peak:
        nvidia_smi(f"touch '{tmp_path}/asked'; exit 9")
        wait_until((tmp_path / "asked").exists)
    assert peak.bytes == 5 << 20


def test_a_difference_between_policy_and_engine_is_a_fault():
    assert ROW.faults == []
    [stale] = replace(ROW, mismatch=(0.004, 0.5)).faults
    assert "0.5b with 2 agents: policy and engine differ by 0.5000 a token in step 2" in stale
    assert len(replace(ROW, mismatch=(float("nan"), 0.0)).faults) == 1


def test_an_update_without_effect_would_show_nothing_and_is_a_fault():
    [fault] = replace(ROW, movement=0.001).faults
    assert "an update changed a log-prob by 0.0010 only" in fault


def test_the_report_is_a_table_and_a_verdict():
    text = report([ROW], [], device="cuda", peak_flops=2.5e14)
    assert (
        "| 0.5b | 2 | - | 2 | 60 | 9000 | 2.50 | 40.0% | 1.25 | 45.0 GiB | 40.0 "
        "| 4.0e-03 6.0e-03 | 0.5 |" in text
    )
    assert "matrix product on cuda: 250 TFLOP/s\nall checks passed" in text
    faulty = report([ROW], ["it fell over"], device="cuda", peak_flops=2.5e14)
    assert faulty.endswith("fault: it fell over\n")


@pytest.mark.parametrize(("name", "parameters"), [("0.5b", 494_032_768), ("3b", 3_085_938_688)])
def test_its_models_have_the_shapes_of_qwen(name, parameters, tmp_path):
    size = SIZES[name]
    model_config(size, dtype="bfloat16").save_pretrained(tmp_path)
    assert model_shape(str(tmp_path)).num_parameters == parameters


@pytest.mark.stack
@pytest.mark.parametrize(
    ("agents", "lora_rank"),
    [
        (1, 0),
        pytest.param(2, 0, marks=pytest.mark.slow),
        pytest.param(2, 16, marks=pytest.mark.slow),
    ],
)
def test_agents_take_the_same_steps_on_a_cpu(agents, lora_rank):
    settings = ["device=cpu", "size=tiny", f"agents={agents}", f"lora_rank={lora_rank}"]
    command = [sys.executable, "-m", "scripts.gpu_check", *settings]
    result = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"\n| tiny | {agents} | {lora_rank or '-'} | 0 | " in result.stdout
    assert result.stdout.endswith("all checks passed\n")
