"""Draws the batch of each step and the held-out questions of each validation."""

import hashlib
import random
from collections.abc import Sequence

from comas.data.records import DataError
from comas.types import Question


def count_steps(
    num_questions: int, *, batch_size: int, num_epochs: int, num_steps: int | None
) -> int:
    """Return the rollout steps of a run: ``num_steps``, by default all full batches of all epochs.

    Example: 2000 questions in batches of 64 make 31 steps per epoch, as in the paper; the 16 unused
    ones differ between epochs. Raises DataError if there are fewer than one batch.
    """
    if num_questions < batch_size:
        raise DataError(
            f"data.train holds {num_questions} questions, fewer than rollout.batch_size = "
            f"{batch_size} of one step: set rollout.batch_size to {num_questions} or less, "
            "or give more questions"
        )
    return num_steps or num_epochs * (num_questions // batch_size)


def draw_batch(
    questions: Sequence[Question], *, step: int, batch_size: int, seed: int
) -> list[Question]:
    """Return the questions of a step (from 0): full batches of a permutation drawn from (seed,
    epoch). Example: 5 questions in batches of 2 make epochs of 2 steps; step 2 takes the first of
    epoch 1."""
    assert 0 < batch_size <= len(questions), "count_steps reports this to the user"
    epoch, batch = divmod(step, len(questions) // batch_size)
    order = list(range(len(questions)))
    random.Random(f"{seed}/epoch{epoch}").shuffle(order)
    return [questions[i] for i in order[batch * batch_size : (batch + 1) * batch_size]]


def fixed_subset(questions: Sequence[Question], num_questions: int | None) -> list[Question]:
    """Return ``num_questions`` (None: all) chosen by a hash of the id, so that they are the same
    for every seed and step; in the given order. Raises DataError if there are fewer."""
    if num_questions is None:
        return list(questions)
    if num_questions > len(questions):
        raise DataError(
            f"data.validation holds {len(questions)} questions, fewer than "
            f"validation.num_questions = {num_questions}: lower it, or write null for all"
        )
    ranked = sorted(questions, key=lambda q: hashlib.blake2b(q.question_id.encode()).digest())
    chosen = {question.question_id for question in ranked[:num_questions]}
    return [question for question in questions if question.question_id in chosen]
