"""What one host registers with harms no other: refused before it is written, or set aside."""

from typing import Any

import msgspec
import pytest
from sqlalchemy import select, update

from roost.base.errors import InvalidRequest, NoFit
from roost.fleet.hosts import MOST_MODELS
from roost.ledger.schema.tables import hosts
from roost.ledger.store import Store
from roost.ledger.writes.transaction import Tx
from roost.testing.agent import inventory
from roost.wire.agentlink import AmountInfo, DeviceInfo, Inventory
from tests.integration.control.rawagent import connect, hello
from tests.integration.control.rig import Rig, run, run_two

_PLAIN: dict[str, Any] = {
    "cpu_milli": {"total": 4000},
    "memory_bytes": {"total": 2**33},
    "disk_bytes": {"total": 2**40},
}
#: Inventories as text that no agent may bring into the ledger, as a row may have it nevertheless.
BAD = {
    "device memory 2^70": _PLAIN | {"devices": [{"model": "x", "memory_bytes": 2**70}]},
    "device memory -1": _PLAIN | {"devices": [{"model": "x", "memory_bytes": -1}]},
    "63 devices": _PLAIN | {"devices": [{"model": "x"}] * 63},
    "63 device models": _PLAIN | {"devices": [{"model": f"m{n}"} for n in range(63)]},
    "cell 2^63": _PLAIN | {"cells": [{"cpu_milli": 2**63, "memory_bytes": 1}]},
    "cell -2^62": _PLAIN | {"cells": [{"cpu_milli": -(2**62), "memory_bytes": 1}]},
    "max_vms 2^70": _PLAIN | {"max_vms": 2**70},
    "20,000 resources": _PLAIN | {"extended": {f"r{n}": {"total": 1} for n in range(20_000)}},
    "cpu 2^60": _PLAIN | {"cpu_milli": {"total": 2**60}},
    "taint effect": _PLAIN | {"taints": [{"key": "k", "effect": "explode"}]},
    "no object": [],
}


async def plant(store: Store, host: str, found: Any) -> None:
    """Change a host's row behind everybody's back."""

    def change(tx: Tx) -> None:
        text = msgspec.json.encode(found).decode()
        tx.connection.execute(update(hosts).where(hosts.c.name == host).values(inventory=text))

    await store.write(change, "test")


@pytest.mark.parametrize("what", BAD)
def test_a_hello_that_cannot_be_loaded_is_refused_and_not_written(
    database_url: str, what: str
) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("good", devices=[DeviceInfo("a100")])
        await rig.running("web")
        link, session = connect(rig, "evil")
        session.received(hello("evil", BAD[what]))
        await rig.settle()
        assert link.closed is not None
        assert [each["type"] for each in link.heard] == ["refused"]
        assert rig.plane.roster.entry("evil") is None
        await rig.restart()
        assert rig.plane.readiness().status == "ready"

    run(database_url, test)


@pytest.mark.parametrize("what", BAD)
def test_a_bad_row_sets_one_host_aside_and_everything_else_starts(
    database_url: str, what: str
) -> None:
    async def test(rig: Rig) -> None:
        agent = await rig.host("bad", devices=[DeviceInfo("a100")], labels={"n": "1"})
        await rig.running("here", gpu=1)
        await rig.host("good", labels={"n": "2"})
        await rig.running("there", constraints={"hosts": ["good"]})
        await plant(rig.store, "bad", BAD[what])
        await rig.restart()
        assert list(rig.plane.roster.set_aside()) == ["bad"]
        ready = rig.plane.readiness()
        assert (ready.status, ready.detail) == ("ready", "1 hosts are set aside: bad")
        told = (await rig.plane.doctor()).findings
        assert any("host 'bad' is set aside" in each.message for each in told)
        assert (await rig.plane.hosts.get("bad")).unusable
        assert not (await rig.plane.hosts.get("good")).unusable
        for each in rig.agents.values():
            each.connect(rig.plane)
        await rig.settle(check=False)
        assert await rig.state("here") == ("running", "bad")  # its VM is not touched
        # Registering with what makes sense is all that it needs.
        assert rig.plane.roster.set_aside() == {}
        assert agent.refusal is None
        await rig.check()

    run(database_url, test)


