"""Watches that tell everything late: what a busy machine does now and then, every time.

A test that passes only because news comes at once fails under it. `ROOST_LATE_NEWS_S=0.5 make
test-kube` runs all of them that way.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from roost.base.errors import RoostError
from roost.kube.base.client import Event, Kube

_ended = object()


def tell_late(monkeypatch: pytest.MonkeyPatch, late_s: float) -> None:
    """Let every watch of this process tell each event so long after it came, in order."""
    watch = Kube.watch

    async def late(self: Kube, *args: Any, **options: Any) -> AsyncIterator[Event]:
        loop = asyncio.get_running_loop()
        came: asyncio.Queue[tuple[float, Any]] = asyncio.Queue()

        async def receive() -> None:
            last: Any = _ended
            try:
                async with contextlib.aclosing(watch(self, *args, **options)) as events:  # type: ignore[type-var]
                    async for event in events:
                        came.put_nowait((loop.time() + late_s, event))
            except RoostError as error:
                last = error
            came.put_nowait((loop.time() + late_s, last))

        receiving = asyncio.create_task(receive())
        try:
            while True:
                due, told = await came.get()
                await asyncio.sleep(max(due - loop.time(), 0.0))
                if told is _ended:
                    return
                if isinstance(told, RoostError):
                    raise told
                yield told
        finally:
            receiving.cancel()
            await asyncio.gather(receiving, return_exceptions=True)

    monkeypatch.setattr(Kube, "watch", late)
