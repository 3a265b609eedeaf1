"""Concurrent claims: nothing is overrun, and whoever reads along misses nothing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from sqlalchemy import select

from roost.ledger.claims.proposals import Verdict
from roost.ledger.schema.tables import projects
from roost.ledger.store import Store
from tests.databases import opened
from tests.integration.ledger.records import add_group, add_host, proposal
from tests.integration.ledger.storm import QUOTA, crowd, prepare, read_along, storm, verify


@asynccontextmanager
async def several(url: str) -> AsyncIterator[list[Store]]:
    """Open three stores on PostgreSQL; SQLite has one, which its process shares."""
    async with AsyncExitStack() as stack:
        count = 3 if url.startswith("postgresql") else 1
        stores = [await stack.enter_async_context(opened(url)) for _ in range(count)]
        await stores[0].write(prepare)
        yield stores


def test_claims_at_once_never_overrun_hosts_quota_or_groups(database_url: str) -> None:
    async def run() -> None:
        async with several(database_url) as stores:
            truth = await storm(stores, clients=9, turns=15)
            await crowd(stores, truth)
            assert await verify(stores[0], truth) == []
            query = select(projects.c.vms_used).where(projects.c.name == "lab")
            used = await stores[0].read(lambda c: c.execute(query).scalar())
            # More was asked for than there is, so all of it is given away.
            assert truth.verdicts["quota"] > 0
            assert used == QUOTA
            assert truth.verdicts["stale"] > 0

    asyncio.run(run())


def test_claims_and_deletions_at_once_leave_the_books_right(database_url: str) -> None:
    async def run() -> None:
        async with several(database_url) as stores:
            truth = await storm(stores, clients=6, turns=20, deletes=True)
            assert truth.deleted
            assert await verify(stores[0], truth) == []

    asyncio.run(run())


def test_one_place_that_many_want_goes_to_as_many_as_fit(database_url: str) -> None:
    async def run() -> None:
        async with several(database_url) as stores:
            asked = [
                stores[n % len(stores)].claim([proposal(f"vm-{n}", 1)], ["test"], 0)
                for n in range(30)
            ]
            found = [outcomes[0].verdict for outcomes in await asyncio.gather(*asked)]
            assert found.count(Verdict.KEPT) == 12
            assert found.count(Verdict.STALE) == 18

    asyncio.run(run())


def test_one_name_and_one_key_go_to_one(database_url: str) -> None:
    async def run() -> None:
        async with several(database_url) as stores:
            named = [
                stores[n % len(stores)].claim([proposal(f"vm-{n}", 1, name="a")], ["test"], 0)
                for n in range(12)
            ]
            found = [outcomes[0].verdict for outcomes in await asyncio.gather(*named)]
            assert (found.count(Verdict.KEPT), found.count(Verdict.NAME_TAKEN)) == (1, 11)
            keyed = [
                stores[n % len(stores)].claim(
                    [proposal(f"vm-k{n}", 2, key=("s", "k", "d"))], ["test"], 0
                )
                for n in range(12)
            ]
            answers = [outcomes[0] for outcomes in await asyncio.gather(*keyed)]
            kept = [n for n, answer in enumerate(answers) if answer.verdict is Verdict.KEPT]
            assert len(kept) == 1
            replays = {a.detail for a in answers if a.verdict is Verdict.REPLAYED}
            assert replays == {f"vm-k{kept[0]}"}

    asyncio.run(run())


def test_batches_that_want_the_same_things_in_opposite_order_all_finish(postgres_url: str) -> None:
    """Rows are locked in one order, whatever the order of the proposals."""

    async def run() -> None:
        async with several(postgres_url) as stores:
            await stores[0].write(lambda tx: add_group(tx, "soft", hard=False))
            for number in range(7, 13):
                await stores[0].write(lambda tx: add_host(tx, number))  # noqa: B023

            async def batch(n: int) -> list[Verdict]:
                hosts = list(range(1, 13))
                asked = [
                    proposal(f"vm-{n}-{host}", host, key=("s", f"{n}-{host}", "d"), cpu_milli=100)
                    for host in (hosts if n % 2 else reversed(hosts))
                ]
                outcomes = await stores[n % 3].claim(asked, ["test"] * len(asked), 0)
                return [outcome.verdict for outcome in outcomes]

            found = await asyncio.gather(*(batch(n) for n in range(18)))
            assert all(verdict is Verdict.KEPT for each in found for verdict in each)

    asyncio.run(run())


def test_a_reader_that_resumes_by_sequence_misses_nothing(database_url: str) -> None:
    async def run() -> None:
        async with several(database_url) as stores:
            over = asyncio.Event()
            readers = [asyncio.create_task(read_along(store, over)) for store in stores]
            truth = await storm(stores, clients=6, turns=15, deletes=True)
            over.set()
            assert await asyncio.wait_for(asyncio.gather(*readers), 60) == [[]] * len(readers)
            assert await verify(stores[0], truth) == []

    asyncio.run(run())
