"""What is kept of jobs that have ended: rows by age and by sums, files by age and by size."""

import asyncio
import os
from pathlib import Path
from random import Random
from threading import Event
from typing import Any

from sqlalchemy import insert, select, update

from roost.base.ids import IdSource
from roost.jobs.keeping import YOUNG_S, Keeping, KeptJobs, rows_kept
from roost.ledger.opening import open_store
from roost.ledger.schema.jobtables import (
    job_arrays,
    job_attempts,
    job_links,
    job_logs,
    jobs,
    machines,
)
from roost.ledger.upkeep.retention import DAY_S, Kept, Purged, purge, surplus
from roost.ledger.writes.transaction import Tx
from roost.testing.clock import HandClock
from roost.wire import jobs as w
from tests.integration.jobs.rig import Rig, run

DAY_MS = 1000 * DAY_S


async def purge_all(rig: Rig, kept: KeptJobs, piece: int = 2000) -> list[Purged]:
    """Purge as one process does for all, and return every answer."""
    found: list[Purged] = []
    for each in rows_kept(kept):
        found += await _purge_one(rig, each, piece)
    return found


async def _purge_one(rig: Rig, kept: Kept, piece: int) -> list[Purged]:
    found: list[Purged] = []
    now = rig.clock.wall_ms()
    while not found or found[-1].more:
        found.append(await _purge_piece(rig, kept, now, piece))
    return found


async def _purge_piece(rig: Rig, kept: Kept, now: int, piece: int) -> Purged:
    seen = await rig.store.read(lambda c: surplus(c, kept, piece))
    return await rig.store.write(lambda tx: purge(tx, kept, now, piece, seen))


async def names(rig: Rig, table: Any, column: str) -> set[str]:
    return {row[column] for row in await rig.rows(select(table))}


