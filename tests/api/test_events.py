"""Events over HTTP: pages, streams that resume, and readers that do not read."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httpx
import msgspec
import pytest

from roost.api.limits import Limits
from roost.control.memory.eventlog import PAGE
from roost.ledger.writes.transaction import Tx
from roost.testing.clock import HandClock
from roost.wire.bodies import CreateToken, EventBody, EventPage
from tests.api.planes import ADMIN, token
from tests.api.serving import TIMEOUT_S, Running, serving

STREAM = {"Accept": "text/event-stream"}


#: What happens in these tests.
NAMES = ("a1", "a2", "a3", "a4", "a5")


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
        async with serving() as running:
            before = running.plane.head
            seqs = await running.plane.happen(*NAMES)
            response = await running.ask("GET", f"/api/v1/events?since={before}&limit=3")
            page = msgspec.json.decode(response.content, type=EventPage)
            assert [event.seq for event in page.events] == seqs[:3]
            response = await running.ask("GET", f"/api/v1/events?since={page.next}")
            page = msgspec.json.decode(response.content, type=EventPage)
            assert [event.seq for event in page.events] == seqs[3:]

    asyncio.run(run())


def test_a_stream_gives_what_was_and_then_what_happens() -> None:
    async def run() -> None:
        async with serving() as running:
            before = running.plane.head
            seqs = await running.plane.happen(*NAMES[:2])
            async with following(running, f"/api/v1/events?since={before}") as lines:
                old = await take(lines, 2)
                seqs += await running.plane.happen(NAMES[2])
                new = await take(lines, 1)
            assert [event["id"] for event in old + new] == [str(seq) for seq in seqs]
            assert new[0]["event"] == "project.created"
            body = msgspec.json.decode(new[0]["data"], type=EventBody)
            assert (body.seq, body.subject) == (seqs[2], f"project/{NAMES[2]}")

    asyncio.run(run())


@pytest.mark.parametrize(
    ("since", "header", "first"), [(0, None, 0), (2, None, 2), (1, 3, 3), (0, 3, 3)]
)
def test_a_stream_resumes_where_it_was_left(since: int, header: int | None, first: int) -> None:
    async def run() -> None:
        async with serving() as running:
            before = running.plane.head
            seqs = await running.plane.happen(*NAMES)
            headers = {} if header is None else {"Last-Event-ID": str(before + header)}
            path = f"/api/v1/events?since={before + since}"
            async with following(running, path, **headers) as lines:
                assert (await take(lines, 1))[0]["id"] == str(seqs[first])

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
        async with serving(clock=clock) as running:
            path = f"/api/v1/events?since={running.plane.head}"
            async with following(running, path) as lines:
                while (await anext(lines)).startswith("tx: "):
                    pass
                for _ in range(3):
                    async with asyncio.timeout(TIMEOUT_S):
                        await clock.tick()
                        assert (await anext(lines)).startswith(": ")
                        assert await anext(lines) == ""

    asyncio.run(run())


def test_a_reader_that_leaves_is_forgotten() -> None:
    async def run() -> None:
        async with serving() as running:
            log = running.plane.plane.events
            async with following(running) as lines:
                await take(lines, 1)
                assert log.readers == 1
                shown = await running.ask("GET", "/metrics", role=None)
                assert "roost_event_readers 1.0" in shown.text
            await until(lambda: log.readers == 0)

    asyncio.run(run())


def test_a_stream_does_not_outlive_its_token() -> None:
    async def run() -> None:
        async with serving() as running:
            access = running.plane.access
            made = await access.create_token(CreateToken(name="short", role="viewer"), ADMIN)
            path = f"/api/v1/events?since={running.plane.head}"
            bearer = f"Bearer {made.secret}"
            async with following(running, path, Authorization=bearer) as lines:
                await running.plane.happen(NAMES[0])
                assert [event["event"] for event in await take(lines, 1)] == ["project.created"]
                await access.delete_token(made.id, ADMIN)
                await running.plane.happen(NAMES[1])
                last = await take(lines, 99)
            assert [event["event"] for event in last] == ["error"]
            assert "unauthorized" in last[0]["data"]

    asyncio.run(run())


def test_streams_end_at_once_when_the_server_stops() -> None:
    async def run() -> list[Any]:
        async with serving() as running:
            path = f"/api/v1/events?since={running.plane.head}"
            await running.plane.happen(NAMES[0])
            async with following(running, path) as lines:
                await take(lines, 1)
                running.server.should_exit = True
                return await take(lines, 99)

    async def bounded() -> list[Any]:
        async with asyncio.timeout(5):
            return await run()

    assert asyncio.run(bounded()) == []


@contextmanager
def deaf_reader(port: int) -> Iterator[socket.socket]:
    """Ask for the stream and read nothing of it."""
    with socket.socket() as ours:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        ours.connect(("127.0.0.1", port))  # the kernel accepts for the server
        ours.sendall(
            b"GET /api/v1/events HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n"
            + f"Authorization: Bearer {token('viewer')}\r\n\r\n".encode()
        )
        yield ours


def test_a_reader_that_takes_nothing_is_cut_off_and_costs_little() -> None:
    size, count = 10_000, 20 * PAGE

    def fill(tx: Tx) -> None:
        for _ in range(count):
            tx.event("ledger.filled", "ledger", {}, note="x" * size)

    async def run() -> None:
        async with serving(limits=Limits(stalled_s=0.3)) as running:
            await running.plane.store.write(fill)
            reads = running.plane.store.reads
            log = running.plane.plane.events
            with deaf_reader(running.server.port):
                await until(lambda: log.readers == 1)
                # Not the stream alone ends: a connection closed politely would wait for ever.
                await until(lambda: not running.server.server_state.connections)
            await until(lambda: log.readers == 0)  # its stream ends a moment after the connection
            taken = (running.plane.store.reads - reads) * PAGE
            assert taken < count, "all there is was read for somebody who takes nothing"

    asyncio.run(run())


def test_a_reader_that_reads_slowly_is_not_cut_off() -> None:
    def fill(tx: Tx) -> None:
        for _ in range(PAGE):
            tx.event("ledger.filled", "ledger", {}, note="x" * 20_000)

    async def run() -> None:
        async with serving(limits=Limits(stalled_s=0.8)) as running:
            await running.plane.store.write(fill)
            port = running.server.port
            with deaf_reader(port) as reading:
                reading.setblocking(False)
                loop, taken = asyncio.get_running_loop(), 0
                async with asyncio.timeout(TIMEOUT_S):
                    while taken < 20_000 * PAGE:
                        await asyncio.sleep(0.02)
                        piece = await loop.sock_recv(reading, 32 * 1024)
                        assert piece, "it was cut off"
                        taken += len(piece)

    asyncio.run(run())


def test_readers_are_bounded_in_all_and_with_one_token() -> None:
    async def run() -> None:
        async with serving(limits=Limits(readers=3, token_readers=2)) as running:
            async with following(running), following(running) as lines:
                await take(lines, 1)
                refused = await running.ask("GET", "/api/v1/events", "viewer", headers=STREAM)
                assert refused.status_code == 429
                assert refused.json()["error"]["code"] == "too_many_requests"
                assert refused.headers["retry-after"] == "5"
                admin = {"Authorization": f"Bearer {token('admin')}"}
                async with following(running, **admin) as others:
                    await take(others, 1)
                    refused = await running.ask("GET", "/api/v1/events", "member", headers=STREAM)
                    assert refused.status_code == 429
            await until(lambda: running.plane.plane.events.readers == 0)
            async with following(running) as lines:
                await take(lines, 1)

    asyncio.run(run())
