"""The ledger of the virtual world: real SQLite in the same thread, with a way to it that can fail.

Every plane has its own `PlaneStore` on the one database, as processes have on PostgreSQL: its own
commits come back as events at once, those of others ring a doorbell. What can go wrong is decided
per commit: refused before anything happened (`refuse`), committed and the answer lost (`doubt`),
a full disk (`full`), slowness, or the plane dying just before or just after. The machine under the
database may lose power in the middle of a commit: what was being written is then torn at any byte.
"""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from typing import TypeVar

from sqlalchemy import Connection

from roost.base.ids import IdSource
from roost.ledger.claims.proposals import Outcome, Proposal
from roost.ledger.schema.rows import Event
from roost.ledger.sqlite.store import SqliteStore
from roost.ledger.store import DatabaseUnavailable, InDoubt, Listener
from roost.ledger.writes.transaction import Tx
from roost.series.opening import memory_series
from roost.sim.faults.kinds import site_of
from roost.sim.ground.clocks import Machine, NodeClock
from roost.sim.ground.lives import Dead, Life

T = TypeVar("T")


class Troubles:
    """What goes wrong with the next commits of a plane, by count."""

    def __init__(self) -> None:
        self.refuse = 0
        self.doubt = 0
        self.full = 0
        self.slow_s = 0.0
        self.away = False  # this plane alone does not reach the database
        self.die_before: int | None = None  # at so many commits from now
        self.die_after: int | None = None


class Database:
    """One database file for all planes."""

    def __init__(
        self,
        path: Path,
        random: Random,
        committed: Callable[[list[Event]], None],
        note: Callable[[str, str, str], None],
    ) -> None:
        self.random, self.note = random, note
        self.path = path
        self.stores: list[PlaneStore] = []
        self._committed = committed
        self.power_lost: Callable[[list[Event]], None] = lambda events: None
        self.power_fails_at: int | None = None  # at so many commits from now
        self._clock = NodeClock(Machine(), Life("database"))
        self._ids = IdSource(self._clock.wall_ms, Random(random.getrandbits(64)))
        self.series = memory_series()  # of the world, as the database is
        self.open()

    def open(self) -> None:
        """Open the database file."""
        self.ledger = SqliteStore(self.path, self._clock, self._ids, inline=True, full=False)

    def shut(self) -> None:
        """Close the database file."""
        with suppress(StopIteration):  # in line it waits for nobody
            self.ledger.close().send(None)

    def copy_to(self, copy: Path) -> None:
        """Make a consistent copy, as a person does while everything runs."""
        with closing(sqlite3.connect(self.path)) as source, closing(sqlite3.connect(copy)) as to:
            source.backup(to)

    def put_back(self, copy: Path) -> None:
        """Put a copy in the place of the database; nobody uses it meanwhile."""
        self.shut()
        Disk(copy.read_bytes(), b"").write(self.path)
        self.open()

    def lose_power(self, before: "Disk", events: list[Event]) -> None:
        """Tear what was written since `before`, as if only a part of it had reached the disk."""
        torn = before.torn(Disk.read(self.path), self.random)
        for store in self.stores:
            if store.life.alive:
                store.kill()
        self.shut()
        torn.write(self.path)
        self.open()
        self.power_lost(events)

    def attach(self, life: Life, kill: Callable[[], None]) -> "PlaneStore":
        """Return the store of one life of a plane; `kill` ends that life."""
        store = PlaneStore(self, life, kill)
        self.stores.append(store)
        return store

    def ask(self, question: Callable[[Connection], T]) -> T:
        """Read the database at once, unseen by planes; only a world does that."""
        return self.ledger._ask(question)

    def told(self, by: "PlaneStore | None", events: list[Event]) -> None:
        """Announce a commit: to the laws at once, to other planes a little later."""
        self._committed(events)
        loop = asyncio.get_running_loop()
        self.stores = [store for store in self.stores if store.life.alive]
        for store in self.stores:
            if store is not by:
                loop.call_later(0.002 + self.random.random() * 0.01, store.ring)


