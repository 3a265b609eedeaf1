"""User data is sealed at rest, also what earlier releases left, and only with the ledger's key."""

import asyncio
import base64
import stat
import tempfile
from collections.abc import Callable, Coroutine
from functools import cache, wraps
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Connection, create_engine, insert, select, text, update
from sqlalchemy.ext.asyncio import create_async_engine

from roost.base.clock import RealClock
from roost.base.errors import Conflict, InvalidRequest
from roost.ledger.schema.tables import counters, events, vm_user_data
from roost.ledger.sqlite.store import SqliteStore
from roost.ledger.store import DatabaseUnavailable, Store
from roost.ledger.upgrade.migrate import configuration
from roost.ledger.upkeep.examination import Examination
from roost.ledger.writes.transaction import Tx
from roost.parts.sealedrows import (
    SealedRows,
    change_key,
    finish_sealing,
    may_be_clear,
    unlock,
)
from roost.parts.sealing import MARK, KeyFile, Seal, SealBroken, new_key
from roost.parts.watched_store import WatchedStore
from tests.databases import PostgresServer, opened
from tests.examining import doctor

SECRET = "hunter2-in-the-clear"


@pytest.fixture
def file(tmp_path: Path) -> KeyFile:
    return KeyFile(tmp_path / "keys" / "roost.key")


@pytest.fixture
def seal(file: KeyFile) -> Seal:
    file.put_first([new_key()])
    return Seal(file, file.load()[0].fingerprint)


# The seal


@given(owner=st.text(max_size=20), secret=st.text(min_size=1, max_size=200))
def test_what_was_closed_opens_for_its_owner_alone(owner: str, secret: str) -> None:
    seal = _shared_seal()
    kept = seal.close(owner, secret)
    assert kept.startswith(MARK)
    assert kept != seal.close(owner, secret), "one nonce was used twice"
    assert seal.open(owner, kept) == secret
    with pytest.raises(SealBroken):
        seal.open(owner + "x", kept)


@cache
def _shared_seal() -> Seal:
    with tempfile.TemporaryDirectory() as folder:
        file = KeyFile(Path(folder) / "roost.key")
        file.put_first([new_key()])
        return Seal(file, file.load()[0].fingerprint)


@pytest.mark.parametrize("at", [0, 5, 20, -1])
def test_a_changed_text_does_not_open(seal: Seal, at: int) -> None:
    head, _, body = seal.close("vm-1", SECRET).rpartition(":")
    raw = bytearray(base64.b64decode(body))
    raw[at] ^= 1
    with pytest.raises(SealBroken, match="changed"):
        seal.open("vm-1", f"{head}:{base64.b64encode(raw).decode()}")
    with pytest.raises(SealBroken):
        seal.open("vm-1", f"{head}:no base64")


def test_texts_of_older_releases_are_read_and_nothing_passes_for_sealed(seal: Seal) -> None:
    assert seal.open("vm-1", SECRET) == SECRET
    seal.closes = False
    assert seal.close("vm-1", SECRET) == SECRET
    forged = MARK + "0123456789abcdef:AAAA"
    assert seal.open("vm-1", seal.close("vm-1", forged)) == forged


def test_a_key_that_is_brought_while_the_process_runs_opens(tmp_path: Path, seal: Seal) -> None:
    other = KeyFile(tmp_path / "other.key")
    other.put_first([new_key()])
    kept = Seal(other, other.load()[0].fingerprint).close("vm-1", SECRET)
    with pytest.raises(SealBroken, match="not here"):
        seal.open("vm-1", kept)
    KeyFile(tmp_path / "keys" / "roost.key").put_first(other.load())
    assert seal.open("vm-1", kept) == SECRET


def test_the_key_file_is_private_and_another_file_is_refused(file: KeyFile) -> None:
    file.put_first([new_key()])
    first = file.load()
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.path.parent.stat().st_mode) == 0o700
    file.put_first([new_key()])
    assert file.load()[1:] == first
    file.path.write_text("-----BEGIN PRIVATE KEY-----\n")
    with pytest.raises(InvalidRequest, match="no key"):
        file.load()


