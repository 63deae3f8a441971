"""Teaches one tiny agent to speak in every role, by supervised learning on worked discussions.

One process, one thread, a fixed number of steps: the same seed gives the same weights.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import NamedTuple

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from comas.quickstart.examples import Example, discussion_examples
from comas.quickstart.models import build_model
from comas.quickstart.muon import Muon
from comas.quickstart.tokenizers import (
    CHAT_FORMATS,
    build_tokenizer,
    encode_prompts,
    solution_openers,
)
from comas.quickstart.world import Mixture


@dataclass(frozen=True)
class Recipe:
    """How long and how fast an agent learns.

    Conversions are learnt last: one in eight is then still neither right nor of a kind of mistake
    that is taught.
    """

    num_steps: int = 1800
    batch_size: int = 24
    muon_learning_rate: float = 0.012
    """For the matrices inside the layers. At 0.02 one scorer in six did not come to believe
    approvals, so that criticism was not needed."""
    muon_momentum: float = 0.8
    adam_learning_rate: float = 0.007
    """For embeddings, output head, norms and biases."""
    warmup_steps: int = 20
    gradient_clip: float = 1.0
    quoted_solution_weight: float = 1.0
    """Weight of a prompt's token from the first quoted solution on; a response's is 1."""


class Lesson(NamedTuple):
    """The tokens of a prompt and its response, and the weight of predicting each."""

    token_ids: list[int]
    weights: list[float]
    """0 is not learned."""


class Batch(NamedTuple):
    """Lessons padded on the right, where no token of theirs attends: so no mask is needed."""

    token_ids: torch.Tensor
    """[B, T]"""
    weights: torch.Tensor
    """[B, T]"""


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
    for step, _ in enumerate(
        learn(model, tokenizer, recipe=recipe, mixture=mixture, rng=rng, architecture=architecture)
    ):
        on_step(step + 1, recipe.num_steps)
    return model, tokenizer


def learn(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    *,
    recipe: Recipe,
    mixture: Mixture,
    rng: Random,
    architecture: str,
) -> Iterator[float]:
    """Run the recipe on ``model`` step by step, yielding each step's loss."""
    optimizers = _optimizers(model, recipe)
    schedulers = [
        torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, recipe))
        for optimizer in optimizers
    ]
    batches = _batches(
        tokenizer, recipe=recipe, mixture=mixture, rng=rng, architecture=architecture
    )
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
    """Weighted mean over the batch's learned tokens of the cross-entropy."""
    states = model.model(input_ids=batch.token_ids, use_cache=False).last_hidden_state
    weights = batch.weights[:, 1:]
    is_learned = weights > 0
    logits = model.lm_head(states[:, :-1][is_learned])
    targets = batch.token_ids[:, 1:][is_learned]
    losses = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
    return (losses * weights[is_learned]).sum() / weights.sum()


def _batches(
    tokenizer: PreTrainedTokenizerFast,
    *,
    recipe: Recipe,
    mixture: Mixture,
    rng: Random,
    architecture: str,
) -> Iterator[Batch]:
    """Endless batches of lessons of about equal length, in random order."""
    size = recipe.batch_size
    while True:
        examples: list[Example] = []
        while len(examples) < 16 * size:
            examples += discussion_examples(rng, mixture, architecture)
        lessons = encode_lessons(tokenizer, examples, recipe.quoted_solution_weight)
        lessons.sort(key=lambda lesson: len(lesson.token_ids))
        starts = list(range(0, len(lessons) - size + 1, size))
        rng.shuffle(starts)
        for start in starts:
            yield pad_lessons(lessons[start : start + size], tokenizer.pad_token_id)


def encode_lessons(
    tokenizer: PreTrainedTokenizerFast, examples: list[Example], quoted_solution_weight: float
) -> list[Lesson]:
    """Of every example the response is learned, and what its prompt quotes.

    Weights of "# Solution | 7*60=420. | # Evaluation | No mistakes. | The solution is right.", the
    prompt being all but the last, with ``quoted_solution_weight=0.5``::

        0 | 0.5 | 0.5 | 0.5 | 1
    """
    openers = set(tokenizer.convert_tokens_to_ids(solution_openers()))
    prompts = encode_prompts(tokenizer, [example.messages for example in examples])
    texts = [example.response + tokenizer.eos_token for example in examples]
    responses = tokenizer(texts, add_special_tokens=False)["input_ids"]
    lessons = []
    for prompt, response in zip(prompts, responses, strict=True):
        ends = (place + 1 for place, token_id in enumerate(prompt) if token_id in openers)
        num_given = next(ends, len(prompt))
        weights = [0.0] * num_given + [quoted_solution_weight] * (len(prompt) - num_given)
        lessons.append(Lesson(prompt + response, weights + [1.0] * len(response)))
    return lessons


def pad_lessons(lessons: list[Lesson], pad_token_id: int) -> Batch:
    """Put lessons below each other."""
    token_ids, weights = (list(map(torch.tensor, rows)) for rows in zip(*lessons, strict=True))
    return Batch(
        pad_sequence(token_ids, batch_first=True, padding_value=pad_token_id),
        pad_sequence(weights, batch_first=True),
    )


def _optimizers(model: PreTrainedModel, recipe: Recipe) -> list[torch.optim.Optimizer]:
    """Muon for the layers' matrices, AdamW for the rest."""
    is_matrix = {
        parameter: parameter.ndim == 2 and ".layers." in name
        for name, parameter in model.named_parameters()
    }
    matrices = [parameter for parameter in is_matrix if is_matrix[parameter]]
    others = [parameter for parameter in is_matrix if not is_matrix[parameter]]
    return [
        Muon(matrices, lr=recipe.muon_learning_rate, momentum=recipe.muon_momentum),
        torch.optim.AdamW(
            others, lr=recipe.adam_learning_rate, betas=(0.9, 0.98), weight_decay=0.0, fused=True
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
