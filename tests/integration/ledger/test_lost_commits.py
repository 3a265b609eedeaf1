"""The database goes away at any moment: what callers are told is what is in the rows."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from typing import Any

import asyncpg
import pytest
from sqlalchemy import select

from roost.ledger.claims.proposals import Verdict
from roost.ledger.schema.rows import Event
from roost.ledger.schema.tables import projects
from roost.ledger.store import DatabaseUnavailable, InDoubt, Store
from tests.databases import opened, running_postgres
from tests.integration.ledger.cutting import Cutter, cutting_proxy
from tests.integration.ledger.records import add_group, add_host, add_project, proposal
from tests.integration.ledger.storm import prepare, read_along, storm, verify


@asynccontextmanager
async def cut_once(url: str) -> AsyncIterator[tuple[Store, Cutter, dict[str, str]]]:
    """Open a store behind a proxy that cuts at the next commit as `how` says, if it is set."""
    when: dict[str, str] = {}
    async with (
        cutting_proxy(url, lambda _: when.pop("how", "pass")) as (through, cutter),
        opened(through) as store,
    ):
        yield store, cutter, when


def test_a_claim_whose_commit_is_not_answered_is_kept_once(postgres_url: str) -> None:
    async def run() -> None:
        async with cut_once(postgres_url) as (store, cutter, when):
            await store.write(lambda tx: add_host(tx, 1))
            heard: list[Event] = []
            store.listener = heard.extend
            when["how"] = "after"
            asked = [proposal(f"vm-{n}", 1, key=("s", f"k{n}", "d")) for n in range(3)]
            outcomes = await store.claim(asked, ["test"] * 3, 0)
            assert cutter.cut == ["after"]
            assert [outcome.verdict for outcome in outcomes] == [Verdict.KEPT] * 3
            assert [event.seq for event in heard] == [2, 3, 4]

    asyncio.run(run())


def test_a_claim_whose_commit_never_arrives_is_not_kept(postgres_url: str) -> None:
    async def run() -> None:
        async with cut_once(postgres_url) as (store, cutter, when):
            await store.write(lambda tx: add_host(tx, 1))
            await store.write(lambda tx: add_group(tx, "g", "anti-affinity"))
            when["how"] = "before"
            seen = [("default/g", 0)]  # a group: it is gone through in steps, and then committed
            asked = [proposal("vm-1", 1, groups=seen, key=("s", "k", "d"))]
            with pytest.raises(DatabaseUnavailable) as caught:
                await store.claim(asked, ["test"], 0)
            assert not isinstance(caught.value, InDoubt)
            assert cutter.cut == ["before"]
            outcomes = await store.claim(asked, ["test"], 0)
            assert outcomes[0].verdict is Verdict.KEPT

    asyncio.run(run())


def test_a_statement_that_never_arrives_is_sent_again(postgres_url: str) -> None:
    async def run() -> None:
        async with cut_once(postgres_url) as (store, cutter, when):
            await store.write(lambda tx: add_host(tx, 1))
            when["how"] = "before"
            outcomes = await store.claim([proposal("vm-1", 1)], ["test"], 0)
            assert cutter.cut == ["before"]
            assert outcomes[0].verdict is Verdict.KEPT

    asyncio.run(run())


def test_a_statement_that_waits_when_its_connection_is_lost_is_kept_once(postgres_url: str) -> None:
    """The server knows nothing of the loss: it would go on, and commit what was called lost."""

    async def run() -> None:
        async with cut_once(postgres_url) as (store, cutter, when):
            await store.write(lambda tx: add_host(tx, 1))
            heard: list[Event] = []
            store.listener = heard.extend
            other = await asyncpg.connect(postgres_url.replace("+asyncpg", ""))
            try:
                held = other.transaction()
                await held.start()
                await other.execute("SELECT 1 FROM host_amounts WHERE host = 1 FOR UPDATE")
                when["how"] = "during"
                before = cutter.commits
                asking = asyncio.create_task(store.claim([proposal("vm-1", 1)], ["test"], 0))
                async with asyncio.timeout(20):
                    # The first statement's process is ended; then the second one waits.
                    while cutter.commits < before + 2 or await _waiting(other) is None:
                        assert not asking.done(), asking
                        await asyncio.sleep(0.02)
                await held.rollback()
                outcomes = await asking
            finally:
                await other.close()
            assert outcomes[0].verdict is Verdict.KEPT
            assert [event.seq for event in heard] == [2]

    asyncio.run(run())


async def _waiting(connection: "asyncpg.Connection[Any]") -> int | None:
    """Return the server's process that waits for a lock in this database."""
    return await connection.fetchval(
        "SELECT pid FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )


@pytest.mark.parametrize("how", ["before", "after"])
def test_an_ordinary_write_is_told_the_truth_too(postgres_url: str, how: str) -> None:
    async def run() -> None:
        async with cut_once(postgres_url) as (store, cutter, when):
            when["how"] = how
            told = True
            try:
                await store.write(lambda tx: add_project(tx, "lab"))
            except DatabaseUnavailable:
                told = False
            assert cutter.cut == [how]
            there = await store.read(lambda c: list(c.execute(select(projects.c.name)).scalars()))
            assert ("lab" in there) == told == (how == "after")

    asyncio.run(run())


def test_commits_cut_at_random_never_make_a_verdict_a_lie(postgres_url: str) -> None:
    async def run() -> None:
        random = Random(5)

        def when(_: int) -> str:
            return random.choices(["pass", "before", "after"], [6, 1, 1])[0]

        async with AsyncExitStack() as stack:
            plain = await stack.enter_async_context(opened(postgres_url))
            await plain.write(prepare)
            url, cutter = await stack.enter_async_context(cutting_proxy(postgres_url, when))
            # Their opening commits too, and must get through.
            stores = [await stack.enter_async_context(opened(postgres_url)) for _ in range(1)]
            for _ in range(40):
                try:
                    stores.append(await stack.enter_async_context(opened(url)))
                except DatabaseUnavailable:
                    continue
                if len(stores) == 3:
                    break
            truth = await storm(stores, clients=6, turns=12, deletes=True)
            assert {"before", "after"} <= set(cutter.cut)
            assert truth.kept
            assert await verify(plain, truth) == []

    asyncio.run(run())


def test_backends_ended_at_random_never_make_a_verdict_a_lie(postgres_url: str) -> None:
    """pg_terminate_backend hits whatever a connection is doing, also its COMMIT."""

    async def run() -> None:
        async with AsyncExitStack() as stack:
            stores = [await stack.enter_async_context(opened(postgres_url)) for _ in range(2)]
            await stores[0].write(prepare)
            over = asyncio.Event()
            reading = asyncio.create_task(read_along(stores[1], over))
            killing = asyncio.create_task(_end_backends(postgres_url, over))
            truth = await storm(stores, clients=6, turns=12, deletes=True)
            over.set()
            assert await killing > 5
            assert await asyncio.wait_for(reading, 60) == []
            assert truth.kept
            assert await verify(stores[0], truth) == []

    asyncio.run(run())


async def _end_backends(url: str, over: asyncio.Event) -> int:
    killer, ended = await asyncpg.connect(url), 0
    try:
        while not over.is_set() and ended < 25:
            ended += await killer.fetchval(
                "SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid() "
                "AND state <> 'idle' ORDER BY random() LIMIT 1) AS one"
            )
            await asyncio.sleep(0.02)  # something must get through, too
    finally:
        await killer.close()
    return ended


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["restart", "crash"])
def test_a_server_that_restarts_under_load_loses_nothing_it_promised(how: signal.Signals) -> None:
    with running_postgres(fsync="on") as server:
        url = server.new_database()

        async def restart() -> None:
            await asyncio.to_thread(server.stop, how)
            assert await asyncio.to_thread(server.start)

        async def run() -> None:
            async with AsyncExitStack() as stack:
                stores = [await stack.enter_async_context(opened(url)) for _ in range(2)]
                await stores[0].write(prepare)
                running = asyncio.create_task(storm(stores, clients=6, turns=40, deletes=True))
                begun = asyncio.Event()

                def heard(events: list[Event]) -> None:
                    begun.set()

                stores[0].listener = heard
                for _ in range(2):
                    begun.clear()
                    await asyncio.wait_for(begun.wait(), 30)
                    await restart()
                truth = await asyncio.wait_for(running, 120)
                assert truth.kept
                assert await verify(stores[0], truth) == []

        asyncio.run(run())