class Disk:
    """The bytes of a database at a moment: its file, and what is written ahead of it."""

    def __init__(self, whole: bytes, ahead: bytes) -> None:
        self.whole, self.ahead = whole, ahead

    @classmethod
    def read(cls, path: Path) -> "Disk":
        """Read the bytes of the database from disk."""
        return cls(path.read_bytes(), _beside(path, "-wal").read_bytes())

    def write(self, path: Path) -> None:
        """Write these bytes to disk; what processes shared in memory is gone."""
        path.write_bytes(self.whole)
        _beside(path, "-wal").write_bytes(self.ahead)
        _beside(path, "-shm").unlink(missing_ok=True)

    def torn(self, after: "Disk", random: Random) -> "Disk":
        """Return a disk between this one and a later one.

        What is written ahead is on the disk before the file itself is touched, so once the file has
        changed only the file can be torn.
        """
        if after.whole != self.whole:
            return Disk(_torn(self.whole, after.whole, random, garbled=False), after.ahead)
        garbled = random.random() < 0.3
        return Disk(self.whole, _torn(self.ahead, after.ahead, random, garbled=garbled))


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _torn(before: bytes, after: bytes, random: Random, *, garbled: bool) -> bytes:
    """Return the beginning of what was written and the end of what was there."""
    changed = (at for at in range(min(len(before), len(after))) if before[at] != after[at])
    first = next(changed, min(len(before), len(after)))
    cut = random.randint(first, len(after))
    written = after[:cut]
    if garbled:
        spoilt = min(cut - first, random.randint(1, 512))
        written = written[: cut - spoilt] + random.randbytes(spoilt)
    return written + before[cut:]


class PlaneStore:
    """Implements `Store` for one life of one plane."""

    shared = True

    def __init__(self, database: Database, life: Life, kill: Callable[[], None]) -> None:
        self.listener: Listener = lambda events: None
        self.doorbell: Callable[[], None] = lambda: None
        self.life, self.troubles = life, Troubles()
        self._database, self.kill = database, kill

    def ring(self) -> None:
        """Ring the doorbell: another process has committed."""
        if self.life.alive:
            self.doorbell()

    async def read(self, question: Callable[[Connection], T]) -> T:
        """Run one read transaction."""
        await self._way("read")
        return await self._database.ledger.read(question)

    async def write(self, change: Callable[[Tx], T], actor: str = "roost") -> T:
        """Run one write transaction."""
        site = f"commit:{site_of(change)}"
        return await self._commit(lambda: self._database.ledger.write(change, actor), site)

    async def claim(
        self,
        proposals: Sequence[Proposal],
        actors: Sequence[str],
        snapshot: int,
        *,
        atomic: bool = False,
    ) -> list[Outcome]:
        """Commit a batch of creates."""
        ledger = self._database.ledger
        return await self._commit(
            lambda: ledger.claim(proposals, actors, snapshot, atomic=atomic), "commit:ledger.claim"
        )

    async def close(self) -> None:
        """Close nothing: the database stays open for the other planes."""

    async def _way(self, site: str) -> None:
        """Model the way to the database: delays, losses, death."""
        random = self._database.random
        await asyncio.sleep(0.0005 + random.random() * (0.001 + self.troubles.slow_s))
        await self.life.gate()
        if self.troubles.away:
            if site != "read":
                self._database.note("fault.db_away", self.life.name, site)
            raise DatabaseUnavailable("the database does not answer: on purpose")

    async def _commit(self, work: Callable[[], Awaitable[T]], site: str) -> T:
        await self._way(site)
        self._database.note("at", self.life.name, site)
        troubles, note, name = self.troubles, self._database.note, self.life.name
        if _counts_down(troubles, "die_before"):
            note("fault.die_before_commit", name, site)
            self.kill()
            raise Dead(name)
        if troubles.refuse or troubles.full:
            kind = "refuse" if troubles.refuse else "full"
            setattr(troubles, kind, getattr(troubles, kind) - 1)
            note(f"fault.db_{kind}", name, site)
            raise DatabaseUnavailable("the database did not take the change: on purpose")
        caught: list[Event] = []
        database, ledger = self._database, self._database.ledger
        before = Disk.read(database.path) if _counts_down(database, "power_fails_at") else None
        ledger.listener = caught.extend
        result: list[T] = []
        failed: Exception | None = None
        try:
            result.append(await work())
        except Exception as error:  # noqa: BLE001 - given back below, after others were told
            failed = error
        if before is not None:
            note("fault.power_loss", name, site)
            database.lose_power(before, caught)
            raise Dead(name)
        if caught:
            database.told(self, caught)
            if _counts_down(troubles, "die_after"):
                note("fault.die_after_commit", name, site)
                self.kill()
                raise Dead(name)
            if troubles.doubt:
                troubles.doubt -= 1
                note("fault.db_doubt", name, site)
                self.doorbell()
                raise InDoubt("the answer was lost: on purpose")
            self.listener(caught)
        elif failed is None:
            note("transaction", name, site)
        if failed is not None:
            raise failed
        return result[0]


def _counts_down(what: Troubles | Database, kind: str) -> bool:
    left = getattr(what, kind)
    if left is None:
        return False
    setattr(what, kind, None if left == 0 else left - 1)
    return bool(left == 0)
