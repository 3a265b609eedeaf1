"""The process that asks roost's API for the same VMs; told by a JSON object, reports with one."""

import asyncio
import sys
import time

import msgspec
import uvloop

from benchmarks.api.http_load import Connection, Phase
from benchmarks.api.measuring import cpu_s
from benchmarks.kube.workload import Case, create_body

_LIMIT_S = 300.0


class Orders(msgspec.Struct, frozen=True):
    """What to ask, of whom."""

    port: int
    token: str
    server_pid: int
    connections: int
    case: str
    count: int
    before: int  # plain VMs that warm up first


class Report(msgspec.Struct):
    """How it went."""

    wall_s: float
    server_cpu_s: float
    placed: dict[str, str]
    created: int  # those of the warm-up too
    problems: list[str] = []


def request(orders: Orders, case: Case, number: int) -> bytes:
    """Write a request, ready to be sent."""
    body = msgspec.json.encode(create_body(case, number))
    head = (
        f"POST /api/v1/vms HTTP/1.1\r\nHost: 127.0.0.1:{orders.port}\r\n"
        f"Authorization: Bearer {orders.token}\r\nIdempotency-Key: bench-{number:08d}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def perform(phase: Phase, connections: list[Connection]) -> None:
    """Let the connections ask until everything is answered."""
    for connection in connections:
        connection.work(phase)
    await asyncio.wait_for(phase.done, _LIMIT_S)


async def run(orders: Orders) -> Report:
    """Warm up, measure, read the answers."""
    loop = asyncio.get_running_loop()
    connections = []
    for _ in range(orders.connections):
        _, connection = await loop.create_connection(Connection, "127.0.0.1", orders.port)
        connections.append(connection)
    numbers = range(orders.count, orders.count + orders.before)
    before = Phase([request(orders, Case.PLAIN, number) for number in numbers])
    await perform(before, connections)
    case = Case(orders.case)
    measured = Phase([request(orders, case, number) for number in range(orders.count)])
    began, cpu_began = time.perf_counter(), cpu_s(orders.server_pid)
    await perform(measured, connections)
    ended, cpu_ended = time.perf_counter(), cpu_s(orders.server_pid)
    for connection in connections:
        connection.transport.close()
    placed: dict[str, str] = {}
    problems = []
    for _, status, body in (*before.answers, *measured.answers):
        if status != b"201":
            problems.append(f"{status.decode()} {body[:300]!r}")
    for _, _, body in measured.answers:
        answer = msgspec.json.decode(body)
        if answer.get("host"):
            placed[answer["name"]] = answer["host"]
    return Report(
        ended - began,
        cpu_ended - cpu_began,
        placed,
        len(before.answers) + len(measured.answers),
        problems[:5],
    )


if __name__ == "__main__":
    report = uvloop.run(run(msgspec.json.decode(sys.argv[1], type=Orders)))
    print(msgspec.json.encode(report).decode())
