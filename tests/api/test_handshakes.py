"""TLS handshakes that are never finished: bounded in time and number, and in nobody's way."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest

from roost.api.fast.connections import Connections, Watched
from roost.api.limits import Limits
from tests.api.serving import TIMEOUT_S, Running, serving
from tests.api.test_client_limits import until
from tests.api.test_httpprotocol import connection, create, response
from tests.api.test_server import certificate

Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


#: Made once: reading what it trusts takes time.
_TRUSTING = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
_TRUSTING.check_hostname, _TRUSTING.verify_mode = False, ssl.CERT_NONE


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a certificate and its key."""
    return certificate(tmp_path_factory.mktemp("tls"))


def hello() -> bytes:
    """Return what a client says first."""
    sent = ssl.MemoryBIO()
    asking = _TRUSTING.wrap_bio(ssl.MemoryBIO(), sent, server_hostname="x")
    with pytest.raises(ssl.SSLWantReadError):
        asking.do_handshake()
    return sent.read()


async def told(reader: asyncio.StreamReader) -> bytes:
    """Return all that the server says before it ends a connection."""
    said = b""
    async with asyncio.timeout(TIMEOUT_S):
        with suppress(ConnectionError):
            while piece := await reader.read(65536):
                said += piece
    return said


@asynccontextmanager
async def secure(running: Running) -> AsyncIterator[Pair]:
    """Connect with TLS."""
    async with asyncio.timeout(TIMEOUT_S):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", running.server.port, ssl=_TRUSTING
        )
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


def under_way(running: Running) -> int:
    """Return how many handshakes the server counts."""
    return running.server.watch.handshakes


@pytest.mark.parametrize(
    "sent", [b"", hello()[:100], hello()], ids=["nothing", "half", "no answer"]
)
def test_a_handshake_that_is_not_finished_is_ended_in_time(
    sent: bytes, tls: tuple[Path, Path]
) -> None:
    async def run() -> None:
        async with serving(tls=tls, limits=Limits(request_s=1.0)) as running:
            async with connection(running) as (reader, writer):
                writer.write(sent)
                await until(lambda: under_way(running) == 1)
                assert len(await told(reader)) < 16 * 1024
                await until(lambda: under_way(running) == 0)
            assert (await running.ask("GET", "/healthz")).status_code == 200

    asyncio.run(run())


def test_a_handshake_that_drips_is_ended_in_time(tls: tuple[Path, Path]) -> None:
    async def drip(writer: asyncio.StreamWriter) -> None:
        for byte in hello():
            writer.write(bytes([byte]))
            await asyncio.sleep(0.05)

    async def run() -> None:
        limits = Limits(request_s=1.0)
        async with (
            serving(tls=tls, limits=limits) as running,
            connection(running) as (reader, writer),
        ):
            dripping = asyncio.create_task(drip(writer))
            assert await told(reader) == b""
            assert not dripping.done()
            dripping.cancel()

    asyncio.run(run())


def test_half_handshakes_are_bounded_and_keep_nobody_out(tls: tuple[Path, Path]) -> None:
    async def run() -> None:
        limits = Limits(strangers=10, request_s=600.0)
        async with serving(tls=tls, limits=limits) as running, AsyncExitStack() as stack:
            known = [await stack.enter_async_context(secure(running)) for _ in range(2)]
            for number, (reader, writer) in enumerate(known):
                writer.write(create(f"known-{number}"))
                assert (await response(reader))[0] == 201
            halves = []
            for turn in range(4):
                for number in range(25):
                    reader, writer = await stack.enter_async_context(connection(running))
                    writer.write(hello() if number % 2 else b"")
                    halves.append(reader)
                async with secure(running) as (reader, writer):
                    writer.write(create(f"good-{turn}"))
                    assert (await response(reader))[0] == 201
                assert under_way(running) <= 10
            for reader in halves[:-10]:  # the oldest made room
                await told(reader)
            for number, (reader, writer) in enumerate(known):  # and who is known was let be
                writer.write(create(f"still-{number}"))
                assert (await response(reader))[0] == 201

    asyncio.run(run())


def test_half_handshakes_count_among_all_connections(tls: tuple[Path, Path]) -> None:
    async def run() -> None:
        limits = Limits(connections=8, request_s=600.0)
        async with serving(tls=tls, limits=limits) as running, AsyncExitStack() as stack:
            reader, writer = await stack.enter_async_context(secure(running))
            writer.write(create("first"))
            assert (await response(reader))[0] == 201
            for _ in range(20):
                await stack.enter_async_context(connection(running))
            async with secure(running) as (fresh, fresh_writer):
                fresh_writer.write(create("second"))
                assert (await response(fresh))[0] == 201
                open_now = len(running.server.server_state.connections) + under_way(running)
                assert open_now <= 8
            writer.write(create("third"))
            assert (await response(reader))[0] == 201

    asyncio.run(run())


