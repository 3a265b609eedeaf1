import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from sqlalchemy import Table, func, insert, select

from roost.base.clock import RealClock
from roost.ledger.schema.tables import decisions, events, idempotency, samples, tombstones
from roost.ledger.store import Store
from roost.ledger.upkeep.retention import Kept, Newest, Purged, purge, surplus
from roost.ledger.writes.transaction import Tx
from roost.parts.retention import Purge
from roost.parts.singleton import Singleton
from tests.databases import opened
from tests.examining import parts_on
from tests.integration.ledger.records import bury

DAY_MS = 86_400_000
NOW = 100 * DAY_MS


class Now(RealClock):
    """A clock that stands at `NOW`."""

    def wall_ms(self) -> int:
        return NOW


def run(url: str, test: Callable[[Store], Awaitable[None]]) -> None:
    async def both() -> None:
        async with opened(url) as store:
            await test(store)

    asyncio.run(both())


async def insert_rows(store: Store, table: object, rows: list[dict[str, object]]) -> None:
    await store.write(lambda tx: tx.connection.execute(insert(table), rows) and None)  # type: ignore[arg-type]


async def count(store: Store, table: object) -> int:
    query = select(func.count()).select_from(table)  # type: ignore[arg-type]
    return await store.read(lambda c: int(c.execute(query).scalar_one()))


def key(n: int, age_days: float) -> dict[str, object]:
    return {"scope": "s", "key": f"k{n}", "digest": "d", "answer": "",
            "created_ms": int(NOW - age_days * DAY_MS)}  # fmt: skip


def decision(vm: str, snapshot: int, age_days: float = 0) -> dict[str, object]:
    return {"vm": vm, "snapshot": snapshot, "cause": "create", "answer": "{}",
            "at_ms": int(NOW - age_days * DAY_MS)}  # fmt: skip


def sample(n: int, age_days: float) -> dict[str, object]:
    return {"host": 1, "vm": f"vm-{n}", "at_ms": int(NOW - age_days * DAY_MS),
            "cpu_milli": 1, "memory_bytes": 1, "disk_bytes": 1}  # fmt: skip


async def purge_once(store: Store, kept: Kept, piece: int = 2000) -> Purged:
    seen = await store.read(lambda c: surplus(c, kept, piece))
    return await store.write(lambda tx: purge(tx, kept, NOW, piece, seen))


def kept_of(store: Store, table: Table) -> Kept:
    """Return how long the part that owns a table keeps its rows."""
    [found] = [kept for part in parts_on(store) for kept in part.keeps if kept.table is table]
    return found


def test_every_table_that_grows_with_time_has_an_owner(sqlite_url: str) -> None:
    async def test(store: Store) -> None:
        kept = [kept.table.name for part in parts_on(store) for kept in part.keeps]
        assert sorted(kept) == [
            "decisions", "idempotency", "job_arrays", "job_attempts", "job_logs", "lifetimes",
            "machines", "mixes", "samples",
        ]  # fmt: skip

    run(sqlite_url, test)


def test_what_is_old_goes_and_what_is_young_stays(database_url: str) -> None:
    async def test(store: Store) -> None:
        await insert_rows(store, idempotency, [key(1, 0.9), key(2, 1.1)])
        await insert_rows(store, decisions, [decision("vm-1", 1, 29), decision("vm-1", 2, 31)])
        await insert_rows(store, samples, [sample(1, 6), sample(2, 8)])
        for table in (idempotency, decisions, samples):
            found = await purge_once(store, kept_of(store, table))
            assert found == Purged(rows=1, more=False)
            assert await count(store, table) == 1

    run(database_url, test)


def test_one_call_deletes_a_bounded_piece(database_url: str) -> None:
    async def test(store: Store) -> None:
        await insert_rows(store, idempotency, [key(n, 2 + n) for n in range(25)])
        kept = kept_of(store, idempotency)
        left = [await purge_once(store, kept, piece=10) for _ in range(3)]
        assert left == [Purged(10, more=True), Purged(10, more=True), Purged(5, more=False)]

    run(database_url, test)


def test_the_newest_decisions_of_each_vm_stay(database_url: str) -> None:
    async def test(store: Store) -> None:
        kept = replace(kept_of(store, decisions), newest=Newest("vm", "snapshot", most=3))
        many = [decision("vm-1", n) for n in range(10)] + [decision("vm-2", n) for n in range(3)]
        await insert_rows(store, decisions, many)
        while (await purge_once(store, kept, piece=4)).more:
            pass
        query = select(decisions.c.vm, decisions.c.snapshot).order_by(*decisions.primary_key)
        left = await store.read(lambda c: [tuple(row) for row in c.execute(query)])
        assert left == [(vm, n) for vm, first in (("vm-1", 7), ("vm-2", 0))
                        for n in range(first, first + 3)]  # fmt: skip

    run(database_url, test)


def test_so_many_samples_stay_the_newest(database_url: str) -> None:
    async def test(store: Store) -> None:
        kept = replace(kept_of(store, samples), most=4)
        await insert_rows(store, samples, [sample(n, n / 10) for n in range(10)])
        while (await purge_once(store, kept, piece=3)).more:
            pass
        left = await store.read(lambda c: sorted(c.execute(select(samples.c.vm)).scalars()))
        assert left == ["vm-0", "vm-1", "vm-2", "vm-3"]

    run(database_url, test)


def test_tombstones_and_events_stay_and_nothing_is_said(database_url: str) -> None:
    async def test(store: Store) -> None:
        await store.write(lambda tx: bury(tx, "vm-1", 1))
        await insert_rows(store, idempotency, [key(1, 50)])

        def change(tx: Tx) -> Purged:
            found = purge(tx, kept_of(store, idempotency), NOW, 100)
            assert tx.events == []
            return found

        assert (await store.write(change)).rows == 1
        assert await count(store, tombstones) == 1
        assert await count(store, events) == 1

    run(database_url, test)


def test_the_part_that_purges_asks_all_parts(sqlite_url: str) -> None:
    async def test(store: Store) -> None:
        await insert_rows(store, idempotency, [key(n, 40) for n in range(7)])
        await insert_rows(store, decisions, [decision("vm-1", n, 40) for n in range(3)])
        await insert_rows(store, samples, [sample(1, 40), sample(2, 0)])
        every = [kept for part in parts_on(store) for kept in part.keeps]
        await Purge(store, Now(), lambda: every, Singleton("purge"), piece=2).look()
        left = [await count(store, table) for table in (idempotency, decisions, samples)]
        assert left == [0, 0, 1]

    run(sqlite_url, test)
