"""Teaches one tiny agent to speak in every role, by supervised learning on worked discussions.

One process, one thread, a fixed number of steps: the same seed gives the same weights.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from comas.quickstart.models import build_model
from comas.quickstart.muon import Muon
from comas.quickstart.tokenizers import (
    CHAT_FORMATS,
    build_tokenizer,
    encode_prompts,
    solution_openers,
)
from comas.quickstart.worked import Example, Mixture, discussion_examples


@dataclass(frozen=True)
class Recipe:
    """How long and how fast an agent learns; below about 700 steps it cannot copy digits."""

    num_steps: int = 1500
    batch_size: int = 32
    muon_learning_rate: float = 0.02
    """For the matrices inside the layers."""
    adam_learning_rate: float = 3e-3
    """For embeddings, output head, norms and biases."""
    warmup_steps: int = 50
    gradient_clip: float = 1.0
    quoted_solution_weight: float = 0.5
    """Weight of a prompt's token from the first quoted solution on; a response's is 1."""


@dataclass(frozen=True)
class Batch:
    """Right-padded sequences of prompt and response."""

    token_ids: torch.Tensor
    """[B, T]"""
    attention_mask: torch.Tensor
    """[B, T], 1 where there is a token."""
    weights: torch.Tensor
    """[B, T], weight of predicting this token; 0 is not learned."""


def warm_start(
    architecture: str,
    *,
    seed: int,
    recipe: Recipe,
    mixture: Mixture,
    on_step: Callable[[int, int], None],
) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """Make one agent and teach it; ``on_step`` is told the steps done and their total.

    Sets torch's global seed and its number of threads: the process is this agent's alone.
    """
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    tokenizer = build_tokenizer(CHAT_FORMATS[architecture])
    model = build_model(architecture, tokenizer)
    rng = Random(f"{seed}/{architecture}")
    for step, _ in enumerate(learn(model, tokenizer, recipe=recipe, mixture=mixture, rng=rng)):
        on_step(step + 1, recipe.num_steps)
    return model, tokenizer


def learn(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    *,
    recipe: Recipe,
    mixture: Mixture,
    rng: Random,
) -> Iterator[float]:
    """Run the recipe on ``model`` step by step, yielding each step's loss."""
    optimizers = _optimizers(model, recipe)
    schedulers = [
        torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, recipe))
        for optimizer in optimizers
    ]
    batches = _batches(tokenizer, recipe=recipe, mixture=mixture, rng=rng)
    model.train()
    for _ in range(recipe.num_steps):
        loss = _loss(model, next(batches))
        model.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.gradient_clip)
        for stage in (*optimizers, *schedulers):
            stage.step()
        yield loss.item()
    model.eval()


def _loss(model: PreTrainedModel, batch: Batch) -> torch.Tensor:
    """Weighted mean over the batch's learned tokens of the cross-entropy."""
    states = model.model(
        input_ids=batch.token_ids, attention_mask=batch.attention_mask, use_cache=False
    ).last_hidden_state
    weights = batch.weights[:, 1:]
    is_learned = weights > 0
    logits = model.lm_head(states[:, :-1][is_learned])
    targets = batch.token_ids[:, 1:][is_learned]
    losses = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
    return (losses * weights[is_learned]).sum() / weights.sum()


def _batches(
    tokenizer: PreTrainedTokenizerFast, *, recipe: Recipe, mixture: Mixture, rng: Random
) -> Iterator[Batch]:
    """Endless batches of sequences of about equal length, in random order."""
    size = recipe.batch_size
    openers = torch.tensor(tokenizer.convert_tokens_to_ids(solution_openers()))
    while True:
        examples: list[Example] = []
        while len(examples) < 16 * size:
            examples += discussion_examples(rng, mixture)
        pairs = sorted(_encode(tokenizer, examples), key=lambda pair: sum(map(len, pair)))
        starts = list(range(0, len(pairs) - size + 1, size))
        rng.shuffle(starts)
        for start in starts:
            yield _collate(pairs[start : start + size], tokenizer, openers, recipe)


def _encode(
    tokenizer: PreTrainedTokenizerFast, examples: list[Example]
) -> list[tuple[list[int], list[int]]]:
    prompts = encode_prompts(tokenizer, [example.prompt for example in examples])
    texts = [example.response + tokenizer.eos_token for example in examples]
    responses = tokenizer(texts, add_special_tokens=False)["input_ids"]
    return list(zip(prompts, responses, strict=True))


def _collate(
    pairs: list[tuple[list[int], list[int]]],
    tokenizer: PreTrainedTokenizerFast,
    openers: torch.Tensor,
    recipe: Recipe,
) -> Batch:
    shape = len(pairs), max(len(prompt) + len(response) for prompt, response in pairs)
    token_ids = torch.full(shape, tokenizer.pad_token_id)
    attention_mask = torch.zeros(shape, dtype=torch.long)
    weights = torch.zeros(shape)
    for row, (prompt, response) in enumerate(pairs):
        end = len(prompt) + len(response)
        token_ids[row, :end] = torch.tensor(prompt + response)
        attention_mask[row, :end] = 1
        is_opener = torch.isin(token_ids[row, : len(prompt)], openers).long()
        is_quoted = is_opener.cumsum(0) > is_opener
        weights[row, : len(prompt)] = is_quoted * recipe.quoted_solution_weight
        weights[row, len(prompt) : end] = 1
    return Batch(token_ids, attention_mask, weights)


def _optimizers(model: PreTrainedModel, recipe: Recipe) -> list[torch.optim.Optimizer]:
    """Muon for the layers' matrices, AdamW for the rest."""
    is_matrix = {
        parameter: parameter.ndim == 2 and ".layers." in name
        for name, parameter in model.named_parameters()
    }
    matrices = [parameter for parameter in is_matrix if is_matrix[parameter]]
    others = [parameter for parameter in is_matrix if not is_matrix[parameter]]
    return [
        Muon(matrices, lr=recipe.muon_learning_rate),
        torch.optim.AdamW(
            others, lr=recipe.adam_learning_rate, betas=(0.9, 0.98), weight_decay=0.0
        ),
    ]


def _rate(step: int, recipe: Recipe) -> float:
    """Linear warm-up, then linear decay to almost nothing."""
    return min(1.0, (step + 1) / recipe.warmup_steps) * max(0.03, 1 - step / recipe.num_steps)


def _report(num_done: int, total: int) -> None:
    sys.stdout.write(f"{num_done}/{total}\n")
    sys.stdout.flush()


def main() -> None:
    """Make one agent: tokenizer, random model, warm start; progress goes to stdout."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("architecture", choices=CHAT_FORMATS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("seed", type=int)
    arguments = parser.parse_args()
    model, tokenizer = warm_start(
        arguments.architecture,
        seed=arguments.seed,
        recipe=Recipe(),
        mixture=Mixture(),
        on_step=_report,
    )
    model.save_pretrained(arguments.folder)
    tokenizer.save_pretrained(arguments.folder)


if __name__ == "__main__":
    main()
