"""Teaches one tiny agent every role by supervised learning on worked discussions.

One process, one thread and a fixed number of steps: the same seed gives the same weights.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import NamedTuple

import torch
from torch.nn.init import zeros_
from torch.nn.utils.rnn import pad_sequence
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)
from transformers.utils.logging import disable_progress_bar

from comas.quickstart.examples import Example, discussion_examples
from comas.quickstart.muon import Muon
from comas.quickstart.tokenizers import (
    CHAT_FORMATS,
    MAX_LENGTH,
    build_tokenizer,
    encode_prompts,
    solution_openers,
)
from comas.quickstart.world import VARIANTS, Mixture
from comas.utils.progress import progress_bar
from comas.utils.terminal import command

ARCHITECTURES = {
    "qwen2": (Qwen2Config, Qwen2ForCausalLM, True),
    "llama": (LlamaConfig, LlamaForCausalLM, False),
}
"""Name -> configuration class, model class, whether embeddings and output layer are tied."""


@dataclass(frozen=True)
class Recipe:
    """How long and how fast an agent learns. Conversions are learned last: in the end one in eight
    is neither right nor a taught mistake."""

    num_steps: int = 1800
    batch_size: int = 24
    muon_learning_rate: float = 0.012
    """Learning rate of the matrices in the layers. At 0.02 one scorer in six ignored approvals,
    which made criticism needless."""
    muon_momentum: float = 0.8
    adam_learning_rate: float = 0.007
    """Learning rate of embeddings, output layer, norms and biases."""
    warmup_steps: int = 20
    gradient_clip: float = 1.0


class Lesson(NamedTuple):
    """The tokens of a prompt and its response, and the loss weight of each."""

    token_ids: list[int]
    weights: list[float]
    """1 where learned, else 0."""


class Batch(NamedTuple):
    """Right-padded lessons; causal attention never reads the padding, so no mask is needed."""

    token_ids: torch.Tensor
    """[B, T]"""
    weights: torch.Tensor
    """[B, T]"""


def warm_start(
    name: str, *, seed: int, recipe: Recipe, bar_position: int = 0
) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """Make and teach one agent: an architecture, or a variant with other habits. Sets torch's
    global seed and number of threads, so one process teaches one agent."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    architecture = name.partition("_")[0]
    tokenizer = build_tokenizer(CHAT_FORMATS[architecture])
    model = build_model(architecture, tokenizer)
    batches = _batches(tokenizer, name, recipe.batch_size, Random(f"{seed}/{architecture}"))
    with progress_bar(
        f"teaching {name}", unit="step", total=recipe.num_steps, position=bar_position
    ) as bar:
        for _ in learn(model, batches, recipe):
            bar.update()
    return model, tokenizer


def build_model(architecture: str, tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
    """A tiny transformer of about 0.2 million random parameters, from torch's global generator.

    Heads are 32 wide, vLLM's minimum on CPU. At the usual initialisation of 0.02 so small a model
    takes several times as long to learn. Zero projections back to the residual stream make every
    layer begin as the identity, which saves steps, too.
    """
    config_class, model_class, is_tied = ARCHITECTURES[architecture]
    config = config_class(
        vocab_size=len(tokenizer),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        intermediate_size=256,
        max_position_embeddings=MAX_LENGTH,
        initializer_range=0.1,
        tie_word_embeddings=is_tied,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
    model = model_class(config)
    for layer in model.model.layers:
        zeros_(layer.self_attn.o_proj.weight)
        zeros_(layer.mlp.down_proj.weight)
    return model


def learn(model: PreTrainedModel, batches: Iterator[Batch], recipe: Recipe) -> Iterator[float]:
    """Train ``model`` by the recipe, yielding each step's loss."""
    optimizers = _optimizers(model, recipe)
    schedulers = [
        torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, recipe))
        for optimizer in optimizers
    ]
    model.train()
    for _ in range(recipe.num_steps):
        loss = batch_loss(model, next(batches))
        model.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.gradient_clip)
        for stage in (*optimizers, *schedulers):
            stage.step()
        yield loss.item()
    model.eval()


