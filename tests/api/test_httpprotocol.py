"""The short cut of small creates, byte by byte: keep-alive, pipelining, cut and broken requests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from roost.api.fast import httpprotocol
from tests.api.planes import token
from tests.api.serving import TIMEOUT_S, Running, serving

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def create(name: str, *, role: str = "operator", extra: str = "", padding: int = 0) -> bytes:
    """Return the bytes of a request that creates a VM."""
    body = f'{{"name":"{name}","demand":{{"cpu":1,"memory":"1GiB"}}}}' + " " * padding
    return (
        f"POST /api/v1/vms HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token(role)}\r\n"
        f"Content-Length: {len(body)}\r\n{extra}\r\n{body}"
    ).encode()


@asynccontextmanager
async def connection(running: Running) -> AsyncIterator[Connection]:
    """Open a connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", running.server.port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def response(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    """Read one response."""
    async with asyncio.timeout(TIMEOUT_S):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        status, *lines = head.rstrip().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    return int(status.split()[1]), headers, body


def test_one_connection_serves_one_request_after_the_other() -> None:
    async def run() -> None:
        async with serving() as running, connection(running) as (reader, writer):
            for number in range(5):
                writer.write(create(f"vm-{number}"))
                status, headers, body = await response(reader)
                assert status == 201
                assert f"vm-{number}".encode() in body
                assert "connection" not in headers
                assert "date" in headers

    asyncio.run(run())


def test_pipelined_requests_are_answered_in_order_with_their_own_headers() -> None:
    async def run() -> None:
        async with serving() as running, connection(running) as (reader, writer):
            health = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
            writer.write(
                create("one")
                + create("two", role="viewer")
                + health
                + create("three", extra="Idempotency-Key: k\r\n")
                + create("three", extra="Idempotency-Key: k\r\n")
            )
            heard = [await response(reader) for _ in range(5)]
            assert [status for status, _, _ in heard] == [201, 403, 200, 201, 200]
            assert heard[4][1]["idempotency-replayed"] == "true"

    asyncio.run(run())


@pytest.mark.parametrize("cut", [1, 7, 60, 150])
def test_requests_may_come_in_pieces(cut: int) -> None:
    async def run() -> None:
        data = create("pieces")
        async with serving() as running, connection(running) as (reader, writer):
            for at in range(0, len(data), cut):
                writer.write(data[at : at + cut])
                await writer.drain()
            assert (await response(reader))[0] == 201

    asyncio.run(run())


@pytest.mark.parametrize(
    ("extra", "padding"),
    [("Connection: close\r\n", 0), ("Connection: close\r\n", httpprotocol.SMALL_BYTES)],
    ids=["short cut", "long way"],
)
def test_a_connection_that_wants_to_be_closed_is(extra: str, padding: int) -> None:
    async def run() -> None:
        async with serving() as running, connection(running) as (reader, writer):
            writer.write(create("last", extra=extra, padding=padding))
            status, headers, _ = await response(reader)
            assert (status, headers["connection"]) == (201, "close")
            async with asyncio.timeout(TIMEOUT_S):
                assert await reader.read() == b""

    asyncio.run(run())


def test_a_body_in_chunks_and_one_that_waits_take_the_long_way() -> None:
    async def run() -> None:
        async with serving() as running, connection(running) as (reader, writer):
            head, _, body = create("chunked").partition(b"\r\n\r\n")
            lines = [line for line in head.split(b"\r\n") if b"Length" not in line]
            chunked = b"\r\n".join([*lines, b"Transfer-Encoding: chunked", b"", b""])
            writer.write(chunked + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
            assert (await response(reader))[0] == 201
            head, _, body = create("waits", extra="Expect: 100-continue\r\n").partition(b"\r\n\r\n")
            writer.write(head + b"\r\n\r\n")
            async with asyncio.timeout(TIMEOUT_S):
                assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(body)
            assert (await response(reader))[0] == 201

    asyncio.run(run())


def test_what_is_not_http_is_refused_in_the_one_shape() -> None:
    async def run() -> None:
        async with serving() as running, connection(running) as (reader, writer):
            writer.write(b"hello there\r\n\r\n")
            status, headers, body = await response(reader)
            assert (status, headers["connection"]) == (400, "close")
            assert b'"code":"invalid_request"' in body

    asyncio.run(run())


def test_a_caller_that_leaves_does_no_harm() -> None:
    async def run() -> None:
        async with serving() as running:
            async with connection(running) as (_, writer):
                writer.write(create("cut")[:-5])
                await writer.drain()
            async with connection(running) as (_, writer):
                writer.write(create("gone"))
                await writer.drain()
                writer.transport.abort()
            assert (await running.ask("GET", "/healthz")).status_code == 200
            assert (await running.ask("GET", "/api/v1/vms/cut")).status_code == 404

    asyncio.run(run())


def test_a_query_on_a_create_is_refused() -> None:
    async def run() -> None:
        async with serving() as running:
            answer = await running.ask("POST", "/api/v1/vms?dry=1", json={})
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")

    asyncio.run(run())
