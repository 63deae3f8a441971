"""Base models taught from demonstrations in separate processes, kept in ``saves/cold_start``."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from comas.cold_start.demonstrations import Demonstration, Lesson, encode
from comas.config.schema import Config, Optimization
from comas.types import Device
from comas.utils.chat import ChatEncoder
from comas.utils.model_folder import contents_of, description_of, load_tokenizer

FOLDER = "cold_start"
NUM_EPOCHS = 2
MICRO_BATCH_TOKENS = 1024
"""Tokens per micro batch; a longer lesson has one of its own."""


def recipe(hidden_size: int) -> Optimization:
    """Return the optimiser settings for a model of this width. The learning rate falls with the
    width, as in the maximal update parametrisation (arXiv 2203.03466): 2e-5 at 2048 (3B)."""
    return Optimization(
        train_batch_size=16, learning_rate=0.04 / hidden_size, lr_schedule="linear", warmup_steps=5
    )


@dataclass(frozen=True)
class ColdStart:
    """A base model, its lessons, and the folder of the taught model."""

    base: str
    folder: str
    """``saves/cold_start/smollm2-1a2b3c4d5e6f``, which appears only when complete."""
    lessons: Sequence[Lesson]
    dtype: str
    seed: int
    max_model_len: int
    """Limit of the run's rollout engines, in tokens."""

    @property
    def is_done(self) -> bool:
        return Path(self.folder).is_dir()

    def __str__(self) -> str:
        if self.is_done:
            return f"taught before: {Path(self.folder).name}"
        num_tokens = sum(len(prompt) + len(response) for prompt, response in self.lessons)
        return f"taught at the start: {NUM_EPOCHS} x {num_tokens} tokens"


def plan_cold_start(
    config: Config, name: str, base: str, demonstrations: Sequence[Demonstration]
) -> ColdStart:
    """Return the cold start of the model ``name`` of ``society.models``, which is in ``base``.

    Its lessons cover the chat template arguments of all trained policies that begin with it. Its
    folder is named by a hash of all that affects the weights, so other runs can reuse it.

    Raises DataError that names every line that the model cannot learn.
    """
    folder = description_of(base)
    begun = [policy for policy in config.trained_policies if config.models[policy] == name]
    told = [config.chat_template_kwargs[policy] for policy in begun]
    lessons: list[Lesson] = []
    for kwargs in [each for i, each in enumerate(told) if each not in told[:i]]:
        encoder = ChatEncoder(load_tokenizer(folder), folder=folder, template_kwargs=kwargs)
        lessons += encode(demonstrations, encoder, config)
    decisive = {
        "base": contents_of(base, folder=folder),
        "lessons": lessons,
        "dtype": config.policy.dtype,
        "seed": config.seed,
        "recipe": [asdict(recipe(1)), NUM_EPOCHS, MICRO_BATCH_TOKENS],
        "versions": [version(package) for package in ("torch", "transformers", "tokenizers")],
    }
    max_model_len = config.rollout.max_model_len
    if "short_factor" in (folder / "config.json").read_text():
        decisive["max_model_len"] = max_model_len  # LongRoPE's frequencies depend on it
    digest = hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()
    taught = Path(config.saves, FOLDER, f"{Path(base).name}-{digest[:12]}").absolute()
    return ColdStart(base, str(taught), lessons, config.policy.dtype, config.seed, max_model_len)


def teach(cold_start: ColdStart, *, device: Device) -> None:
    """Make the folder of ``cold_start``, in a process that frees memory and GPU when it ends.
    Raises RuntimeError when it fails."""
    done = subprocess.run(
        [sys.executable, "-m", "comas.cold_start", device],
        input=json.dumps(asdict(cold_start)),
        text=True,
        cwd=Path(__file__).parents[2],
        # Spinning threads would be slow beside other processes, and without DS_ACCELERATOR,
        # DeepSpeed warns on every CPU.
        env={**os.environ, "OMP_WAIT_POLICY": "PASSIVE", "DS_ACCELERATOR": device},
        check=False,
        start_new_session=True,  # Ctrl-C reaches only this process, which then kills the other
    )
    if done.returncode != 0:
        why = "ended by signal 9, as when memory runs out" if done.returncode == -9 else "see above"
        raise RuntimeError(
            f"society.cold_start: {cold_start.base} could not be taught ({why}). It needs one "
            "device that holds the model with AdamW; where there is none, teach the model with "
            "another tool (TRL, for example), name the result in society.models, and set "
            "society.cold_start to null"
        )
