"""The process that asks: some connections, one request on each at a time, as fast as answers come.

HTTP is written by hand and answers are only cut up while the clock runs, so that the client takes
little of the machine that it shares with the server. Afterwards every answer is read and checked.
Told by a JSON object on the command line, it reports with one on standard output.
"""

import asyncio
import sys
import time
from typing import Any, cast

import msgspec
import uvloop

from benchmarks.api.measuring import cpu_s, machine_cpu_s, percentile
from benchmarks.api.workload import create_body, vm_name

_END_OF_HEAD = b"\r\n\r\n"


class Orders(msgspec.Struct, frozen=True):
    """What to ask, of whom."""

    port: int
    token: str
    server_pid: int
    connections: int
    requests: int
    before: int  # requests that warm up first
    batch: int  # VMs in each request; 0 asks for one VM by the route for one


class Report(msgspec.Struct):
    """How it went."""

    wall_s: float
    client_cpu_s: float
    server_cpu_s: float
    machine_cpu_s: float  # of everything, so that a busy machine can be told
    p50_s: float
    p99_s: float
    longest_s: float
    created: int  # VMs in all, those of the warm-up too
    problems: list[str] = []


class Phase:
    """Some requests that are handed to whichever connection is free, and their answers."""

    def __init__(self, requests: list[bytes]) -> None:
        self.requests = requests
        self.spent_s: list[float] = []
        self.answers: list[tuple[int, bytes, bytes]] = []  # request, status, body
        self.done = asyncio.get_running_loop().create_future()
        self._next = 0

    def take(self) -> int | None:
        """Return the next request, or None when there is none."""
        if self._next == len(self.requests):
            return None
        self._next += 1
        return self._next - 1

    def answered(self, request: int, status: bytes, body: bytes, spent_s: float) -> None:
        """Note an answer."""
        self.spent_s.append(spent_s)
        self.answers.append((request, status, body))
        if len(self.answers) == len(self.requests):
            self.done.set_result(None)


class Connection(asyncio.Protocol):
    """One connection with at most one request under way."""

    def __init__(self) -> None:
        self._phase: Phase | None = None
        self._request = 0
        self._began = 0.0
        self._parts: list[bytes] = []
        self._missing = 0  # bytes of the body; 0 while the head is not there
        self._status, self._body_at = b"", 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the phase: the server must not hang up."""
        if self._phase is not None and not self._phase.done.done():
            self._phase.done.set_exception(ConnectionError(f"the server hung up: {exc}"))

    def work(self, phase: Phase) -> None:
        """Ask what is left to ask."""
        self._phase = phase
        request = phase.take()
        if request is None:
            return
        self._request = request
        self._began = time.perf_counter()
        self.transport.write(phase.requests[request])

    def data_received(self, data: bytes) -> None:
        """Put an answer together."""
        self._parts.append(data)
        if self._missing:
            self._missing -= len(data)
            if self._missing > 0:
                return
        else:
            whole = data if len(self._parts) == 1 else b"".join(self._parts)
            end = whole.find(_END_OF_HEAD)
            if end < 0:
                return
            self._status, self._body_at = whole[9:12], end + 4
            self._missing = self._body_at + _content_length(whole[:end]) - len(whole)
            if self._missing > 0:
                return
        body = b"".join(self._parts)[self._body_at :]
        self._parts, self._missing = [], 0
        phase = self._phase
        assert phase is not None
        phase.answered(self._request, self._status, body, time.perf_counter() - self._began)
        self.work(phase)


def _content_length(head: bytes) -> int:
    at = head.lower().index(b"\r\ncontent-length:") + 17
    return int(head[at:].partition(b"\r\n")[0])


def requests_of(orders: Orders, start: int, count: int) -> list[bytes]:
    """Write requests `start` and the ones after it, ready to be sent."""
    found = []
    path = "/api/v1/vms:batch" if orders.batch else "/api/v1/vms"
    for number in range(start, start + count):
        asked: dict[str, Any]
        if orders.batch:
            first = number * orders.batch
            asked = {"vms": [create_body(at) for at in range(first, first + orders.batch)]}
        else:
            asked = create_body(number)
        body = msgspec.json.encode(asked)
        head = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{orders.port}\r\n"
            f"Authorization: Bearer {orders.token}\r\nIdempotency-Key: bench-{number:08d}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        found.append(head.encode() + body)
    return found


def check(orders: Orders, phase: Phase, start: int, ids: set[str]) -> list[str]:
    """Read the answers of a phase; return what is wrong with them and add the VMs' ids."""
    problems = []
    expected = b"200" if orders.batch else b"201"
    for request, status, body in phase.answers:
        if status != expected:
            problems.append(f"request {start + request}: {status.decode()} {body[:300]!r}")
            continue
        answer = msgspec.json.decode(body)
        items = answer["results"] if orders.batch else [answer]
        first = (start + request) * max(1, orders.batch)
        for number, item in enumerate(items, first):
            if item["name"] != vm_name(number) or not item["host"] or item["id"] in ids:
                problems.append(f"VM {number}: {item}")
            else:
                ids.add(item["id"])
    return problems


async def run(orders: Orders) -> Report:
    """Warm up, measure, check."""
    loop = asyncio.get_running_loop()
    connections = []
    for _ in range(orders.connections):
        _, connection = await loop.create_connection(Connection, "127.0.0.1", orders.port)
        connections.append(connection)
    before = Phase(requests_of(orders, 0, orders.before))
    await _perform(before, connections)
    measured = Phase(requests_of(orders, orders.before, orders.requests))
    began = _clocks(orders.server_pid)
    await _perform(measured, connections)
    spent = [
        after - before for before, after in zip(began, _clocks(orders.server_pid), strict=True)
    ]
    for connection in connections:
        connection.transport.close()
    ids: set[str] = set()
    problems = check(orders, before, 0, ids) + check(orders, measured, orders.before, ids)
    return Report(
        wall_s=spent[0],
        client_cpu_s=spent[1],
        server_cpu_s=spent[2],
        machine_cpu_s=spent[3],
        p50_s=percentile(measured.spent_s, 0.5),
        p99_s=percentile(measured.spent_s, 0.99),
        longest_s=max(measured.spent_s),
        created=len(ids),
        problems=problems[:5],
    )


def _clocks(server_pid: int) -> tuple[float, float, float, float]:
    return time.perf_counter(), time.process_time(), cpu_s(server_pid), machine_cpu_s()


async def _perform(phase: Phase, connections: list[Connection]) -> None:
    if not phase.requests:
        return
    for connection in connections:
        connection.work(phase)
    await asyncio.wait_for(phase.done, 600)


def main(text: str) -> None:
    """Do as told and print the report."""
    report = uvloop.run(run(msgspec.json.decode(text, type=Orders)))
    print(msgspec.json.encode(report).decode())


if __name__ == "__main__":
    main(sys.argv[1])
