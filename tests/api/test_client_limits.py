"""What a client may cost before anybody knows it: bytes, time and connections."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest

from roost.api import rates
from roost.api.limits import Limits
from roost.api.rates import Rate
from roost.parts.access import Principal
from roost.parts.routes import Route
from roost.testing.clock import HandClock
from tests.api.conftest import Site
from tests.api.planes import token
from tests.api.serving import TIMEOUT_S, Running, serving
from tests.api.test_agentsocket import HANDSHAKE
from tests.api.test_every_route import BODIED, CLOSED, tokens_of, where
from tests.api.test_httpprotocol import connection, create, response

GET = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that follows soon."""
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():
            await asyncio.sleep(0.01)


async def refusal(reader: asyncio.StreamReader) -> tuple[int, str]:
    """Read a refusal in the one shape, after which the connection ends."""
    status, headers, body = await response(reader)
    assert headers["connection"] == "close"
    error = json.loads(body)["error"]
    assert set(error) == {"code", "message", "details", "hint"}
    return status, error["code"]


async def ended(reader: asyncio.StreamReader) -> bool:
    """Say whether the server ends a connection without another word."""
    async with asyncio.timeout(TIMEOUT_S):
        try:
            return await reader.read() == b""
        except ConnectionError:
            return True


@asynccontextmanager
async def half_requests(running: Running, count: int) -> AsyncIterator[list[asyncio.StreamReader]]:
    """Send so many half requests."""
    async with AsyncExitStack() as stack:
        readers = []
        for _ in range(count):
            reader, writer = await stack.enter_async_context(connection(running))
            writer.write(GET)
            readers.append(reader)
        yield readers


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        (GET + b"X: " + b"x" * 5000 + b"\r\n\r\n", 431, "request_head_too_large"),
        (GET + b"X: 1\r\n" * 200 + b"\r\n", 431, "request_head_too_large"),
        (b"GET /" + b"x" * 2000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414, "path_too_long"),
        (b"GET /?" + b"x" * 2000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414, "path_too_long"),
        (create("x").replace(b"Host: x", b"X: " + b"x" * 5000), 431, "request_head_too_large"),
    ],
    ids=["bytes", "count", "path", "query", "create"],
)
def test_a_head_that_is_too_large_is_refused(sent: bytes, status: int, code: str) -> None:
    async def run() -> None:
        limits = Limits(head_bytes=4096, headers=100, path_bytes=1024)
        async with serving(limits=limits) as running:
            async with connection(running) as (reader, writer):
                writer.write(sent)
                assert await refusal(reader) == (status, code)
                assert await ended(reader)
            for size in (700, len(sent) - 10):  # in pieces as well
                async with connection(running) as (reader, writer):
                    for at in range(0, len(sent), size):
                        writer.write(sent[at : at + size])
                        await asyncio.sleep(0.01)
                    assert await refusal(reader) == (status, code)
            assert (await running.ask("GET", "/healthz")).status_code == 200

    asyncio.run(run())


@pytest.mark.parametrize("line", [b"GET /", b"GET / HTTP/1.1\r\nX: ", b"GET / HTTP/1.1\r\n"])
def test_a_head_without_an_end_is_refused(line: bytes) -> None:
    piece = b"X: y\r\n" * 100 if line.endswith(b"\n") else b"x" * 600

    async def run() -> None:
        limits = Limits(head_bytes=4096)
        async with serving(limits=limits) as running, connection(running) as (reader, writer):
            writer.write(line)
            answering = asyncio.create_task(refusal(reader))
            sent = 0
            while not answering.done() and sent < 100 * 2**20:
                writer.write(piece)
                sent += len(piece)
                await asyncio.sleep(0)
            assert (await answering)[0] in (414, 431)
            assert sent < 2**20

    asyncio.run(run())


def test_pipelined_requests_are_not_taken_for_one_large_head() -> None:
    async def run() -> None:
        limits = Limits(head_bytes=1024)
        async with serving(limits=limits) as running, connection(running) as (reader, writer):
            writer.write((GET + b"\r\n") * 200)
            for _ in range(200):
                assert (await response(reader))[0] == 200

    asyncio.run(run())


