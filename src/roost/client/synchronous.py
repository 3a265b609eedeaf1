"""`Client`: the API for code that waits. Its methods stand in `methods`."""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
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
from roost.client.jobmap import Jobs
from roost.client.methods import Methods
from roost.client.routes import PAGE, HostFilters, VMFilters
from roost.wire.bodies import EventBody, HostBody, VMBody

T = TypeVar("T")


def _wait(seconds: float) -> None:
    threading.Event().wait(seconds)


class Client(Methods):
    """The API of one control plane. Use it as a context manager, or close it.

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
        transport: httpx.BaseTransport | None = None,
        clock: Clock | None = None,
        wait: Callable[[float], None] = _wait,
        random: Random | None = None,
    ) -> None:
        servers = [checked_server(each) for each in (server, *others)]
        self.server = servers[0]
        self._manner = manner(servers, token, patience, clock or RealClock(), random)
        self._wait = wait
        settings = connection(servers, timeout_s, ca_file)
        self._http = httpx.Client(transport=transport, **settings)

    @classmethod
    def from_context(cls, name: str | None = None, **more: Any) -> Self:
        """Return a client of the servers that commands here ask, or of a context by its name."""
        found = read_context(os.environ, Path.cwd(), name=name)
        return cls(found.server, found.token, ca_file=found.ca_file, others=found.others, **more)

    @property
    def jobs(self) -> Jobs:
        """Return jobs as a function over items."""
        return Jobs(self)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def send(self, call: Call[T]) -> T:
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
                self._wait(step.seconds)
            else:
                outcome = self._exchange(step)

    def _exchange(self, send: Send) -> Answered | Lost:
        try:
            response = self._http.request(**request(send))
        except httpx.TransportError as error:
            return lost(error)
        return answered(response, response.content)

    def events(
        self, since: int | None = None, *, patience_s: float | None = 60.0
    ) -> Iterator[EventBody]:
        """Yield the events after a sequence as they happen, over any number of connections.

        Gives up when no connection was had for `patience_s` (None: never).
        """
        feed = EventFeed(since, patience_s, self._manner.monotonic, self._manner.random)
        while True:
            problem: RoostError = unreachable(
                self._manner.servers.current, Lost("the stream ended", sent=True)
            )
            try:
                yield from self._events(feed)
            except httpx.TransportError as error:
                problem = unreachable(self._manner.servers.current, lost(error))
            except EventsRewritten as error:
                feed.go_back(error)
                continue
            except Unavailable as error:
                problem = error
            self._manner.servers.move_on()
            self._wait(feed.lost(problem))

    def _events(self, feed: EventFeed) -> Iterator[EventBody]:
        """Yield the events of one connection."""
        send = replace(feed.request(self._manner.token), server=self._manner.servers.current)
        with self._http.stream(
            **request(send), timeout=httpx.Timeout(SILENCE_S, connect=5.0)
        ) as response:
            if response.status_code != 200:
                error, _ = error_of(response.status_code, response.read())
                raise error
            feed.connected()
            for line in response.iter_lines():
                event = feed.take(line)
                if event is not None:
                    yield event

    def all_vms(self, **filters: Unpack[VMFilters]) -> Iterator[VMBody]:
        """Yield every VM, page by page."""
        after: str | None = ""
        while after is not None:
            page = self.list_vms(**filters, limit=PAGE, after=after or None)
            yield from page.vms
            after = page.next

    def all_hosts(self, **filters: Unpack[HostFilters]) -> Iterator[HostBody]:
        """Yield every host, page by page."""
        after: str | None = ""
        while after is not None:
            page = self.list_hosts(**filters, limit=PAGE, after=after or None)
            yield from page.hosts
            after = page.next
