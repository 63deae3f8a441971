"""Which types of models can be trained and served: ``python tests/model_matrix.py [TYPE ...]``.

A tiny random model of each type is trained for two steps on a CPU. Then vLLM serves it in float32,
before the update and after it (with weights sent as in a run), and the log-probs of its samples are
compared with the policy's. Writes ``results/model_types.md``.
"""

import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from comas.config.schema import Optimization, Policy, ReinforcePP, Rollout
from comas.engines.policy.deepspeed_options import process_environment
from comas.engines.rollout.vllm_options import engine_arguments, engine_environment
from comas.types import TrainingSample
from comas.utils.model_folder import has_recurrent_layers, without_weights

REPORT = Path(__file__).parents[1] / "results/model_types.md"
TYPES = (
    "qwen2 qwen3 qwen3_moe qwen3_next qwen3_5_text qwen3_5_moe_text llama mistral mixtral gemma "
    "gemma2 gemma3_text gemma4_text gpt_oss olmo2 olmo3 phi3 granite cohere2 glm4 smollm3 gpt2 "
    "starcoder2 deepseek_v3 bloom mamba2 lfm2 phimoe bert t5"
)
LIMIT = 1e-4
"""The most by which log-probs of float32 models may differ."""
POLICY = Policy(
    ranks_per_policy=1, dtype="float32", zero_stage=0, adam_offload=False, micro_batch_tokens=200
)
ROLLOUT = Rollout(
    dtype="float32",
    max_prompt_tokens=128,
    max_response_tokens=64,
    max_num_seqs=8,
    cpu_kv_cache_mib=64,
)
PROMPTS = [[*range(3 + i, 60 + 20 * i)] for i in range(3)]
"""Longer than the sliding windows."""
LONGEST = 70
"""Characters of a refusal."""


def in_short(error: BaseException, work: Path) -> str:
    """The beginning of an error, without paths."""
    said = " ".join(str(error).split()).replace(f"{work}/base ", "").replace("|", "/")
    said = f"{type(error).__name__}: {said}"
    return said if len(said) <= LONGEST else f"{said[:LONGEST]}..."


def update(model_type: str, work: Path) -> dict[str, Any]:
    """Train a model for two steps; writes ``work/base``, ``work/trained`` and ``work/sent``."""
    from model_types import save_model_type, tiny_config
    from safetensors.torch import save_file

    from comas.engines.policy.trainer import PolicyTrainer

    tiny_config(model_type).save_pretrained(work / "config")
    without_weights(str(work / "config"))
    base = save_model_type(work / "base", model_type)
    trainer = PolicyTrainer(
        str(base),
        policy=POLICY,
        algorithm=ReinforcePP(kl_coef=0.1),
        optimization=Optimization(learning_rate=1e-3, warmup_steps=0),
        temperature=1.0,
        max_response_tokens=64,
        max_model_len=ROLLOUT.max_model_len,
        device="cpu",
        rank=0,
        world_size=1,
        rendezvous=work.parent / "rendezvous",
        seed=0,
    )
    samples = [
        TrainingSample(*(0, f"q{i}", "d", f"r0.s{i}", 0, "solution"), p, r, [-5.0] * len(r), i / 3)
        for i, (p, r) in enumerate((p, list(reversed(p))[: 10 + i]) for i, p in enumerate(PROMPTS))
    ]
    before = trainer._logprobs(trainer._engine, samples)[0]
    stats = [trainer.update(samples, step=step) for step in range(2)]
    moved = (trainer._logprobs(trainer._engine, samples)[0] - before).abs().max().item()
    assert all(each.num_optimizer_steps == 1 for each in stats) and moved > 1e-3, (stats, moved)
    trainer.save_model(work / "trained")
    save_file({name: w.clone() for name, w in trainer.named_weights()}, work / "sent")
    return {"update": "padded" if trainer._engine.module.pads else "packed"}


class Calls:
    """Client of a weight update for an engine of this process."""

    def __init__(self, llm: Any) -> None:
        self._llm = llm

    def __getattr__(self, name: str) -> Callable[..., None]:
        keys = {"init_weight_transfer_engine": "init_info", "update_weights": "update_info"}
        return lambda *a: self._llm.collective_rpc(name, kwargs={keys[name]: a[0]} if a else {})


