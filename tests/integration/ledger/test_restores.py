"""A restore happens as a whole or not at all, and a backup reads and changes nothing."""

import asyncio
import os
import shutil
import sqlite3
import subprocess
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from sqlalchemy import Insert, Table, insert, make_url, select, text

from roost.app.backups import backup, restore
from roost.app.options import ServeOptions
from roost.base.errors import Conflict, InvalidRequest, NotFound, Unavailable
from roost.control.memory import restore_detect
from roost.ledger.schema.tables import doubts, vms
from roost.ledger.store import Store
from roost.ledger.writes.transaction import Tx
from tests.databases import PostgresServer, opened, programs
from tests.examining import doctor
from tests.integration.ledger.copying import fill, make_older, on, rows, wrapped

BEFORE_FLAVORS = "0021"


class Interrupted(Exception):
    """Somebody stops the restore here."""


def options_of(url: str, tmp_path: Path) -> ServeOptions:
    return ServeOptions(data=tmp_path / "data", database=url)


def copied(url: str, tmp_path: Path) -> Path:
    """Return a copy of a ledger with one VM; the ledger has a second one after it."""
    on(url, lambda store: fill(store, "vm-1"))
    backup(options_of(url, tmp_path), tmp_path / "copy")
    on(url, lambda store: fill(store, "vm-2"))
    return tmp_path / "copy"


def meanwhile(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Do something at the moment when the VMs of a restored ledger are put in doubt."""
    done: list[bool] = []

    def first(table: Table) -> Insert:
        if not done:
            done.append(True)
            act()
        return insert(table)

    monkeypatch.setattr(restore_detect, "insert", first)


def names_and_doubts(url: str) -> tuple[list[Any], list[Any]]:
    async def look() -> tuple[list[Any], list[Any]]:
        async with opened(url) as store:
            return await rows(store, select(vms.c.id)), await rows(store, select(doubts.c.vm))

    found, doubted = asyncio.run(look())
    return sorted(found), sorted(doubted)


def test_an_interrupted_restore_leaves_the_ledger_as_it_was(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = copied(database_url, tmp_path)

    def stop() -> None:
        raise Interrupted

    with monkeypatch.context() as patched:
        meanwhile(patched, stop)
        with pytest.raises(Interrupted):
            restore(options_of(database_url, tmp_path), copy, replace=True)
    assert names_and_doubts(database_url) == (["vm-1", "vm-2"], [])
    assert not list(tmp_path.glob(".*"))
    restore(options_of(database_url, tmp_path), copy, replace=True)
    assert names_and_doubts(database_url) == (["vm-1"], ["vm-1"])


def test_whoever_opens_a_ledger_during_a_restore_finds_it_in_doubt(
    database_url: str, postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = copied(database_url, tmp_path)
    found: list[object] = []

    def look() -> None:
        try:
            found.append(names_and_doubts(database_url))
        except Conflict as refused:
            found.append(refused.message)

    async def wait_until_it_waits() -> None:
        watch = await asyncpg.connect(postgres.url())  # another database: nobody counts it
        waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        while opener.is_alive() and not await watch.fetchval(waiting):
            await asyncio.sleep(0.01)
        await watch.close()

    def open_it() -> None:
        opener.start()
        watcher = threading.Thread(target=lambda: asyncio.run(wait_until_it_waits()))
        watcher.start()
        watcher.join(30)

    opener = threading.Thread(target=look)
    meanwhile(monkeypatch, open_it)
    restore(options_of(database_url, tmp_path), copy, replace=True)
    opener.join(30)
    if database_url.startswith("sqlite"):
        assert found == [f"another roost process uses {str(tmp_path / 'roost.db')!r}"]
    else:
        assert found == [(["vm-1"], ["vm-1"])]


def older_copy(kind: str, postgres: PostgresServer, tmp_path: Path) -> Path:
    """Return a copy of a ledger that has no flavors yet, made by the database's own program."""
    copy = tmp_path / "older"
    if kind == "sqlite":
        make_older(f"sqlite:///{copy}", BEFORE_FLAVORS)
        return copy
    url = postgres.new_database()
    make_older(url, BEFORE_FLAVORS)
    program = (programs() or Path()) / "pg_dump"
    subprocess.run([program, "--format=custom", f"--file={copy}", url], check=True)
    postgres.drop_database(url)
    return copy


def test_a_copy_of_an_older_schema_replaces_a_newer_ledger(
    database_url: str, postgres: PostgresServer, tmp_path: Path
) -> None:
    async def later(store: Store) -> None:
        def change(tx: Tx) -> None:
            tx.connection.execute(text("CREATE TABLE of_later (id INTEGER)"))
            tx.connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))

        await fill(store, "vm-1")
        await store.write(change)

    on(database_url, later)
    copy = older_copy(make_url(database_url).drivername, postgres, tmp_path)
    held = restore(options_of(database_url, tmp_path), copy, replace=True)
    assert (held.hosts, held.vms) == (0, 0)
    assert held.schema not in (BEFORE_FLAVORS, "9999")

    async def after(store: Store) -> None:
        with pytest.raises(Unavailable, match="of_later"):
            await store.read(lambda c: c.execute(text("SELECT * FROM of_later")).all())
        await fill(store, "vm-2")
        assert (await doctor(store)).findings == []

    on(database_url, after)


