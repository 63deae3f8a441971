"""scripts/gpu_check.sh: what it counts, plans and refuses, and all of it that a CPU can run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from math import nan
from pathlib import Path
from types import SimpleNamespace

import pytest

from comas.engines.cluster.supervision import LostEngineError, Recoveries
from comas.engines.policy import attention
from comas.preflight.machine import Gpus, Machine, read_gpus
from comas.preflight.memory import GIB, ModelShape
from comas.types import TrainingSample
from scripts.gpu_check import run
from scripts.gpu_check.checks import (
    CHECKS,
    SIZES,
    Arguments,
    planned,
    society_config,
    why_impossible,
)
from scripts.gpu_check.measures import (
    MAX_ERROR,
    attention_error,
    gpu_bytes,
    model_flops,
)
from scripts.gpu_check.run import main
from scripts.gpu_check.society import (
    DoesNotFitError,
    Found,
    Result,
    long_faults,
    recovery_faults,
    resume_faults,
)

REPOSITORY = Path(__file__).parents[1]
H100 = Machine("cuda", 1, 79 * GIB, 128 * GIB, has_cuda_compiler=True)
CPU = Machine("cpu", 0, 0, 24 * GIB, has_cuda_compiler=False)


def a_sample(num_prompt: int, num_response: int) -> TrainingSample:
    prompt, response = (0,) * num_prompt, (0,) * num_response
    return TrainingSample(0, "q", "d", "r0.s0", 0, "solution", prompt, response, (), 1.0)


# ---------------------------------------------------------------- the command line


@pytest.mark.skipif(read_gpus().num_usable > 0, reason="a GPU is here")
def test_without_a_gpu_it_says_what_a_cpu_can_do(capsys):
    assert main(Arguments()) == 2
    error = capsys.readouterr().err
    assert "no NVIDIA driver" in error
    assert "bash scripts/gpu_check.sh device=cpu" in error


@pytest.mark.parametrize(
    "wrong",
    [{"size": "70b"}, {"checks": "one,all"}, {"budget": -1.0}, {"device": "tpu"}],
    ids=str,
)
def test_a_wrong_value_is_an_error(wrong, capsys):
    assert main(Arguments(**{"device": "cpu"} | wrong)) == 2
    [key] = wrong
    assert capsys.readouterr().err.startswith(f"error: {key}=")


def shell(
    *arguments: str, checkout: Path = REPOSITORY, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", checkout / "scripts/gpu_check.sh", *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_an_interpreter_that_is_named_is_taken_and_nothing_is_installed(tmp_path):
    (tmp_path / "scripts").mkdir()  # without environment.sh, which installs
    shutil.copy(REPOSITORY / "scripts/gpu_check.sh", tmp_path / "scripts")
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$PYTHONPATH: $*"\n')
    python.chmod(0o755)
    arguments = ("budget=600", f"python={python}", "device=cpu")
    told = shell(*arguments, checkout=tmp_path, PYTHONPATH="/mine")
    assert told.stdout == f"{tmp_path}:/mine: -m scripts.gpu_check budget=600 device=cpu\n"
    assert (told.returncode, told.stderr) == (0, "")
    nowhere = shell(f"python={tmp_path}/nowhere")
    assert (nowhere.returncode, nowhere.stdout) == (2, "")
    assert f"error: python={tmp_path}/nowhere: no such program" in nowhere.stderr
    assert shell("device=cpu", checkout=tmp_path).returncode == 1  # looks for environment.sh


def test_an_interpreter_without_the_packages_is_told_their_pins(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as util\n"
        "found = util.find_spec\n"
        "gone = ('deepspeed', 'openrlhf', 'yaml')\n"
        "util.find_spec = lambda name, *rest: None if name in gone else found(name, *rest)\n"
    )
    told = shell(f"python={sys.executable}", "device=cpu", PYTHONPATH=str(tmp_path))
    assert (told.returncode, told.stdout) == (2, "")
    pins = "deepspeed==0.19.8 openrlhf==0.11.2 pyyaml==6.0.3"
    assert told.stderr.startswith(f"error: {sys.executable} lacks {pins}. Install them")


# ---------------------------------------------------------------- the plan


def test_checks_are_taken_size_by_size_the_most_telling_first():
    assert [str(pair) for pair in planned(Arguments())] == [
        f"{name} of {size}" for size in ("0.5b", "3b") for name in CHECKS
    ]
    assert [str(pair) for pair in planned(Arguments("cpu"))] == [f"{n} of tiny" for n in CHECKS]
    some = Arguments(size="3b,tiny", checks="nccl,lora")
    assert [str(pair) for pair in planned(some)] == [
        "lora of 3b", "nccl of 3b", "lora of tiny", "nccl of tiny",
    ]  # fmt: skip


def test_what_a_machine_cannot_run_is_known_beforehand():
    def impossible(machine: Machine) -> list[str]:
        return [name for name, check in CHECKS.items() if why_impossible(check, machine)]

    assert impossible(H100) == ["ranks", "tensor", "nodes", "nccl"]
    assert why_impossible(CHECKS["ranks"], H100) == "needs 2 GPUs, and this machine has 1"
    assert impossible(CPU) == ["nccl"]


def test_each_check_asks_the_engines_for_what_it_shows():
    configs = {
        name: society_config(check, SIZES["0.5b"], device="cuda", limit_s=60.0)
        for name, check in CHECKS.items()
    }
    for name, check in CHECKS.items():
        assert configs[name].gpus_per_policy == check.num_gpus
        assert configs[name].cluster.call_timeout_s == 60.0
    assert configs["one"].policy.zero_stage is None  # as the machine has it
    assert configs["tensor"].rollout.engines_per_policy == 1
    assert configs["long"].rollout.max_prompt_tokens == 8192
    assert configs["long"].policy.micro_batch_tokens == 4096
    assert configs["long"].algorithm.uses_reference
    assert (configs["lora"].policy.lora.rank, configs["lora"].num_policies) == (16, 2)
    assert (configs["zero3"].policy.zero_stage, configs["zero3"].policy.adam_offload) == (3, True)
    assert configs["recovery"].cluster.policies_per_gpu == 2
    assert configs["recovery"].rollout.gpu_memory_utilization == 0.4
    assert configs["nodes"].cluster.nodes_per_policy == 2


@pytest.fixture
def scripted(monkeypatch):
    """The loop of all checks, with rows given as functions and no engine."""

    def become(*outcomes):
        left = list(outcomes)

        def run_check(pair, config, **_):
            outcome = left.pop(0)
            if isinstance(outcome, Exception):
                raise outcome
            time.sleep(outcome)
            return Result(f"| {pair.name} | measured |", [])

        monkeypatch.setattr(run, "run_check", run_check)

    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    monkeypatch.setattr(run, "start_command", lambda name: None)
    monkeypatch.setattr(run, "in_process", lambda measure, device: 1e-6)
    monkeypatch.setattr(run, "save_model", lambda *_, **__: None)
    return become


def test_each_row_is_told_and_what_failed_or_did_not_run_is_listed_with_why(
    scripted, monkeypatch, capsys
):
    def in_process(measure, device):
        if measure is attention_error:
            raise TypeError("varlen_attn() got an unexpected keyword argument")
        return 1.0

    monkeypatch.setattr(run, "in_process", in_process)
    lost = LostEngineError("rank 0 of policy 0 is gone")
    scripted(0, lost, 0, DoesNotFitError("too small"), 0, 0, 0, 0)
    assert main(Arguments("cpu")) == 1
    told = capsys.readouterr().out
    assert "|---|\n| one | measured |\n| ranks | tiny | " in told
    assert "| FAULT |\n| tensor | measured |" in told
    assert "\nnot run: long of tiny: too small\n" in told
    assert "\nnot run: nccl of tiny: NCCL runs between GPUs only\n" in told
    assert told.endswith(
        "\nfault: attention on cpu: varlen_attn() got an unexpected keyword argument"
        "\nfault: ranks of tiny: rank 0 of policy 0 is gone\n"
    )


def test_no_check_begins_that_may_outlast_the_budget(scripted, capsys):
    scripted(0.6)
    assert main(Arguments("cpu", budget=1.0, checks="one,long,lora")) == 0
    told = capsys.readouterr().out
    assert "| one | measured |" in told and "| long |" not in told
    assert "\nnot run: long of tiny: 0 s are left, and a check took 1 s\n" in told
    assert "\nnot run: lora of tiny: " in told
    assert told.endswith("\nall checks that ran passed\n")


# ---------------------------------------------------------------- what is measured


def test_attention_is_compared_with_plain_attention(monkeypatch):
    assert attention_error("cpu") < MAX_ERROR["cpu"]
    exact = attention.packed_attention

    def forgets_a_bound(*states, cu_seq_lens_q, **others):
        return exact(*states, cu_seq_lens_q=cu_seq_lens_q[[0, -1]], **others)

    monkeypatch.setattr(attention, "packed_attention", forgets_a_bound)
    assert attention_error("cpu") > 0.1


def test_operations_are_counted_by_weights_tokens_and_pairs_of_tokens():
    # A head of 2 x 3 weights and 10 others.
    shape = ModelShape(16, 1, 3, 0, 0, 2)
    assert model_flops(shape, [a_sample(1, 1)]) == 6 * 10 * 2 + 6 * 6 * 1 + 6 * 3 * 2**2 == 228
    two = [a_sample(1, 1), a_sample(2, 2)]
    assert model_flops(shape, two) == 228 + 6 * 40 + 6 * 12 + 6 * 3 * 16


@pytest.fixture
def nvidia_smi(tmp_path, monkeypatch):
    """The program that takes the place of the real one; write a shell script into it."""
    program = tmp_path / "nvidia-smi"
    program.touch(mode=0o700)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return program


def test_the_fullest_usable_gpu_counts(nvidia_smi, monkeypatch):
    answers = 'case "$*" in *--id=1,2*) echo 30; echo 20;; *) echo 90; echo 30; echo 20;; esac'
    nvidia_smi.write_text(f"#!/bin/sh\n{answers}\n")
    assert gpu_bytes() == 90 << 20
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,2")
    assert gpu_bytes() == 30 << 20


def test_without_a_working_nvidia_smi_one_line_says_so(nvidia_smi, monkeypatch, capsys):
    one_gpu = Gpus(driver="580.65.06", num_listed=1, num_usable=1, cuda=13)
    monkeypatch.setattr(run, "read_gpus", lambda: one_gpu)
    nvidia_smi.write_text("#!/bin/sh\nexit 9\n")
    assert main(Arguments()) == 2
    monkeypatch.setenv("PATH", str(nvidia_smi.parent / "empty"))
    assert main(Arguments()) == 2
    for line in capsys.readouterr().err.splitlines():
        assert line.startswith("error: ") and "nvidia-smi, which does not work" in line


# ---------------------------------------------------------------- what is a fault


def found(*mismatches: float, moved: float = 0.5) -> Found:
    stats = [{0: SimpleNamespace(mismatch_mean=mismatch)} for mismatch in mismatches]
    return Found(stats=stats, moved=[moved])


def started_again(num: int) -> Recoveries:
    recoveries = Recoveries(num)
    for _ in range(num):
        recoveries.count("engine", LostEngineError("gone"))
    return recoveries


LONG = society_config(CHECKS["long"], SIZES["tiny"], device="cpu")  # 768 / 2 tokens


@pytest.mark.parametrize(
    ("faults", "said"),
    [
        (found(0.004, 0.006).all_faults(), []),
        (found(0.004, 0.5).all_faults(), ["policy and engine differ by 0.5000 a token in step 2"]),
        (found(nan).all_faults(), ["policy and engine differ by nan a token in step 1"]),
        (found(0.0, moved=0.001).all_faults(), ["an update changed a log-prob by 0.0010 only"]),
        (resume_faults([0.5, 0.9], [0.505, 0.895]), []),
        (
            resume_faults([0.5, 0.9], [0.5, 0.6]),  # the optimiser has forgotten
            ["update 4 moved a log-prob by 0.9000, and by 0.6000 after a resume"],
        ),
        (
            resume_faults([0.5, 0.9], [nan, 0.9]),
            ["update 3 moved a log-prob by 0.5000, and by nan after a resume"],
        ),
        (recovery_faults(started_again(1)), []),
        (recovery_faults(started_again(0)), ["one engine was killed, and 0 started again"]),
        (long_faults({0: [a_sample(300, 85)]}, LONG), []),
        (
            long_faults({0: [a_sample(300, 84)]}, LONG),
            ["the longest sample has 384 tokens of 384"],
        ),
    ],
)
def test_what_is_a_fault(faults, said):
    assert faults == said


@pytest.mark.stack
@pytest.mark.slow
def test_agents_take_the_same_steps_on_a_cpu():
    """All checks but nccl, which needs GPUs: each starts a society of its own."""
    result = shell("device=cpu", f"python={sys.executable}")
    assert result.returncode == 0, result.stdout + result.stderr
    for name in CHECKS.keys() - {"nccl"}:
        assert f"\n| {name} | tiny | {'3' if name == 'zero3' else '0'} | " in result.stdout
    assert result.stdout.endswith("all checks that ran passed\n")