def serve(model_type: str, work: Path) -> dict[str, Any]:
    """Sample by vLLM before the update and after it; writes ``work/before`` and ``work/after``."""
    from safetensors.torch import load_file
    from vllm import LLM
    from vllm.distributed import cleanup_dist_env_and_memory

    from comas.engines.rollout.cpu.shared_weights import send_in_memory

    llm = LLM(
        **engine_arguments(
            str(work / "base"),
            rollout=ROLLOUT,
            device="cpu",
            weight_transfer="shared_memory",
            seed=0,
            is_recurrent=has_recurrent_layers(work / "base"),
        )
    )
    try:
        sample(llm, work / "before")
        sent = load_file(work / "sent")
        Calls(llm).init_weight_transfer_engine({})
        send_in_memory(Calls(llm), sent.items(), is_first=True)
        llm.reset_prefix_cache()
        sample(llm, work / "after")
    finally:
        llm.llm_engine.engine_core.shutdown()
        del llm
        cleanup_dist_env_and_memory()
    return {}


def sample(llm: Any, path: Path) -> None:
    """Write the tokens that ``llm`` samples after each prompt, and their log-probs."""
    from vllm import SamplingParams
    from vllm.inputs import TokensPrompt

    params = [
        SamplingParams(temperature=1.0, seed=i, max_tokens=64, logprobs=0, ignore_eos=True)
        for i in range(len(PROMPTS))
    ]
    outputs = llm.generate([TokensPrompt(prompt_token_ids=p) for p in PROMPTS], params)
    said = []
    for output in outputs:
        ids = list(output.outputs[0].token_ids)
        pairs = zip(output.outputs[0].logprobs, ids, strict=True)
        said.append((ids, [each[token].logprob for each, token in pairs]))
    path.write_text(json.dumps(said))


def compare(_: str, work: Path) -> dict[str, Any]:
    """Return the largest differences between the policy's and vLLM's log-probs of vLLM's samples.
    (Not in vLLM's process, which changes classes of transformers.)"""
    import torch

    from comas.engines.policy.loading import load_response_model
    from comas.policy_optimization.batching import assemble, rollout_logprobs

    found = {}
    for name, folder in (("before", "base"), ("after", "trained")):
        if not (work / name).exists():
            continue
        place = (0, "q", "d", "r0.s0", 0, "solution")
        said = json.loads((work / name).read_text())
        samples = [
            TrainingSample(*place, prompt, ids, logprobs, 0.0)
            for prompt, (ids, logprobs) in zip(PROMPTS, said, strict=True)
        ]
        model = load_response_model(
            work / folder, POLICY, max_model_len=ROLLOUT.max_model_len
        ).eval()
        with torch.no_grad():
            exact, _entropies = model(assemble(samples, device=torch.device("cpu")))
        found[name] = (exact - rollout_logprobs(samples)).abs().max().item()
    return found


PHASES = {"update": update, "serve": serve, "compare": compare}


def run_phase(phase: str, types: list[str], work: Path) -> None:
    """Run a phase for all types, and write the results after each."""
    found_path = work / "found.json"
    found = json.loads(found_path.read_text()) if found_path.exists() else {}
    for model_type in types:
        row = found.setdefault(model_type, {})
        if phase != "update" and "update" not in row:
            continue
        try:
            row |= PHASES[phase](model_type, work / model_type)
        except Exception as error:  # each model may fail in its own way, and is reported
            traceback.print_exc()
            side = "rollout" if phase == "serve" else "policy"
            row[f"refused by the {side}"] = in_short(error, work / model_type)
        print(model_type, row, flush=True)
        found_path.write_text(json.dumps(found))


def report(found: dict[str, dict[str, Any]]) -> str:
    """The table, in Markdown."""
    lines = [
        "# Types of models",
        "",
        "Written by `python tests/model_matrix.py`, which says what the columns mean.",
        "",
        "| model type | trained | before | after | refused |",
        "|---|---|---|---|---|",
    ]
    for model_type, row in found.items():
        numbers = (f"{row[key]:.0e}" if key in row else "" for key in ("before", "after"))
        refusals = [
            f"{k.removeprefix('refused by the ')}: {v}" for k, v in row.items() if "refused" in k
        ]
        cells = [model_type, row.get("update", "no"), *numbers, "; ".join(refusals)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main(types: list[str]) -> int:
    """Return 1 if log-probs differ by more than the limit."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        for phase, environment in (
            ("update", process_environment("cpu", threads=1)),
            ("serve", engine_environment("cpu")),
            ("compare", {}),
        ):
            command = [sys.executable, __file__, f"--{phase}", str(work), *types]
            subprocess.run(command, env=os.environ | environment, check=False)
        found = json.loads((work / "found.json").read_text())
    text = report(found)
    if types == TYPES.split():
        REPORT.write_text(text)
    print(text)
    numbers = [row[key] for row in found.values() for key in ("before", "after") if key in row]
    return int(max(numbers) > LIMIT)


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1].startswith("--"):
        phase, work, *asked = sys.argv[1:]
        run_phase(phase.removeprefix("--"), asked, Path(work))
    else:
        sys.exit(main(sys.argv[1:] or TYPES.split()))