@pytest.mark.parametrize(
    ("limits", "known"),
    [
        (Limits(connections=8, request_s=600.0), True),
        (Limits(connections=8, request_s=2.0), False),
        (Limits(strangers=8, request_s=2.0), False),
    ],
    ids=["known ones are idle", "silent strangers in all", "silent strangers of an address"],
)
def test_a_newcomer_makes_room_for_itself_where_nobody_shakes_hands(
    limits: Limits, known: bool, tls: tuple[Path, Path]
) -> None:
    async def run() -> None:
        async with serving(tls=tls, limits=limits) as running, AsyncExitStack() as stack:
            for number in range(8):
                reader, writer = await stack.enter_async_context(secure(running))
                if known:
                    writer.write(create(f"known-{number}"))
                    assert (await response(reader))[0] == 201
            await until(lambda: under_way(running) == 0)
            if not known:
                await asyncio.sleep(limits.request_s / 4)  # until they are old enough to go
            for number in range(3):
                async with secure(running) as (reader, writer):
                    writer.write(create(f"new-{number}"))
                    assert (await response(reader))[0] == 201

    asyncio.run(run())


def test_few_who_come_at_once_do_not_end_each_other(tls: tuple[Path, Path]) -> None:
    async def run() -> None:
        limits = Limits(connections=24, request_s=600.0)
        async with serving(tls=tls, limits=limits) as running, AsyncExitStack() as stack:
            for number in range(24):
                reader, writer = await stack.enter_async_context(secure(running))
                writer.write(create(f"known-{number}"))
                assert (await response(reader))[0] == 201

            async def come(number: int) -> int:
                async with secure(running) as (reader, writer):
                    writer.write(create(f"new-{number}"))
                    return (await response(reader))[0]

            assert await asyncio.gather(*map(come, range(5))) == [201] * 5

    asyncio.run(run())


def test_whatever_goes_wrong_with_one_connection_the_next_is_let_in(
    tls: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, failures = Connections.admit, [RuntimeError("a mistake")]

    def admit(self: Connections, connection: Watched, open_now: int) -> bool:
        if failures:
            raise failures.pop()
        return real(self, connection, open_now)

    async def run() -> None:
        async with serving(tls=tls) as running:
            monkeypatch.setattr(Connections, "admit", admit)
            async with connection(running) as (reader, _):
                assert await told(reader) == b""
            async with secure(running) as (reader, writer):
                writer.write(create("next"))
                assert (await response(reader))[0] == 201
            assert under_way(running) == 0

    asyncio.run(run())


def test_who_has_shown_a_good_token_counts_no_more(tls: tuple[Path, Path]) -> None:
    async def run() -> None:
        async with (
            serving(tls=tls, limits=Limits(strangers=3)) as running,
            AsyncExitStack() as stack,
        ):
            known = []
            for number in range(12):  # as many as there are agents behind one address
                known.append(await stack.enter_async_context(secure(running)))
                known[-1][1].write(create(f"vm-{number}"))
                assert (await response(known[-1][0]))[0] == 201
            for number, (reader, writer) in enumerate(known):
                writer.write(create(f"more-{number}"))
                assert (await response(reader))[0] == 201

    asyncio.run(run())


def test_what_is_no_tls_or_goes_away_leaves_nothing(tls: tuple[Path, Path]) -> None:
    async def run() -> None:
        async with serving(tls=tls) as running:
            for sent in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\xff\xff" * 100):
                async with connection(running) as (reader, writer):
                    writer.write(sent)
                    assert b"HTTP" not in await told(reader)
            with socket.create_connection(("127.0.0.1", running.server.port)) as going:
                await until(lambda: under_way(running) == 1)
                going.sendall(hello())
            await until(lambda: under_way(running) == 0)
            assert not running.server.server_state.connections

    asyncio.run(run())


def test_a_server_that_stops_ends_handshakes(tls: tuple[Path, Path]) -> None:
    async def run() -> None:
        async with serving(tls=tls, limits=Limits(request_s=600.0)) as running:
            reader, writer = await asyncio.open_connection("127.0.0.1", running.server.port)
            await until(lambda: under_way(running) == 1)
            running.server.should_exit = True
            assert await told(reader) == b""
            writer.close()

    asyncio.run(run())
