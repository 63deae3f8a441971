"""The process that teaches one model: ``python -m comas.cold_start cpu`` (or cuda), with a
``ColdStart`` as JSON on its standard input."""

import json
import logging
import math
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import torch
from transformers.utils.logging import disable_progress_bar

from comas.cold_start.demonstrations import Lesson
from comas.cold_start.teaching import MICRO_BATCH_TOKENS, NUM_EPOCHS, ColdStart, recipe
from comas.config.schema import Policy
from comas.engines.policy.model import ResponseModel, load_response_model
from comas.engines.policy.multiplying import multiply_by_onednn
from comas.engines.policy.optimizers import adamw, create_schedule
from comas.policy_optimization.balancing import divide_samples
from comas.policy_optimization.batching import assemble, split_into_steps
from comas.utils.files import PARTIAL, from_here, locked, remove, written_aside
from comas.utils.model_folder import CARD, describe_as, folder_of
from comas.utils.progress import progress_bar
from comas.utils.terminal import command

log = logging.getLogger("comas.cold_start")


@command("comas")
def main() -> int:
    """Teach the model, unless another process has just done so; returns the exit status."""
    said = json.load(sys.stdin)
    cold_start = ColdStart(**{**said, "lessons": [Lesson(*each) for each in said["lessons"]]})
    shelf = Path(cold_start.folder).parent
    with locked(shelf, remedy="it teaches one model at a time", waits=True):
        # Only the holder of the lock writes here, so these are leftovers of killed processes.
        for leftover in shelf.glob(f"{PARTIAL}*"):
            remove(leftover)
        if not cold_start.is_done:
            teach(cold_start, device=torch.device(sys.argv[1]))
    return 0


def teach(cold_start: ColdStart, *, device: torch.device) -> None:
    """Teach the model and write it, with its card, into its folder."""
    disable_progress_bar()  # transformers' own
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.manual_seed(cold_start.seed)
    base = folder_of(cold_start.base)
    model = load_response_model(
        base, Policy(dtype="float32"), max_model_len=cold_start.max_model_len
    ).to(device)
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")  # TF32
    elif not model.pads:
        multiply_by_onednn(model.language_model)
    losses = []
    num_steps = NUM_EPOCHS * len(_steps(cold_start.lessons, Random(0)))
    with progress_bar(
        f"teaching {Path(cold_start.base).name}", unit="step", total=num_steps
    ) as bar:
        for loss in learn(model, cold_start.lessons, seed=cold_start.seed):
            losses.append(loss)
            bar.set_postfix_str(f"loss {loss:.2f}")
            bar.update()
    with written_aside(Path(cold_start.folder)) as folder:
        model.language_model.to(getattr(torch, cold_start.dtype)).save_pretrained(folder)
        describe_as(base, folder)
        if (base / CARD).is_file():
            shutil.copyfile(base / CARD, folder / CARD)
    log.info(
        "taught %s by %d demonstrations: the loss of a response token was %.2f in the first of %d "
        "steps and is %.2f in the last",
        *(from_here(Path(cold_start.base)), len(cold_start.lessons)),
        *(losses[0], len(losses), losses[-1]),
    )


def learn(model: ResponseModel, lessons: Sequence[Lesson], *, seed: int) -> Iterator[float]:
    """Train on all lessons for ``NUM_EPOCHS``, shuffled; yields each step's loss, minus the mean
    log-prob of its response tokens. Raises RuntimeError when it is not finite."""
    language_model = model.language_model
    settings = recipe(language_model.config.get_text_config().hidden_size)
    rng = Random(seed)
    steps = [step for _ in range(NUM_EPOCHS) for step in _steps(lessons, rng)]
    optimizer = adamw(dict(language_model.named_parameters()), settings)
    schedule = create_schedule(optimizer, settings, num_steps=len(steps))
    model.train()
    if max(len(prompt) + len(response) for prompt, response in lessons) > MICRO_BATCH_TOKENS:
        language_model.gradient_checkpointing_enable({"use_reentrant": False})
    for step in steps:
        loss = _backward(model, [lessons[i] for i in step])
        if not math.isfinite(loss):
            raise RuntimeError("the loss is not finite")
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings.max_grad_norm)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        yield loss


def _backward(model: ResponseModel, lessons: Sequence[Lesson]) -> float:
    """Accumulate the gradient of the mean loss over all response tokens; returns that loss."""
    num_tokens = sum(len(lesson.response_token_ids) for lesson in lessons)
    total = 0.0
    [micro_batches] = divide_samples(
        lessons, micro_batch_tokens=MICRO_BATCH_TOKENS, num_ranks=1, pads=model.pads
    )
    for micro in micro_batches:
        logprobs, _ = model(assemble([lessons[i] for i in micro], device=model.head.weight.device))
        loss = -logprobs.sum() / num_tokens
        loss.backward()
        total += loss.item()
    return total


def _steps(lessons: Sequence[Lesson], rng: Random) -> list[list[int]]:
    return split_into_steps(len(lessons), train_batch_size=recipe(1).train_batch_size, rng=rng)


if __name__ == "__main__":
    sys.exit(main())
