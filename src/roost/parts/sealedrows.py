"""Sealed rows of the ledger: which key seals them, and how all of them come to be sealed.

The ledger names the fingerprint of the key that its rows are sealed with; every replica must have
that key. `unlock` finds out at the start whether a process's file fits, and makes key and name at
the first one. Processes of the release before know of no seal. The migration of a ledger that was
in use sets the counter `clear_user_data`: a SQLite file has no process beside it, so it is sealed
and rewritten at the start, and the counter goes when that is done; on PostgreSQL texts are written
as those can read them, until `roost ledger finish-upgrade`. It never decides what is secret;
whoever writes a secret closes it.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import Column, ColumnElement, Connection, Table, delete, func, select, update
from sqlalchemy.dialects import postgresql, sqlite

from roost.base.errors import Conflict
from roost.ledger.schema.changes import Changes
from roost.ledger.schema.jobtables import account_secrets, machine_secrets
from roost.ledger.schema.rows import Event
from roost.ledger.schema.tables import counters, sealing_keys, vm_user_data
from roost.ledger.sqlite.store import SqliteStore
from roost.ledger.store import DatabaseUnavailable, Store
from roost.ledger.upgrade.older import CLEAR
from roost.ledger.upkeep.examination import Examination
from roost.ledger.writes.transaction import Tx
from roost.parts.part import Part
from roost.parts.sealing import FINGERPRINT, MARK, Key, KeyFile, Seal, SealBroken, new_key
from roost.parts.watched_store import WatchedStore

log = logging.getLogger("roost.sealing")

#: Kind of the event after which there is no such process any more.
SEALED = "ledger.sealed"
#: Rows that one transaction seals.
PIECE = 500

_SLOT = 1  # the one row of sealing_keys
_named = select(sealing_keys.c.fingerprint)


@dataclass(frozen=True, slots=True)
class SealedTable:
    """A table of secrets: whose they are, the text, and what `Seal` calls its owner."""

    table: Table
    owner: str
    text: str
    what: str
    prefix: str = ""

    @property
    def key(self) -> Column[str]:
        """Return the column of the owner."""
        return self.table.c[self.owner]

    @property
    def kept(self) -> Column[str]:
        """Return the column of the text."""
        return self.table.c[self.text]

    def begins(self, text: str) -> ColumnElement[bool]:
        """Say that a kept text begins so; LIKE would take other cases for the same."""
        return func.substr(self.kept, 1, len(text)) == text


USER_DATA = SealedTable(vm_user_data, "vm", "user_data", "the user data of VM")
#: Everything that is sealed; a new key seals all of it.
SEALED_TABLES = (
    USER_DATA,
    SealedTable(account_secrets, "account", "secret", "the credentials of account", "account/"),
    SealedTable(machine_secrets, "machine", "secret", "the join token of machine", "machine/"),
)


class SealedRows(Part):
    """Knows when this process begins to seal, and tells the doctor what is not sealed."""

    def __init__(self, seal: Seal) -> None:
        self._seal = seal

    def follow(self, event: Event, changes: Changes) -> None:
        """Begin to seal when another process has ended the time of older ones."""
        if event.kind == SEALED and self._seal.fingerprint is not None:
            self._seal.closes = True

    def examine(self, connection: Connection, found: Examination) -> None:
        """Look at how secrets are kept, without opening them."""
        if self._seal.fingerprint is None:
            return
        number = in_clear = 0
        for each in SEALED_TABLES:
            key = func.substr(each.kept, len(MARK) + 1, FINGERPRINT)
            query = select(each.key, key, each.begins(MARK)).order_by(each.key)
            for owner, fingerprint, is_sealed in connection.execute(query):
                number += 1
                if not is_sealed:
                    in_clear += each is USER_DATA
                elif not self._seal.has(fingerprint):
                    found.find(
                        "seals",
                        f"{each.what} {owner} is sealed with key {fingerprint}, which is not "
                        "here; roost key import brings it",
                    )
        found.count("seals", number)
        if in_clear:
            found.note(
                "upgrade",
                f"the user data of {in_clear} VMs is not sealed; roost ledger finish-upgrade seals "
                "it, once all processes are of this version",
            )


# At the start


async def unlock(store: Store, file: KeyFile, at_ms: int) -> Seal:
    """Return the seal of a ledger, or refuse to begin with keys that do not open it."""
    named = await store.read(lambda connection: connection.execute(_named).scalar())
    if named is None:
        if not file.load():
            file.put_first([new_key()])
            log.info("made %s: a backup of the database is worth little without it", file.path)
        first = file.load()[0]
        named = await store.write(lambda tx: _name_first(tx, first, at_ms))
    found = [key.fingerprint for key in file.load()]
    if named not in found:
        raise _other_key(file, str(named), found)
    seal = Seal(file, named)
    if await store.read(may_be_clear):
        seal.closes = False
        if not store.shared:
            await finish_sealing(store, seal, "roost")
    return seal


def _name_first(tx: Tx, key: Key, at_ms: int) -> str:
    """Name the ledger's key unless another process has just done so; return which it is."""
    row = {"slot": _SLOT, "fingerprint": key.fingerprint, "at_ms": at_ms}
    dialect = postgresql if tx.connection.dialect.name == "postgresql" else sqlite
    tx.connection.execute(dialect.insert(sealing_keys).values(row).on_conflict_do_nothing())
    return str(tx.connection.execute(_named).scalar_one())


