"""Old events are folded into a base and go; the ledger stays sound, and who comes late is told."""

import pytest
from sqlalchemy import delete, func, insert, select, update

from roost.base.clock import RealClock
from roost.base.errors import EventsGone
from roost.control.groups.ending import EMPTY_S, EmptyRules
from roost.ledger.schema.rows import VMRow
from roost.ledger.schema.tables import counters, events, folded_rows, groups
from roost.ledger.upgrade.older import CLEAR
from roost.ledger.upkeep.base import EventsKept, fold_old
from roost.ledger.upkeep.retention import Purged
from roost.parts.retention import Purge
from roost.parts.singleton import Singleton
from roost.wire.agentlink import LedgerPoint
from roost.wire.bodies import AffinityBody, GroupBody, ResizeVM
from roost.wire.queries import VMQuery
from tests.integration.control.rig import ADMIN, OPERATOR, Rig, run

#: Everything but the newest event is too much.
NONE = EventsKept(seconds=10**9, most=1, least=1)


async def fold(rig: Rig, kept: EventsKept = NONE, later_s: int = 0) -> int:
    """Fold all that may be, in small pieces, and return how many events went."""
    gone, found = 0, Purged(0, more=True)
    now = RealClock().wall_ms() + 1000 * later_s  # the store has a clock of its own
    while found.more:
        found = await rig.store.write(lambda tx: fold_old(tx, kept, now, 5))
        gone += found.rows
        await rig.check()  # the doctor folds the base and the rest, and compares
    return gone


async def number(rig: Rig, table: object) -> int:
    [row] = await rig.rows(select(func.count().label("n")).select_from(table))  # type: ignore[arg-type]
    return int(row["n"])


async def live(rig: Rig) -> None:
    """Let a fleet do some of everything that events tell of."""
    await rig.host("a")
    await rig.host("b")
    apart = GroupBody(name="apart", rule="anti-affinity")
    await rig.running("one", groups=[apart])
    await rig.running("two", groups=["apart"], labels={"app": "web"})
    rule = AffinityBody(rule="anti-affinity", selector={"app": "web"}, hard=False)
    await rig.running("three", affinity=[rule])
    await rig.plane.vms.resize("three", None, ResizeVM(cpu=2), OPERATOR)
    await rig.settle()
    await rig.plane.vms.restart("two", None, OPERATOR)
    await rig.settle()
    await rig.plane.vms.delete("one", None, OPERATOR)
    await rig.settle()
    await rig.plane.hosts.cordon("a", ADMIN)


