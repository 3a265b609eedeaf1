"""An old copy of the ledger is put back: nothing runs twice, and what hosts say counts."""

import pytest
from sqlalchemy import Connection, delete, insert, select

from roost.base.errors import LedgerUnsettled, NoFit
from roost.base.timestamps import timestamp
from roost.control.survive.restore_apply import JUMP
from roost.ledger.claims.makingroom import QUEUE, begin_hold
from roost.ledger.schema.tables import claims, doubts, metadata, roll_call, tombstones
from roost.ledger.writes.transaction import Tx
from roost.wire.agentlink import SeenVM
from roost.wire.bodies import ConfirmDead, ConstraintsBody
from tests.integration.control.rig import ADMIN, OPERATOR, TIMERS, Rig, run

GUARD_STOP_S = 4.0
#: Long enough for every lease to end.
LONG_S = TIMERS.lease_s * TIMERS.fence_margin + 3 * GUARD_STOP_S

Copy = dict[str, list[dict[str, object]]]


async def copy(rig: Rig) -> Copy:
    """Return everything that the database holds."""

    def ask(connection: Connection) -> Copy:
        tables = metadata.sorted_tables
        return {t.name: [dict(r) for r in connection.execute(select(t)).mappings()] for t in tables}

    return await rig.store.read(ask)


async def put_back(rig: Rig, old: Copy) -> None:
    """Stop the plane, put an old copy in the database's place, and start another plane."""

    def change(tx: Tx) -> None:
        for table in metadata.sorted_tables:
            tx.connection.execute(delete(table))
            if old[table.name]:
                tx.connection.execute(insert(table), old[table.name])

    for agent in rig.agents.values():
        agent.disconnect()
        # Where copies are is what the ledger has forgotten.
        rig.excused |= {(vm_id, agent.name) for vm_id in agent.copies}
    await rig.plane.stop()
    await rig.store.write(change)
    await rig.load()


async def come_back(rig: Rig, *names: str) -> None:
    """Let agents connect again, and talk until nothing changes."""
    for name in names:
        rig.agents[name].connect(rig.plane)
    await rig.settle()


async def in_doubt(rig: Rig) -> set[str]:
    return {str(row["vm"]) for row in await rig.rows(select(doubts))}


async def kinds(rig: Rig) -> list[str]:
    return [event.kind for event in (await rig.plane.events.page(0, 1000, ADMIN)).events]


