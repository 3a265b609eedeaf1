"""A spec that cannot be read, or that is gone with its VM, costs that VM and no other."""

import logging
from collections.abc import Awaitable, Callable

import pytest
from sqlalchemy import delete, select, update

from roost.base.errors import Conflict
from roost.control.preempt import tending
from roost.ledger.schema.tables import vm_specs
from roost.wire.bodies import ConfirmDead
from roost.wire.constraints import CreateConstraint
from roost.wire.recommendations import AskRecommendations
from tests.integration.control.rig import ADMIN, OPERATOR, Rig, run
from tests.integration.control.test_dead_hosts import LONG_S, switch_off
from tests.integration.control.test_preemption import classes, wait_for

Mend = Callable[[], Awaitable[None]]


def forget(rig: Rig, vm: str) -> Callable[[], None]:
    """Let this process know no spec of a VM but that it cannot be read; return what mends it."""
    specs = rig.plane.roster.specs
    known = specs.get(vm)
    assert known is not None
    specs._specs.pop(vm)
    specs.unreadable[vm] = "planted"

    def mend() -> None:
        specs.unreadable.pop(vm)
        specs.put(vm, known)

    return mend


async def unreadable(rig: Rig, vm: str) -> Mend:
    """Make the stored spec of a VM unreadable; return what mends it."""
    [known] = await rig.rows(select(vm_specs.c.spec).where(vm_specs.c.vm == vm))

    async def keep(text: str) -> None:
        said = update(vm_specs).where(vm_specs.c.vm == vm).values(spec=text)
        await rig.store.write(lambda tx: tx.connection.execute(said))

    await keep("{")
    return lambda: keep(known["spec"])


async def missing(rig: Rig, vm: str) -> Mend:
    """Take away the stored spec of a VM; return what brings it back."""
    [known] = await rig.rows(select(vm_specs).where(vm_specs.c.vm == vm))
    gone = delete(vm_specs).where(vm_specs.c.vm == vm)
    await rig.store.write(lambda tx: tx.connection.execute(gone))

    async def back() -> None:
        await rig.store.write(lambda tx: tx.insert(vm_specs, known))

    return back


def test_a_vm_that_is_deleted_while_it_takes_its_room_is_no_mistake(
    database_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(rig: Rig) -> None:
        await classes(rig)
        await rig.host("h1", cpu=2)
        await rig.running("old", cpu=2, priority_class="low", restart="elsewhere")
        await rig.create("new", cpu=2, priority_class="high", on_no_fit="preempt")
        taking = tending.arrive

        async def deleted_first(*given: object) -> bool:
            await rig.plane.vms.delete("new", None, OPERATOR)
            return await taking(*given)  # type: ignore[arg-type]

        with monkeypatch.context() as patched:
            patched.setattr(tending, "arrive", deleted_first)
            await rig.plane.run_singletons()
        assert [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR] == []
        await wait_for(rig, "old", "h1")

    run(database_url, test)


def test_the_queue_goes_on_behind_a_vm_that_cannot_be_read(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        rule = CreateConstraint(name="any", expression='host.name != "x"', relax_after_s=5)
        await rig.plane.constraints.create(rule, ADMIN)
        bad = await rig.create("bad", on_no_fit="queue", priority=9)
        await rig.create("good", on_no_fit="queue")
        mend = forget(rig, bad.id)
        await rig.host("h1")
        await rig.plane.run_singletons()
        hosts = [(await rig.get(name)).host for name in ("bad", "good")]
        assert hosts == [None, "h1"]
        mend()
        await rig.host("h2")
        await wait_for(rig, "bad", "h1")

    run(database_url, test)


def test_a_lost_hosts_other_vms_are_recovered(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("a")
        bad = await rig.running("bad", restart="elsewhere", priority=9)
        await rig.running("good", restart="elsewhere")
        await rig.host("b")
        switch_off(rig, "a")
        await rig.pass_by(LONG_S, silent=("a",))
        await rig.plane.hosts.confirm_dead("a", ConfirmDead(reason="off"), ADMIN)
        mend = forget(rig, bad.id)
        await rig.plane.run_singletons()
        assert [(await rig.get(name)).host for name in ("bad", "good")] == ["a", "b"]
        mend()
        await wait_for(rig, "bad", "b")

    run(database_url, test)


def test_a_drain_goes_on_with_the_others(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("a")
        bad, good = await rig.running("bad"), await rig.running("good")
        await rig.host("b")
        mend = forget(rig, min(bad.id, good.id))
        await rig.plane.hosts.drain("a", OPERATOR)
        await rig.plane.run_singletons()
        told = await rig.plane.hosts.drain_state("a")
        assert (told.left, told.moving) == (2, "good" if bad.id < good.id else "bad")
        mend()
        await wait_for(rig, "bad", "b")
        await wait_for(rig, "good", "b")

    run(database_url, test)


@pytest.mark.parametrize("broken", [unreadable, missing])
def test_the_doctor_names_a_vm_whose_spec_is_broken(
    database_url: str, broken: Callable[[Rig, str], Awaitable[Mend]]
) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("a")
        made = await rig.running("bad")
        mend = await broken(rig, made.id)
        await rig.restart()
        told = await rig.plane.doctor()
        said = [each.message for each in told.findings if each.check == "specs"]
        stays = f"VM {made.id} stays as it is, whatever is asked of it: "
        assert sum(each.startswith(stays) for each in said) == 1
        with pytest.raises(Conflict, match="cannot be placed or told of"):
            await rig.plane.questions.recommend(AskRecommendations(vm="bad"), OPERATOR)
        await mend()
        await rig.restart()

    run(database_url, test)
