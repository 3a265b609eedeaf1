"""The ledger of the virtual world: real SQLite in the same thread, with a way to it that can fail.

Every plane has its own `PlaneStore` on the one database, as processes have on PostgreSQL: its own
commits come back as events at once, those of others ring a doorbell. What can go wrong is decided
per commit: refused before anything happened (`refuse`), committed and the answer lost (`doubt`),
a full disk (`full`), slowness, or the plane dying just before or just after.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from random import Random
from typing import TypeVar

from sqlalchemy import Connection

from roost.base.ids import IdSource
from roost.ledger.claims import Outcome, Proposal
from roost.ledger.rows import Event
from roost.ledger.sqlite import SqliteStore
from roost.ledger.store import DatabaseUnavailable, InDoubt, Listener
from roost.ledger.transaction import Tx
from roost.sim.clocks import Machine, NodeClock
from roost.sim.lives import Dead, Life

T = TypeVar("T")


class Troubles:
    """What goes wrong with the next commits of a plane, by count."""

    def __init__(self) -> None:
        self.refuse = 0
        self.doubt = 0
        self.full = 0
        self.slow_s = 0.0
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
        self._clock = NodeClock(Machine(), Life("database"))
        self._ids = IdSource(self._clock.wall_ms, Random(random.getrandbits(64)))
        self.open()

    def open(self) -> None:
        """Open the file."""
        self.ledger = SqliteStore(self.path, self._clock, self._ids, inline=True, full=False)

    def attach(self, life: Life, kill: Callable[[], None]) -> "PlaneStore":
        """Return the store of one life of a plane; `kill` ends that life."""
        store = PlaneStore(self, life, kill)
        self.stores.append(store)
        return store

    def ask(self, question: Callable[[Connection], T]) -> T:
        """Ask at once and outside of everybody's sight; only a world does that."""
        return self.ledger._ask(question)

    def told(self, by: "PlaneStore | None", events: list[Event]) -> None:
        """Tell everybody of a commit: the laws at once, other planes a little later."""
        self._committed(events)
        loop = asyncio.get_running_loop()
        self.stores = [store for store in self.stores if store.life.alive]
        for store in self.stores:
            if store is not by:
                loop.call_later(0.002 + self.random.random() * 0.01, store.ring)


class PlaneStore:
    """Implements `Store` for one life of one plane."""

    shared = True

    def __init__(self, database: Database, life: Life, kill: Callable[[], None]) -> None:
        self.listener: Listener = lambda events: None
        self.doorbell: Callable[[], None] = lambda: None
        self.life, self.troubles = life, Troubles()
        self._database, self._kill = database, kill

    def ring(self) -> None:
        """Hear that another process has committed."""
        if self.life.alive:
            self.doorbell()

    async def read(self, question: Callable[[Connection], T]) -> T:
        """Ask."""
        await self._way()
        return await self._database.ledger.read(question)

    async def write(self, change: Callable[[Tx], T], actor: str = "roost") -> T:
        """Make one change."""
        return await self._commit(lambda: self._database.ledger.write(change, actor))

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
        return await self._commit(lambda: ledger.claim(proposals, actors, snapshot, atomic=atomic))

    async def close(self) -> None:
        """The database stays open for the others."""

    async def _way(self) -> None:
        """Travel to the database."""
        random = self._database.random
        await asyncio.sleep(0.0005 + random.random() * (0.001 + self.troubles.slow_s))
        await self.life.gate()

    async def _commit(self, work: Callable[[], Awaitable[T]]) -> T:
        await self._way()
        troubles, note, name = self.troubles, self._database.note, self.life.name
        if _counts_down(troubles, "die_before"):
            note("fault.die_before_commit", name, "")
            self._kill()
            raise Dead(name)
        if troubles.refuse or troubles.full:
            kind = "refuse" if troubles.refuse else "full"
            setattr(troubles, kind, getattr(troubles, kind) - 1)
            note(f"fault.db_{kind}", name, "")
            raise DatabaseUnavailable("the database did not take the change: on purpose")
        caught: list[Event] = []
        ledger = self._database.ledger
        ledger.listener = caught.extend
        result: list[T] = []
        failed: Exception | None = None
        try:
            result.append(await work())
        except Exception as error:  # noqa: BLE001 - given back below, after others were told
            failed = error
        if caught:
            self._database.told(self, caught)
            if _counts_down(troubles, "die_after"):
                note("fault.die_after_commit", name, "")
                self._kill()
                raise Dead(name)
            if troubles.doubt:
                troubles.doubt -= 1
                note("fault.db_doubt", name, "")
                self.doorbell()
                raise InDoubt("the answer was lost: on purpose")
            self.listener(caught)
        if failed is not None:
            raise failed
        return result[0]


def _counts_down(troubles: Troubles, kind: str) -> bool:
    left = getattr(troubles, kind)
    if left is None:
        return False
    setattr(troubles, kind, None if left == 0 else left - 1)
    return bool(left == 0)
