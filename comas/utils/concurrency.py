"""Run coroutines concurrently, and stop at the first error."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import TypeVar

T = TypeVar("T")


async def run_all(coroutines: Iterable[Coroutine[None, None, T]]) -> list[T]:
    """Return the results of all coroutines, in order. The first error cancels the others, and is
    raised without an exception group."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(coroutine) for coroutine in coroutines]
    except BaseExceptionGroup as errors:
        raise first_error(errors) from errors
    return [task.result() for task in tasks]


def first_error(error: BaseException) -> BaseException:
    """Return the error itself, or the first one in an exception group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
