"""After a host is lost: what operators ask for, what is held back, and in which order."""

import msgspec
import pytest

from roost.base.errors import Conflict, InvalidRequest, LedgerUnsettled
from roost.control.plane import RequestedRecovery
from roost.control.survive.fencing import why_not_fence
from roost.control.survive.recover import RecoverLimits
from roost.control.vms.requests import request_of
from roost.control.vms.restart_policy import acknowledged
from roost.ledger.schema.rows import HostRow
from roost.wire.agentlink import SeenVM
from roost.wire.bodies import ConfirmDead, ConstraintsBody, MigrateVM, SetVM
from tests.integration.control.rig import ADMIN, OPERATOR, TIMERS, Rig, run, run_two

LONG_S = 2 * TIMERS.lease_s + TIMERS.offline_s
WORD = ConfirmDead(reason="pulled the plug")


def recovery(rig: Rig) -> RequestedRecovery:
    return next(part for part in rig.plane.parts if isinstance(part, RequestedRecovery))


def only(name: str) -> ConstraintsBody:
    return ConstraintsBody(hosts=[name])


def switch_off(rig: Rig, name: str) -> None:
    """Cut a host's power: nothing runs there, and nothing works there either."""
    agent = rig.agents.pop(name)
    agent.disconnect()
    for copy in agent.copies.values():
        copy.state = "stopped"


def test_a_host_that_only_another_process_knows_is_proof_of_nothing(postgres_url: str) -> None:
    async def test(one: Rig, two: Rig) -> None:
        await one.host("h1")
        await one.running("web")
        with pytest.raises(Conflict, match="gone, or not heard of here"):
            await recovery(two).vm("web", None, OPERATOR)
        await two.plane.follower.catch_up()
        with pytest.raises(Conflict, match="host 'h1' is online"):
            await recovery(two).vm("web", None, OPERATOR)

    run_two(postgres_url, test)


