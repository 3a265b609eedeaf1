"""What a rogue agent sends: more than the protocol takes, as much as it takes, and lies."""

import asyncio
from contextlib import suppress
from itertools import cycle
from typing import Any

import msgspec

#: Between two messages of a connection: it must not be read to be heard.
_PAUSE_S = 0.02
_WELCOME_S = 0.5


def messages(host: str) -> list[list[bytes]]:
    """Return what is said on one connection after another."""
    plain = _hello(host)
    full = _hello(
        host,
        extended={f"{host}-{n}": {"total": 1} for n in range(32)},
        labels={f"label-{n}": "x" * 200 for n in range(256)},
        devices=[{"model": f"{host}-{n}", "memory_bytes": 2**40} for n in range(16)],
    )
    absurd = _hello(host, extended={f"r{n}": {"total": 1} for n in range(20_000)})
    beyond = _hello(host, devices=[{"model": "x", "memory_bytes": 2**70}])
    lies = _report({"id": f"vm-{n}", "generation": 2**62, "seen": "running"} for n in range(16_000))
    unread = _report({"id": "", "generation": -1, "seen": "no"} for _ in range(16_000))
    return [[absurd], [beyond], [full] * 6, [plain, lies, lies, lies], [plain, unread], [plain] * 6]


async def talk_nonsense(port: int, credential: str, host: str, begun: asyncio.Semaphore) -> None:
    """Connect again and again, and say the next nonsense each time."""
    for some in cycle(messages(host)):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(
                b"GET /api/v1/agents/connect HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n"
                b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                b"Authorization: Bearer " + credential.encode() + b"\r\n\r\n"
            )
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 101 "):
                raise ConnectionError("not taken")
            begun.release()
            for message in some:
                writer.write(_frame(message))
                await asyncio.sleep(_PAUSE_S)
            with suppress(TimeoutError):
                await asyncio.wait_for(reader.read(1), _WELCOME_S)
        finally:
            writer.close()


def _hello(host: str, **more: object) -> bytes:
    whole = {"total": 2**40}
    inventory = {"cpu_milli": whole, "memory_bytes": whole, "disk_bytes": whole, **more}
    said = {"type": "hello", "protocol": 1, "host": host, "instance": "rogue", "version": "x"}
    return msgspec.json.encode({**said, "inventory": inventory})


def _report(vms: Any) -> bytes:
    return msgspec.json.encode({"type": "report", "vms": list(vms), "full": True})


def _frame(payload: bytes) -> bytes:
    """Return a whole text frame; masked with zeros, which changes nothing."""
    return b"\x81\xff" + len(payload).to_bytes(8, "big") + b"\0\0\0\0" + payload