def test_an_array_that_ended_long_ago_goes_with_all_its_rows(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool(idle_grace_s=0)
        rig.ending = lambda a: {"outcome": "failed", "reason": "exit_code", "exit_code": 1}
        old = await rig.submit(count=7, retries=1)
        await rig.settle()
        await rig.pass_by(30)
        assert await names(rig, job_attempts, "array") == {old.id}
        rig.clock.move(31 * DAY_S)
        new = await rig.submit(count=2, needs=[old.id], on_failure="run")
        await rig.settle()
        await rig.pass_by(30)

        found = await purge_all(rig, KeptJobs(), piece=3)

        assert max(each.rows for each in found) <= 3
        for table in (job_arrays, jobs, job_attempts, job_links):
            column = "id" if table is job_arrays else "array"
            assert await names(rig, table, column) <= {new.id}, table.name
        assert await names(rig, jobs, "array") == {new.id}
        assert all(row["ended_ms"] is None or row["ended_ms"] > rig.clock.wall_ms() - 30 * DAY_MS
                   for row in await rig.rows(select(machines)))  # fmt: skip

    run(database_url, test)


def test_what_runs_and_what_another_waits_for_stays_however_old(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool(max_machines=1, types=["small"])
        rig.ending = lambda a: {"outcome": "failed", "reason": "exit_code", "exit_code": 1}
        bad = await rig.submit()
        await rig.settle()
        long = await rig.submit(demand=w.DemandBody(cpu=2, memory="1GiB"))
        later = await rig.submit(needs=[bad.id, long.id])
        await rig.settle(finish=False)
        rig.clock.move(40 * DAY_S)
        await purge_all(rig, KeptJobs())
        assert await names(rig, job_arrays, "id") == {bad.id, long.id, later.id}
        rig.ending = lambda a: {"outcome": "completed", "exit_code": 0}
        await rig.talk()
        # Forgotten, the array that failed could not stand in the way of the one that needs it.
        assert (await rig.job(later.id)).reason == "dependency"
        await purge_all(rig, KeptJobs())
        assert await names(rig, job_arrays, "id") == {long.id, later.id}

    run(database_url, test)


def test_so_many_jobs_are_kept_the_newest_arrays_whole(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool(types=["large"])
        made = []
        for size in (5, 4, 3):
            rig.clock.move(10)
            made.append(await rig.submit(count=size))
            await rig.settle()
        rig.clock.move(YOUNG_S)
        await purge_all(rig, KeptJobs(most=8), piece=2)
        assert await names(rig, job_arrays, "id") == {made[1].id, made[2].id}
        assert len(await rig.rows(select(jobs))) == 7
        await rig.check()

    run(database_url, test)


def test_what_has_just_ended_stays_for_an_hour_however_many_there_are(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool(types=["large"])
        made = await rig.submit(count=9)
        await rig.settle()
        await purge_all(rig, KeptJobs(most=8))
        assert len(await rig.rows(select(jobs))) == 9
        rig.clock.move(YOUNG_S - 1)
        await purge_all(rig, KeptJobs(most=8))
        assert await names(rig, jobs, "array") == {made.id}
        rig.clock.move(1)
        await purge_all(rig, KeptJobs(most=8))
        assert await names(rig, job_arrays, "id") == set()

    run(database_url, test)


def test_of_what_was_kept_at_one_moment_only_what_is_too_much_goes(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        now = rig.clock.wall_ms()
        row = {"stream": "stdout", "data": "", "length": 100, "dropped": 0, "at_ms": now}
        rows = [{**row, "attempt": "m/1", "start": n} for n in range(10)]
        await rig.store.write(lambda tx: tx.connection.execute(insert(job_logs), rows) and None)
        await purge_all(rig, KeptJobs(logs_bytes=350), piece=2)
        left = await rig.rows(select(job_logs.c.start).order_by(job_logs.c.start))
        assert [each["start"] for each in left] == [7, 8, 9]

    run(database_url, test)


def test_an_array_that_a_submit_begins_to_need_while_others_are_deleted_stays(
    postgres_url: str,
) -> None:
    """The submit has locked it and its link is not to be seen yet when the purge looks."""

    async def test(rig: Rig) -> None:
        await rig.pool(types=["large"])
        rig.ending = lambda a: {"outcome": "failed", "reason": "exit_code", "exit_code": 1}
        old = await rig.submit(count=3)
        other = await rig.submit()
        await rig.settle()
        rig.clock.move(31 * DAY_S)
        long = await rig.submit()
        linked, go_on = Event(), Event()

        def submit(tx: Tx) -> None:
            tx.find(job_arrays, lock=True, id=old.id)
            row = tx.find(job_arrays, lock=True, id=long.id)
            assert row is not None
            tx.insert(job_arrays, row | {"id": "job-later", "waiting": 1, "queued": 0, "size": 1})
            for need in (old.id, long.id):
                tx.insert(job_links, {"array": "job-later", "needs": need})
            linked.set()
            assert go_on.wait(30)

        async def submit_there() -> None:
            ids = IdSource(rig.clock.wall_ms, Random(7))
            second = await open_store(postgres_url, rig.clock, ids)
            try:
                await second.write(submit)
            finally:
                await second.close()

        try:
            async with asyncio.timeout(60):
                # In a thread with a loop of its own: its transaction stays open until it is told.
                there = asyncio.to_thread(lambda: asyncio.run(submit_there()))
                submitting = asyncio.create_task(there)
                await asyncio.to_thread(linked.wait, 30)
                [kept] = [each for each in rows_kept(KeptJobs()) if each.table is job_arrays]
                now = rig.clock.wall_ms()
                purging = asyncio.create_task(rig.store.write(lambda tx: purge(tx, kept, now, 99)))
                await asyncio.wait({purging}, timeout=3)  # or it waits for the submit
                go_on.set()
                await asyncio.gather(submitting, purging)
        finally:
            go_on.set()
        assert await names(rig, job_arrays, "id") == {old.id, long.id, "job-later"}
        assert len(await rig.rows(select(jobs).where(jobs.c.array == old.id))) == 3
        assert other.id not in await names(rig, jobs, "array")

    run(postgres_url, test)


def test_logs_are_kept_up_to_so_many_bytes(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        now = rig.clock.wall_ms()
        row = {"stream": "stdout", "start": 0, "data": "", "length": 100, "dropped": 0}
        rows = [{**row, "attempt": f"m/{n}", "at_ms": now - n} for n in range(10)]
        rows.append({**row, "attempt": "m/old", "at_ms": now - 15 * DAY_MS, "length": 0})
        await rig.store.write(lambda tx: tx.connection.execute(insert(job_logs), rows) and None)
        await purge_all(rig, KeptJobs(logs_bytes=350))
        assert await names(rig, job_logs, "attempt") == {"m/0", "m/1", "m/2"}

    run(database_url, test)


def test_machines_that_were_given_back_go_and_those_that_live_stay(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.pool(min_machines=1, idle_grace_s=0)
        await rig.submit(count=20)
        await rig.settle()
        await rig.pass_by(30)
        live = [row["id"] for row in await rig.rows(select(machines)) if row["ended_ms"] is None]
        change = update(machines).values(created_ms=0)
        await rig.store.write(lambda tx: tx.connection.execute(change) and None)
        rig.clock.move(31 * DAY_S)
        await purge_all(rig, KeptJobs())
        assert await names(rig, machines, "id") == set(live)
        assert live

    run(database_url, test)


def test_old_outputs_go_and_the_oldest_when_there_are_too_many(tmp_path: Path) -> None:
    clock = HandClock(now=10_000_000.0)

    def leave(name: str, size: int, age_s: float) -> Path:
        folder = tmp_path / "default" / name
        folder.mkdir(parents=True)
        (folder / "out").write_bytes(b"x" * size)
        for path in (folder / "out", folder):
            os.utime(path, (clock.now - age_s,) * 2)
        return folder

    ancient = leave("job-1.0:1", 1, 40 * DAY_S)
    older, newer = leave("job-2.0:1", 60_000, 2 * DAY_S), leave("job-3.0:1", 60_000, DAY_S)
    young = leave("job-4.0:1", 200_000, 60)
    keeping = Keeping(clock, KeptJobs(outputs_bytes=280_000), tmp_path)

    assert asyncio.run(keeping.delete_outputs()) == 2
    assert [each.exists() for each in (ancient, older, newer, young)] == [False, False, True, True]
    assert [loop.pause_s for loop in keeping.loops()] == [0.0]
