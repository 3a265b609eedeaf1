"""`AsyncClient`: the API for asyncio. The same methods as `Client`, awaited."""

import functools
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from random import Random, SystemRandom
from types import TracebackType
from typing import Concatenate, ParamSpec, Self, TypeVar

import httpx

from roost.base.clock import Clock, RealClock
from roost.base.errors import RoostError, Unavailable
from roost.base.ids import IdSource
from roost.client import routes
from roost.client.calls import Call
from roost.client.carrying import answered, checked_server, checked_token, connection, lost
from roost.client.conversation import (
    Answered,
    Lost,
    Manner,
    Outcome,
    Patience,
    Send,
    Wait,
    unreachable,
)
from roost.client.failures import error_of
from roost.client.feed import SILENCE_S, EventFeed
from roost.wire.bodies import EventBody, HostBody, VMBody

P = ParamSpec("P")
T = TypeVar("T")


def _method(
    make: Callable[P, Call[T]],
) -> Callable[Concatenate["AsyncClient", P], Awaitable[T]]:
    """Return the method that makes a call and sends it."""

    @functools.wraps(make)
    async def method(client: "AsyncClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await client.send(make(*args, **kwargs))

    return method


class AsyncClient:
    """The API of one server. Use it as an async context manager, or close it."""

    def __init__(
        self,
        server: str,
        token: str | None = None,
        *,
        patience: Patience = Patience(),  # noqa: B008 (frozen)
        timeout_s: float = 60.0,
        ca_file: str | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        self.server = checked_server(server)
        self._clock = clock or RealClock()
        random = random or SystemRandom()
        ids = IdSource(self._clock.wall_ms, random)
        self._manner = Manner(
            self.server,
            checked_token(token),
            patience,
            self._clock.monotonic,
            random,
            functools.partial(ids.new, "key"),
        )
        settings = connection(self.server, timeout_s, ca_file)
        self._http = httpx.AsyncClient(transport=transport, **settings)

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
            response = await self._http.request(
                send.method,
                send.path,
                params=httpx.QueryParams(send.query),
                headers=send.headers,
                content=send.content,
            )
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
            problem: RoostError = unreachable(self.server, Lost("the stream ended", sent=True))
            try:
                async with aclosing(self._events(feed)) as events:
                    async for event in events:
                        yield event
            except httpx.TransportError as error:
                problem = unreachable(self.server, lost(error))
            except Unavailable as error:
                problem = error
            await self._clock.sleep(feed.lost(problem))

    async def _events(self, feed: EventFeed) -> AsyncGenerator[EventBody, None]:
        """Yield the events of one connection."""
        send = feed.request(self._manner.token)
        async with self._http.stream(
            send.method,
            send.path,
            params=httpx.QueryParams(send.query),
            headers=send.headers,
            timeout=httpx.Timeout(SILENCE_S, connect=5.0),
        ) as response:
            if response.status_code != 200:
                error, _ = error_of(response.status_code, await response.aread())
                raise error
            feed.connected()
            async for line in response.aiter_lines():
                event = feed.take(line)
                if event is not None:
                    yield event

    async def all_vms(
        self,
        *,
        project: str | None = None,
        host: str | None = None,
        state: str | None = None,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> AsyncIterator[VMBody]:
        """Yield every VM, page by page."""
        after: str | None = None
        while True:
            page = await self.list_vms(
                project=project,
                host=host,
                state=state,
                name=name,
                labels=labels,
                limit=1000,
                after=after,
            )
            for vm in page.vms:
                yield vm
            after = page.next
            if after is None:
                return

    async def all_hosts(
        self, *, health: str | None = None, admin: str | None = None, zone: str | None = None
    ) -> AsyncIterator[HostBody]:
        """Yield every host, page by page."""
        after: str | None = None
        while True:
            page = await self.list_hosts(
                health=health, admin=admin, zone=zone, limit=1000, after=after
            )
            for host in page.hosts:
                yield host
            after = page.next
            if after is None:
                return

    create_vm = _method(routes.create_vm)
    create_vms = _method(routes.create_vms)
    list_vms = _method(routes.list_vms)
    get_vm = _method(routes.get_vm)
    delete_vm = _method(routes.delete_vm)
    start_vm = _method(routes.start_vm)
    stop_vm = _method(routes.stop_vm)
    restart_vm = _method(routes.restart_vm)
    pause_vm = _method(routes.pause_vm)
    resume_vm = _method(routes.resume_vm)
    resize_vm = _method(routes.resize_vm)
    migrate_vm = _method(routes.migrate_vm)
    cancel_migration = _method(routes.cancel_migration)
    read_console = _method(routes.read_console)
    explain_vm = _method(routes.explain_vm)
    list_hosts = _method(routes.list_hosts)
    get_host = _method(routes.get_host)
    scheduling_info = _method(routes.scheduling_info)
    cordon_host = _method(routes.cordon_host)
    uncordon_host = _method(routes.uncordon_host)
    drain_host = _method(routes.drain_host)
    get_drain = _method(routes.get_drain)
    set_labels = _method(routes.set_labels)
    confirm_dead = _method(routes.confirm_dead)
    delete_host = _method(routes.delete_host)
    dry_run = _method(routes.dry_run)
    dry_run_batch = _method(routes.dry_run_batch)
    capacity = _method(routes.capacity)
    strategies = _method(routes.strategies)
    list_projects = _method(routes.list_projects)
    get_project = _method(routes.get_project)
    create_project = _method(routes.create_project)
    set_quota = _method(routes.set_quota)
    delete_project = _method(routes.delete_project)
    list_tokens = _method(routes.list_tokens)
    create_token = _method(routes.create_token)
    delete_token = _method(routes.delete_token)
    create_join_token = _method(routes.create_join_token)
    join = _method(routes.join)
    list_events = _method(routes.list_events)
    doctor = _method(routes.doctor)
    health = _method(routes.health)
    readiness = _method(routes.readiness)
    metrics = _method(routes.metrics)
    openapi = _method(routes.openapi)
