"""Room made by preemption is of devices, NUMA cells and extended resources too, and is held."""

from typing import Any

import pytest
from sqlalchemy import select

from roost.base.errors import Conflict, NoFit
from roost.control.preempt.beginning import begin
from roost.ledger.schema.tables import holds, host_counters
from roost.wire.agentlink import AmountInfo, CellInfo, DeviceInfo
from tests.integration.control.rig import OPERATOR, Rig, run, run_two
from tests.integration.control.test_preemption import classes, wait_for
from tests.integration.control.test_preemption_races import plan

GIB = 2**30

#: What a host has of a kind of counter, and what a VM asks of it that takes half of that.
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "devices": ({"devices": [DeviceInfo("a100")] * 2}, {"gpu": 1}),
    "extended": ({"extended": {"licence": AmountInfo(2)}}, {"extended": {"licence": 1}}),
    "cells": (
        {"cells": [CellInfo(2000, 8 * GIB), CellInfo(2000, 8 * GIB)]},
        {"cpu": 2, "numa": "one"},
    ),
}


def twice(asks: dict[str, Any]) -> dict[str, Any]:
    """Return what takes all of it: of cells, both."""
    if "numa" in asks:
        return {"cpu": 4, "numa": "split"}
    if "extended" in asks:
        return {"extended": {"licence": 2}}
    return {"gpu": 2}


async def filled(rig: Rig, kind: str) -> None:
    """Make a host whose counters two VMs of low priority have, and one that waits for both."""
    await classes(rig)
    has, asks = KINDS[kind]
    await rig.host("h1", cpu=16, memory=64, **has)
    for name in ("a", "b"):
        await rig.running(name, **asks, priority_class="low", restart="elsewhere")
    made = await rig.create("new", **twice(asks), priority_class="high", on_no_fit="queue")
    assert made.state == "pending"


async def steal(rig: Rig, kind: str, name: str) -> bool:
    """Let a VM as important as can be try to have what is free; it displaces nobody."""
    try:
        await rig.create(name, **KINDS[kind][1], priority=1000)
    except NoFit:
        return False
    return True


async def held_is_whole(rig: Rig) -> None:
    """Nothing is promised twice: what is promised and held is within every counter."""
    for row in await rig.rows(select(host_counters)):
        assert row["committed"] + row["held"] <= row["capacity"], row


@pytest.mark.parametrize("kind", KINDS)
def test_freed_counters_are_held_for_who_waits(database_url: str, kind: str) -> None:
    async def test(rig: Rig) -> None:
        await filled(rig, kind)
        for n in range(20):
            await rig.plane.run_singletons()
            await rig.one_round()
            await held_is_whole(rig)
            assert not await steal(rig, kind, f"thief{n}"), "freed room was taken by another"
            if (await rig.state("new"))[0] == "running":
                break
        await wait_for(rig, "new", "h1")
        assert await rig.rows(select(holds)) == []
        assert all(row["held"] == 0 for row in await rig.rows(select(host_counters)))

    run(database_url, test)


@pytest.mark.parametrize("kind", KINDS)
def test_two_planes_give_no_freed_counter_away(postgres_url: str, kind: str) -> None:
    async def test(one: Rig, two: Rig) -> None:
        await filled(one, kind)
        for n in range(20):
            await one.plane.run_singletons()
            await one.one_round()
            await two.plane.follower.catch_up()
            assert not await steal(two, kind, f"thief{n}"), "freed room was taken by another"
            await held_is_whole(two)
            if (await one.state("new"))[0] == "running":
                break
        await wait_for(one, "new", "h1")

    run_two(postgres_url, test)


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_held_of_counters_is_free_when_its_vm_goes(database_url: str, kind: str) -> None:
    async def test(rig: Rig) -> None:
        await filled(rig, kind)
        await rig.plane.run_singletons()
        await rig.plane.vms.delete("a", None, OPERATOR)
        for _ in range(4):
            await rig.one_round()
        assert any(row["held"] for row in await rig.rows(select(host_counters)))
        await rig.plane.vms.delete("new", None, OPERATOR)
        for _ in range(4):
            await rig.plane.run_singletons()
            await rig.one_round()
        assert await rig.rows(select(holds)) == []
        assert all(row["held"] == 0 for row in await rig.rows(select(host_counters)))
        assert await steal(rig, kind, "late")

    run(database_url, test)


def test_no_room_is_begun_where_a_device_was_taken_meanwhile(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await classes(rig)
        await rig.host("h1", cpu=16, memory=64, devices=[DeviceInfo("a100")] * 3)
        for name in ("a", "b"):
            await rig.running(name, gpu=1, priority_class="low", restart="elsewhere")
        await rig.create("new", gpu=2, priority_class="high", on_no_fit="queue")
        row, found = await plan(rig, "new")
        assert len(found.leaving) == 1, "one device is free"
        await rig.create("fast", gpu=1, priority=1000)
        with pytest.raises(Conflict, match="is not there any more"):
            await rig.store.write(lambda tx: begin(tx, row, found))

    run(database_url, test)
