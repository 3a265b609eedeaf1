"""The events of a demo in order: every wait of the tour waits for one of them, with a limit."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from types import TracebackType
from typing import TYPE_CHECKING, Self

from roost.cli.demo.runner import limit

if TYPE_CHECKING:
    from roost.client import AsyncClient
    from roost.wire.bodies import EventBody


class Tape:
    """Reads the event stream from its beginning; what was read is not lost while nobody waits."""

    def __init__(self, client: "AsyncClient") -> None:
        self._client = client
        self._unseen: asyncio.Queue[EventBody] = asyncio.Queue()
        self._reading: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._reading is not None
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)

    async def _read(self) -> None:
        async with aclosing(self._client.events(0)) as events:
            async for event in events:
                self._unseen.put_nowait(event)

    async def watch(
        self, seen: Callable[["EventBody"], bool], *, within_s: float, what: str
    ) -> None:
        """Show every event that was not seen yet, until one is said to be the last."""
        async with limit(within_s, what):
            while not seen(await self._next()):
                pass

    async def until(
        self, holds: Callable[[], Awaitable[bool]], *, within_s: float, what: str
    ) -> None:
        """Poll a condition now and after every event, until it holds."""
        async with limit(within_s, what):
            while not await holds():
                await self._next()
                while not self._unseen.empty():  # events that came together cause one question
                    self._unseen.get_nowait()

    async def _next(self) -> "EventBody":
        assert self._reading is not None
        getting = asyncio.create_task(self._unseen.get())
        try:
            await asyncio.wait((getting, self._reading), return_when=asyncio.FIRST_COMPLETED)
            if not getting.done():
                self._reading.result()  # the stream ended for good: say why
            return await getting
        finally:
            getting.cancel()
