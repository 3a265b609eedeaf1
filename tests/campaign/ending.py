"""How everything stands: the ledger's rows by plain SQL, VM files on hosts, what planes tell.

Read without any code of the ledger, so that what it gets wrong is not read wrong as well. `Ending`
is plain data; `laws` judges it.
"""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
from msgspec import Struct

from roost.client import Client
from tests.system.copies import host_of, read_vm, vm_files

Row = dict[str, Any]

AMOUNTS = ("cpu_milli", "memory_bytes", "disk_bytes")

_QUESTIONS = {
    "hosts": "SELECT h.name, h.health, h.fenced, a.* FROM hosts h JOIN host_amounts a"
    " ON a.host = h.number ORDER BY h.number",
    "vms": "SELECT v.*, h.name AS host_name, s.spec FROM vms v JOIN vm_specs s ON s.vm = v.id"
    " LEFT JOIN hosts h ON h.number = v.host"
    " ORDER BY v.id",
    "claims": "SELECT c.*, h.name AS host_name FROM claims c JOIN hosts h ON h.number = c.host"
    " ORDER BY c.id",
    "projects": "SELECT * FROM projects ORDER BY name",
    "tombstones": "SELECT t.vm, h.name AS host_name FROM tombstones t JOIN hosts h"
    " ON h.number = t.host ORDER BY t.vm",
    "events": "SELECT count(*) AS number, min(seq) AS first, max(seq) AS last,"
    " (SELECT value FROM counters WHERE name = 'events') AS counter FROM events",
}


class Copy(Struct, frozen=True):
    """One VM file of a host."""

    host: str
    vm: str
    state: str
    cpu_milli: int


class Ending(Struct):
    """Everything at one moment."""

    hosts: list[Row] = []
    vms: list[Row] = []
    claims: list[Row] = []
    projects: list[Row] = []
    tombstones: list[Row] = []
    events: list[Row] = []
    copies: list[Copy] = []
    #: What each control plane says of each host: health, and the committed amounts.
    told: dict[str, dict[str, tuple[str, int, int, int]]] = {}


def read_ending(url: str, folder: Path, planes: dict[str, Client]) -> Ending:
    """Read everything; the ledger in one snapshot."""
    rows = _from_sqlite(url) if url.startswith("sqlite:") else asyncio.run(_from_postgres(url))
    told = {
        name: {
            host.name: (
                host.health,
                host.cpu_milli.committed,
                host.memory_bytes.committed,
                host.disk_bytes.committed,
            )
            for host in client.all_hosts()
        }
        for name, client in planes.items()
    }
    return Ending(**rows, copies=read_copies(folder), told=told)


def read_copies(folder: Path) -> list[Copy]:
    """Return every VM that lies on a host."""
    found = []
    for path in sorted(vm_files(folder)):
        vm = read_vm(path)
        if vm is not None:
            found.append(Copy(host_of(path), vm.id, vm.state, vm.cpu_milli))
    return found


def _from_sqlite(url: str) -> dict[str, list[Row]]:
    path = url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=30)) as connection:
        connection.row_factory = sqlite3.Row
        connection.execute("BEGIN")
        return {
            name: [dict(row) for row in connection.execute(question)]
            for name, question in _QUESTIONS.items()
        }


async def _from_postgres(url: str) -> dict[str, list[Row]]:
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            return {
                name: [dict(row) for row in await connection.fetch(question)]
                for name, question in _QUESTIONS.items()
            }
    finally:
        await connection.close()