def test_a_vm_that_stays_with_its_host_is_recovered_only_with_a_proof(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        lost = await rig.host("h1", guard=5.0)
        await rig.host("h2")
        made = await rig.running("web")
        ask = recovery(rig)
        with pytest.raises(Conflict, match="online"):
            await ask.vm("web", None, OPERATOR)
        lost.disconnect()
        await rig.pass_by(LONG_S, silent=("h1",))
        assert (await rig.plane.hosts.get("h1")).fenced == "lease"  # its guard lets this VM run
        with pytest.raises(Conflict, match="nothing proves that the host is off"):
            await ask.vm("web", None, OPERATOR)
        with pytest.raises(Conflict, match="nothing proves that the host is off"):
            await ask.host("h1", OPERATOR)
        switch_off(rig, "h1")
        await rig.plane.hosts.confirm_dead("h1", WORD, ADMIN)
        await rig.pass_by(10)
        assert (await rig.get("web")).host == "h1"  # nobody restarts it by himself
        assert (await ask.vm("web", None, OPERATOR)).host == "h2"
        await rig.settle()
        assert await rig.state("web") == ("running", "h2")
        rig.agents["h1"] = lost
        lost.vms.clear()  # it would start what it was told to run before it hears anything
        lost.connect(rig.plane)
        await rig.pass_by(10)
        assert made.id not in lost.copies  # the old copy is destroyed
        await rig.check()

    run(database_url, test)


def test_the_vms_of_a_dead_host_start_elsewhere_the_most_urgent_first(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1", cpu=3)
        for name, priority in (("low", 1), ("high", 9), ("middle", 5)):
            await rig.running(name, priority=priority)
        await rig.host("h2", cpu=2)
        switch_off(rig, "h1")
        await rig.pass_by(LONG_S)
        await rig.plane.hosts.confirm_dead("h1", WORD, ADMIN)
        found = await recovery(rig).host("h1", OPERATOR)
        assert (found.restarted, found.queued, found.failed) == (["high", "middle"], ["low"], [])
        await rig.settle()
        assert await rig.state("low") == ("pending", None)
        await rig.check()

    run(database_url, test)


def test_recovery_restarts_so_many_at_a_look_and_by_priority(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        lost = await rig.host("h1", cpu=3, guard=5.0)
        for name, priority in (("low", 1), ("high", 9), ("middle", 5)):
            await rig.running(name, priority=priority, restart="elsewhere")
        await rig.host("h2")
        for copy in lost.copies.values():
            copy.state = "stopped"
        await rig.pass_by(4, silent=("h1",))
        order: list[str] = []
        end = rig.clock.now + LONG_S
        while len(order) < 3:
            assert rig.clock.now < end
            await rig.pass_by(TIMERS.watch_s, silent=("h1",))
            homes = {name: (await rig.get(name)).host for name in ("low", "high", "middle")}
            there = [name for name, host in homes.items() if host == "h2" and name not in order]
            assert len(there) <= 1
            order += there
        assert order == ["high", "middle", "low"]

    run(database_url, test, recover=RecoverLimits(recover_at_once=1))


@pytest.mark.parametrize(("lost", "asked_for"), [(1, 1), (3, 2), (10, 0), (20, 0)])
def test_the_fence_command_is_held_back(database_url: str, lost: int, asked_for: int) -> None:
    asked: list[str] = []

    async def command(host: str) -> bool:
        asked.append(host)
        return True

    async def test(rig: Rig) -> None:
        names = [f"h{at:02}" for at in range(20)]
        for name in names:
            await rig.host(name, cpu=1)
        for at in range(20):
            await rig.create(f"vm-{at}", restart="elsewhere")
        await rig.settle()
        silent = tuple(names[:lost])
        for name in silent:
            rig.agents[name].disconnect()
            for copy in rig.agents[name].copies.values():
                copy.state = "stopped"
        await rig.pass_by(LONG_S, silent=silent)
        assert len(set(asked)) == asked_for
        found = await rig.plane.doctor()
        held = [each.message for each in found.troubles if each.check == "fencing"]
        assert len(held) == lost - asked_for
        assert not found.findings

    run(database_url, test, fence_command=command, recover=RecoverLimits(fence_share=0.1))


def test_a_command_for_a_host_that_its_lease_fenced_does_not_hold_up_the_next(
    database_url: str,
) -> None:
    asked: list[str] = []

    async def command(host: str) -> bool:
        asked.append(host)
        return False

    async def test(rig: Rig) -> None:
        for name in ("h1", "h2", "h3", "h4", "h5"):
            await rig.host(name, guard=5.0 if name == "h1" else None)
        for at in range(2):
            await rig.create(f"vm-{at}", restart="elsewhere", constraints=only(f"h{at + 1}"))
        await rig.settle()
        switch_off(rig, "h1")
        await rig.pass_by(LONG_S)
        assert set(asked) == {"h1"}
        assert (await rig.plane.hosts.get("h1")).fenced == "lease"
        switch_off(rig, "h2")
        await rig.pass_by(LONG_S)
        assert set(asked) == {"h1", "h2"}

    run(database_url, test, fence_command=command)


def test_hosts_that_are_known_to_be_off_tell_nothing_about_the_network() -> None:
    def host(health: str, fenced: str | None = None, admin: str = "open") -> HostRow:
        return msgspec.convert(
            {
                "number": 1, "name": "h", "inventory": "{}", "labels": None, "health": health,
                "admin": admin, "instance": "", "version": "", "guard_stop_s": None,
                "fenced": fenced, "held": "", "registered_ms": 0,
            },
            HostRow,
        )  # fmt: skip

    on, off = host("online"), host("offline")
    assert "may be here" in why_not_fence([on] * 5 + [off] * 5, 0)
    assert why_not_fence([on] * 5 + [host("offline", "operator")] * 5 + [off], 0) == ""
    assert why_not_fence([on] * 5 + [host("offline", None, "cordoned")] * 5 + [off], 0) == ""
    assert "may be here" in why_not_fence([on] * 5 + [host("offline", "lease")] * 5, 0)
    assert "1 may be" in why_not_fence([on] * 5 + [off], 1)
    assert "1 may be" in why_not_fence([on] * 5 + [host("offline", "command")], 0)


def test_a_host_that_joins_now_proves_nothing_about_the_ledger(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1")
        rig.agents["h1"].disconnect()
        await rig.pass_by(LONG_S, silent=("h1",))
        await rig.restart()
        await rig.host("new")
        await rig.settle(check=False)
        assert not await rig.plane.lineage.is_sure()

    run(database_url, test)


def test_a_start_does_not_wait_for_a_host_that_was_off_before(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1")
        await rig.host("h2")
        await rig.host("h3")
        rig.agents["h1"].disconnect()
        await rig.pass_by(LONG_S, silent=("h1",))
        await rig.restart()
        assert not await rig.plane.lineage.is_sure()  # nobody was heard, so nobody can be ahead
        rig.agents["h2"].connect(rig.plane)
        await rig.settle(check=False)
        with pytest.raises(LedgerUnsettled, match="has not heard of every host"):
            await rig.plane.lineage.require_sure()
        rig.agents["h3"].connect(rig.plane)
        await rig.settle(check=False)
        assert await rig.plane.lineage.is_sure()

    run(database_url, test)


def test_a_vm_that_is_set_to_restart_elsewhere_does_once_its_host_has_said_so(
    database_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        lost = await rig.host("h1", guard=5.0)
        await rig.host("h2")
        made = await rig.running("web", constraints=only("h1"))
        await rig.set_restart("web", "elsewhere")
        asked = await rig.get("web")
        assert (asked.restart, asked.restart_acknowledged) == ("elsewhere", False)
        await rig.settle()
        known = await rig.get("web")
        assert (known.restart, known.restart_acknowledged) == ("elsewhere", True)
        assert lost.copies[made.id].order.restart == "elsewhere"
        await rig.set_restart("web", "here")
        await rig.set_restart("web", "elsewhere")
        await rig.set_restart("web", "elsewhere")  # once more changes nothing
        assert (await rig.get("web")).generation == known.generation + 2
        await rig.settle()
        assert (await rig.get("web")).restart_acknowledged
        await rig.check()

    run(database_url, test)


@pytest.mark.parametrize("heard", [True, False])
def test_a_lease_proves_nothing_of_a_vm_whose_host_never_heard_that_it_may_leave(
    database_url: str, heard: bool
) -> None:
    async def test(rig: Rig) -> None:
        lost = await rig.host("h1", guard=5.0)
        await rig.running("web")
        await rig.host("h2")
        if not heard:
            lost.disconnect()
        await rig.set_restart("web", "elsewhere")
        if heard:
            await rig.settle()
            lost.disconnect()
        await rig.pass_by(LONG_S, silent=("h1",))
        assert (await rig.plane.hosts.get("h1")).fenced == "lease"
        copy = next(iter(lost.copies.values()))
        assert (copy.state, (await rig.get("web")).host) == (
            ("stopped", "h2") if heard else ("running", "h1")
        )
        if not heard:
            with pytest.raises(Conflict, match="nothing proves that the host is off"):
                await recovery(rig).vm("web", None, OPERATOR)
            switch_off(rig, "h1")
            await rig.plane.hosts.confirm_dead("h1", WORD, ADMIN)
            await rig.pass_by(10)
        await rig.settle()
        assert await rig.state("web") == ("running", "h2")
        assert (await rig.get("web")).restart_acknowledged
        await rig.check()

    run(database_url, test)


def test_a_lease_proves_nothing_of_a_copy_that_a_host_has_after_it_refused_the_vm(
    database_url: str,
) -> None:
    """It starts the VM after all, told to stay, and is cut off; then the waiting VM may leave."""

    async def test(rig: Rig) -> None:
        lost = await rig.host("h1", guard=5.0)
        made = await rig.create("web")
        lost.listen()
        said = SeenVM(made.id, 1, "failed", "insufficient_resources", "full", "capacity")
        await rig.report("h1", said)
        lost.inbox.clear()
        lost.work()
        assert lost.copies[made.id].state == "running"
        lost.disconnect()
        await rig.set_restart("web", "elsewhere")
        await rig.host("h2")
        await rig.pass_by(LONG_S, silent=("h1",))
        assert (await rig.plane.hosts.get("h1")).fenced == "lease"
        assert (lost.copies[made.id].state, (await rig.get("web")).host) == ("running", None)
        lost.connect(rig.plane)
        await rig.settle()
        assert made.id not in lost.copies
        await rig.pass_by(30)
        assert (await rig.get("web")).state == "running"
        assert (await rig.get("web")).restart_acknowledged
        await rig.check()

    run(database_url, test)


def test_a_late_word_of_an_earlier_policy_is_no_acknowledgement(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        lost = await rig.host("h1", guard=5.0)
        made = await rig.running("web", restart="elsewhere")
        said = lost.seen()[made.id]
        assert said.restart == "elsewhere"
        await rig.set_restart("web", "here")
        await rig.settle()
        lost.disconnect()
        await rig.set_restart("web", "elsewhere")
        row = await rig.row("web")
        assert acknowledged(row, said) == "elsewhere_asked"
        assert request_of(row, rig.plane.roster).restart == "elsewhere"  # a user's word, for rules
        now = msgspec.structs.replace(said, generation=row.generation)
        assert acknowledged(row, now) == "elsewhere"
        older_agent = msgspec.structs.replace(now, restart=None)
        assert acknowledged(row, older_agent) == "elsewhere_asked"

    run(database_url, test)


def test_what_cannot_be_set_is_said(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1")
        await rig.running("web")
        await rig.host("h2")
        with pytest.raises(InvalidRequest, match="nothing to set"):
            await rig.plane.vms.set("web", None, SetVM(), OPERATOR)
        await rig.plane.moves.migrate("web", None, MigrateVM(), OPERATOR)
        with pytest.raises(Conflict, match="is moving"):
            await rig.set_restart("web", "elsewhere")
        await rig.plane.vms.delete("web", None, OPERATOR)
        with pytest.raises(Conflict, match="being deleted"):
            await rig.set_restart("web", "elsewhere")

    run(database_url, test)


def test_a_queued_vm_restarts_elsewhere_from_its_first_start(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.create("web", on_no_fit="queue")
        await rig.set_restart("web", "elsewhere")
        assert (await rig.get("web")).restart_acknowledged

    run(database_url, test)