def test_a_host_set_aside_takes_nothing(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("bad")
        await rig.running("here")
        await plant(rig.store, "bad", BAD["cell 2^63"])
        await rig.restart()
        with pytest.raises(NoFit):
            await rig.create("more")
        await plant(rig.store, "bad", inventory(4, 8))
        await rig.restart()

    run(database_url, test)


def test_an_update_that_makes_no_sense_leaves_a_host_as_it_was(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        agent = await rig.host("h1", devices=[DeviceInfo("a100")])
        await rig.running("web", gpu=1)
        before = await rig.rows(select(hosts))
        _, session = connect(rig, "h1")
        session.received(hello("h1", BAD["device memory 2^70"]))
        agent.inventory = inventory(4, 8, devices=[DeviceInfo(f"m{n}") for n in range(62)])
        agent.connect(rig.plane)
        await rig.settle(check=False)
        assert agent.refusal is not None
        assert await rig.rows(select(hosts)) == before
        agent.inventory = inventory(4, 8, devices=[DeviceInfo("a100")])
        agent.connect(rig.plane)
        await rig.settle()
        assert await rig.state("web") == ("running", "h1")

    run(database_url, test)


def test_another_process_sets_a_bad_row_aside_and_goes_on(postgres_url: str) -> None:
    async def test(first: Rig, second: Rig) -> None:
        agent = await first.host("h1", devices=[DeviceInfo("a100")])
        await first.host("good")
        await first.running("web", gpu=1)
        await second.plane.follower.catch_up()
        # Some other version of roost takes what this one cannot.
        first.plane.roster.try_host = lambda name, found: None  # type: ignore[method-assign]
        second.plane.roster._try = _refuse  # type: ignore[method-assign, assignment]
        agent.inventory = inventory(8, 16, devices=[DeviceInfo("a100")])
        agent.connect(first.plane)
        await first.settle(check=False)
        await second.plane.follower.catch_up()
        assert second.plane.follower.trouble == ""
        assert second.plane.follower.applied == first.plane.follower.applied
        assert list(second.plane.roster.set_aside()) == ["h1"]
        await first.running("more", constraints={"hosts": ["good"]})
        await second.plane.follower.catch_up()
        assert second.plane.follower.applied == first.plane.follower.applied
        await second.restart()
        assert second.plane.roster.set_aside() == {}
        for each in first.agents.values():
            each.connect(first.plane)
        await first.settle()

    run_two(postgres_url, test)


def _refuse(spec: object) -> None:
    raise OverflowError("Python int too large to convert to C long")


def test_one_host_cannot_take_all_names_of_models_and_resources(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        evil = await rig.host("evil", devices=[DeviceInfo("a100")])
        for at in range(40):  # each time others, in one life of the process
            evil.inventory = inventory(
                4, 8, devices=[DeviceInfo(f"m{at}.{n}") for n in range(8)],
                extended={f"r{at}.{n}": AmountInfo(1) for n in range(16)},
            )  # fmt: skip
            evil.connect(rig.plane)
            await rig.settle(check=False)
        table = rig.plane.roster.fleet.hosts
        assert len(table.device_models) <= 17 < MOST_MODELS
        assert len(table.resources) <= 3 + 32
        await rig.host("good", devices=[DeviceInfo("h200")], extended={"fpga": AmountInfo(1)})
        await rig.running("web", gpu=1, extended={"fpga": 1}, constraints={"hosts": ["good"]})

    run(database_url, test)


def test_requests_cannot_fill_the_columns_with_names_that_no_host_has(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1")
        refused = 0
        for at in range(120):
            try:
                await rig.create(f"vm{at}", extended={f"r{at}": 1})
            except NoFit:
                continue
            except InvalidRequest:
                refused += 1
        assert refused
        await rig.host("h2", extended={f"x{n}": AmountInfo(1) for n in range(32)})
        await rig.running("web", extended={"x31": 1})

    run(database_url, test)


def test_a_host_that_registers_again_and_again_waits(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        evil = await rig.host("evil")
        await rig.host("good")
        before = rig.plane.follower.applied
        for at in range(200):
            evil.inventory = inventory(4, 8, labels={"at": str(at)})
            evil.connect(rig.plane)
            await rig.settle(check=False)
        assert rig.plane.follower.applied - before < 60
        rig.clock.move(120.0)
        evil.connect(rig.plane)
        await rig.settle()
        assert evil.refusal is None

    run(database_url, test)


def test_hellos_of_one_connection_are_counted(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("good")
        link, session = connect(rig, "evil")
        found = msgspec.to_builtins(inventory(4, 8))
        for at in range(100):
            session.received(hello("evil", found, instance=str(at)))
        await rig.settle()
        assert link.closed is not None
        assert sum(each["type"] == "welcome" for each in link.heard) <= 1
        assert len(link.heard) <= 101

    run(database_url, test)


def test_what_is_in_a_row_is_what_an_agent_may_say() -> None:
    for what, found in BAD.items():
        if what in ("63 device models", "taint effect"):
            continue  # refused by the model, or by the fleet
        with pytest.raises(msgspec.DecodeError):
            msgspec.json.decode(msgspec.json.encode(found), type=Inventory)
