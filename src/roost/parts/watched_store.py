"""A store that remembers whether its database can be used, and measures how long it takes.

It stands between a control plane and the store of its database and lets every call through. A call
that the database did not take, or a change that it has not answered for long, is trouble; a change
that it takes, or a question after one that failed, ends it. Nothing is asked for that: every
process renews its leases every few seconds, so trouble and its end are noticed soon, also where
nobody asks for anything. The trouble is a sentence for whoever runs it; nobody is refused because
of it here. How long each call took, and which the database failed, a meter is told.
"""

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from sqlalchemy import Connection

from roost.base.clock import Clock
from roost.ledger.claims.proposals import Outcome, Proposal
from roost.ledger.store import DatabaseContended, DatabaseUnavailable, Listener, Store
from roost.ledger.writes.transaction import Tx

log = logging.getLogger("roost.database")

T = TypeVar("T")

#: Seconds after which a change that the database has not answered is trouble.
SILENT_S = 10.0


class Meter(NamedTuple):
    """Who is told the seconds of every call, by its kind, and of each that the database failed."""

    read: Callable[[float], None]
    write: Callable[[float], None]
    claim: Callable[[float], None]
    failed: Callable[[str, DatabaseUnavailable], None]


def _nobody(*_told: object) -> None:
    """Measure nothing at all."""


UNMEASURED = Meter(_nobody, _nobody, _nobody, _nobody)


class WatchedStore:
    """Implements `Store` over another one, and knows what is wrong with its database."""

    def __init__(self, store: Store, clock: Clock, meter: Meter = UNMEASURED) -> None:
        self._store, self._clock, self._meter = store, clock, meter
        self._unread = self._unwritten = ""  # why the last call of each kind failed
        self._changing: dict[object, float] = {}  # changes under way, oldest first

    @property
    def trouble(self) -> str:
        """Return why the database cannot be used, or nothing."""
        if self._unwritten or self._unread:
            return self._unwritten or self._unread
        began = next(iter(self._changing.values()), None)
        silent_s = 0.0 if began is None else self._clock.monotonic() - began
        if silent_s < SILENT_S:
            return ""
        return f"the database has not answered for {silent_s:.0f} s"

    @property
    def within(self) -> Store:
        """Return the store of the database itself, for what only one kind can do."""
        return self._store

    # The store

    @property
    def listener(self) -> Listener:
        """Return who is told of events."""
        return self._store.listener

    @listener.setter
    def listener(self, listener: Listener) -> None:
        """Tell somebody else of events."""
        self._store.listener = listener

    @property
    def doorbell(self) -> Callable[[], None]:
        """Return what is rung when another process has committed."""
        return self._store.doorbell

    @doorbell.setter
    def doorbell(self, doorbell: Callable[[], None]) -> None:
        """Ring something else."""
        self._store.doorbell = doorbell

    @property
    def shared(self) -> bool:
        """Return whether other processes may write to it."""
        return self._store.shared

    @shared.setter
    def shared(self, shared: bool) -> None:
        """Say whether other processes may write to it."""
        self._store.shared = shared

    async def read(self, question: Callable[[Connection], T]) -> T:
        """Run a read transaction on one consistent view."""
        began = self._clock.monotonic()
        try:
            value = await self._store.read(question)
        except DatabaseUnavailable as error:
            self._unread = self._noted("read", error) or self._unread
            raise
        finally:
            self._meter.read(self._clock.monotonic() - began)
        if self._unread and not self._unwritten:
            self._is_back()
        return value

    async def write(self, change: Callable[[Tx], T], actor: str = "roost") -> T:
        """Run a write transaction and return what the function returned."""
        mark = object()
        began = self._changing[mark] = self._clock.monotonic()
        try:
            value = await self._store.write(change, actor)
        except DatabaseUnavailable as error:
            self._unwritten = self._noted("write", error) or self._unwritten
            raise
        finally:
            del self._changing[mark]
            self._meter.write(self._clock.monotonic() - began)
        self._is_back()
        return value

    async def claim(
        self,
        proposals: Sequence[Proposal],
        actors: Sequence[str],
        snapshot: int,
        *,
        atomic: bool = False,
    ) -> list[Outcome]:
        """Commit a batch of creates and return the verdict on each."""
        mark = object()
        began = self._changing[mark] = self._clock.monotonic()
        try:
            outcomes = await self._store.claim(proposals, actors, snapshot, atomic=atomic)
        except DatabaseUnavailable as error:
            self._unwritten = self._noted("claim", error) or self._unwritten
            raise
        finally:
            del self._changing[mark]
            self._meter.claim(self._clock.monotonic() - began)
        self._is_back()
        return outcomes

    async def close(self) -> None:
        """Finish open transactions and close the database."""
        await self._store.close()

    def _noted(self, op: str, error: DatabaseUnavailable) -> str:
        self._meter.failed(op, error)
        if isinstance(error, DatabaseContended):
            return ""  # it is there, and busy
        if not self.trouble:
            log.error("%s; requests are refused until it is back", error.message)
        return error.message

    def _is_back(self) -> None:
        if self._unwritten or self._unread:
            self._unwritten = self._unread = ""
            log.warning("the database can be used again")