@pytest.mark.parametrize(
    "half",
    [b"GET /heal", GET, create("half")[:-5], create("half", role="nobody")[:-90]],
    ids=["line", "headers", "body", "nobody"],
)
def test_half_a_request_is_answered_408_in_time(half: bytes) -> None:
    async def run() -> None:
        async with serving(limits=Limits(request_s=0.3)) as running:
            async with connection(running) as (reader, writer):
                writer.write(half)
                assert await refusal(reader) == (408, "request_timed_out")
                assert await ended(reader)
            await until(lambda: not running.server.server_state.tasks)

    asyncio.run(run())


def test_who_waits_to_be_asked_for_a_body_is_not_blamed_for_a_slow_database(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run() -> None:
        async with serving(limits=Limits(request_s=0.3)) as running:
            access = running.plane.access
            check = access.check

            async def check_slowly(token: str) -> Principal:
                await asyncio.sleep(1.0)
                return await check(token)

            monkeypatch.setattr(access, "principal", lambda token: None)
            monkeypatch.setattr(access, "check", check_slowly)
            async with connection(running) as (reader, writer):
                head, end, body = create("patient").partition(b"\r\n\r\n")
                writer.write(head + b"\r\nExpect: 100-continue" + end)
                async with asyncio.timeout(TIMEOUT_S):
                    assert await reader.readuntil(end) == b"HTTP/1.1 100 Continue" + end
                writer.write(body)
                assert (await response(reader))[0] == 201
            async with connection(running) as (reader, writer):  # and once asked for, it must come
                writer.write(head + b"\r\nExpect: 100-continue" + end)
                await reader.readuntil(end)
                assert await refusal(reader) == (408, "request_timed_out")

    asyncio.run(run())


def test_an_upgrading_connection_is_a_stranger_until_its_token_was_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run() -> None:
        async with serving(limits=Limits(strangers=5, request_s=0.2)) as running:
            access, answered = running.plane.access, asyncio.Event()
            check = access.check

            async def check_slowly(token: str) -> Principal:
                await answered.wait()
                return await check(token)

            monkeypatch.setattr(access, "principal", lambda token: None)
            monkeypatch.setattr(access, "check", check_slowly)
            async with AsyncExitStack() as stack:
                for _ in range(12):
                    _, writer = await stack.enter_async_context(connection(running))
                    writer.write(HANDSHAKE)
                    await asyncio.sleep(0.1)
                assert len(running.server.server_state.connections) <= 5
                answered.set()
                await until(lambda: bool(running.plane.agents.sessions))

    asyncio.run(run())


def test_a_head_that_drips_is_cut_off_and_a_body_that_comes_slowly_is_not() -> None:
    async def drip(writer: asyncio.StreamWriter, data: bytes, count: int) -> None:
        for _ in range(count):
            writer.write(data)
            await asyncio.sleep(0.05)

    async def run() -> None:
        async with serving(limits=Limits(request_s=0.4)) as running:
            async with connection(running) as (reader, writer):
                writer.write(GET)
                dripping = asyncio.create_task(drip(writer, b"X: y\r\n", 60))
                assert await refusal(reader) == (408, "request_timed_out")
                dripping.cancel()
            for padding in (0, 70_000):  # on the short cut and on the long way
                async with connection(running) as (reader, writer):
                    data = create(f"slow-{padding}", padding=padding)
                    writer.write(data[:-20])
                    for at in range(20, 0, -1):
                        await drip(writer, data[len(data) - at : len(data) - at + 1], 1)
                    assert (await response(reader))[0] == 201

    asyncio.run(run())


def test_a_connection_that_says_nothing_or_nothing_more_is_closed() -> None:
    async def run() -> None:
        async with serving(limits=Limits(request_s=0.2, idle_s=0.4)) as running:
            async with connection(running) as (reader, _):
                assert await ended(reader)
            async with connection(running) as (reader, writer):
                writer.write(GET + b"\r\n")
                assert (await response(reader))[0] == 200
                await asyncio.sleep(0.25)
                writer.write(GET + b"\r\n")
                assert (await response(reader))[0] == 200
                assert await ended(reader)

    asyncio.run(run())


def test_who_takes_nothing_of_any_answer_is_cut_off() -> None:
    async def run() -> None:
        async with serving(limits=Limits(stalled_s=0.3)) as running:
            _, writer = await asyncio.open_connection("127.0.0.1", running.server.port, limit=1024)
            document = b"GET /api/v1/openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"
            for _ in range(200):
                writer.write(document)
            await until(lambda: bool(running.server.server_state.connections))
            await until(lambda: not running.server.server_state.connections)
            writer.transport.abort()

    asyncio.run(run())


def test_who_takes_an_answer_slowly_is_not_cut_off() -> None:
    """The kernel keeps megabytes for a client: ours stay where they are while it takes those.

    Two pieces empty the client's buffer, and only then does it say that there is room: so a busy
    machine, which takes one piece between two looks, is not a client that stands still.
    """

    async def run() -> None:
        async with serving(limits=Limits(stalled_s=0.8)) as running:
            with socket.socket() as ours:
                ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
                ours.connect(("127.0.0.1", running.server.port))
                ours.sendall(b"GET /api/v1/openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 200)
                ours.setblocking(False)
                loop = asyncio.get_running_loop()
                for _ in range(60):
                    await asyncio.sleep(0.04)
                    await loop.sock_recv(ours, 32 * 1024)
                    assert running.server.server_state.connections, "it was cut off"

    asyncio.run(run())


def test_a_body_that_nobody_wants_is_not_read_without_end() -> None:
    async def run() -> None:
        async with serving() as running, connection(running) as (reader, writer):
            writer.write(create("x", role="nobody").replace(b"Length: ", b"Length: 9999999"))
            assert (await response(reader))[0] == 401
            sent = 0
            with suppress(ConnectionError):
                while sent < 64 * 2**20:
                    writer.write(b"x" * 64 * 1024)
                    await writer.drain()
                    sent += 64 * 1024
            assert sent < 64 * 2**20

    asyncio.run(run())


def test_the_oldest_stranger_makes_room_and_known_connections_do_not_count() -> None:
    async def run() -> None:
        limits = Limits(strangers=5, request_s=0.5)
        async with serving(limits=limits) as running, AsyncExitStack() as stack:
            known = []
            for number in range(10):  # as many as there are agents behind one address
                pair = await stack.enter_async_context(connection(running))
                pair[1].write(create(f"vm-{number}"))
                assert (await response(pair[0]))[0] == 201
                known.append(pair)
            silent = [await stack.enter_async_context(connection(running)) for _ in range(5)]
            async with connection(running) as (reader, _):  # all of them are young
                assert await refusal(reader) == (429, "too_many_requests")
            await asyncio.sleep(0.45)
            async with connection(running) as (reader, writer):
                writer.write(GET + b"\r\n")
                await asyncio.sleep(0.1)
                assert (await response(reader))[0] == 200
            assert await ended(silent[0][0])
            for number, (reader, writer) in enumerate(known):
                writer.write(create(f"more-{number}"))
                assert (await response(reader))[0] == 201

    asyncio.run(run())


def test_half_requests_keep_nobody_out_however_young_they_are() -> None:
    async def run() -> None:
        async with serving(limits=Limits(strangers=5)) as running, AsyncExitStack() as stack:
            for number in range(4):
                await stack.enter_async_context(half_requests(running, 5))
                await asyncio.sleep(0.05)  # their bytes are there
                async with connection(running) as (reader, writer):
                    writer.write(create(f"vm-{number}"))
                    assert (await response(reader))[0] == 201

    asyncio.run(run())


def test_at_the_limit_of_connections_known_ones_go_on_and_strangers_make_room() -> None:
    async def run() -> None:
        limits = Limits(connections=8, request_s=0.2)
        async with serving(limits=limits) as running, AsyncExitStack() as stack:
            reader, writer = await stack.enter_async_context(connection(running))
            writer.write(create("first"))
            assert (await response(reader))[0] == 201
            for _ in range(3):
                await stack.enter_async_context(half_requests(running, 7))
                await asyncio.sleep(0.2)
            assert len(running.server.server_state.connections) <= 8
            writer.write(create("second"))
            assert (await response(reader))[0] == 201
            async with connection(running) as (fresh, writer):
                writer.write(create("third"))
                assert (await response(fresh))[0] == 201

    asyncio.run(run())


@pytest.mark.parametrize(
    "route", [pytest.param(each, id=f"{each.method} {each.path}") for each in CLOSED]
)
def test_the_token_is_looked_at_before_the_body_comes(site: Site, route: Route) -> None:
    """A body is announced and never sent; whoever waited for it would not answer."""
    port = int(site.url.rpartition(":")[2])
    for bearer in ("", f"Authorization: Bearer {token('nobody')}\r\n"):
        with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as asking:
            head = f"{route.method} {where(route)} HTTP/1.1\r\nHost: x\r\n{bearer}"
            asking.sendall(f"{head}Content-Length: 1000\r\n\r\n".encode())
            assert asking.recv(4096).startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize("raw", [b'{"name": "\xff"}', b'{"\xc3\x28": 1}', b'["\xed\xa0\x80"]'])
@pytest.mark.parametrize(
    "route", [pytest.param(each, id=f"{each.method} {each.path}") for each in BODIED]
)
def test_a_body_that_is_no_utf8_is_refused(site: Site, route: Route, raw: bytes) -> None:
    answer = site.ask(route.method, where(route), headers=tokens_of(route), content=raw)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")


@pytest.mark.parametrize("path", ["/api/v1/vms", "/api/v1/projects", "/api/v1/agents/join"])
@pytest.mark.parametrize("padding", [0, 70_000])
@pytest.mark.parametrize("twice", ["Authorization", "Idempotency-Key"])
def test_who_asks_is_said_once(path: str, padding: int, twice: str) -> None:
    async def run() -> None:
        async with serving() as running, connection(running) as (reader, writer):
            sent = create("twice", padding=padding).replace(b" /api/v1/vms ", f" {path} ".encode())
            value = f"Bearer {token('operator')}" if twice == "Authorization" else "k"
            extra = f"{twice}: {value}\r\n".encode() * (1 if twice == "Authorization" else 2)
            writer.write(sent.replace(b"Host: x\r\n", b"Host: x\r\n" + extra))
            status, _, body = await response(reader)
            assert status == 400
            assert f"{twice} came twice" in json.loads(body)["error"]["message"]

    asyncio.run(run())


def test_a_token_may_ask_so_often_and_others_go_on() -> None:
    async def run() -> None:
        clock = HandClock()
        limits = Limits(token_rate=2, burst_s=1)
        async with serving(limits=limits, clock=clock) as running:
            for path in ("/api/v1/vms", "/api/v1/hosts", "/api/v1/vms"):
                assert (await running.ask("GET", path)).status_code == 200
            for method, path in (("GET", "/api/v1/vms"), ("POST", "/api/v1/vms")):
                refused = await running.ask(method, path)
                assert refused.status_code == 429
                assert refused.json()["error"]["code"] == "too_many_requests"
                assert refused.headers["retry-after"] == "1"
            assert (await running.ask("GET", "/api/v1/vms", "viewer")).status_code == 200
            clock.move(1.0)
            assert (await running.ask("GET", "/api/v1/vms")).status_code == 200

    asyncio.run(run())


def test_an_address_may_fail_so_often_and_good_tokens_from_it_go_on() -> None:
    async def run() -> None:
        clock = HandClock()
        limits = Limits(failure_rate=2, address_rate=2, burst_s=2)
        async with serving(limits=limits, clock=clock) as running:
            said = [(await running.ask("GET", "/api/v1/vms", "nobody")).status_code
                    for _ in range(7)]  # fmt: skip
            assert said == [401] * 5 + [429] * 2
            assert (await running.ask("GET", "/api/v1/vms", None)).status_code == 429
            assert (await running.ask("GET", "/api/v1/vms")).status_code == 200
            assert (await running.ask("GET", "/healthz", None)).status_code == 200
            joined = await running.ask("POST", "/api/v1/agents/join", "join", json={"host": "h9"})
            assert joined.status_code == 201  # a good token that was not known before
            clock.move(0.6)
            assert (await running.ask("GET", "/api/v1/vms", "nobody")).status_code == 401

    asyncio.run(run())


def test_an_address_may_ask_without_a_token_so_often() -> None:
    async def run() -> None:
        clock = HandClock()
        async with serving(limits=Limits(address_rate=10, burst_s=1), clock=clock) as running:
            said = [(await running.ask("GET", "/metrics", None)).status_code for _ in range(4)]
            assert said == [200, 200, 429, 429]
            assert (await running.ask("GET", "/healthz", None)).status_code == 429
            assert (await running.ask("GET", "/api/v1/vms")).status_code == 200
            clock.move(1.1)
            assert (await running.ask("GET", "/healthz", None)).status_code == 200

    asyncio.run(run())


def test_buckets_that_are_full_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "MOST_BUCKETS", 10)
    rate = Rate(1.0, 1.0, "an address")
    for number in range(1000):
        rate.take(f"10.0.0.{number}", float(number))
        assert len(rate._full_at) <= 12
    for number in range(1000):  # none of them is full
        rate.take(f"10.0.1.{number}", 2000.0)
        assert len(rate._full_at) <= 12
