import asyncio
from collections.abc import Awaitable, Callable

from sqlalchemy import func, insert, select

from roost.ledger.retention import Purged, RetentionSettings, purge, surplus
from roost.ledger.store import Store
from roost.ledger.tables import decisions, events, idempotency, samples, tombstones
from roost.ledger.transaction import Tx
from tests.databases import opened
from tests.integration.ledger.records import bury

DAY_MS = 86_400_000
NOW = 100 * DAY_MS


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


async def purge_once(store: Store, settings: RetentionSettings) -> Purged:
    seen = await store.read(lambda c: surplus(c, settings))
    return await store.write(lambda tx: purge(tx, NOW, settings, seen))


def test_what_is_old_goes_and_what_is_young_stays(database_url: str) -> None:
    async def test(store: Store) -> None:
        await insert_rows(store, idempotency, [key(1, 0.9), key(2, 1.1)])
        await insert_rows(store, decisions, [decision("vm-1", 1, 29), decision("vm-1", 2, 31)])
        await insert_rows(store, samples, [sample(1, 6), sample(2, 8)])
        found = await purge_once(store, RetentionSettings())
        assert found == Purged(idempotency=1, decisions=1, samples=1, more=False)
        for table in (idempotency, decisions, samples):
            assert await count(store, table) == 1

    run(database_url, test)


def test_one_call_deletes_a_bounded_piece(database_url: str) -> None:
    async def test(store: Store) -> None:
        settings = RetentionSettings(piece=10)
        await insert_rows(store, idempotency, [key(n, 2 + n) for n in range(25)])
        left = []
        for _ in range(3):
            found = await purge_once(store, settings)
            left.append((found.idempotency, found.more))
        assert left == [(10, True), (10, True), (5, False)]

    run(database_url, test)


def test_the_newest_decisions_of_each_vm_stay(database_url: str) -> None:
    async def test(store: Store) -> None:
        settings = RetentionSettings(decisions_per_vm=3, piece=4)
        many = [decision("vm-1", n) for n in range(10)] + [decision("vm-2", n) for n in range(3)]
        await insert_rows(store, decisions, many)
        while (await purge_once(store, settings)).more:
            pass
        query = select(decisions.c.vm, decisions.c.snapshot).order_by(*decisions.primary_key)
        left = await store.read(lambda c: [tuple(row) for row in c.execute(query)])
        assert left == [(vm, n) for vm, first in (("vm-1", 7), ("vm-2", 0))
                        for n in range(first, first + 3)]  # fmt: skip

    run(database_url, test)


def test_so_many_samples_stay_the_newest(database_url: str) -> None:
    async def test(store: Store) -> None:
        settings = RetentionSettings(most_samples=4, piece=3)
        await insert_rows(store, samples, [sample(n, n / 10) for n in range(10)])
        while (await purge_once(store, settings)).more:
            pass
        left = await store.read(lambda c: sorted(c.execute(select(samples.c.vm)).scalars()))
        assert left == ["vm-0", "vm-1", "vm-2", "vm-3"]

    run(database_url, test)


def test_tombstones_and_events_stay_and_nothing_is_said(database_url: str) -> None:
    async def test(store: Store) -> None:
        await store.write(lambda tx: bury(tx, "vm-1", 1))
        await insert_rows(store, idempotency, [key(1, 50)])

        def change(tx: Tx) -> Purged:
            found = purge(tx, NOW, RetentionSettings())
            assert tx.events == []
            return found

        assert (await store.write(change)).idempotency == 1
        assert await count(store, tombstones) == 1
        assert await count(store, events) == 1

    run(database_url, test)
