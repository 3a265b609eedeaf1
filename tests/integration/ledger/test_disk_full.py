"""A disk that is full when SQLite commits: a clear error, and nothing is half done."""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import select

from roost.ledger.claims.proposals import Verdict
from roost.ledger.schema.tables import vms
from roost.ledger.store import DatabaseUnavailable, Store
from tests.databases import opened
from tests.examining import doctor
from tests.integration.ledger.records import add_host, add_project, proposal


async def fill(store: Store, batches: int) -> tuple[set[str], int]:
    """Claim until the database refuses; return what was kept, and how often it refused."""
    kept: set[str] = set()
    refused = 0
    for batch in range(batches):
        asked = [
            proposal(f"vm-{batch}-{n}", 1, cpu_milli=0, memory_bytes=0, user_data="x" * 2000)
            for n in range(20)
        ]
        try:
            outcomes = await store.claim(asked, ["test"] * len(asked), 0)
        except DatabaseUnavailable:
            refused += 1
            continue
        assert {outcome.verdict for outcome in outcomes} == {Verdict.KEPT}
        kept.update(each.vm.id for each in asked)
    return kept, refused


async def there(store: Store) -> set[str]:
    return set(await store.read(lambda c: list(c.execute(select(vms.c.id)).scalars())))


def test_a_database_that_may_not_grow_refuses_and_recovers(sqlite_url: str) -> None:
    async def run() -> None:
        async with opened(sqlite_url) as store:
            await store.write(lambda tx: add_host(tx, 1))
            limit = "PRAGMA max_page_count = 120"  # of the writer's connection, until it is lost
            await store.write(lambda tx: tx.connection.exec_driver_sql(limit).fetchall() and None)
            kept, refused = await fill(store, 12)
            assert refused > 0
            assert kept == await there(store)
            assert (await doctor(store)).findings == []
            # The writer has a new connection now, without the limit.
            await store.write(lambda tx: add_project(tx, "lab"))

    asyncio.run(run())


def test_all_who_share_a_commit_that_fails_are_told(sqlite_url: str) -> None:
    async def run() -> None:
        async with opened(sqlite_url) as store:
            await store.write(lambda tx: add_host(tx, 1))

            async def one(n: int) -> bool:
                asked = [
                    proposal(f"vm-{n}", 1, cpu_milli=0, memory_bytes=0, user_data="x" * 90_000)
                ]
                try:
                    await store.claim(asked, ["test"], 0)
                except DatabaseUnavailable:
                    return False
                return True

            limit = "PRAGMA max_page_count = 120"
            await store.write(lambda tx: tx.connection.exec_driver_sql(limit).fetchall() and None)
            told = await asyncio.gather(*(one(n) for n in range(12)))
            assert not all(told)
            assert {f"vm-{n}" for n in range(12) if told[n]} == await there(store)
            assert (await doctor(store)).findings == []

    asyncio.run(run())


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a disk of two mebibytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("mounting a small tmpfs takes root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_refuses_and_goes_on_when_there_is_room_again(small_disk: Path) -> None:
    async def run() -> None:
        async with opened(f"sqlite:///{small_disk}/roost.db") as store:
            await store.write(lambda tx: add_host(tx, 1))
            ballast = small_disk / "ballast"
            ballast.write_bytes(bytes(700_000))
            kept, refused = await fill(store, 25)
            assert refused > 0
            assert kept
            assert kept == await there(store)
            ballast.unlink()
            await store.write(lambda tx: add_project(tx, "lab"))
            assert (await doctor(store)).findings == []

    asyncio.run(run())
