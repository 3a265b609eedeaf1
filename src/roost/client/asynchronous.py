"""`AsyncClient`: the API for asyncio. The same methods as `Client`, awaited."""

import os
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import httpx

from roost.base.clock import Clock, RealClock
from roost.base.errors import EventsRewritten, RoostError, Unavailable
from roost.client.calls import Call
from roost.client.carrying import answered, checked_server, connection, lost, manner, request
from roost.client.context import read_context
from roost.client.conversation import (
    Answered,
    Lost,
    Outcome,
    Patience,
    Send,
    Wait,
    unreachable,
)
from roost.client.failures import error_of
from roost.client.feed import SILENCE_S, EventFeed
from roost.client.methods import Methods
from roost.client.routes import PAGE, HostFilters, VMFilters
from roost.wire.bodies import EventBody, HostBody, VMBody

T = TypeVar("T")


class AsyncClient(Methods):
    """The API of one control plane. Use it as an async context manager, or close it.

    `others` are further servers of the same control plane, asked when one is away.
    """

    def __init__(
        self,
        server: str,
        token: str | None = None,
        *,
        patience: Patience = Patience(),  # noqa: B008 (frozen)
        timeout_s: float = 60.0,
        ca_file: str | None = None,
        others: Sequence[str] = (),
        transport: httpx.AsyncBaseTransport | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        servers = [checked_server(each) for each in (server, *others)]
        self.server = servers[0]
        self._clock = clock or RealClock()
        self._manner = manner(servers, token, patience, self._clock, random)
        settings = connection(servers, timeout_s, ca_file)
        self._http = httpx.AsyncClient(transport=transport, **settings)

    @classmethod
    def from_context(cls, name: str | None = None, **more: Any) -> Self:
        """Return a client of the servers that commands here ask, or of a context by its name."""
        found = read_context(os.environ, Path.cwd(), name=name)
        return cls(found.server, found.token, ca_file=found.ca_file, others=found.others, **more)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def send(self, call: Call[T]) -> T:
        """Send a call and return what its answer says."""
        talk = self._manner.converse(call)
        outcome: Outcome = None
        while True:
            try:
                step = talk.send(outcome)
            except StopIteration as done:
                answer: T = done.value
                return answer
            outcome = None
            if isinstance(step, Wait):
                await self._clock.sleep(step.seconds)
            else:
                outcome = await self._exchange(step)

    async def _exchange(self, send: Send) -> Answered | Lost:
        try:
            response = await self._http.request(**request(send))
        except httpx.TransportError as error:
            return lost(error)
        return answered(response, response.content)

    async def events(
        self, since: int | None = None, *, patience_s: float | None = 60.0
    ) -> AsyncGenerator[EventBody, None]:
        """Yield the events after a sequence as they happen, over any number of connections.

        Gives up when no connection was had for `patience_s` (None: never). Close the iterator
        (`contextlib.aclosing`) when you leave it before its end.
        """
        feed = EventFeed(since, patience_s, self._manner.monotonic, self._manner.random)
        while True:
            problem: RoostError = unreachable(
                self._manner.servers.current, Lost("the stream ended", sent=True)
            )
            try:
                async with aclosing(self._events(feed)) as events:
                    async for event in events:
                        yield event
            except httpx.TransportError as error:
                problem = unreachable(self._manner.servers.current, lost(error))
            except EventsRewritten as error:
                feed.go_back(error)
                continue
            except Unavailable as error:
                problem = error
            self._manner.servers.move_on()
            await self._clock.sleep(feed.lost(problem))

    async def _events(self, feed: EventFeed) -> AsyncGenerator[EventBody, None]:
        """Yield the events of one connection."""
        send = replace(feed.request(self._manner.token), server=self._manner.servers.current)
        async with self._http.stream(
            **request(send), timeout=httpx.Timeout(SILENCE_S, connect=5.0)
        ) as response:
            if response.status_code != 200:
                error, _ = error_of(response.status_code, await response.aread())
                raise error
            feed.connected()
            async for line in response.aiter_lines():
                event = feed.take(line)
                if event is not None:
                    yield event

    async def all_vms(self, **filters: Unpack[VMFilters]) -> AsyncIterator[VMBody]:
        """Yield every VM, page by page."""
        after: str | None = ""
        while after is not None:
            page = await self.list_vms(**filters, limit=PAGE, after=after or None)
            for each in page.vms:
                yield each
            after = page.next

    async def all_hosts(self, **filters: Unpack[HostFilters]) -> AsyncIterator[HostBody]:
        """Yield every host, page by page."""
        after: str | None = ""
        while after is not None:
            page = await self.list_hosts(**filters, limit=PAGE, after=after or None)
            for each in page.hosts:
                yield each
            after = page.next
