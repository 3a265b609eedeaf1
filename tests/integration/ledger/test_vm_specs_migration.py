"""A ledger of schema 0003 with VMs in it becomes one with specs, value by value."""

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest
from alembic import command
from sqlalchemy import Connection, create_engine, make_url, select, text
from sqlalchemy.ext.asyncio import create_async_engine

from roost.control.admin.upgrade import finish_upgrade
from roost.ledger.schema.tables import events, vm_specs, vm_user_data, vms
from roost.ledger.store import Store
from roost.ledger.upgrade.migrate import configuration
from roost.parts.sealing import Seal
from roost.wire.bodies import CreateVM, DoctorBody
from roost.wire.specs import spec_of
from roost.wire.spectext import read_spec
from tests.databases import PostgresServer, opened
from tests.examining import doctor

GIB = 2**30
DEMAND = {"cpu": 1, "memory": "1GiB"}
BODIES: dict[str, dict[str, Any]] = {
    "vm-plain": {},
    "vm-there": {"constraints": {"zones": ["a"], "labels": [{"key": "ssd"}]}, "priority": 3},
    "vm-gpu": {"demand": DEMAND | {"gpu": {"models": ["a100"]}, "numa": "one"}},
    "vm-groups": {"groups": ["g", {"name": "h", "rule": "spread"}], "labels": {"a": "b"}},
    "vm-secret": {"boot": {"user_data": "hunter2", "cmdline": "q"}, "on_no_fit": "queue"},
    "vm-moves": {"demand": DEMAND | {"extended": {"fpga": 2}}, "restart": "elsewhere"},
}


def asked(vm: str) -> CreateVM:
    return msgspec.convert({"name": vm, "demand": DEMAND} | BODIES[vm], CreateVM)


def row_of(vm: str) -> dict[str, Any]:
    row = {
        "id": vm, "project": "default", "name": vm,
        "asked": msgspec.json.encode(asked(vm)).decode(),
        "labels": "\na=b\n" if vm == "vm-groups" else "", "cpu_milli": 1000, "memory_bytes": GIB,
        "disk_bytes": 0, "strategy": "best_fit", "priority": 0, "on_no_fit": "fail",
        "restart": "here", "desired": "stopped", "generation": 1, "restarts": 0, "host": None,
        "target": None, "phase": "", "observed": "", "observed_generation": 0, "problem": None,
        "pending": None, "created_ms": 5, "move": None,
    }  # fmt: skip
    if vm == "vm-moves":
        row |= {"host": 1, "target": 2, "phase": "moving", "desired": "running", "move": "{}"}
    return row


def claim_of(host: int, kind: str) -> dict[str, Any]:
    return {
        "id": f"vm-moves:{kind}", "vm": "vm-moves", "host": host, "kind": kind, "cpu_milli": 1000,
        "memory_bytes": GIB, "disk_bytes": 0, "counters": "", "devices": 0, "cells": 0,
    }  # fmt: skip


def fill(connection: Connection) -> None:
    """Enter VMs as the release of that schema did, and one that was deleted again."""
    seq = 0

    def tell(kind: str, changes: dict[str, Any]) -> None:
        nonlocal seq
        seq += 1
        insert("events", {
            "seq": seq, "at_ms": 7, "actor": "t", "kind": kind, "subject": "s",
            "changes": msgspec.json.encode(changes).decode(), "note": "", "tx": f"tx-{seq}",
        })  # fmt: skip

    def insert(table: str, row: dict[str, Any]) -> None:
        names = ", ".join(row)
        values = ", ".join(f":{name}" for name in row)
        connection.execute(text(f"INSERT INTO {table} ({names}) VALUES ({values})"), row)

    for number in (1, 2):
        host = {
            "number": number, "name": f"h{number}", "inventory": "{}", "labels": None,
            "health": "online", "admin": "open", "instance": "i", "version": "1",
            "guard_stop_s": None, "fenced": None, "held": "[]", "registered_ms": 1,
        }  # fmt: skip
        capacity = {
            "generation": 1, "cpu_milli_capacity": 8000, "memory_bytes_capacity": 64 * GIB,
            "disk_bytes_capacity": GIB, "vms_capacity": 10,
        }  # fmt: skip
        committed = {
            "cpu_milli_committed": 1000, "memory_bytes_committed": GIB,
            "disk_bytes_committed": 0, "vms_committed": 1,
        }  # fmt: skip
        insert("hosts", host)
        insert("host_amounts", {"host": number} | capacity | committed)
        tell("host.registered", {"hosts": {number: host}, "host_amounts": {number: capacity}})
    for vm in BODIES:
        insert("vms", row_of(vm))
        tell("vm.created", {"vms": {vm: row_of(vm)}})
    taken = [claim_of(1, "run"), claim_of(2, "migrate_in")]
    for claim in taken:
        insert("claims", claim)
    tell("vm.move_begun", {"claims": {claim["id"]: claim for claim in taken}})
    gone = row_of("vm-secret") | {"id": "vm-gone", "name": "vm-gone"}
    tell("vm.created", {"vms": {"vm-gone": gone}})
    tell("vm.deleted", {"vms": {"vm-gone": None}})
    used = {"cpu_milli_used": 1000, "memory_bytes_used": GIB, "disk_bytes_used": 0, "vms_used": 1}
    values = ", ".join(f"{name} = {amount * len(BODIES)}" for name, amount in used.items())
    connection.execute(text(f"UPDATE projects SET {values}"))
    connection.execute(text(f"UPDATE counters SET value = {seq} WHERE name = 'events'"))