def _other_key(file: KeyFile, named: str, found: list[str]) -> Conflict:
    has = f"has key {', '.join(found)}" if found else "does not exist"
    return Conflict(
        f"the ledger is sealed with key {named}, and {str(file.path)!r} {has}",
        hint="Maybe bring the key: `roost key export FILE` where a server of this ledger starts, "
        "and `roost key import FILE` here.",
        key=named,
    )


# Sealing what is there


def may_be_clear(connection: Connection) -> bool:
    """Say whether processes that know of no seal may use this ledger too."""
    query = select(counters.c.value).where(counters.c.name == CLEAR)
    return bool(connection.execute(query).scalar())


async def finish_sealing(store: Store, seal: Seal, actor: str) -> int:
    """Seal from now on, and what is there, in pieces; return how many rows that were."""
    if seal.fingerprint is None:
        return 0
    was_clear = await store.read(may_be_clear)
    alone = store.within if isinstance(store, WatchedStore) else store
    if not isinstance(alone, SqliteStore):
        if was_clear:
            await store.write(_end_clear, actor)  # first: others seal from then on, too
        seal.closes = True
        return await _seal_all(store, seal, actor)
    seal.closes = True
    sealed = await _seal_all(store, seal, actor)
    if was_clear:
        try:
            await alone.erase_traces()  # of VMs that are gone, too
        except DatabaseUnavailable as error:
            log.warning(
                "user data is sealed, but earlier versions of it are still in the database's file: "
                "it cannot be rewritten now (%s), and will be at the next start",
                error.message,
            )
        else:
            await store.write(_end_clear, actor)  # last: what is broken off is done again
    return sealed


async def _seal_all(store: Store, seal: Seal, actor: str) -> int:
    if sealed := await reseal(store, seal, actor):
        log.info("sealed the user data of %d VMs", sealed)
    return sealed


def _end_clear(tx: Tx) -> None:
    tx.connection.execute(delete(counters).where(counters.c.name == CLEAR))
    tx.event(SEALED, "ledger", {}, note="user data is sealed from now on")


async def reseal(store: Store, seal: Seal, actor: str) -> int:
    """Seal all rows that are not sealed with the ledger's key; return how many there were."""
    done = 0
    for table in SEALED_TABLES:
        last = ""
        while True:
            number, last = await store.write(
                lambda tx, of=table, after=last: _reseal_some(tx, seal, of, after),  # type: ignore[misc]
                actor,
            )
            done += number
            if not last:
                break
    return done


def _reseal_some(tx: Tx, seal: Seal, of: SealedTable, after: str) -> tuple[int, str]:
    """Seal some rows of a table; return how many, and the last that was looked at."""
    other = of.key > after, ~of.begins(f"{MARK}{seal.fingerprint}:")
    query = select(of.key, of.kept).where(*other).order_by(of.key).limit(PIECE)
    rows = tx.connection.execute(query.with_for_update()).all()
    number = 0
    for owner, kept in rows:
        try:
            text = seal.open(of.prefix + owner, kept)
        except SealBroken as error:
            log.error("%s %s is left as it is: %s", of.what, owner, error.message)
            continue
        number += 1
        sealed = seal.close(of.prefix + owner, text)
        tx.connection.execute(update(of.table).where(of.key == owner).values({of.text: sealed}))
    return number, rows[-1][0] if rows else ""


# Another key


def _seals(key: Key) -> Callable[[Connection], bool]:
    """Return a question: whether any row is sealed with a key."""
    mark = f"{MARK}{key.fingerprint}:"
    queries = [select(each.key).where(each.begins(mark)).limit(1) for each in SEALED_TABLES]
    return lambda connection: any(connection.execute(q).first() is not None for q in queries)


async def change_key(store: Store, file: KeyFile, at_ms: int, *, keep_unread: bool) -> int:
    """Seal all rows with a new key and name it; return how many rows that were.

    Nobody else may use the ledger meanwhile. What is broken off goes on when it is asked for again.
    `keep_unread` is for keys that are lost: what they sealed stays as it is.
    """
    named = await store.read(lambda connection: connection.execute(_named).scalar())
    keys = file.load()
    if named is not None and named not in {key.fingerprint for key in keys} and not keep_unread:
        raise _other_key(file, str(named), [key.fingerprint for key in keys])
    begun = bool(keys) and keys[0].fingerprint != named and await store.read(_seals(keys[0]))
    if not begun:  # the first one may also be an old one that somebody brought
        file.put_first([new_key()])  # before anything is sealed with it
        keys = file.load()
    seal = Seal(file, keys[0].fingerprint)
    number = await reseal(store, seal, "roost key")
    row = {"fingerprint": keys[0].fingerprint, "at_ms": at_ms}

    def name(tx: Tx) -> None:
        if named is None:
            tx.insert(sealing_keys, {"slot": _SLOT, **row})
        else:
            tx.connection.execute(update(sealing_keys).values(row))

    await store.write(name, "roost key")
    return number
