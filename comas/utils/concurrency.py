"""Running coroutines side by side, failing at the first failure."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import TypeVar

T = TypeVar("T")


async def run_all(coroutines: Iterable[Coroutine[None, None, T]]) -> list[T]:
    """The results of all coroutines, in order. The first error cancels the others and is raised
    itself, not in an exception group."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(coroutine) for coroutine in coroutines]
    except BaseExceptionGroup as errors:
        raise first_error(errors) from errors
    return [task.result() for task in tasks]


def first_error(error: BaseException) -> BaseException:
    """The error itself, or the first within a group of them."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