def make(connection: Connection) -> None:
    config = configuration()
    config.attributes["connection"] = connection
    command.upgrade(config, "0003")
    fill(connection)
    connection.commit()


@pytest.fixture(params=["sqlite", "postgresql"])
def old_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of a ledger as the release of schema 0003 left it."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/roost.db"
        engine = create_engine(url)
        with engine.connect() as connection:
            make(connection)
        engine.dispose()
    else:
        server: PostgresServer = request.getfixturevalue("postgres")
        url = server.new_database()

        async def make_there() -> None:
            engine = create_async_engine(make_url(url).set(drivername="postgresql+asyncpg"))
            async with engine.connect() as connection:
                await connection.run_sync(make)
            await engine.dispose()

        asyncio.run(make_there())
    return url


async def rows(store: Store, query: Any) -> list[Any]:
    return await store.read(lambda connection: list(connection.execute(query).mappings()))


async def examined(store: Store) -> DoctorBody:
    found = await doctor(store)
    assert found.findings == []
    return found


def test_every_vm_has_the_spec_of_its_body_and_nothing_else_has_changed(old_url: str) -> None:
    async def test() -> None:
        async with opened(old_url) as store:
            found = {row["vm"]: row for row in await rows(store, select(vm_specs))}
            assert found.keys() == BODIES.keys()
            for vm, row in found.items():
                assert (row["version"], row["spec"]) == (1, spec_of(asked(vm)).text)
                assert read_spec(row["spec"]) == spec_of(asked(vm)).spec
            data = [dict(row) for row in await rows(store, select(vm_user_data))]
            assert data == [{"vm": "vm-secret", "user_data": "hunter2"}]
            for kept in await rows(store, select(vms)):
                before = row_of(kept["id"])
                del before["asked"]
                assert dict(kept) == before
            notes = [note.check for note in (await examined(store)).notes]
            assert notes == (["upgrade"] if store.shared else [])
            done = await finish_upgrade(store, Seal(), "test")
            assert (done.bodies_emptied, done.events_cleaned) == (
                (6, 2) if store.shared else (0, 0)
            )
            for row in await rows(store, select(events.c.changes)):
                assert "hunter2" not in row["changes"]
            assert (await examined(store)).notes == []
            assert await finish_upgrade(store, Seal(), "test") == type(done)()
        async with opened(old_url) as store:  # a second start finds nothing to do
            await examined(store)

    asyncio.run(test())


def test_a_migration_that_is_broken_off_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/roost.db"
    engine = create_engine(url)
    with engine.connect() as connection:
        make(connection)
        connection.execute(text("UPDATE vms SET asked = 'no JSON' WHERE id = 'vm-there'"))
        connection.commit()
    engine.dispose()

    async def test() -> None:
        with pytest.raises(msgspec.DecodeError):
            async with opened(url):
                pass

    asyncio.run(test())
    with sqlite3.connect(tmp_path / "roost.db") as file:
        assert file.execute("SELECT version_num FROM alembic_version").fetchone() == ("0003",)
        assert file.execute("SELECT count(*) FROM vms WHERE asked <> ''").fetchone() == (6,)