# The ledger


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in an event loop of its own."""

    @wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        asyncio.run(test(*arguments, **named))

    return run


def kept_data(connection: Connection) -> dict[str, str]:
    found = connection.execute(select(vm_user_data.c.vm, vm_user_data.c.user_data))
    return {row.vm: row.user_data for row in found}


@in_loop
async def test_the_first_start_makes_a_key_and_another_key_is_refused(
    database_url: str, file: KeyFile, tmp_path: Path
) -> None:
    async with opened(database_url) as store:
        seal = await unlock(store, file, 1)
        assert seal.closes
        again = await unlock(store, file, 2)
        assert again.open("vm-1", seal.close("vm-1", SECRET)) == SECRET

        other = KeyFile(tmp_path / "other.key")
        with pytest.raises(Conflict, match="does not exist") as refused:
            await unlock(store, other, 3)
        assert not other.path.exists(), "a second key was made"
        other.put_first([new_key()])
        with pytest.raises(Conflict, match=f"sealed with key {seal.fingerprint}") as refused:
            await unlock(store, other, 3)
        assert "roost key import FILE" in str(refused.value.hint)
        other.put_first(file.load())
        assert (await unlock(store, other, 4)).fingerprint == seal.fingerprint


def _at_0006(connection: Connection) -> None:
    config = configuration()
    config.attributes["connection"] = connection
    command.upgrade(config, "0006")
    connection.execute(insert(vm_user_data).values(vm="vm-1", user_data=SECRET))
    connection.execute(
        insert(events).values(
            seq=1, at_ms=1, actor="t", kind="k", subject="s", changes="{}", note="", tx="t"
        )
    )
    connection.execute(counters.update().values(value=1))
    connection.commit()


@in_loop
async def test_a_sqlite_file_of_an_earlier_release_is_sealed_without_a_trace(
    tmp_path: Path, file: KeyFile
) -> None:
    path = tmp_path / "roost.db"
    engine = create_engine(f"sqlite:///{path}")
    with engine.connect() as connection:
        _at_0006(connection)
    engine.dispose()
    assert SECRET.encode() in path.read_bytes()
    async with opened(f"sqlite:///{path}") as store:
        seal = await unlock(store, file, 1)
        found = await store.read(kept_data)
        assert seal.open("vm-1", found["vm-1"]) == SECRET
        assert not await store.read(may_be_clear)
        for each in tmp_path.glob("roost.db*"):
            assert SECRET.encode() not in each.read_bytes(), each


class Crash(Exception):
    """The process ends here."""


@pytest.mark.parametrize("failure", [Crash(), DatabaseUnavailable("disk full")])
@in_loop
async def test_what_was_broken_off_is_sealed_and_erased_at_the_next_start(
    tmp_path: Path, file: KeyFile, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    path = tmp_path / "roost.db"
    engine = create_engine(f"sqlite:///{path}")
    with engine.connect() as connection:
        _at_0006(connection)
    engine.dispose()

    async def fails(store: SqliteStore) -> None:
        raise failure

    async with opened(f"sqlite:///{path}") as store:
        with monkeypatch.context() as broken:
            broken.setattr(SqliteStore, "erase_traces", fails)
            if isinstance(failure, Crash):
                with pytest.raises(Crash):
                    await unlock(store, file, 1)
            else:
                assert (await unlock(store, file, 1)).closes
        assert await store.read(may_be_clear)
        if isinstance(failure, Crash):
            await unlock(store, file, 2)
        else:  # or before, by hand: a plane has its store wrapped
            seal = Seal(file, file.load()[0].fingerprint)
            assert await finish_sealing(WatchedStore(store, RealClock()), seal, "t") == 0
        assert not await store.read(may_be_clear)
        for each in tmp_path.glob("roost.db*"):
            assert SECRET.encode() not in each.read_bytes(), each


@pytest.fixture
def empty_url(postgres: PostgresServer) -> str:
    return postgres.new_database()


@in_loop
async def test_on_postgresql_older_processes_can_read_until_the_upgrade_is_finished(
    empty_url: str, file: KeyFile
) -> None:
    url = empty_url
    engine = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"))
    async with engine.connect() as connection:
        await connection.run_sync(_at_0006)
    await engine.dispose()
    async with opened(url) as one, opened(url) as two:
        seal, other = await unlock(one, file, 1), await unlock(two, file, 1)
        assert (await one.read(kept_data))["vm-1"] == SECRET
        assert seal.close("vm-2", SECRET) == other.close("vm-2", SECRET) == SECRET
        heard: list[str] = []
        follows = SealedRows(other)
        one.listener = lambda told: [  # type: ignore[assignment,func-returns-value]
            (heard.append(event.kind), follows.follow(event, None))  # type: ignore[arg-type]
            for event in told
        ]
        assert await finish_sealing(one, seal, "t") == 1
        assert heard == ["ledger.sealed"]
        assert seal.closes
        assert other.closes
        assert seal.open("vm-1", (await one.read(kept_data))["vm-1"]) == SECRET
        assert await finish_sealing(two, other, "t") == 0


@in_loop
async def test_a_new_key_seals_everything_and_the_old_one_still_opens_backups(
    database_url: str, file: KeyFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roost.parts.sealedrows.PIECE", 2)
    async with opened(database_url) as store:
        seal = await unlock(store, file, 1)
        before = {f"vm-{n}": seal.close(f"vm-{n}", f"{SECRET} {n}") for n in range(5)}

        def fill(tx: Tx) -> None:
            for vm, kept in before.items():
                tx.insert(vm_user_data, {"vm": vm, "user_data": kept})

        await store.write(fill)
        assert await change_key(store, file, 2, keep_unread=False) == 5
        after = await store.read(kept_data)
        new = await unlock(store, file, 3)
        assert new.fingerprint != seal.fingerprint
        for vm in before:
            assert after[vm].startswith(f"{MARK}{new.fingerprint}:")
            assert new.open(vm, after[vm]) == new.open(vm, before[vm]) == f"{SECRET} {vm[3:]}"


@in_loop
async def test_a_change_of_key_goes_on_with_one_that_was_begun_and_with_no_other(
    database_url: str, file: KeyFile
) -> None:
    async with opened(database_url) as store:
        seal = await unlock(store, file, 1)
        rows = {vm: seal.close(vm, SECRET) for vm in ("vm-1", "vm-2")}

        def fill(tx: Tx) -> None:
            for vm, kept in rows.items():
                tx.insert(vm_user_data, {"vm": vm, "user_data": kept})

        await store.write(fill)
        brought = new_key()  # an old one, that was exported once
        file.put_first([brought])
        assert await change_key(store, file, 2, keep_unread=False) == 2
        named = (await unlock(store, file, 3)).fingerprint
        assert named not in (brought.fingerprint, seal.fingerprint)

        begun = new_key()
        file.put_first([begun])
        again = Seal(file, begun.fingerprint).close("vm-1", SECRET)
        one = update(vm_user_data).where(vm_user_data.c.vm == "vm-1").values(user_data=again)
        await store.write(lambda tx: tx.connection.execute(one).rowcount)
        assert await change_key(store, file, 4, keep_unread=False) == 1
        assert (await unlock(store, file, 5)).fingerprint == begun.fingerprint


@in_loop
async def test_without_the_old_key_what_it_sealed_is_left_and_the_doctor_names_it(
    database_url: str, file: KeyFile
) -> None:
    async with opened(database_url) as store:
        old = await unlock(store, file, 1)
        kept = old.close("vm-1", SECRET)
        await store.write(lambda tx: tx.insert(vm_user_data, {"vm": "vm-1", "user_data": kept}))
        lost = file.path.read_text()
        file.path.unlink()
        with pytest.raises(Conflict):
            await change_key(store, file, 2, keep_unread=False)
        assert await change_key(store, file, 2, keep_unread=True) == 0
        new = await unlock(store, file, 3)
        found = await _findings(store, new)
        assert found == [f"the user data of VM vm-1 is sealed with key {old.fingerprint}, which is "
                         "not here; roost key import brings it"]  # fmt: skip
        KeyFile(file.path.with_name("found")).path.write_text(lost)
        file.put_first(KeyFile(file.path.with_name("found")).load())
        assert (await unlock(store, file, 4)).open("vm-1", kept) == SECRET


async def _findings(store: Store, seal: Seal) -> list[str]:
    found = Examination()

    def ask(connection: Connection) -> None:
        SealedRows(seal).examine(connection, found)

    await store.read(ask)
    assert found.checked["seals"] == 1
    return [said for _, said in found.findings]


@in_loop
async def test_the_schema_names_one_key_at_most(database_url: str, file: KeyFile) -> None:
    async with opened(database_url) as store:
        await unlock(store, file, 1)
        await unlock(store, file, 1)
        rows = await store.read(lambda c: c.execute(text("SELECT slot FROM sealing_keys")).all())
        assert [tuple(row) for row in rows] == [(1,)]
        assert (await doctor(store)).ok
