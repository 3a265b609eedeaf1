"""A bad client in a process of its own: readers, half requests, wrong tokens, rogue agents.

Told by a JSON object on the command line; it says `ready` when the harm has begun and ends when its
standard input does. Whoever is cut off comes back at once.
"""

import asyncio
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import msgspec
import uvloop

from benchmarks.api.serving import REPOSITORY, ServerFailed
from benchmarks.hardening.rogue import talk_nonsense
from roost.app.serve import raise_file_limit

_READY_S = 120.0


class Orders(msgspec.Struct, frozen=True):
    """Which harm to do, to whom."""

    kind: str  # readers, halves, tokens or rogues
    port: int
    count: int
    tokens: list[str] = []


@contextmanager
def harm(orders: Orders) -> Iterator[None]:
    """Do harm for the length of a block."""
    command = [sys.executable, "-m", "benchmarks.hardening.bad", msgspec.json.encode(orders)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=REPOSITORY
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        if process.stdout.readline() != b"ready\n":
            raise ServerFailed(f"the bad client did not begin: {orders.kind}")
        yield
    finally:
        process.stdin.close()
        process.wait(30)


async def _run(orders: Orders) -> None:
    work = {"readers": _reader, "halves": _half, "tokens": _wrong_token, "rogues": _rogue}[
        orders.kind
    ]
    begun = asyncio.Semaphore(0)
    tasks = [asyncio.create_task(_again(work, orders, number, begun))
             for number in range(orders.count)]  # fmt: skip
    async with asyncio.timeout(_READY_S):
        for _ in tasks:
            await begun.acquire()
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.buffer.read)
    for task in tasks:
        task.cancel()


async def _again(work: object, orders: Orders, number: int, begun: asyncio.Semaphore) -> None:
    while True:
        with suppress(OSError, asyncio.IncompleteReadError):
            await work(orders, number, begun)  # type: ignore[operator]
        await asyncio.sleep(0.05)


async def _connect(port: int) -> socket.socket:
    ours = socket.socket()
    ours.setblocking(False)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
    await asyncio.get_running_loop().sock_connect(ours, ("127.0.0.1", port))
    return ours


async def _reader(orders: Orders, number: int, begun: asyncio.Semaphore) -> None:
    """Ask for all events, read the head of the answer and nothing more until cut off."""
    loop, token = asyncio.get_running_loop(), orders.tokens[number % len(orders.tokens)]
    with await _connect(orders.port) as ours:
        request = (
            "GET /api/v1/events?since=0 HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n"
            f"Authorization: Bearer {token}\r\n\r\n"
        )
        await loop.sock_sendall(ours, request.encode())
        if not (await loop.sock_recv(ours, 100)).startswith(b"HTTP/1.1 200 "):
            raise ConnectionError("not taken")
        begun.release()
        await _until_cut(ours)


async def _half(orders: Orders, number: int, begun: asyncio.Semaphore) -> None:
    """Send half a request and wait."""
    with await _connect(orders.port) as ours:
        await asyncio.get_running_loop().sock_sendall(ours, b"GET /api/v1/vms HTTP/1.1\r\nHost: ")
        begun.release()
        await _until_cut(ours)


async def _until_cut(ours: socket.socket) -> None:
    """Wait for the end of a connection without reading what is there."""
    state = 1
    while state == 1:  # established
        await asyncio.sleep(1.0)
        state = ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]


async def _wrong_token(orders: Orders, number: int, begun: asyncio.Semaphore) -> None:
    """Ask with wrong tokens, a new one each time, as fast as answers come."""
    reader, writer = await asyncio.open_connection("127.0.0.1", orders.port)
    begun.release()
    try:
        for turn in range(1_000_000):
            writer.write(
                b"GET /api/v1/vms HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "
                b"roost_x%dx%d_secret\r\n\r\n" % (number, turn)
            )
            head = await reader.readuntil(b"\r\n\r\n")
            length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
            await reader.readexactly(int(length))
    finally:
        writer.close()


async def _rogue(orders: Orders, number: int, begun: asyncio.Semaphore) -> None:
    """Speak as an agent with a good credential, and say what no agent may."""
    await talk_nonsense(orders.port, orders.tokens[number], f"rogue-{number}", begun)


if __name__ == "__main__":
    raise_file_limit()
    uvloop.run(_run(msgspec.json.decode(sys.argv[1], type=Orders)))
