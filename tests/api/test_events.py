"""Events over HTTP: pages, streams that resume, and readers that do not read."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import msgspec
import pytest

from roost.api import sse
from roost.base.clock import RealClock
from roost.wire.bodies import EventBody, EventPage
from tests.api.fakeplane import FakePlane, token
from tests.api.serving import TIMEOUT_S, Running, serving

STREAM = {"Accept": "text/event-stream"}


class HandClock(RealClock):
    """A clock whose sleepers wake when the test says so."""

    def __init__(self) -> None:
        self.sleepers: asyncio.Queue[asyncio.Future[None]] = asyncio.Queue()

    async def sleep(self, seconds: float) -> None:
        future = asyncio.get_running_loop().create_future()
        await self.sleepers.put(future)
        await future

    async def tick(self) -> None:
        """Wake who sleeps, or will next."""
        async with asyncio.timeout(TIMEOUT_S):
            (await self.sleepers.get()).set_result(None)


def with_events(count: int) -> FakePlane:
    """Return a plane in which something has happened."""
    plane = FakePlane()
    for number in range(count):
        plane.store.event("vm.created", f"vm/{number}")
    return plane


@asynccontextmanager
async def following(
    running: Running, path: str = "/api/v1/events", **headers: str
) -> AsyncIterator[AsyncIterator[str]]:
    """Open a stream and yield its lines."""
    sent = {**STREAM, "Authorization": f"Bearer {token('viewer')}", **headers}
    async with running.client.stream("GET", path, headers=sent) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        yield response.aiter_lines()


async def take(lines: AsyncIterator[str], wanted: int) -> list[dict[str, str]]:
    """Read so many events."""
    events: list[dict[str, str]] = []
    event: dict[str, str] = {}
    async with asyncio.timeout(TIMEOUT_S):
        async for line in lines:
            if line:
                name, _, value = line.partition(": ")
                event[name] = value
                continue
            if "data" in event:
                events.append(event)
            event = {}
            if len(events) == wanted:
                break
    return events


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that follows soon."""
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():
            await asyncio.sleep(0.01)


def test_a_page_goes_on_from_its_next() -> None:
    async def run() -> None:
        async with serving(with_events(5)) as running:
            response = await running.ask("GET", "/api/v1/events?limit=3")
            page = msgspec.json.decode(response.content, type=EventPage)
            assert [event.seq for event in page.events] == [1, 2, 3]
            response = await running.ask("GET", f"/api/v1/events?since={page.next}")
            page = msgspec.json.decode(response.content, type=EventPage)
            assert [event.seq for event in page.events] == [4, 5]

    asyncio.run(run())


def test_a_stream_gives_what_was_and_then_what_happens() -> None:
    async def run() -> None:
        async with serving(with_events(2)) as running, following(running) as lines:
            old = await take(lines, 2)
            running.plane.store.event("vm.deleted", "vm/0")
            new = await take(lines, 1)
            assert [event["id"] for event in old + new] == ["1", "2", "3"]
            assert new[0]["event"] == "vm.deleted"
            body = msgspec.json.decode(new[0]["data"], type=EventBody)
            assert (body.seq, body.subject) == (3, "vm/0")

    asyncio.run(run())


@pytest.mark.parametrize(
    ("query", "header", "first"),
    [("", None, "1"), ("?since=2", None, "3"), ("?since=1", "3", "4"), ("", "3", "4")],
)
def test_a_stream_resumes_where_it_was_left(query: str, header: str | None, first: str) -> None:
    async def run() -> None:
        headers = {} if header is None else {"Last-Event-ID": header}
        async with (
            serving(with_events(5)) as running,
            following(running, f"/api/v1/events{query}", **headers) as lines,
        ):
            assert (await take(lines, 1))[0]["id"] == first

    asyncio.run(run())


@pytest.mark.parametrize("header", ["x", "-1", "1.5", "9" * 30])
def test_a_wrong_last_event_id_is_refused(header: str) -> None:
    async def run() -> httpx.Response:
        async with serving() as running:
            return await running.ask(
                "GET", "/api/v1/events", headers={**STREAM, "Last-Event-ID": header}
            )

    response = asyncio.run(run())
    assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid_request")


def test_an_idle_stream_gets_a_comment_now_and_then() -> None:
    async def run() -> None:
        clock = HandClock()
        async with serving(clock=clock) as running, following(running) as lines:
            for _ in range(3):
                await clock.tick()
                async with asyncio.timeout(TIMEOUT_S):
                    assert (await anext(lines)).startswith(": ")
                    assert await anext(lines) == ""

    asyncio.run(run())


def test_a_reader_that_leaves_is_forgotten() -> None:
    async def run() -> None:
        async with serving(with_events(1)) as running:
            async with following(running) as lines:
                await take(lines, 1)
                assert running.plane.events.followers == 1
            await until(lambda: running.plane.events.followers == 0)

    asyncio.run(run())


def test_the_source_s_error_is_the_last_event() -> None:
    async def run() -> None:
        plane = with_events(1)
        plane.store.event("broken", "vm/1")
        async with serving(plane) as running, following(running) as lines:
            events = await take(lines, 99)
            assert [event.get("event") for event in events] == ["vm.created", "error"]
            assert "forbidden" in events[1]["data"]

    asyncio.run(run())


def test_streams_end_at_once_when_the_server_stops() -> None:
    async def run() -> list[Any]:
        async with serving(with_events(1)) as running, following(running) as lines:
            await take(lines, 1)
            running.server.should_exit = True
            return await take(lines, 99)

    async def bounded() -> list[Any]:
        async with asyncio.timeout(5):
            return await run()

    assert asyncio.run(bounded()) == []


def test_a_reader_that_takes_nothing_is_cut_off_and_costs_little() -> None:
    async def run() -> None:
        clock = HandClock()
        plane = with_events(0)
        produced = 0

        async def flood(since: int, who: object) -> AsyncIterator[EventBody]:
            nonlocal produced
            plane.events.followers += 1
            try:
                while True:
                    produced += 1
                    changes = {"filling": "x" * 10_000}
                    yield EventBody(
                        seq=produced, at="", actor="", kind="k", subject="", project=None,
                        changes=changes,
                    )  # fmt: skip
                    await asyncio.sleep(0)
            finally:
                plane.events.followers -= 1

        plane.events.stream = flood  # type: ignore[method-assign, assignment]
        async with serving(plane, clock=clock) as running:
            reader, writer = await asyncio.open_connection("127.0.0.1", running.server.port)
            # Without reading: what the kernel takes is all that leaves the server.
            writer.transport.pause_reading()
            writer.write(
                b"GET /api/v1/events HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n"
                + f"Authorization: Bearer {token('viewer')}\r\n\r\n".encode()
            )
            await until(lambda: plane.events.followers == 1)
            last = -1
            while produced != last:  # until the buffer is full
                last = produced
                await asyncio.sleep(0.2)
            for _ in range(2):
                await clock.tick()
            await until(lambda: plane.events.followers == 0)
            assert produced * 10_000 < 40 * 2**20 + sse.BUFFER_BYTES
            writer.close()
            del reader

    asyncio.run(run())
