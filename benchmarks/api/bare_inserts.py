"""The process of the bare limit: the rows of a finished run once more, and nothing around them.

Every create of the run wrote a VM, its spec, a claim, an event, a decision and a key, and
changed its host's amounts, its project and the event counter. All of that is read from the run's
database, cut into the very transactions that it was committed in, and written to a copy of the
database as it was before, through the driver alone. What that takes no server can beat.
"""

import asyncio
import json
import sqlite3
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg

_TABLES = ("idempotency", "vms", "vm_specs", "claims", "decisions", "events")
#: The table's column that names the VM.
_VM_COLUMN = {
    "idempotency": "answer",
    "vms": "id",
    "vm_specs": "vm",
    "claims": "vm",
    "decisions": "vm",
}
_AMOUNTS = ("cpu_milli", "memory_bytes", "disk_bytes")
_CREATED = "SELECT * FROM events WHERE kind = 'vm.created' ORDER BY seq"

Row = tuple[Any, ...]


@dataclass(slots=True)
class Batch:
    """What one transaction of the run wrote."""

    rows: dict[str, list[Row]] = field(default_factory=lambda: defaultdict(list))
    hosts: list[Row] = field(default_factory=list)  # what is charged, then the host
    project: Row = ()
    creates: int = 0


def cut(tables: dict[str, tuple[list[str], list[Row]]]) -> list[Batch]:
    """Put the rows of all tables back into the transactions that wrote them."""
    names, events = tables["events"]
    tx, subject = names.index("tx"), names.index("subject")
    batches: dict[str, Batch] = {}
    batch_of = {}
    for row in events:
        batch = batch_of[row[subject].removeprefix("vm/")] = batches.setdefault(row[tx], Batch())
        batch.rows["events"].append(row)
        batch.creates += 1
    for table, column in _VM_COLUMN.items():
        names, rows = tables[table]
        at = names.index(column)
        for row in rows:
            batch_of[row[at]].rows[table].append(row)
    names = tables["claims"][0]
    host, *amounts = (names.index(name) for name in ("host", *_AMOUNTS))
    for batch in batches.values():
        charged: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
        for row in batch.rows["claims"]:
            sums = charged[row[host]]
            for place, at in enumerate(amounts):
                sums[place] += row[at]
            sums[3] += 1
        batch.hosts = [(*sums, number) for number, sums in sorted(charged.items())]
        batch.project = tuple(map(sum, zip(*charged.values(), strict=True)))
    return list(batches.values())


def _update(mark: str, table: str, suffix: str, where: str) -> str:
    # ?1 and $1 are the same thing to the two databases.
    names = (*_AMOUNTS, "vms")
    changed = (f"{n}_{suffix} = {n}_{suffix} + {mark}{at}" for at, n in enumerate(names, 1))
    return f"UPDATE {table} SET {', '.join(changed)} WHERE {where}"


def _charge_host(mark: str) -> str:
    fits = (
        f"{name}_committed + {mark}{at} <= {name}_capacity"
        for at, name in enumerate((*_AMOUNTS, "vms"), 1)
    )
    return _update(mark, "host_amounts", "committed", f"host = {mark}5 AND {' AND '.join(fits)}")


def _charge_project(mark: str) -> str:
    return _update(mark, "projects", "used", f"name = {mark}5")


# SQLite


def read_sqlite(path: Path) -> dict[str, tuple[list[str], list[Row]]]:
    """Read the run's rows."""
    connection = sqlite3.connect(path)
    found = {}
    for table in _TABLES:
        cursor = connection.execute(_CREATED if table == "events" else f"SELECT * FROM {table}")
        found[table] = ([column[0] for column in cursor.description], cursor.fetchall())
    connection.close()
    return found


