"""A step without CoMAS: vLLM alone, and a plain PyTorch loop. Each is timed twice on the same
samples, in its own process; the second time counts."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from comas.config.schema import Config
from comas.engines.rollout.vllm_options import engine_arguments, engine_environment
from comas.types import Device, TrainingSample

NUM_ROUNDS = 2


def vllm_tokens_per_s(
    device: Device, model: str, samples: Sequence[TrainingSample], config: Config
) -> float:
    """Return the speed of vLLM's offline class on the samples' prompts, with a rollout engine's
    settings."""
    os.environ.update(engine_environment(device, threads=config.cluster.cpu_threads or 1))
    from vllm import LLM, SamplingParams, TokensPrompt

    arguments = engine_arguments(
        model,
        rollout=config.rollout,
        device=device,
        weight_transfer="ipc" if device == "cuda" else "shared_memory",
        seed=0,
    )
    llm = LLM(**arguments)
    prompts = [TokensPrompt(prompt_token_ids=list(s.prompt_token_ids)) for s in samples]
    most = config.rollout.longest_response
    for number in range(NUM_ROUNDS):
        params = [
            SamplingParams(seed=1000 * number + i, max_tokens=most, logprobs=0, detokenize=False)
            for i in range(len(prompts))
        ]
        llm.reset_prefix_cache()
        started = time.perf_counter()
        outputs = llm.generate(prompts, params, use_tqdm=False)
        seconds = time.perf_counter() - started
    return sum(len(output.outputs[0].token_ids) for output in outputs) / seconds


def plain_update_s(
    device: Device, model: str, samples: Sequence[TrainingSample], config: Config
) -> float:
    """Return the seconds of forward and backward passes over padded micro batches, of as many
    tokens as in an update, and one AdamW step on float32 weights, which are copied into a bfloat16
    model, as DeepSpeed does; on a CPU with the threads of a rank."""
    import torch
    from torch.nn.functional import cross_entropy
    from torch.nn.utils.rnn import pad_sequence
    from transformers import AutoModelForCausalLM

    if device == "cpu":
        torch.set_num_threads(config.cluster.cpu_threads or 1)
    dtype = getattr(torch, config.policy.dtype)
    policy = AutoModelForCausalLM.from_pretrained(model, dtype=dtype).to(device).train()
    weights = list(policy.parameters())
    exact = [weight.detach().float() for weight in weights]  # share memory if float32
    optimizer = torch.optim.AdamW(exact, lr=1e-6, fused=True)
    rows = [
        torch.tensor([*s.prompt_token_ids, *s.response_token_ids])
        for s in sorted(samples, key=lambda s: len(s.prompt_token_ids) + len(s.response_token_ids))
    ]
    batch_size = max(config.policy.micro_batch_tokens // len(rows[-1]), 1)
    for _ in range(NUM_ROUNDS):
        started = time.perf_counter()
        for first in range(0, len(rows), batch_size):
            ids = pad_sequence(rows[first : first + batch_size], batch_first=True, padding_value=-1)
            ids = ids.to(device)
            logits = policy(input_ids=ids.clamp_min(0), attention_mask=(ids >= 0).long()).logits
            flat = logits[:, :-1].flatten(0, 1).float()
            cross_entropy(flat, ids[:, 1:].flatten(), ignore_index=-1, reduction="sum").backward()
        for copy, weight in zip(exact, weights, strict=True):
            copy.grad, weight.grad = weight.grad.float(), None
        optimizer.step()
        for copy, weight in zip(exact, weights, strict=True) if dtype != torch.float32 else ():
            weight.data.copy_(copy)
        optimizer.zero_grad()
        weights[0][0, 0].item()  # synchronises
        seconds = time.perf_counter() - started
    return seconds
