"""VMs are ended at their time only by a ledger that is known to be the newest, each by itself."""

from sqlalchemy import select

from roost.base.errors import Conflict
from roost.control.moves import handover
from roost.control.vms.expiring import ExpiredVMs
from roost.ledger.schema.rows import VMRow
from roost.ledger.schema.tables import vms
from roost.ledger.writes.transaction import Tx
from tests.integration.control.rig import OPERATOR, Rig, run
from tests.integration.control.test_reservations import at
from tests.integration.control.test_restored import come_back, copy, in_doubt, kinds, put_back


async def look(rig: Rig) -> None:
    await rig.plane.run_singletons()
    await rig.hear()


def test_a_vm_of_which_it_is_not_known_where_it_runs_is_not_ended(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        for name in ("a", "b"):
            await rig.host(name)
        await rig.running("short", until=at(rig, 10))
        old = await copy(rig)
        await rig.move("short", "b")
        await put_back(rig, old)
        await come_back(rig, "a")  # b, which runs it, is not back yet
        made = await rig.row("short")
        assert made is not None
        assert await in_doubt(rig) == {made.id}
        rig.clock.move(11 * 60)
        for _ in range(3):
            await look(rig)
        assert rig.plane.lineage.sure  # it waits for nobody: the doubt itself must keep the VM
        assert await rig.row("short") == made
        assert "vm.expired" not in await kinds(rig)
        await come_back(rig, "b")
        await rig.pass_by(60)
        assert await rig.row("short") is None
        assert [agent.copies for agent in rig.agents.values()] == [{}, {}]

    run(database_url, test, dated=True)


def test_a_vm_that_waits_in_a_ledger_that_may_be_old_is_not_ended(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        for name in ("a", "b"):
            await rig.host(name, cpu=1)
            await rig.running(f"on-{name}")
        made = await rig.create("short", until=at(rig, 10), on_no_fit="queue")
        old = await copy(rig)
        await rig.plane.vms.delete("on-b", None, OPERATOR)
        for _ in range(4):
            await rig.settle(keep=True)
        assert await rig.state("short") == ("running", "b")
        rig.clock.move(9.9 * 60)
        await put_back(rig, old)
        await come_back(rig, "a")
        rig.clock.move(12)
        await look(rig)
        assert not rig.plane.lineage.sure
        assert await rig.state("short") == ("pending", None)
        await come_back(rig, "b")
        await rig.pass_by(90)
        assert await rig.row("short") is None
        assert not any(made.id in agent.copies for agent in rig.agents.values())

    run(database_url, test, dated=True)


def test_one_vm_that_cannot_be_ended_is_not_in_the_way_of_others(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("a")
        for name in ("one", "two"):
            await rig.running(name, until=at(rig, 1))
        first = sorted(row["id"] for row in await rig.rows(select(vms)))[0]
        (part,) = [each for each in rig.plane.parts if isinstance(each, ExpiredVMs)]

        def fail(tx: Tx, vm: VMRow) -> VMRow:
            if vm.id == first:
                raise Conflict("not now")
            return handover.delete(tx, vm)

        part._destroy = fail
        rig.clock.move(61)
        await rig.settle(keep=True)
        assert [row["id"] for row in await rig.rows(select(vms))] == [first]
        part._destroy = handover.delete
        await rig.pass_by(10)
        assert await rig.rows(select(vms)) == []

    run(database_url, test, dated=True)
