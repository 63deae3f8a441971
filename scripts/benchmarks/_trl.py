"""Trains one agent by TRL's GRPOTrainer for ``peers``: reads a JSON job, prints JSON times."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import Any

import torch
from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer


@dataclass(frozen=True)
class TrlTraining:
    """A training job."""

    model: str
    prompts: list[str]
    """Step after step, equally many in each."""
    num_steps: int
    num_generations: int
    """Responses to each prompt: a GRPO group."""
    micro_batch: int
    max_tokens: int
    temperature: float
    learning_rate: float
    kl_coef: float
    """Of the KL penalty to the base model."""


class StepTimes(TrainerCallback):
    """Seconds of each step: in total, until responses are rewarded, and from then on."""

    def __init__(self) -> None:
        self.steps: list[tuple[float, float, float]] = []

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Start timing."""
        self._start = time.perf_counter()

    def note_generated(self) -> None:
        """Record the end of generation."""
        self._generated = time.perf_counter()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Record the step's times."""
        end = time.perf_counter()
        times = end - self._start, self._generated - self._start, end - self._generated
        self.steps.append(times)


def train(job: TrlTraining) -> dict[str, Any]:
    """Return the times of every step, the mean tokens of a response, and the threads."""
    messages = [[{"role": "user", "content": prompt}] for prompt in job.prompts]
    samples_per_step = job.num_generations * len(messages) // job.num_steps
    lengths: list[int] = []
    times = StepTimes()

    def reward(completion_ids: list[list[int]], **_: Any) -> list[float]:
        times.note_generated()
        lengths.extend(map(len, completion_ids))
        return [float(len(ids)) for ids in completion_ids]

    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            model=job.model,
            reward_funcs=reward,
            train_dataset=Dataset.from_dict({"prompt": messages}),
            callbacks=[times],
            args=GRPOConfig(
                output_dir=folder,
                model_init_kwargs={"dtype": "float32"},
                use_cpu=True,
                bf16=False,
                per_device_train_batch_size=job.micro_batch,
                gradient_accumulation_steps=samples_per_step // job.micro_batch,
                num_generations=job.num_generations,
                max_completion_length=job.max_tokens,
                temperature=job.temperature,
                beta=job.kl_coef,
                max_steps=job.num_steps,
                learning_rate=job.learning_rate,
                gradient_checkpointing=False,
                shuffle_dataset=False,
                save_strategy="no",
                logging_strategy="no",
                report_to=[],
                disable_tqdm=True,
            ),
        )
        trainer.train()
    return {
        "steps": times.steps,
        "mean_tokens": sum(lengths) / len(lengths),
        "num_threads": torch.get_num_threads(),
    }


if __name__ == "__main__":
    result = train(TrlTraining(**json.load(sys.stdin)))
    sys.stdout.write("\n" + json.dumps(result) + "\n")