def write_sqlite(path: Path, batches: list[Batch], before: int) -> dict[str, float]:
    """Write the batches, as durable as the server does; time what follows the first creates."""
    connection = sqlite3.connect(path, isolation_level=None)
    for pragma in (
        "journal_mode = WAL",
        "synchronous = FULL",
        "wal_autocheckpoint = 4000",
        "cache_size = -65536",
    ):
        connection.execute(f"PRAGMA {pragma}")
    statements = {
        table: f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})"
        for table, rows in batches[0].rows.items()
    }
    charge_host, charge_project = _charge_host("?"), _charge_project("?")
    watch = Watch(before)
    for batch in batches:
        watch.look(batch.creates)
        connection.execute("BEGIN IMMEDIATE")
        for table in _TABLES[:-1]:
            connection.executemany(statements[table], batch.rows[table])
        connection.executemany(charge_host, batch.hosts)
        connection.execute(charge_project, (*batch.project, "default"))
        connection.execute(
            "UPDATE counters SET value = value + ? WHERE name = 'events'", (batch.creates,)
        )
        connection.executemany(statements["events"], batch.rows["events"])
        connection.execute("COMMIT")
    report = watch.report()
    connection.close()
    return report


# PostgreSQL


async def read_postgres(url: str) -> dict[str, tuple[list[str], list[Row]]]:
    """Read the run's rows."""
    connection = await asyncpg.connect(url)
    found = {}
    for table in _TABLES:
        query = _CREATED if table == "events" else f"SELECT * FROM {table}"
        rows = await connection.fetch(query)
        found[table] = (list(rows[0].keys()), [tuple(row) for row in rows])
    await connection.close()
    return found


async def write_postgres(url: str, batches: list[Batch], before: int) -> dict[str, float]:
    """Write the batches with the quickest that the driver has: COPY for rows."""
    connection = await asyncpg.connect(url)
    charge_host = await connection.prepare(_charge_host("$"))
    charge_project = await connection.prepare(_charge_project("$"))
    count = await connection.prepare("UPDATE counters SET value = value + $1 WHERE name = 'events'")
    watch = Watch(before)
    for batch in batches:
        watch.look(batch.creates)
        async with connection.transaction():
            for table in _TABLES[:-1]:
                await connection.copy_records_to_table(table, records=batch.rows[table])
            await charge_host.executemany(batch.hosts)
            await charge_project.fetch(*batch.project, "default")
            await count.fetch(batch.creates)
            await connection.copy_records_to_table("events", records=batch.rows["events"])
    report = watch.report()
    await connection.close()
    return report


class Watch:
    """A clock that starts after so many creates."""

    def __init__(self, before: int) -> None:
        self._before = before
        self._seen = self._timed = self._batches = 0
        self._wall = self._cpu = 0.0

    def look(self, creates: int) -> None:
        """Note a batch that is about to be written."""
        if not self._timed and self._seen >= self._before:
            self._wall, self._cpu = time.perf_counter(), time.process_time()
        if self._seen >= self._before:
            self._timed += creates
            self._batches += 1
        self._seen += creates

    def report(self) -> dict[str, float]:
        """Return what was measured."""
        wall_s, cpu_s = time.perf_counter() - self._wall, time.process_time() - self._cpu
        return {
            "creates": self._timed,
            "per_s": self._timed / wall_s,
            "cpu_us": 1e6 * cpu_s / self._timed,
            "together": self._timed / self._batches,
        }


def main(words: Iterable[str]) -> None:
    """Write the creates of one database to another and print what it took as JSON."""
    source, target, before = words
    if source.startswith("sqlite:///"):
        paths = [Path(url.removeprefix("sqlite:///")) for url in (source, target)]
        report = write_sqlite(paths[1], cut(read_sqlite(paths[0])), int(before))
    else:
        report = asyncio.run(_postgres(source, target, int(before)))
    print(json.dumps(report))


async def _postgres(source: str, target: str, before: int) -> dict[str, float]:
    return await write_postgres(target, cut(await read_postgres(source)), before)


if __name__ == "__main__":
    main(sys.argv[1:])
