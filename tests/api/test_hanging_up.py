"""A client that hangs up ends the search that runs for it: its turn is the next one's at once.

The batch is a perfect packing of VMs that all differ, which the exact search works on until its
limit of five seconds. It is asked for over real connections, on both roads of a request.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from random import Random

import ortools.sat.python.cp_model  # noqa: F401 - the first search of a process loads it
import pytest

from roost.control.create.searches import Searches
from roost.parts.asker import Asker
from roost.testing.agent import ModelAgent, inventory
from tests.api.planes import ADMIN, HOSTS, token
from tests.api.serving import Running, serving

CORES, MEMORY_GIB, FULL_HOSTS = 31, 64, 40
#: More than the short cut of small creates takes.
LONG = " " * 70_000


def perfect_packing() -> list[dict[str, object]]:
    """Return VMs that fill all hosts to the last millicore and MiB, in hardly another way."""
    random = Random(7)
    sizes = [
        size
        for _ in range(FULL_HOSTS)
        for size in zip(cut(random, CORES * 1000), cut(random, MEMORY_GIB * 1024), strict=True)
    ]
    random.shuffle(sizes)
    return [
        {"name": f"b{n}", "project": "p1", "demand": {"cpu": milli / 1000, "memory": f"{mib}MiB"}}
        for n, (milli, mib) in enumerate(sizes)
    ]


def cut(random: Random, whole: int) -> list[int]:
    """Cut an amount into three."""
    ends = [0, *sorted(random.sample(range(1, whole), 2)), whole]
    return [high - low for low, high in pairwise(ends)]


def request(path: str, padding: str) -> bytes:
    body = json.dumps({"vms": perfect_packing(), "atomic": True}) + padding
    head = (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token('operator')}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return (head + body).encode()


@asynccontextmanager
async def crowded() -> AsyncIterator[tuple[Running, Searches]]:
    """Run a server whose open hosts are exactly as large as the batch."""
    async with serving() as running:
        plane = running.plane.plane
        for name in HOSTS:
            await plane.hosts.cordon(name, ADMIN)
        for n in range(FULL_HOSTS):
            agent = ModelAgent(f"f{n}", time.monotonic, inventory(CORES, MEMORY_GIB))
            agent.connect(plane)
            agent.speak()
            await plane.agents.settle()
        await plane.follower.catch_up()
        yield running, plane._searches


async def until_searching(searches: Searches) -> None:
    async with asyncio.timeout(20):
        while searches._under_way is None:
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.5)  # the solver is at work


async def ask_and_leave(running: Running, searches: Searches, path: str, padding: str) -> float:
    """Ask for the batch, hang up while it is searched for, and return how long that goes on."""
    _, writer = await asyncio.open_connection("127.0.0.1", running.server.port)
    writer.write(request(path, padding))
    await writer.drain()
    await until_searching(searches)
    assert searches._searching
    writer.close()
    left = time.monotonic()
    async with asyncio.timeout(30):
        while searches._searching:
            await asyncio.sleep(0.005)
    # Its thread is free, too: the next search begins at once.
    async with searches.turn(Asker()):
        await searches.run(lambda effort: None, Asker())
    return time.monotonic() - left


@pytest.mark.parametrize("path", ["/api/v1/vms:batch", "/api/v1/placements:dry-run-batch"])
@pytest.mark.parametrize("padding", ["", LONG], ids=["short-cut", "long-road"])
def test_a_client_that_hangs_up_ends_its_search_within_a_second(path: str, padding: str) -> None:
    async def run() -> None:
        async with crowded() as (running, searches):
            took_s = await ask_and_leave(running, searches, path, padding)
            print(f"{path}: free again after {took_s:.2f} s")
            assert took_s < 1.0
            found = await running.ask("GET", "/api/v1/vms", params={"project": "p1"})
            assert found.json()["vms"] == []

    asyncio.run(run())


def test_a_build_that_does_not_hear_of_it_goes_on_searching(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Asker, "leave", lambda self: None)

    async def run() -> None:
        async with crowded() as (running, searches):
            took_s = await ask_and_leave(running, searches, "/api/v1/placements:dry-run-batch", "")
            assert took_s > 2.0

    asyncio.run(run())


def test_who_hangs_up_while_it_waits_leaves_the_row() -> None:
    async def run() -> None:
        async with crowded() as (running, searches):
            async with searches.turn(Asker()):
                for _ in range(2):
                    _, writer = await asyncio.open_connection("127.0.0.1", running.server.port)
                    writer.write(request("/api/v1/vms:batch", ""))
                    async with asyncio.timeout(20):
                        while not searches._waiting:
                            await asyncio.sleep(0.01)
                    writer.close()
                    async with asyncio.timeout(1):
                        while searches._waiting:
                            await asyncio.sleep(0.01)
            assert not searches._searching

    asyncio.run(run())