def test_the_base_and_the_rest_lead_to_the_rows(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await live(rig)
        before = await number(rig, events)
        assert await fold(rig) == before - 1
        assert await number(rig, events) == 1
        assert await number(rig, folded_rows) > 0
        await rig.plane.hosts.uncordon("a", ADMIN)
        await rig.running("one")  # a name that was there before
        await rig.plane.vms.delete("three", None, OPERATOR)
        await rig.settle()
        assert await fold(rig) > 0
        await rig.restart()
        page = await rig.plane.vms.list(VMQuery(), ADMIN)
        assert {vm.name for vm in page.vms} == {"one", "two"}

    run(database_url, test)


def test_only_what_is_too_old_or_too_many_is_folded(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await live(rig)
        there = await number(rig, events)
        assert await fold(rig, EventsKept(seconds=60, most=10**6, least=3)) == 0
        assert await fold(rig, EventsKept(seconds=10**6, most=there - 4, least=3)) == 4
        kept = EventsKept(seconds=60, most=10**6, least=3)
        assert await fold(rig, kept, later_s=61) == there - 7
        assert await number(rig, events) == 3

    run(database_url, test)


def test_nothing_is_folded_while_the_release_before_may_be_there(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await live(rig)
        flag = insert(counters).values(name=CLEAR, value=1)
        await rig.store.write(lambda tx: tx.connection.execute(flag))
        there = await number(rig, events)
        part = Purge(rig.store, RealClock(), list, Singleton("purge"), events=NONE)
        await part.look()
        beside = rig.store.shared  # a SQLite file has one process
        assert await number(rig, events) == (there if beside else 1)
        await rig.store.write(
            lambda tx: tx.connection.execute(delete(counters).where(counters.c.name == CLEAR))
        )
        await part.look()
        assert await number(rig, events) == 1
        await rig.check()

    run(database_url, test)


def test_the_doctor_sees_a_base_that_is_wrong(sqlite_url: str) -> None:
    async def test(rig: Rig) -> None:
        await live(rig)
        await fold(rig)
        two = await rig.row("two")
        assert isinstance(two, VMRow)
        where = (folded_rows.c.noun == "vms") & (folded_rows.c.key == two.id)
        [kept] = await rig.rows(select(folded_rows.c.row).where(where))
        for wrong, said in (
            (update(folded_rows).where(where).values(row='{"id":"x"}'), "not the row"),
            (folded_rows.delete().where(where), "events do not lead to it"),
        ):
            await rig.store.write(lambda tx: tx.connection.execute(wrong) and None)  # noqa: B023
            findings = (await rig.plane.doctor()).findings
            assert [f.check for f in findings] == ["fold"]
            assert said in findings[0].message
        again = {"noun": "vms", "key": two.id, "owner": None, "row": kept["row"]}
        await rig.store.write(lambda tx: tx.insert(folded_rows, again) and None)
        moved = update(counters).where(counters.c.name == "folded").values(value=1)
        await rig.store.write(lambda tx: tx.connection.execute(moved) and None)
        assert [f.check for f in (await rig.plane.doctor()).findings] == ["sequence"]
        head = update(counters).where(counters.c.name == "folded")
        base = (await rig.rows(select(events.c.seq)))[0]["seq"] - 1
        await rig.store.write(lambda tx: tx.connection.execute(head.values(value=base)) and None)

    run(sqlite_url, test)


def test_a_reader_that_comes_too_late_is_told(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await live(rig)
        base = await fold(rig)
        with pytest.raises(EventsGone) as gone:
            await rig.plane.events.page(1, 10, ADMIN)
        assert gone.value.details == {"since": 1, "kept_after": base}
        with pytest.raises(EventsGone):
            await anext(rig.plane.events.stream(1, ADMIN))
        for since in (0, base):  # who has seen nothing gets what there is
            [event] = (await rig.plane.events.page(since, 10, ADMIN)).events
            assert event.seq == base + 1

    run(database_url, test)


def test_a_process_that_slept_too_long_says_that_it_must_be_started_again(
    postgres_url: str,
) -> None:
    async def test(rig: Rig) -> None:
        await live(rig)
        follower = rig.plane.follower
        reached = follower.applied
        follower.applied = 2
        await fold_unchecked(rig)
        assert not await follower._read()
        assert "must be started again" in follower.trouble
        assert rig.plane.readiness().status == "stuck"
        follower.applied, follower.trouble = reached, ""

    run(postgres_url, test)


async def fold_unchecked(rig: Rig) -> None:
    now = rig.clock.wall_ms()
    await rig.store.write(lambda tx: fold_old(tx, NONE, now, 1000))


def test_a_host_that_heard_of_an_event_that_is_gone_is_believed(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await live(rig)
        base = await fold(rig)
        assert await rig.plane.lineage._has(LedgerPoint(base - 1, "tx-of-long-ago"))
        assert not await rig.plane.lineage._has(LedgerPoint(base + 100, "tx-of-another"))

    run(database_url, test)


def test_a_label_rule_ends_when_it_has_been_empty_for_an_hour(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await live(rig)  # "three" has brought a rule, and "two" the label that it is about
        [rules] = [part for part in rig.plane.parts if isinstance(part, EmptyRules)]
        await rig.plane.run_singletons()

        async def look() -> None:
            await rig.plane.leases.tick()
            await rules.look()

        await look()
        rig.clock.move(EMPTY_S + 1)
        await look()
        assert await number(rig, groups) == 2
        for name in ("two", "three"):
            await rig.plane.vms.delete(name, None, OPERATOR)
        await rig.settle()
        await look()
        assert await number(rig, groups) == 2
        rig.clock.move(EMPTY_S + 1)
        await look()
        assert [row["name"] for row in await rig.rows(select(groups))] == ["apart"]

    run(database_url, test)
