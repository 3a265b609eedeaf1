"""A store of series that is broken, gone, or killed half way: what is kept, and what is said."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import asyncpg
import pytest

from roost.base.errors import SeriesUnavailable
from roost.model.series import HOUR_MS, Reading, Subject
from roost.series.opening import open_series
from roost.series.sqlite import SqliteShelf
from tests.conformance.series import BEGIN, WEB, points, reading, whole

#: Puts readings for ever, files them, and says how many are acknowledged.
_WRITER = """
import asyncio, sys
from roost.series.opening import open_series
from tests.conformance.series import BEGIN, WEB, reading

async def main():
    store = open_series(sys.argv[1])
    for number in range(1_000_000):
        at = BEGIN + number * 1000
        await store.put([reading(at, number)], at)
        print(number, flush=True)
        if number % 7 == 6:
            await store.file_all(at)

asyncio.run(main())
"""


def test_what_was_acknowledged_is_there_after_a_kill(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'roost.db'}"
    for killed_after in (3, 20, 48):
        writer = subprocess.Popen(
            [sys.executable, "-c", _WRITER, url], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        last = -1
        for line in writer.stdout:
            last = int(line)
            if last >= killed_after:
                os.kill(writer.pid, signal.SIGKILL)
                break
        last = max([last, *(int(line) for line in writer.stdout)])
        writer.wait()
        writer.stdout.close()

        async def look(last: int = last) -> None:
            store = open_series(url)
            found = points(await whole(store))
            assert found[: last + 1] == [(BEGIN + n * 1000, n) for n in range(last + 1)]
            assert await store.examine() == []
            await store.close()

        asyncio.run(look())


def broken(path: Path) -> None:
    path.write_bytes(b"this is no database at all, and never was" * 100)


def another_database(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE mine (id INTEGER)")
    connection.close()


def of_a_later_release(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()


def a_folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("trouble", [broken, another_database, of_a_later_release, a_folder])
def test_a_file_that_cannot_be_used_is_said_and_left_alone(trouble, tmp_path: Path) -> None:
    path = tmp_path / "roost-series.db"
    trouble(path)
    before = path.read_bytes() if path.is_file() else b""

    async def story() -> None:
        store = open_series(f"sqlite:///{tmp_path / 'roost.db'}")
        with pytest.raises(SeriesUnavailable, match=r"roost-series\.db"):
            await store.put([reading(BEGIN, 1)], BEGIN)
        assert len(await store.examine()) == 1
        if path.is_file():
            assert path.read_bytes()[100:] == before[100:]
            path.unlink()
        else:
            path.rmdir()
        await store.put([reading(BEGIN, 2)], BEGIN)  # by itself, once the file is away
        assert points(await whole(store)) == [(BEGIN, 2)]
        await store.close()

    asyncio.run(story())


def test_a_file_that_is_deleted_under_the_store_is_made_anew(tmp_path: Path) -> None:
    async def story() -> None:
        store = open_series(f"sqlite:///{tmp_path / 'roost.db'}")
        await store.put([reading(BEGIN, 1)], BEGIN)
        for path in tmp_path.glob("roost-series.db*"):
            path.unlink()
        with pytest.raises(SeriesUnavailable, match="opened again"):
            await store.put([reading(BEGIN + 1, 2)], BEGIN)  # its number was of the old file
        await store.put([reading(BEGIN + 1, 2)], BEGIN)
        await store.close()
        again = open_series(f"sqlite:///{tmp_path / 'roost.db'}")
        assert points(await whole(again)) == [(BEGIN + 1, 2)]
        await again.close()

    asyncio.run(story())


def test_rotten_chunks_and_batches_are_left_out_and_said(tmp_path: Path) -> None:
    async def story() -> None:
        url = f"sqlite:///{tmp_path / 'roost.db'}"
        store = open_series(url)
        await store.put([reading(BEGIN, 1), reading(BEGIN + 5 * HOUR_MS, 2)], BEGIN + 5 * HOUR_MS)
        await store.file_all(BEGIN + 5 * HOUR_MS)
        await store.put([Reading(Subject("vm", "vm-x"), BEGIN, {"cpu_milli": 3.0})], BEGIN)
        await store.close()
        with sqlite3.connect(tmp_path / "roost-series.db") as connection:
            connection.execute(
                "UPDATE chunks SET data = zeroblob(40) WHERE resolution = 'raw' AND begin_ms = ?",
                (BEGIN,),
            )
            connection.execute("UPDATE batches SET data = x'0102030405'")
        connection.close()
        store = open_series(url)
        assert points(await whole(store)) == [(BEGIN + 5 * HOUR_MS, 2)]
        assert await store.newest(Subject("vm", "vm-x")) == []
        assert "could not be read" in (await store.examine())[0]
        await store.put([reading(BEGIN + 5, 7)], BEGIN)
        await store.file_all(BEGIN)
        assert points(await whole(store)) == [(BEGIN + 5, 7), (BEGIN + 5 * HOUR_MS, 2)]
        await store.close()

    asyncio.run(story())


def test_a_schema_that_is_dropped_under_the_store_is_made_anew(postgres_url: str) -> None:
    async def story() -> None:
        store = open_series(postgres_url)
        await store.put([reading(BEGIN, 1)], BEGIN)
        connection = await asyncpg.connect(postgres_url)
        await connection.execute("DROP SCHEMA roost_series CASCADE")
        await connection.close()
        for _ in range(2):
            with pytest.raises(SeriesUnavailable):
                await store.put([reading(BEGIN + 1, 2)], BEGIN)
        await store.put([reading(BEGIN + 1, 2)], BEGIN)
        assert points(await whole(store)) == [(BEGIN + 1, 2)]
        await store.close()

    asyncio.run(story())


def test_two_that_file_the_same_shard_lose_nothing(postgres_url: str) -> None:
    async def story() -> None:
        one, two = open_series(postgres_url), open_series(postgres_url)
        for number in range(40):
            await one.put([reading(BEGIN + number * 1000, number)], BEGIN)
        await asyncio.gather(*(store.file_all(BEGIN) for store in (one, two, one, two)))
        for store in (one, two):
            found = points(await whole(store, WEB))
            assert found == [(BEGIN + number * 1000, number) for number in range(40)]
            await store.close()

    asyncio.run(story())


def test_a_file_that_others_could_read_is_closed_before_anybody_needs_it(tmp_path: Path) -> None:
    path = tmp_path / "roost-series.db"
    for each in (path, path.with_name(path.name + "-wal")):
        each.touch()
        each.chmod(0o644)
    SqliteShelf(path, inline=True)
    assert {each.stat().st_mode & 0o777 for each in tmp_path.iterdir()} == {0o600}