def test_a_ledger_that_is_the_newest_is_believed_as_soon_as_every_host_was_heard(
    database_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("a")
        await rig.host("b")
        await rig.running("web")
        await rig.restart()
        assert not rig.plane.lineage.sure
        with pytest.raises(LedgerUnsettled, match="not heard of every host"):
            await rig.migrate("web", "b")
        await come_back(rig, "a")
        await rig.look_back()
        assert not rig.plane.lineage.sure
        await come_back(rig, "b")
        await rig.look_back()
        assert rig.plane.lineage.sure
        assert "ledger.restored" not in await kinds(rig)
        await rig.move("web", "b")

    run(database_url, test)


def test_a_host_that_never_comes_back_is_waited_for_no_longer_than_its_lease(
    database_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("a")
        await rig.host("b")
        await rig.restart()
        await come_back(rig, "a")
        await rig.pass_by(LONG_S, silent=("b",))
        assert rig.plane.lineage.sure

    run(database_url, test)


def test_a_vm_that_moved_since_the_copy_is_adopted_where_it_runs(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        a, b = await rig.host("a"), await rig.host("b")
        made = await rig.running("web")
        old = await copy(rig)
        await rig.move("web", "b")
        await put_back(rig, old)
        assert await rig.state("web") == ("running", "a")
        await come_back(rig, "a")
        for _ in range(3):
            with pytest.raises(LedgerUnsettled, match="not known yet where VM 'web' is"):
                await rig.plane.vms.restart("web", None, OPERATOR)
        assert await in_doubt(rig) == {made.id}
        await come_back(rig, "b")
        await rig.pass_by(16.0)  # b is no host that had it: a is asked again
        assert await rig.state("web") == ("running", "b")
        assert await rig.claims() == {"web:run": "b"}
        assert (await rig.get("web")).generation > JUMP
        assert await in_doubt(rig) == set()
        assert {"ledger.restored", "vm.adopted", "ledger.settled"} <= set(await kinds(rig))
        await rig.plane.vms.stop("web", None, OPERATOR)
        await rig.settle()
        assert await rig.state("web") == ("stopped", "b")
        assert not a.copies
        assert not b.copies[made.id].runs

    run(database_url, test)


def test_a_vm_with_an_end_that_is_adopted_elsewhere_is_deleted_in_time(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("a")
        await rig.host("b")
        await rig.running("web", until=timestamp(rig.clock.wall_ms() + 300_000))
        old = await copy(rig)
        await rig.move("web", "b")
        await put_back(rig, old)
        await come_back(rig, "a", "b")
        await rig.pass_by(16.0)
        assert await rig.state("web") == ("running", "b")
        (claim,) = await rig.rows(select(claims))
        assert claim["until_ms"] is not None
        await rig.pass_by(300.0)
        assert await rig.claims() == {}

    run(database_url, test, dated=True)


def test_what_a_move_that_has_arrived_since_the_copy_left_on_a_silent_host_is_destroyed(
    database_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        a, b = await rig.host("a"), await rig.host("b")
        made = await rig.running("web")
        await rig.migrate("web", "b")
        await rig.until_phase("web", "moving")
        old = await copy(rig)
        while not (made.id in b.copies and b.copies[made.id].runs):
            await rig.one_round()
        assert a.copies[made.id].state == "moved"
        await put_back(rig, old)
        await come_back(rig, "b")
        await rig.pass_by(2 * LONG_S, silent=("a",))
        assert await rig.state("web") == ("running", "b")
        assert a.copies[made.id].state == "moved"
        await come_back(rig, "a")
        await rig.pass_by(20.0)
        assert not a.copies
        assert not a.held()
        assert await rig.rows(select(tombstones)) == []
        assert await rig.state("web") == ("running", "b")

    run(database_url, test)


def test_what_a_vm_that_has_arrived_gives_back_for_itself_is_held_for_nobody_else(
    database_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        a, b = await rig.host("a"), await rig.host("b", cpu=1)
        made = await rig.running("web", constraints={"hosts": ["a", "b"]})
        assert made.id in a.copies
        await rig.migrate("web", "b")
        await rig.until_phase("web", "moving")
        waits = await rig.create("waits", on_no_fit="queue", constraints={"hosts": ["b"]})
        entry = rig.plane.roster.entry("b")
        assert entry is not None
        await rig.store.write(lambda tx: begin_hold(tx, waits.id, entry.number, QUEUE))
        old = await copy(rig)
        while not (made.id in b.copies and b.copies[made.id].runs):
            await rig.one_round()
        await put_back(rig, old)
        await come_back(rig, "a", "b")
        await rig.pass_by(20.0)
        assert await rig.state("web") == ("running", "b")
        assert (await rig.get("waits")).state == "pending"

    run(database_url, test)


def test_the_old_home_of_a_recovered_vm_does_not_start_it_when_it_is_back_first(
    database_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        a = await rig.host("a", guard=GUARD_STOP_S)
        b = await rig.host("b", guard=GUARD_STOP_S)
        made = await rig.running("web", restart="elsewhere")
        old = await copy(rig)
        a.disconnect()
        await rig.pass_by(2 * LONG_S, silent=("a",))
        assert await rig.state("web") == ("running", "b")
        await put_back(rig, old)
        await come_back(rig, "a")  # it has heard of nothing since the copy
        for _ in range(6):
            a.heartbeat()
            await rig.settle()
        assert not a.copies[made.id].runs
        assert b.copies[made.id].runs
        await come_back(rig, "b")
        await rig.pass_by(LONG_S)
        assert await rig.state("web") == ("running", "b")
        # It was away, so it cannot say that the VM has left: b's word alone destroys nothing.
        assert not a.copies[made.id].runs
        assert [each.id for each in a.held()] == [made.id]

    run(database_url, test)


def test_what_a_host_holds_takes_its_room_until_it_is_destroyed(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        a = await rig.host("a", guard=GUARD_STOP_S, cpu=2)
        await rig.host("b", guard=GUARD_STOP_S, cpu=1)
        made = await rig.running("web", restart="elsewhere")
        old = await copy(rig)
        a.disconnect()
        await rig.pass_by(2 * LONG_S, silent=("a",))
        await put_back(rig, old)
        await come_back(rig, "a", "b")
        await rig.pass_by(LONG_S)
        assert [each.id for each in a.held()] == [made.id]
        # One of its two cores is taken by what it holds: who needs both is not sent there.
        with pytest.raises(NoFit):
            await rig.create("big", cpu=2)
        waits = await rig.create("big", cpu=2, on_no_fit="queue")
        await rig.running("small", cpu=1)
        await rig.plane.vms.delete("small", None, OPERATOR)
        await rig.plane.hosts.destroy_held("a", made.id, ADMIN)
        await rig.pass_by(LONG_S)
        assert a.held() == []
        assert await rig.state("big") == ("running", "a")
        assert a.copies[waits.id].runs

    run(database_url, test)


def test_a_waiting_vm_that_was_placed_since_the_copy_is_not_placed_again(
    database_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("a", cpu=1)
        await rig.running("big")
        made = await rig.create("web", on_no_fit="queue")
        old = await copy(rig)
        b = await rig.host("b", cpu=1)
        await rig.settle(keep=True)
        assert await rig.state("web") == ("running", "b")
        await rig.pass_by(4.0)  # whoever lives hears how far the ledger has come
        await put_back(rig, old)
        c = await rig.host("c", cpu=1)
        await come_back(rig, "a")
        await rig.settle(keep=True)
        assert made.id not in c.copies
        await come_back(rig, "b")  # a host that the copy does not know
        await rig.pass_by(LONG_S)
        assert b.copies[made.id].runs
        assert await rig.state("web") == ("running", "b")

    run(database_url, test)


def test_a_vm_deleted_since_the_copy_is_not_started_again(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        a = await rig.host("a")
        made = await rig.running("web")
        old = await copy(rig)
        await rig.plane.vms.delete("web", None, OPERATOR)
        await rig.settle()
        await put_back(rig, old)
        await come_back(rig, "a")
        await rig.pass_by(LONG_S)
        assert made.id not in a.copies
        assert await rig.state("web") == ("stopped", None)
        assert "vm.vanished" in await kinds(rig)
        await rig.plane.vms.delete("web", None, OPERATOR)
        assert await rig.row("web") is None

    run(database_url, test)


def test_a_vm_created_since_the_copy_runs_on_and_is_held(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        a = await rig.host("a")
        await rig.running("old")
        old = await copy(rig)
        made = await rig.running("web")
        await put_back(rig, old)
        await come_back(rig, "a")
        await rig.pass_by(LONG_S)
        assert a.copies[made.id].runs
        assert [vm.id for vm in a.held()] == [made.id]
        assert await rig.state("old") == ("running", "a")
        await rig.plane.hosts.adopt_held("a", made.id, ADMIN)
        await rig.settle()
        assert await rig.state("web") == ("running", "a")
        assert a.held() == []
        await rig.running("new", cpu=1)

    run(database_url, test)


def test_a_held_vm_is_adopted_only_once_every_host_has_answered(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("a")
        await rig.host("b")
        for name, host in (("first", "a"), ("second", "b")):
            await rig.running(name)
            if (await rig.get(name)).host != host:
                await rig.move(name, host)
        old = await copy(rig)
        made = await rig.running("web")
        home = str((await rig.get("web")).host)
        (silent,) = {"a", "b"} - {home}
        await put_back(rig, old)
        with pytest.raises(LedgerUnsettled, match="not heard of every host"):
            await rig.plane.hosts.adopt_held(home, made.id, ADMIN)
        await come_back(rig, home)
        await rig.pass_by(LONG_S, silent=(silent,))
        with pytest.raises(LedgerUnsettled, match=f"which VMs they have: {silent}$"):
            await rig.plane.hosts.adopt_held(home, made.id, ADMIN)
        await come_back(rig, silent)
        await rig.pass_by(LONG_S)
        await rig.plane.hosts.adopt_held(home, made.id, ADMIN)
        await rig.settle()
        assert await rig.state("web") == ("running", home)

    run(database_url, test)


def test_a_silent_host_keeps_what_lies_in_doubt_until_somebody_says_that_it_is_dead(
    database_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("a")
        await rig.host("b")
        await rig.host("c")
        made = await rig.running("web")
        await rig.move("web", "b")
        old = await copy(rig)
        await rig.move("web", "c")
        await put_back(rig, old)
        await come_back(rig, "a", "b")
        await rig.pass_by(2 * LONG_S, silent=("c",))
        assert await in_doubt(rig) == {made.id}
        found = await rig.plane.doctor()
        told = {each.check: each.message for each in found.troubles}
        assert (found.ok, found.findings, told.keys()) == (
            False, [], {"restored", "in_doubt", "silent"},
        )  # fmt: skip
        assert told["restored"].endswith("have not answered: c")
        assert told["in_doubt"] == f"VM web ({made.id}), last known on host b"
        assert told["silent"].startswith("host c is ")
        assert rig.plane.readiness().detail.endswith("1 VM is in doubt")
        assert b"roost_vms_in_doubt 1.0" in rig.plane.telemetry.text()
        rig.agents["c"].copies.clear()  # it burns
        await rig.plane.hosts.confirm_dead("c", ConfirmDead(reason="it is gone"), ADMIN)
        await rig.pass_by(4.0, silent=("c",))
        assert await in_doubt(rig) == set()
        assert await rig.state("web") == ("stopped", None)

    run(database_url, test)


def test_a_vm_whose_host_was_promised_to_another_says_so_until_it_has_room(
    database_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        for name in "abc":
            await rig.host(name, cpu=1)
        await rig.running("web")
        old = await copy(rig)
        await rig.move("web", "b")
        await put_back(rig, old)
        other = await rig.create("other", constraints=ConstraintsBody(hosts=["b"]))
        rig.agents["b"].failing[other.id] = "insufficient_resources"
        await come_back(rig, "a", "b")
        await rig.pass_by(12.0)  # b is no host that had it: a is asked again
        problem = (await rig.get("web")).problem
        assert problem is not None
        assert (problem.code, problem.generation) == ("not_adopted", 2)

    run(database_url, test)


def test_what_a_silent_host_had_to_destroy_before_the_copy_it_destroys_after_it(
    database_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        a = await rig.host("a", guard=GUARD_STOP_S)
        await rig.host("b", guard=GUARD_STOP_S)
        made = await rig.running("web", restart="elsewhere")
        a.disconnect()
        await rig.pass_by(2 * LONG_S, silent=("a",))
        assert await rig.state("web") == ("running", "b")
        old = await copy(rig)
        await come_back(rig, "a")
        await rig.move("web", "a")
        a.disconnect()
        await rig.pass_by(2 * LONG_S, silent=("a",))
        assert await rig.state("web") == ("running", "b")
        await put_back(rig, old)
        await come_back(rig, "b")
        await rig.pass_by(2 * LONG_S, silent=("a",))
        assert await rig.state("web") == ("running", "b")
        await come_back(rig, "a")
        await rig.pass_by(LONG_S)
        assert made.id not in a.copies
        assert await rig.rows(select(tombstones)) == []

    run(database_url, test)


def test_a_vm_set_to_leave_since_the_copy_is_not_started_at_home(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        a = await rig.host("a", guard=GUARD_STOP_S)
        made = await rig.running("web")
        b = await rig.host("b", guard=GUARD_STOP_S)
        old = await copy(rig)
        await rig.set_restart("web", "elsewhere")
        await rig.settle()
        a.disconnect()
        await rig.pass_by(2 * LONG_S, silent=("a",))
        assert await rig.state("web") == ("running", "b")
        await put_back(rig, old)
        assert (await rig.get("web")).restart == "here"
        await come_back(rig, "a")  # where it lies, and by the copy cannot have left
        await rig.pass_by(LONG_S, silent=("b",))
        assert not a.copies[made.id].runs
        await come_back(rig, "b")
        await rig.pass_by(LONG_S)
        assert b.copies[made.id].runs
        assert await rig.state("web") == ("running", "b")

    run(database_url, test)


def test_a_vm_recovered_since_the_copy_cannot_be_set_to_stay_before_hosts_were_heard(
    database_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        a = await rig.host("a", guard=GUARD_STOP_S)
        made = await rig.running("web", restart="elsewhere")
        b = await rig.host("b", guard=GUARD_STOP_S)
        old = await copy(rig)
        a.disconnect()
        await rig.pass_by(2 * LONG_S, silent=("a",))
        assert await rig.state("web") == ("running", "b")
        await put_back(rig, old)
        with pytest.raises(LedgerUnsettled, match="not heard of every host"):
            await rig.set_restart("web", "here")
        await come_back(rig, "a", "b")
        await rig.pass_by(LONG_S)
        assert not (made.id in a.copies and a.copies[made.id].runs)
        assert b.copies[made.id].runs
        assert await rig.state("web") == ("running", "b")

    run(database_url, test)


def test_what_is_left_of_a_move_on_a_host_that_was_away_is_destroyed_once_the_vm_is_at_home(
    database_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        a, b = await rig.host("a"), await rig.host("b")
        made = await rig.running("web")
        await rig.migrate("web", "b")
        await rig.until_phase("web", "moving")
        a.peers = {}  # nothing gets through
        rig.step(a)
        row = await rig.row("web")
        assert row is not None
        stuck = SeenVM(made.id, row.generation, "switching", "switchover_stuck", "?", "permanent")
        await rig.report("a", stuck)
        await rig.until_phase("web", "recalling")
        b.lose_incoming(made.id)
        b.disconnect()
        old = await copy(rig)
        await rig.running("other")  # of which the copy does not know
        await put_back(rig, old)
        await come_back(rig, "a")
        await rig.pass_by(LONG_S, silent=("b",))
        assert made.id not in await in_doubt(rig)
        assert await rig.state("web") == ("running", "a")
        assert b.copies[made.id].state == "lost"
        await come_back(rig, "b")
        await rig.pass_by(LONG_S)
        assert made.id not in b.copies
        assert await rig.state("web") == ("running", "a")

    run(database_url, test)


def test_a_vm_set_to_stay_since_the_copy_is_not_proved_over_by_a_lease(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        a = await rig.host("a", guard=GUARD_STOP_S)
        made = await rig.running("web", restart="elsewhere")
        b = await rig.host("b", guard=GUARD_STOP_S)
        await rig.running("other", cpu=4)
        old = await copy(rig)
        await rig.set_restart("web", "here")
        await rig.plane.vms.restart("other", None, OPERATOR)
        await rig.settle()
        await put_back(rig, old)
        await come_back(rig, "b")  # which is ahead: everything is in doubt
        await rig.pass_by(2 * LONG_S, silent=("a",))
        assert a.copies[made.id].runs  # its guard lets it
        assert made.id not in b.copies
        assert made.id in await in_doubt(rig)
        await come_back(rig, "a")
        await rig.pass_by(LONG_S)
        assert await rig.state("web") == ("running", "a")
        assert (await rig.get("web")).restart == "elsewhere"
        assert (await rig.get("web")).restart_acknowledged

    run(database_url, test)


def test_a_vm_deleted_by_an_old_ledger_is_destroyed_where_it_has_come_since(
    database_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        a = await rig.host("a", cpu=1, guard=GUARD_STOP_S)
        made = await rig.running("web", restart="elsewhere")
        a.disconnect()
        await rig.pass_by(2 * LONG_S, silent=("a",))
        assert await rig.state("web") == ("pending", None)
        old = await copy(rig)
        await come_back(rig, "a")
        await rig.pass_by(LONG_S)
        assert await rig.state("web") == ("running", "a")
        await put_back(rig, old)
        await rig.plane.vms.delete("web", None, OPERATOR)
        await come_back(rig, "a")
        await rig.pass_by(LONG_S)
        assert made.id not in a.copies
        assert await rig.rows(select(tombstones)) == []

    run(database_url, test)


def test_a_fence_from_before_the_copy_is_no_proof_after_it(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        a = await rig.host("a", guard=GUARD_STOP_S)
        await rig.host("b", guard=GUARD_STOP_S)
        a.disconnect()
        await rig.pass_by(2 * LONG_S, silent=("a",))
        assert rig.plane.roster.entry("a").row.fenced == "lease"  # type: ignore[union-attr]
        old = await copy(rig)
        a.connect(rig.plane)
        await rig.settle()
        await rig.running("web")
        await put_back(rig, old)
        await come_back(rig, "b")
        a.connect(rig.plane)
        await rig.settle()
        assert "host.fence_doubted" in await kinds(rig)
        assert a.refusal is None

    run(database_url, test)


def test_a_report_ahead_of_the_ledger_puts_everything_in_doubt(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        a = await rig.host("a")
        made = await rig.running("web")
        a.copies[made.id].generation = 9
        await rig.report("a", SeenVM(made.id, 9, "running"))
        assert await in_doubt(rig) == {made.id}
        assert await rig.rows(select(roll_call)) == [{"host": rig.number("a"), "answered": False}]
        await rig.pass_by(6.0)
        assert (await rig.get("web")).generation == 9 + JUMP
        assert await rig.state("web") == ("running", "a")

    run(database_url, test)


def test_an_answer_on_another_list_does_not_count(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        a = await rig.host("a")
        made = await rig.running("web")
        a.copies[made.id].generation = 9
        await rig.report("a", SeenVM(made.id, 9, "running"))
        listed, a.digest = a.digest, "0" * 16
        await rig.look_back()
        a.listen()
        a.speak()
        await rig.hear()
        assert await rig.rows(select(roll_call)) == [{"host": rig.number("a"), "answered": False}]
        a.digest = listed
        await rig.pass_by(6.0)
        assert await in_doubt(rig) == set()

    run(database_url, test)
