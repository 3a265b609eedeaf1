"""`backup` and `restore`: a copy of a ledger that is in use, put back, on both databases."""

import asyncio
import sqlite3
import stat
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import select

from roost.app.backups import backup, restore
from roost.app.keys import export_keys, key_file
from roost.app.options import ServeOptions
from roost.base.errors import Conflict, InvalidRequest, NotFound
from roost.ledger.schema.tables import doubts, events, roll_call, vms
from roost.ledger.store import Store
from roost.parts.sealedrows import unlock
from tests.examining import doctor
from tests.integration.ledger.copying import fill, on, rows


def test_a_copy_of_a_ledger_in_use_is_put_back_with_every_vm_in_doubt(
    database_url: str, tmp_path: Path
) -> None:
    options = ServeOptions(data=tmp_path / "data", database=database_url)
    copy = tmp_path / "copy"

    async def before(store: Store) -> None:
        await unlock(store, key_file(options), 0)
        await fill(store, "vm-1", "vm-2")
        held = await asyncio.to_thread(backup, options, copy)  # the ledger is open meanwhile
        assert (held.hosts, held.vms, held.key_is_here) == (1, 2, True)
        await fill(store, "vm-3")

    async def after(store: Store) -> None:
        assert sorted(await rows(store, select(vms.c.id))) == ["vm-1", "vm-2"]
        assert sorted(await rows(store, select(doubts.c.vm))) == ["vm-1", "vm-2"]
        assert len(await rows(store, select(roll_call.c.host))) == 1
        last = select(events.c.kind).order_by(events.c.seq.desc()).limit(1)
        assert await rows(store, last) == ["ledger.restored"]
        assert (await doctor(store)).findings == []

    on(database_url, before)
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    with pytest.raises(Conflict, match=r"not empty|there is a ledger"):
        restore(options, copy, replace=False)
    held = restore(options, copy, replace=True)
    assert (held.vms, held.key_is_here) == (2, True)
    on(database_url, after)


def test_what_was_there_is_kept_and_a_server_that_runs_is_respected(
    sqlite_url: str, tmp_path: Path
) -> None:
    options = ServeOptions(data=tmp_path / "data", database=sqlite_url)
    copy = tmp_path / "copy"

    async def in_use(store: Store) -> None:
        await fill(store, "vm-1")
        backup(options, copy)
        with pytest.raises(Conflict, match="another roost process"):
            restore(options, copy, replace=True)

    on(sqlite_url, in_use)
    held = restore(options, copy, replace=True)
    assert held.kept is not None
    with closing(sqlite3.connect(held.kept)) as file:
        assert file.execute("SELECT count(*) FROM vms").fetchone() == (1,)


def test_the_key_goes_with_the_copy_and_is_missed_without(sqlite_url: str, tmp_path: Path) -> None:
    options = ServeOptions(data=tmp_path / "data", database=sqlite_url)

    async def sealed(store: Store) -> None:
        await unlock(store, key_file(options), 0)

    on(sqlite_url, sealed)
    held = backup(options, tmp_path / "copy")
    assert held.key is not None
    assert export_keys(key_file(options), tmp_path / "key") == [held.key]
    elsewhere = replace(options, data=tmp_path / "other", database=None)
    assert not restore(elsewhere, tmp_path / "copy", replace=False).key_is_here


def test_what_is_no_copy_is_refused_and_nothing_is_left_behind(
    sqlite_url: str, tmp_path: Path
) -> None:
    options = ServeOptions(data=tmp_path / "data", database=sqlite_url)
    on(sqlite_url, lambda store: fill(store, "vm-1"))
    backup(options, tmp_path / "copy")
    with pytest.raises(Conflict, match="there already"):
        backup(options, tmp_path / "copy")
    with pytest.raises(NotFound, match="no folder"):
        backup(options, tmp_path / "none" / "copy")
    with pytest.raises(NotFound):
        restore(options, tmp_path / "nothing", replace=True)
    (tmp_path / "text").write_text("no copy")
    with pytest.raises(InvalidRequest, match="no copy of a ledger"):
        restore(options, tmp_path / "text", replace=True)
    whole = (tmp_path / "copy").read_bytes()
    (tmp_path / "half").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(Conflict, match=r"damaged|cannot be read"):
        restore(options, tmp_path / "half", replace=True)
    with closing(sqlite3.connect(tmp_path / "foreign")) as file:
        file.execute("CREATE TABLE songs (title TEXT)")
    with pytest.raises(Conflict, match="no ledger of roost"):
        restore(options, tmp_path / "foreign", replace=True)
    dump = tmp_path / "dump"
    dump.write_bytes(b"PGDMP" + b"\0" * 20)
    with pytest.raises(InvalidRequest, match="a copy of a PostgreSQL database"):
        restore(options, dump, replace=True)
    with pytest.raises(NotFound, match="no ledger at"):
        backup(ServeOptions(data=tmp_path / "empty"), tmp_path / "more")

    async def unchanged(store: Store) -> None:
        assert await rows(store, select(vms.c.id)) == ["vm-1"]
        assert await rows(store, select(doubts.c.vm)) == []

    on(sqlite_url, unchanged)
    assert not list(tmp_path.glob(".*"))


def test_a_postgresql_that_others_use_is_not_restored(postgres_url: str, tmp_path: Path) -> None:
    options = ServeOptions(data=tmp_path / "data", database=postgres_url)

    async def in_use(store: Store) -> None:
        await fill(store, "vm-1")
        await asyncio.to_thread(backup, options, tmp_path / "copy")
        with pytest.raises(Conflict, match="others are connected"):
            await asyncio.to_thread(restore, options, tmp_path / "copy", replace=True)

    on(postgres_url, in_use)
