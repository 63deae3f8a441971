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
from pathlib import Path
from typing import Any

import torch
from model_types import save_model_type, tiny_config
from safetensors.torch import load_file, save_file

from comas.config.schema import Config, Optimization, Policy, ReinforcePP, Rollout
from comas.engines.policy.model import load_response_model
from comas.engines.policy.trainer import PolicyTrainer
from comas.engines.rollout.vllm_options import engine_arguments, engine_environment
from comas.policy_optimization.batching import assemble, rollout_logprobs
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


def in_short(error: Exception, work: Path) -> str:
    """Return the beginning of an error, without paths."""
    said = " ".join(str(error).split()).replace(f"{work}/base ", "").replace("|", "/")
    said = f"{type(error).__name__}: {said}"
    return said if len(said) <= 70 else f"{said[:70]}..."


def samples_of(said: list[tuple[list[int], list[float]]]) -> list[TrainingSample]:
    return [
        TrainingSample(0, "q", "d", "r0.s0", 0, "solution", prompt, ids, logprobs, i / 3)
        for i, (prompt, (ids, logprobs)) in enumerate(zip(PROMPTS, said, strict=True))
    ]


def train(model_type: str, work: Path) -> str:
    """Train a model for two steps; write ``base``, ``trained`` and ``sent``; return how."""
    tiny_config(model_type).save_pretrained(work / "config")
    without_weights(str(work / "config"))
    config = Config(
        policy=POLICY,
        algorithm=ReinforcePP(kl_coef=0.1),
        optimization=Optimization(learning_rate=1e-3, warmup_steps=0),
        rollout=ROLLOUT,
    )
    base, rendezvous = save_model_type(work / "base", model_type), work.parent / "rendezvous"
    trainer = PolicyTrainer(str(base), config, device="cpu", rank=0, rendezvous=rendezvous)
    responses = [p[: -11 - i : -1] for i, p in enumerate(PROMPTS)]
    samples = samples_of([(response, [-5.0] * len(response)) for response in responses])
    before = trainer._logprobs(trainer._engine, samples)[0]
    stats = [trainer.update(samples, step=step) for step in range(2)]
    moved = (trainer._logprobs(trainer._engine, samples)[0] - before).abs().max().item()
    assert all(each.num_optimizer_steps == 1 for each in stats) and moved > 1e-3, (stats, moved)
    trainer.save_model(work / "trained")
    save_file({name: w.clone() for name, w in trainer.named_weights()}, work / "sent")
    return "padded" if trainer._engine.module.pads else "packed"


def serve(work: Path) -> None:
    """Sample by vLLM before the update and after it, or note why not, in ``said.json``. Runs in a
    process of its own, as vLLM changes classes of transformers."""
    from vllm import LLM, SamplingParams

    from comas.engines.rollout.cpu.shared_weights import send_in_memory
    from comas.engines.rollout.cpu.weights import check_layers, load_weights

    def sampled() -> list[tuple[list[int], list[float]]]:
        asked = {"temperature": 1.0, "max_tokens": 64, "logprobs": 0, "ignore_eos": True}
        params = [SamplingParams(seed=i, **asked) for i in range(len(PROMPTS))]
        prompts = [{"prompt_token_ids": prompt} for prompt in PROMPTS]
        outputs = [output.outputs[0] for output in llm.generate(prompts, params)]
        return [
            ([*o.token_ids], [lp[t].logprob for t, lp in zip(o.token_ids, o.logprobs, strict=True)])
            for o in outputs
        ]

    said: dict[str, Any] = {}
    options = {"device": "cpu", "weight_transfer": "shared_memory", "seed": 0}
    options["is_recurrent"] = has_recurrent_layers(work / "base")
    try:
        llm = LLM(**engine_arguments(str(work / "base"), rollout=ROLLOUT, **options))
        said["before"] = sampled()
        llm.collective_rpc(check_layers)
        send_in_memory(
            lambda path: llm.collective_rpc(load_weights, kwargs={"path": path}),
            load_file(work / "sent").items(),
            is_first=True,
        )
        llm.reset_prefix_cache()
        said["after"] = sampled()
    except Exception as error:  # each model may fail in its own way, and is reported
        said["refused"] = f"rollout: {in_short(error, work)}"
    (work / "said.json").write_text(json.dumps(said))


def row_of(model_type: str, work: Path) -> dict[str, Any]:
    """Return how a type was trained, the largest differences to vLLM's log-probs, and a refusal."""
    work.mkdir()
    row: dict[str, Any] = {}
    try:
        row["trained"] = train(model_type, work)
    except Exception as error:  # as above
        return {"trained": "no", "refused": f"policy: {in_short(error, work)}"}
    environment = os.environ | engine_environment("cpu")
    subprocess.run([sys.executable, __file__, "--serve", work], env=environment, check=False)
    said = json.loads((work / "said.json").read_text())
    for name, folder in (("before", "base"), ("after", "trained")):
        if name in said:
            samples, length = samples_of(said[name]), ROLLOUT.max_model_len
            model = load_response_model(work / folder, POLICY, max_model_len=length).eval()
            with torch.no_grad():
                exact, _entropies = model(assemble(samples, device=torch.device("cpu")))
            row[name] = (exact - rollout_logprobs(samples)).abs().max().item()
    return row | {"refused": said.get("refused", "")}


def main(types: list[str]) -> int:
    """Return 1 if log-probs differ by more than the limit."""
    with tempfile.TemporaryDirectory() as folder:
        rows = {name: row_of(name, Path(folder) / name) for name in types}
    text = "# Types of models\n\nWritten by `python tests/model_matrix.py`. *before*, *after*: "
    text += "largest log-prob difference around two updates.\n\n"
    text += "| model type | trained | before | after | refused |\n|---|---|---|---|---|\n"
    for name, row in rows.items():
        numbers = [f"{row[key]:.0e}" if key in row else "" for key in ("before", "after")]
        text += f"| {' | '.join([name, row['trained'], *numbers, row['refused']])} |\n"
    if types == TYPES.split():
        REPORT.write_text(text)
    print(text)
    found = [row.get(key, 0.0) for row in rows.values() for key in ("before", "after")]
    return int(max(found) > LIMIT)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(Path(sys.argv[2]))
    else:
        sys.exit(main(sys.argv[1:] or TYPES.split()))
