"""`/readyz` says whether the database can be used, why not, and when it can be again."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx

from roost.app.options import ServeOptions
from roost.app.serve import start
from roost.base.clock import RealClock
from roost.control.plane import PlaneSettings
from roost.control.timers import Timers
from roost.ledger.store import DatabaseContended, DatabaseUnavailable
from roost.parts import watched_store
from roost.parts.watched_store import WatchedStore
from roost.testing.clock import HandClock
from tests.api.planes import small_plane
from tests.databases import opened, running_postgres
from tests.faulty_store import FaultyStore

SHORT = PlaneSettings(timers=Timers(watch_s=0.1, flush_s=0.1, singleton_s=1.0))


@asynccontextmanager
async def watched(url: str) -> AsyncIterator[tuple[WatchedStore, FaultyStore, HandClock]]:
    """Yield a watched store over one that can be made to fail."""
    clock = HandClock()
    async with opened(url, RealClock()) as store:
        faulty = FaultyStore(store)
        yield WatchedStore(faulty, clock), faulty, clock


async def failing(work: object) -> None:
    try:
        await work  # type: ignore[misc]
    except DatabaseUnavailable:
        return
    raise AssertionError("it did not fail")


def test_a_database_that_takes_nothing_is_trouble_until_it_takes_something(
    sqlite_url: str,
) -> None:
    async def run() -> None:
        async with watched(sqlite_url) as (store, faulty, _):
            assert store.trouble == ""
            faulty.failure = DatabaseUnavailable("the disk is full")
            await failing(store.write(lambda tx: None))
            assert store.trouble == "the disk is full"
            faulty.failure = None
            await store.read(lambda connection: None)
            assert store.trouble == "the disk is full"  # a full disk can be read
            await store.write(lambda tx: None)
            assert store.trouble == ""
            faulty.failure = DatabaseUnavailable("nobody is there")
            await failing(store.read(lambda connection: None))
            assert store.trouble == "nobody is there"
            faulty.failure = None
            await store.read(lambda connection: None)
            assert store.trouble == ""

    asyncio.run(run())


def test_a_database_that_is_busy_or_refuses_one_change_is_no_trouble(sqlite_url: str) -> None:
    async def run() -> None:
        async with watched(sqlite_url) as (store, faulty, _):
            faulty.failure = DatabaseContended("too many")
            await failing(store.write(lambda tx: None))
            assert store.trouble == ""

    asyncio.run(run())


def test_a_database_that_does_not_answer_is_trouble(sqlite_url: str) -> None:
    async def run() -> None:
        async with watched(sqlite_url) as (store, faulty, clock):
            faulty.hold()
            writing = asyncio.create_task(store.write(lambda tx: None))
            await faulty.waits()
            assert store.trouble == ""
            clock.move(watched_store.SILENT_S + 1)
            assert store.trouble == "the database has not answered for 11 s"
            faulty.let_go()
            await writing
            assert store.trouble == ""

    asyncio.run(run())


def test_readiness_of_a_plane_says_why_there_is_no_database() -> None:
    async def run() -> None:
        async with small_plane() as plane:
            assert plane.plane.readiness().status == "ready"
            plane.store.failure = DatabaseUnavailable("the disk is full")
            await failing(plane.plane.leases.tick())
            said = plane.plane.readiness()
            assert (said.status, said.detail) == ("no database", "the disk is full")
            assert b"roost_database_unusable 1.0" in plane.plane.telemetry.text()
            plane.store.failure = None
            await plane.plane.leases.tick()
            assert plane.plane.readiness().status == "ready"

    asyncio.run(run())


def test_readyz_follows_a_postgresql_that_is_stopped_and_started(tmp_path: object) -> None:
    async def until(client: httpx.AsyncClient, wanted: Callable[[httpx.Response], bool]) -> None:
        async with asyncio.timeout(40):
            while not wanted(await client.get("/readyz")):
                await asyncio.sleep(0.05)

    async def run(url: str, stop: Callable[[], None], begin: Callable[[], bool]) -> None:
        options = ServeOptions(
            listen="127.0.0.1:0",
            data=tmp_path,  # type: ignore[arg-type]
            database=url,
        )
        running = await start(options, SHORT, warm=False)
        try:
            async with httpx.AsyncClient(base_url=running.server.url, timeout=20) as client:
                await until(client, lambda said: said.status_code == 200)
                await asyncio.to_thread(stop)
                await until(client, lambda said: said.status_code == 503)
                said = (await client.get("/readyz")).json()
                assert said["status"] == "no database"
                assert "database cannot be used" in said["detail"]
                assert (await client.get("/healthz")).status_code == 200
                assert await asyncio.to_thread(begin)
                await until(client, lambda said: said.status_code == 200)
        finally:
            await running.stop()

    with running_postgres() as server:
        asyncio.run(run(server.new_database(), server.stop, server.start))
