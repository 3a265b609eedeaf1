"""A good client: on a few connections it creates a VM and looks at it, again and again, timed."""

import asyncio
import time
from dataclasses import dataclass, field

import msgspec

from benchmarks.api.measuring import percentile
from benchmarks.api.verifying import Wrong
from benchmarks.api.workload import create_body

_CONNECTIONS = 4
#: Seconds between two requests of a connection: somebody at work, not somebody who floods.
_PAUSE_S = 0.01


@dataclass(slots=True)
class Spent:
    """How long requests took, in seconds, and how many had another answer than a success."""

    times_s: list[float] = field(default_factory=list)
    refused: int = 0

    @property
    def p99_ms(self) -> float:
        """Return the time that one request of a hundred exceeds."""
        return 1e3 * percentile(self.times_s, 0.99)

    @property
    def note(self) -> str:
        """Describe the others."""
        return (
            f"{len(self.times_s):,} requests, p50 {1e3 * percentile(self.times_s, 0.5):.1f} ms, "
            f"longest {1e3 * max(self.times_s):.0f} ms"
        )


def good_requests(port: int, token: str, seconds: float, first: int) -> Spent:
    """Ask for some seconds; names of VMs count from a number."""
    return asyncio.run(_ask(port, token, seconds, first))


async def _ask(port: int, token: str, seconds: float, first: int) -> Spent:
    spent = Spent()
    end = time.perf_counter() + seconds
    await asyncio.gather(
        *(
            _connection(port, token, end, spent, first + number * 1_000_000)
            for number in range(_CONNECTIONS)
        )
    )
    if not spent.times_s or spent.refused:
        raise Wrong(f"{spent.refused} of {len(spent.times_s)} good requests were refused")
    return spent


async def _connection(port: int, token: str, end: float, spent: Spent, number: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        while time.perf_counter() < end:
            number += 1
            body = create_body(number)
            name = f"good-{number}"
            content = msgspec.json.encode({**body, "name": name})
            head = (
                f"POST /api/v1/vms HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
                f"Idempotency-Key: {name}\r\nContent-Length: {len(content)}\r\n\r\n"
            ).encode()
            look = (
                f"GET /api/v1/vms/{name} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}"
                "\r\n\r\n"
            ).encode()
            for request, wanted in ((head + content, 201), (look, 200)):
                began = time.perf_counter()
                writer.write(request)
                status = await _answer(reader)
                spent.times_s.append(time.perf_counter() - began)
                spent.refused += status != wanted
                await asyncio.sleep(_PAUSE_S)
    finally:
        writer.close()


async def _answer(reader: asyncio.StreamReader) -> int:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = head.partition("content-length: ")[2].partition("\r\n")[0]
    await reader.readexactly(int(length))
    return int(head.split(" ", 2)[1])