def batch_loss(model: PreTrainedModel, batch: Batch) -> torch.Tensor:
    """Weighted mean cross-entropy over the batch's learned tokens."""
    states = model.model(input_ids=batch.token_ids, use_cache=False).last_hidden_state
    weights = batch.weights[:, 1:]
    is_learned = weights > 0
    logits = model.lm_head(states[:, :-1][is_learned])
    targets = batch.token_ids[:, 1:][is_learned]
    losses = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
    return (losses * weights[is_learned]).sum() / weights.sum()


def _batches(
    tokenizer: PreTrainedTokenizerFast, name: str, size: int, rng: Random
) -> Iterator[Batch]:
    """Endless batches, in random order, of lessons of about equal length."""
    while True:
        examples: list[Example] = []
        while len(examples) < 16 * size:
            examples += discussion_examples(rng, Mixture(), name)
        lessons = encode_lessons(tokenizer, examples)
        lessons.sort(key=lambda lesson: len(lesson.token_ids))
        starts = list(range(0, len(lessons) - size + 1, size))
        rng.shuffle(starts)
        for start in starts:
            yield pad_lessons(lessons[start : start + size], tokenizer.pad_token_id)


def encode_lessons(tokenizer: PreTrainedTokenizerFast, examples: list[Example]) -> list[Lesson]:
    """Each response is learned, and its prompt from the first quoted solution on.

    Weights of "# Solution | 7*60=420. | # Evaluation | No mistakes. | The solution is right.", the
    prompt being all but the last::

        0 | 1 | 1 | 1 | 1
    """
    openers = set(tokenizer.convert_tokens_to_ids(solution_openers()))
    prompts = encode_prompts(tokenizer, [example.messages for example in examples])
    texts = [example.response + tokenizer.eos_token for example in examples]
    responses = tokenizer(texts, add_special_tokens=False)["input_ids"]
    lessons = []
    for prompt, response in zip(prompts, responses, strict=True):
        ends = (place + 1 for place, token_id in enumerate(prompt) if token_id in openers)
        num_given = next(ends, len(prompt))
        num_learned = len(prompt) + len(response) - num_given
        lessons.append(Lesson(prompt + response, [0.0] * num_given + [1.0] * num_learned))
    return lessons


def pad_lessons(lessons: list[Lesson], pad_token_id: int) -> Batch:
    """Stack lessons into a batch."""
    token_ids, weights = (list(map(torch.tensor, rows)) for rows in zip(*lessons, strict=True))
    return Batch(
        pad_sequence(token_ids, batch_first=True, padding_value=pad_token_id),
        pad_sequence(weights, batch_first=True),
    )


def _optimizers(model: PreTrainedModel, recipe: Recipe) -> list[torch.optim.Optimizer]:
    """Muon for the layers' matrices, AdamW for everything else."""
    matrices: list[torch.nn.Parameter] = []
    others: list[torch.nn.Parameter] = []
    for name, parameter in model.named_parameters():
        is_matrix = parameter.ndim == 2 and ".layers." in name
        (matrices if is_matrix else others).append(parameter)
    return [
        Muon(matrices, lr=recipe.muon_learning_rate, momentum=recipe.muon_momentum),
        torch.optim.AdamW(
            others, lr=recipe.adam_learning_rate, betas=(0.9, 0.98), weight_decay=0.0, fused=True
        ),
    ]


def _rate(step: int, recipe: Recipe) -> float:
    return min(1.0, (step + 1) / recipe.warmup_steps) * max(0.03, 1 - step / recipe.num_steps)


@command("comas")
def main() -> int:
    """Make one agent: tokenizer, random model, warm start."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=[*CHAT_FORMATS, *VARIANTS])
    parser.add_argument("folder", type=Path)
    parser.add_argument("seed", type=int)
    parser.add_argument("bar_position", type=int)
    given = parser.parse_args()
    disable_progress_bar()  # transformers' own
    model, tokenizer = warm_start(
        given.name, seed=given.seed, recipe=Recipe(), bar_position=given.bar_position
    )
    model.save_pretrained(given.folder)
    tokenizer.save_pretrained(given.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
