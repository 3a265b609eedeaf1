"""Victims that were chosen and cannot leave: gone, or with a claim on an earlier host."""

from typing import Any

import pytest
from sqlalchemy import select

from roost.base.errors import Conflict
from roost.control.preempt import tending
from roost.control.preempt.beginning import begin
from roost.control.preempt.choosing import Choosing, Leaving, Plan
from roost.control.preempt.displacing import displace
from roost.ledger.schema.rows import VMRow
from roost.ledger.schema.tables import preemptions
from roost.ledger.writes.transaction import Tx
from roost.wire.priorities import CreatePriorityClass
from tests.integration.control.rig import ADMIN, OPERATOR, Rig, run
from tests.integration.control.test_preemption import classes, wait_for


@pytest.mark.parametrize("gone", ["old", "new"])
def test_a_create_is_answered_though_somebody_is_deleted_meanwhile(
    database_url: str, gone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(rig: Rig) -> None:
        await classes(rig)
        await rig.host("h1", cpu=2)
        await rig.running("old", cpu=2, priority_class="low", restart="elsewhere")
        choose = Choosing.choose

        async def late(self: Choosing, *given: Any, **named: Any) -> Plan | None:
            plan = await choose(self, *given, **named)
            if named.get("but"):  # the VM is in the ledger, and its plan not yet
                await rig.plane.vms.delete(gone, None, OPERATOR)
                await rig.settle(check=False)
            return plan

        with monkeypatch.context() as broken:
            broken.setattr(Choosing, "choose", late)
            made = await rig.create("new", cpu=2, priority_class="high", on_no_fit="preempt")
        assert (made.name, made.state) == ("new", "pending")
        assert await rig.rows(select(preemptions)) == []
        if gone == "old":
            await wait_for(rig, "new", "h1")

    run(database_url, test)


async def moved_from_a_silent_host(rig: Rig) -> None:
    """Move a VM to h2 while h1, where it was, has yet to say that it destroyed it."""
    await classes(rig)
    await rig.host("h1", cpu=2)
    await rig.running("old", cpu=2, priority_class="low", restart="elsewhere")
    await rig.host("h2", cpu=2)
    await rig.migrate("old", "h2")
    for _ in range(40):
        await rig.one_round()
        if (await rig.claims()).get("old:run") == "h2":
            break
    rig.agents["h1"].disconnect()
    await alone(rig, "h2")
    assert await rig.claims() == {"old:hold": "h1", "old:run": "h2"}
    assert await rig.state("old") == ("running", "h2")
    await rig.create("new", cpu=2, priority_class="high", on_no_fit="queue",
                     constraints={"hosts": ["h2"]})  # fmt: skip
    await rig.plane.follower.catch_up()


async def alone(rig: Rig, host: str) -> None:
    """Let one host speak, and the others be silent."""
    for _ in range(6):
        rig.step(rig.agents[host])
        await rig.hear()
        rig.agents[host].listen()


async def known(rig: Rig, name: str) -> VMRow:
    row = await rig.row(name)
    assert row is not None
    return row


def test_a_vm_that_an_earlier_host_has_is_asked_once_that_is_clean(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await moved_from_a_silent_host(rig)
        answer = await rig.plane.asking.get("new", None, OPERATOR)
        assert answer.preemption is None
        for _ in range(3):
            await rig.plane.run_singletons()
            await alone(rig, "h2")
        assert await rig.rows(select(preemptions)) == []
        assert await rig.state("old") == ("running", "h2")
        rig.agents["h1"].connect(rig.plane)
        rig.clock.move(60)
        await wait_for(rig, "new", "h2")

    run(database_url, test)


def test_a_vm_that_an_earlier_host_has_is_refused_as_a_victim(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await moved_from_a_silent_host(rig)
        old, new = await known(rig, "old"), await known(rig, "new")
        entry = rig.plane.roster.entry("h2")
        assert entry is not None
        plan = Plan(entry, entry.generation, (Leaving(old, "stop"),))
        with pytest.raises(Conflict, match="has not cleaned up yet"):
            await rig.store.write(lambda tx: begin(tx, new, plan))
        with pytest.raises(Conflict, match="has not cleaned up yet"):
            await rig.store.write(lambda tx: displace(tx, old.id, entry.number, new))
        assert await rig.claims() == {"old:hold": "h1", "old:run": "h2"}
        rig.agents["h1"].connect(rig.plane)

    run(database_url, test)


def test_one_preemption_that_fails_is_not_in_the_way_of_others(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(rig: Rig) -> None:
        await classes(rig)
        await rig.plane.priorities.create(CreatePriorityClass(name="first", value=200), ADMIN)
        for n, wanted in ((1, "first"), (2, "high")):
            only = {"hosts": [f"h{n}"]}
            await rig.host(f"h{n}")
            await rig.running(f"old{n}", cpu=4, priority_class="low", restart="elsewhere",
                              constraints=only)  # fmt: skip
            await rig.create(f"new{n}", cpu=4, priority_class=wanted, on_no_fit="queue",
                             constraints=only)  # fmt: skip
        broken = (await known(rig, "old1")).id

        def fail(tx: Tx, vm: str, host: int, waits: VMRow) -> bool:
            if vm == broken:
                raise ValueError("nobody thought of this")
            return displace(tx, vm, host, waits)

        monkeypatch.setattr(tending, "displace", fail)
        await wait_for(rig, "new2", "h2")
        assert await rig.state("old1") == ("running", "h1")
        monkeypatch.undo()
        await wait_for(rig, "new1", "h1")

    run(database_url, test)