def test_a_copy_of_a_later_schema_is_refused_and_changes_nothing(
    database_url: str, tmp_path: Path
) -> None:
    def version(number: str) -> Callable[[Store], Any]:
        statement = text(f"UPDATE alembic_version SET version_num = '{number}' RETURNING 1")
        return lambda store: store.write(lambda tx: tx.rows(statement))

    async def copy_as_later(store: Store) -> None:
        await fill(store, "vm-1")
        old = (await rows(store, text("SELECT version_num FROM alembic_version")))[0]
        await version("9999")(store)
        held = await asyncio.to_thread(
            backup, options_of(database_url, tmp_path), tmp_path / "copy"
        )
        assert held.schema == "9999"
        await version(str(old))(store)

    on(database_url, copy_as_later)
    with pytest.raises(Conflict, match="9999"):
        restore(options_of(database_url, tmp_path), tmp_path / "copy", replace=True)
    assert names_and_doubts(database_url) == (["vm-1"], [])


# SQLite


def crashed(url: str, *names: str) -> None:
    """Add VMs to a ledger's file and leave it as a power loss does: the commits in its log."""
    path = Path(make_url(url).database or "")

    async def cut(store: Store) -> None:
        await fill(store, *names)
        for end in ("", "-wal"):
            shutil.copyfile(f"{path}{end}", f"{path}.cut{end}")

    on(url, cut)
    for end in ("", "-wal"):
        Path(f"{path}.cut{end}").rename(f"{path}{end}")


def test_what_is_committed_beside_a_copied_file_is_restored(
    sqlite_url: str, tmp_path: Path
) -> None:
    on(sqlite_url, lambda store: fill(store, "vm-1"))
    crashed(sqlite_url, "vm-2")
    source = tmp_path / "roost.db"
    before = [(tmp_path / f"roost.db{end}").read_bytes() for end in ("", "-wal")]
    there = f"sqlite:///{tmp_path}/there/roost.db"
    assert restore(options_of(there, tmp_path), source, replace=False).vms == 2
    assert names_and_doubts(there) == (["vm-1", "vm-2"], ["vm-1", "vm-2"])
    assert before == [(tmp_path / f"roost.db{end}").read_bytes() for end in ("", "-wal")]


