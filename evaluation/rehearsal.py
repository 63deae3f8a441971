"""What a setup would say to the models, found out before anything is started."""

import asyncio
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from comas.config.plugins import blaming_plugins
from comas.types import Message
from comas.utils.chat import template_fault
from comas.utils.model_folder import load_tokenizer
from evaluation.client import with_system_prompt
from evaluation.models import LocalModel, Target
from evaluation.types import BenchmarkTask, Setup


class _Rehearsal:
    """Answers each call with its label, and keeps what was said to whom."""

    def __init__(self, num_models: int) -> None:
        self.num_models = num_models
        self.chats: list[tuple[int, Sequence[Message]]] = []

    async def __call__(self, messages: Sequence[Message], *, label: str, speaker: int = 0) -> str:
        self.chats.append((speaker % self.num_models, messages))
        return label


def rehearse(
    setup: Setup, task: BenchmarkTask, *, num_models: int
) -> list[tuple[int, Sequence[Message]]]:
    """All calls of a setup for a task if nobody ends a conversation early: the index of the model
    that is asked, and the chat."""
    rehearsal = _Rehearsal(num_models)
    with blaming_plugins():
        answering: Any = setup.flow(task, rehearsal)
        if not isinstance(answering, Coroutine):
            raise ValueError(
                f"setups: the flow of {setup} returned {type(answering).__name__}, which cannot be "
                "awaited; begin it with async def"
            )
        asyncio.run(answering)
    return rehearsal.chats


def template_faults(
    setups: Mapping[str, Setup], task: BenchmarkTask, *, target: Target
) -> dict[str, str]:
    """Of each setup that says what a chat template does not take: of which model, and why not.

    What endpoints take is only seen when they are asked.
    """
    tokenizer_of = cache(load_tokenizer)

    def faults_of(setup: Setup) -> Iterator[str]:
        for indices in target.subjects.values():
            for speaker, chat in rehearse(setup, task, num_models=len(indices)):
                model = target.models[indices[speaker]]
                if isinstance(model, LocalModel):
                    told = with_system_prompt(chat, target.system_prompt)
                    tokenizer, kwargs = tokenizer_of(model.folder), model.chat.template_kwargs
                    if (fault := template_fault(tokenizer, told, kwargs)) is not None:
                        yield f"{model.folder}: {fault}"

    found = {label: next(faults_of(setup), None) for label, setup in setups.items()}
    return {label: fault for label, fault in found.items() if fault is not None}
