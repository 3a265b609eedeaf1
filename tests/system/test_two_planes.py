"""Two control planes on one PostgreSQL: what they promise together is never more than there is."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from itertools import cycle

import pytest

from roost.base.errors import NoFit, QuotaExceeded, RoostError
from roost.client import AsyncClient
from roost.wire.bodies import (
    BatchBody,
    ConstraintsBody,
    CreateVM,
    GroupBody,
    QuotaBody,
    VMBody,
)
from tests.system.processes import Site, all_settled, assert_healthy, examine, small

pytestmark = pytest.mark.slow

#: Narrow hosts hold 160 small VMs each and are asked for more; the wide ones have room.
NARROW, WIDE = 4, 30
PLAIN, PLAIN_FIT = 900, NARROW * 160
GROUPS, OF_EACH = 5, 60
LIMITED, QUOTA = 400, 150
BATCHES, IN_BATCH = 20, 20
TWICE = 60  # sent to both planes with the same key
CLIENTS = 20  # of each plane


def plain(at: int) -> CreateVM:
    return small(f"plain-{at}", constraints=ConstraintsBody(zones=["narrow"]))


def apart(at: int) -> CreateVM:
    group = GroupBody(name=f"apart-{at % GROUPS}", rule="anti-affinity")
    return small(f"apart-{at}", groups=[group], constraints=ConstraintsBody(zones=["wide"]))


def limited(at: int) -> CreateVM:
    return small(f"limited-{at}", project="limited", constraints=ConstraintsBody(zones=["wide"]))


def batched(at: int) -> CreateVM:
    return small(f"batched-{at}", constraints=ConstraintsBody(zones=["wide"]))


def test_two_planes_and_two_thousand_creates_keep_every_promise(
    site: Site, postgres_url: str
) -> None:
    first = site.serve("first", database=postgres_url, log_level="warning")
    second = site.serve("second", database=postgres_url, log_level="warning")
    site.hosts("narrow", first, second, count=NARROW, zone="narrow")
    site.hosts("wide", second, first, count=WIDE, zone="wide")
    with site.client(first) as client:
        client.create_project("limited", QuotaBody(vms=QUOTA))

    async def all_at_once() -> list[VMBody | BatchBody | RoostError]:
        async with AsyncExitStack() as stack:
            # Many clients with few connections each: one pool with all of them is slow itself.
            clients = [
                await stack.enter_async_context(site.async_client(server))
                for server in (first, second) * CLIENTS
            ]
            turns = cycle(clients)
            vms = [*map(plain, range(PLAIN)), *map(apart, range(GROUPS * OF_EACH))]
            vms += map(limited, range(LIMITED))
            asks: list[Awaitable[VMBody | BatchBody | RoostError]] = []
            asks += [answer(next(turns), vm, f"key-{vm.name}") for vm in vms]
            next(turns)  # what comes again, with the same key, goes to the other plane
            asks += [answer(next(turns), vm, f"key-{vm.name}") for vm in vms[:TWICE]]
            for batch in range(BATCHES):
                vms = [batched(batch * IN_BATCH + at) for at in range(IN_BATCH)]
                asks.append(next(turns).create_vms(vms))
            return await asyncio.gather(*asks)

    answers = asyncio.run(all_at_once())
    created = {vm.id: vm for vm in answers if isinstance(vm, VMBody)}
    refused = Counter(type(error).__name__ for error in answers if isinstance(error, RoostError))
    batches = [batch for batch in answers if isinstance(batch, BatchBody)]
    assert refused.keys() <= {NoFit.__name__, QuotaExceeded.__name__}, refused

    kinds = Counter(vm.name.partition("-")[0] for vm in created.values())
    assert kinds == {"plain": PLAIN_FIT, "apart": GROUPS * WIDE, "limited": QUOTA}
    assert len({vm.name for vm in created.values()}) == len(created), "one name, two VMs"
    assert [batch.created for batch in batches] == [IN_BATCH] * BATCHES
    promised = created.keys() | {str(item.id) for batch in batches for item in batch.results}

    with site.client(second) as client:
        vms = all_settled(client)
        assert vms.keys() == promised
        hosts = list(client.all_hosts())
        used: defaultdict[str, list[VMBody]] = defaultdict(list)
        for vm in vms.values():
            used[str(vm.host)].append(vm)
        for host in hosts:
            asked = sum(vm.demand.cpu_milli for vm in used[host.name])
            assert asked == host.cpu_milli.committed <= host.cpu_milli.capacity
            assert len(used[host.name]) == host.vms
        for group in range(GROUPS):
            homes = [vm.host for vm in vms.values() if f"apart-{group}" in vm.groups]
            assert len(set(homes)) == len(homes) == WIDE
        assert client.get_project("limited").vms.used == QUOTA
    site.doctor(first, second)
    assert first.stop() == second.stop() == 0
    assert_healthy(asyncio.run(examine(postgres_url)))


async def answer(client: AsyncClient, vm: CreateVM, key: str) -> VMBody | RoostError:
    """Return what a create came to."""
    try:
        return await client.create_vm(vm, key=key)
    except RoostError as error:
        return error