def test_a_ledger_has_its_name_until_the_restored_one_takes_it(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = copied(sqlite_url, tmp_path)
    crashed(sqlite_url, "vm-3")
    options, path = options_of(sqlite_url, tmp_path), tmp_path / "roost.db"

    def stopped(really: Callable[[Path, Path], Path]) -> Callable[[Path, Path], Path]:
        def rename(old: Path, new: Path) -> Path:
            if new == path:
                raise Interrupted
            return really(old, new)

        return rename

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", stopped(Path.rename))
        patched.setattr(Path, "replace", stopped(Path.replace))
        with pytest.raises(Interrupted):
            restore(options, copy, replace=True)
    assert path.is_file()
    assert names_and_doubts(sqlite_url) == (["vm-1", "vm-2", "vm-3"], [])
    kept = restore(options, copy, replace=True).kept
    assert names_and_doubts(sqlite_url) == (["vm-1"], ["vm-1"])
    assert not Path(f"{kept}-wal").exists()
    with closing(sqlite3.connect(str(kept))) as file:
        assert file.execute("SELECT count(*) FROM vms").fetchone() == (3,)


def test_a_ledger_that_cannot_be_read_is_replaced_with_its_log_kept(
    sqlite_url: str, tmp_path: Path
) -> None:
    copy = copied(sqlite_url, tmp_path)
    for end in ("", "-wal"):
        (tmp_path / f"roost.db{end}").write_bytes(b"ruined" * 2000)
    kept = restore(options_of(sqlite_url, tmp_path), copy, replace=True).kept
    assert kept is not None
    assert all(Path(f"{kept}{end}").read_bytes() == b"ruined" * 2000 for end in ("", "-wal"))
    assert names_and_doubts(sqlite_url) == (["vm-1"], ["vm-1"])


# PostgreSQL


def test_a_backup_does_not_migrate_and_needs_a_ledger(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    url = postgres.new_database()
    with pytest.raises(NotFound, match="no ledger at"):
        backup(options_of(url, tmp_path), tmp_path / "empty")
    make_older(url, BEFORE_FLAVORS)
    held = backup(options_of(url, tmp_path), tmp_path / "copy")
    assert held.schema == BEFORE_FLAVORS

    assert asyncio.run(asked(url, "SELECT FROM pg_tables WHERE tablename = 'flavors'")) == []
    postgres.drop_database(url)


def test_what_is_counted_is_what_the_dump_has(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(postgres_url, lambda store: fill(store, "vm-1"))
    one_more = (
        f"{programs()}/psql -q -v ON_ERROR_STOP=1 {postgres_url} -c 'CREATE TEMP TABLE newest AS "
        "SELECT * FROM events ORDER BY seq DESC LIMIT 1; UPDATE newest SET seq = seq + 1; "
        "INSERT INTO events SELECT * FROM newest; UPDATE counters SET value = value + 1 "
        "WHERE name = $$events$$' >&2"
    )
    folder = wrapped(tmp_path / "bin", "pg_dump", one_more, one_more)
    with monkeypatch.context() as patched:
        patched.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        counted = backup(options_of(postgres_url, tmp_path), tmp_path / "copy")
    held = restore(options_of(postgres_url, tmp_path), tmp_path / "copy", replace=True)
    assert counted.last_event == held.last_event


def test_a_dump_that_cannot_be_read_back_is_no_copy(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(postgres_url, lambda store: fill(store, "vm-1"))
    cut = f"truncate -s -200 {tmp_path}/.copy.*"
    folder = wrapped(tmp_path / "bin", "pg_dump", after=cut)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    with pytest.raises(Unavailable, match="pg_restore failed"):
        backup(options_of(postgres_url, tmp_path), tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    assert not list(tmp_path.glob(".*"))


def test_pg_dump_is_told_no_secret_but_the_password_and_that_where_nobody_sees_it(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(postgres_url, lambda store: fill(store, "vm-1"))
    told = f'env > {tmp_path}/environment; echo "$@" > {tmp_path}/words'
    folder = wrapped(tmp_path / "bin", "pg_dump", told)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("ROOST_TOKEN", "a-token")
    held = backup(options_of(f"{postgres_url}?password=sesame", tmp_path), tmp_path / "copy")
    assert "sesame" not in held.database
    assert "sesame" not in (tmp_path / "words").read_text()
    environment = (tmp_path / "environment").read_text().splitlines()
    assert "PGPASSWORD=sesame" in environment
    assert not [line for line in environment if "a-token" in line]
    monkeypatch.setenv("PGPASSWORD", "open")
    backup(options_of(postgres_url, tmp_path), tmp_path / "second")
    assert "PGPASSWORD=open" in (tmp_path / "environment").read_text().splitlines()
    with pytest.raises(InvalidRequest, match="sslpassword") as refused:
        backup(options_of(f"{postgres_url}?sslpassword=sesame", tmp_path), tmp_path / "third")
    assert "sesame" not in str(refused.value)


def test_a_role_without_rights_over_others_counts_their_sessions_too(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    postgres.execute("CREATE ROLE plain LOGIN")
    url = postgres.new_database().replace("postgres@", "plain@")
    postgres.execute(f"ALTER DATABASE {make_url(url).database} OWNER TO plain")
    copy = copied(url, tmp_path)

    async def beside_another() -> None:
        other = await asyncpg.connect(url.replace("plain@", "postgres@"))
        try:
            with pytest.raises(Conflict, match="1 others are connected"):
                await asyncio.to_thread(restore, options_of(url, tmp_path), copy, replace=True)
        finally:
            await other.close()

    asyncio.run(beside_another())
    assert names_and_doubts(url) == (["vm-1", "vm-2"], [])
    restore(options_of(url, tmp_path), copy, replace=True)
    assert names_and_doubts(url) == (["vm-1"], ["vm-1"])
    postgres.drop_database(url)
    postgres.execute("DROP ROLE plain")


async def asked(url: str, statement: str) -> Any:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetch(statement)
    finally:
        await connection.close()


def test_a_restored_postgresql_has_the_same_schema_and_rows(
    postgres: PostgresServer, postgres_url: str, tmp_path: Path
) -> None:
    odd = "a\ttab\nCOPY public.vms (id) FROM stdin;\n\\.\n\\N \\ and \u00e4"

    def tell(tx: Tx) -> None:
        tx.event("vm.odd", "vm-1", {}, note=odd)

    async def prepare(store: Store) -> None:
        await fill(store, "vm-1")
        await store.write(tell)

    def schema(url: str) -> list[str]:
        words = [str((programs() or Path()) / "pg_dump"), "--schema-only", url]
        said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
        return [line for line in said.splitlines() if "restrict" not in line]

    on(postgres_url, prepare)
    backup(options_of(postgres_url, tmp_path), tmp_path / "copy")
    url = postgres.new_database()
    restore(options_of(url, tmp_path), tmp_path / "copy", replace=False)
    assert schema(url) == schema(postgres_url)
    for table in ("hosts", "vms", "claims", "vm_specs", "events"):
        query = f"SELECT * FROM {table} ORDER BY 1"
        before = asyncio.run(asked(postgres_url, query))
        assert before
        assert asyncio.run(asked(url, query))[: len(before)] == before
    notes = asyncio.run(asked(url, "SELECT note FROM events WHERE kind = 'vm.odd'"))
    assert [row["note"] for row in notes] == [odd]
    postgres.drop_database(url)


def test_a_ledger_that_a_view_depends_on_is_not_replaced(postgres_url: str, tmp_path: Path) -> None:
    copy = copied(postgres_url, tmp_path)
    asyncio.run(asked(postgres_url, "CREATE VIEW names AS SELECT name FROM vms"))
    with pytest.raises(Conflict, match="as before: cannot drop"):
        restore(options_of(postgres_url, tmp_path), copy, replace=True)
    assert names_and_doubts(postgres_url) == (["vm-1", "vm-2"], [])


def test_a_database_of_another_program_is_not_replaced(
    postgres: PostgresServer, postgres_url: str, tmp_path: Path
) -> None:
    copy = copied(postgres_url, tmp_path)
    url = postgres.new_database()

    asyncio.run(asked(url, "CREATE TABLE songs (title text)"))
    with pytest.raises(Conflict, match="no ledger of roost"):
        restore(options_of(url, tmp_path), copy, replace=True)
    assert asyncio.run(asked(url, "SELECT * FROM songs")) == []
    postgres.drop_database(url)
