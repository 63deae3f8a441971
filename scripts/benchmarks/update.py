"""The policy update against a bare padded PyTorch loop on the same samples.

The same buffer, model, loss and optimiser, one thread each, in one process and in turns:

  trainer            ``PolicyTrainer``: micro batches by cost, samples in one row
  bare, N tokens     transformers and AdamW alone: micro batches padded to N tokens, all logits

Lengths are drawn like those of a quick-start step.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from comas.config.schema import Optimization, Policy, ReinforcePP
from comas.types import TrainingSample
from scripts.benchmarks._turns import Ratio, Repeated, Report, Way, timed_with_memory
from scripts.command import read_arguments
from scripts.random_models import qwen2_config, save_random_model

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

    from comas.engines.policy.trainer import PolicyTrainer

VOCABULARY = 444
RESPONSE_TOKENS = (2, 2, 4, 4, 5, 7, 14, 16, 27)
BARE_TOKENS = (8192, 2048)
"""Padded tokens of the bare loop's micro batches: as before packing, and the best of its own."""
LEARNING_RATE = 2e-4


@dataclass
class Arguments(Repeated):
    samples: int = 144
    repeats: int = 9


def main(arguments: Arguments) -> None:
    """Measure, and print the ratios."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)
    report, samples = Report(arguments), draw_samples(arguments.samples)
    with tempfile.TemporaryDirectory() as folder:
        trainer = start_trainer(Path(folder))
        ways: dict[str, Way] = {"trainer": lambda: trainer.update(samples, step=0)}
        for budget in BARE_TOKENS:
            loop = BareLoop(AutoModelForCausalLM.from_pretrained(folder), budget)
            ways[f"bare, {budget} tokens"] = partial(loop.update, samples)
        lengths = [_length(sample) for sample in samples]
        report.compare(
            f"{len(samples)} samples of {min(lengths)} to {max(lengths)} tokens, {sum(lengths)} in "
            f"all, {quickstart_policy().micro_batch_tokens} in a micro batch of the trainer, "
            "0.4 M parameters",
            ways,
            ratios=[
                Ratio("trainer", name, number)
                for name in list(ways)[1:]
                for number in ("seconds", "CPU seconds")
            ],
            measure=timed_with_memory,
        )
    report.end()


def start_trainer(folder: Path) -> PolicyTrainer:
    """One rank that trains a random model of the quick-start's shape (0.4 M parameters), saved in
    ``folder``."""
    from comas.engines.policy.trainer import PolicyTrainer

    config = qwen2_config(vocab_size=VOCABULARY, hidden_size=96, num_layers=3, num_heads=3)
    save_random_model(folder, config, has_tokenizer=False)
    return PolicyTrainer(
        str(folder),
        policy=quickstart_policy(),
        optimization=Optimization(
            learning_rate=LEARNING_RATE, warmup_steps=0, train_batch_size=None
        ),
        algorithm=ReinforcePP(),
        temperature=1.0,
        max_response_tokens=4096,
        device="cpu",
        rank=0,
        world_size=1,
        rendezvous=folder.absolute() / "rendezvous",
        seed=0,
    )


class BareLoop:
    """REINFORCE in plain PyTorch, with the padded micro batches that came before packing."""

    def __init__(self, model: PreTrainedModel, budget: int) -> None:
        import torch

        self._model = model.train()
        self._budget = budget
        self._optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, fused=True)

    def update(self, samples: Sequence[TrainingSample]) -> None:
        """One optimiser step on all samples."""
        import torch

        num_tokens = sum(len(sample.response_token_ids) for sample in samples)
        mean = sum(sample.reward for sample in samples) / len(samples)
        for batch in self._micro_batches(samples):
            loss = -(self._logprobs(batch) * torch.tensor([[s.reward - mean] for s in batch])).sum()
            (loss / num_tokens).backward()
        torch.nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
        self._optimizer.step()
        self._optimizer.zero_grad()

    def _micro_batches(self, samples: Sequence[TrainingSample]) -> list[list[TrainingSample]]:
        batches: list[list[TrainingSample]] = []
        for sample in sorted(samples, key=lambda sample: -_length(sample)):
            if batches and (len(batches[-1]) + 1) * _length(batches[-1][0]) <= self._budget:
                batches[-1].append(sample)
            else:
                batches.append([sample])
        return batches

    def _logprobs(self, batch: Sequence[TrainingSample]) -> torch.Tensor:
        """[B, L - 1], 0 where no response token is predicted."""
        import torch
        from torch.nn.utils.rnn import pad_sequence

        rows = [torch.tensor([*s.prompt_token_ids, *s.response_token_ids]) for s in batch]
        input_ids = pad_sequence(rows, batch_first=True)
        logprobs = self._model(input_ids=input_ids, use_cache=False).logits[:, :-1].log_softmax(-1)
        predicted = torch.zeros(input_ids.shape)
        for row, sample in enumerate(batch):
            predicted[row, len(sample.prompt_token_ids) : _length(sample)] = 1
        return logprobs.gather(2, input_ids[:, 1:, None])[..., 0] * predicted[:, 1:]


def draw_samples(count: int) -> list[TrainingSample]:
    """Random samples, with lengths as in a quick-start step."""
    draw = random.Random(0)

    def tokens(length: int) -> tuple[int, ...]:
        return tuple(draw.randrange(VOCABULARY) for _ in range(length))

    samples = []
    for i in range(count):
        prompt = round(min(90, max(12, draw.lognormvariate(3.3, 0.45))))
        response = tokens(draw.choice(RESPONSE_TOKENS))
        logprobs = (-6.0,) * len(response)
        samples.append(
            TrainingSample(
                agent_index=0,
                question_id=f"q{i}",
                discussion_id="math",
                turn_id=f"r0.s{i}",
                round_index=0,
                role="solution",
                prompt_token_ids=tokens(prompt),
                response_token_ids=response,
                rollout_logprobs=logprobs,
                reward=draw.random(),
            )
        )
    return samples


def _length(sample: TrainingSample) -> int:
    return len(sample.prompt_token_ids) + len(sample.response_token_ids)


def quickstart_policy() -> Policy:
    """The policy's settings as the quick-start settles them on a CPU."""
    from comas.preflight.configuration import QUICKSTART_CONFIG, load_config

    return replace(load_config(QUICKSTART_CONFIG, []).policy, zero_stage=0, adam_offload=False)


if __name__ == "__main__":
    given = read_arguments(Arguments, about=__doc__ or "")
    os.environ["DS_ACCELERATOR"] = "cpu"
    main(given)
