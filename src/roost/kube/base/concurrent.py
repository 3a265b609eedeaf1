"""Doing one thing to many objects, some at a time."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


async def each_of(
    items: Iterable[T], work: Callable[[T], Awaitable[R]], *, at_once: int = 32
) -> list[R]:
    """Return what the work gives for each item, in order; the first failure ends it all."""
    waiting = list(items)
    results: dict[int, R] = {}
    numbers = iter(range(len(waiting)))

    async def worker() -> None:
        for number in numbers:
            results[number] = await work(waiting[number])

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(at_once, len(waiting))):
                group.create_task(worker())
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [results[number] for number in range(len(waiting))]
