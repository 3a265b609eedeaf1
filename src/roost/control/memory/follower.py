"""Brings what this process keeps in memory up to date with the ledger, event by event, in order.

Events of this process arrive from the store as it commits them; those of other processes are read
when the doorbell rings, when there is a gap, and every second in any case. Whoever keeps something
(`EventConsumer`) is told of each event once and in sequence.
"""

import asyncio
import logging
from typing import Protocol

from sqlalchemy import Connection, bindparam, select

from roost.base.clock import Clock, first_of
from roost.base.errors import Unavailable
from roost.ledger.changes import Changes, decode_changes
from roost.ledger.rows import Event
from roost.ledger.store import Store
from roost.ledger.tables import events as events_table

log = logging.getLogger("roost.follower")

_PAGE = 2000
_COLUMNS = tuple(events_table.c.keys())
_NEXT = (
    select(events_table)
    .where(events_table.c.seq > bindparam("since"))
    .order_by(events_table.c.seq)
    .limit(_PAGE)
)
#: How long a doorbell that nobody heard can go unnoticed.
_POLL_S = 1.0


class EventConsumer(Protocol):
    """Somebody who keeps something that events change."""

    def follow(self, event: Event, changes: Changes) -> None:
        """Take over one event."""

    def followed(self) -> None:
        """Know that no more events are at hand for now."""


class Follower:
    """One process's place in the sequence of events."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.applied = 0
        self._store, self._clock = store, clock
        self._consumers: list[EventConsumer] = []
        self._early: dict[int, Event] = {}
        self._reading = asyncio.Lock()
        self._rung = asyncio.Event()

    def start(self, applied: int, consumers: list[EventConsumer]) -> None:
        """Begin after a loaded sequence; consumers are told in this order."""
        self.applied = applied
        self._consumers = consumers
        self._store.listener = self.receive
        self._store.doorbell = self._rung.set

    def receive(self, events: list[Event]) -> None:
        """Take events of this process; those behind a gap wait for it to be filled."""
        for event in events:
            if event.seq > self.applied:
                self._early[event.seq] = event
        self._drain()
        if self._early:
            self._rung.set()

    def _drain(self) -> None:
        moved = False
        while (event := self._early.pop(self.applied + 1, None)) is not None:
            self._apply(event)
            moved = True
        if moved:
            for consumer in self._consumers:
                consumer.followed()

    def _apply(self, event: Event) -> None:
        self.applied = event.seq
        changes = Changes(**event.rows) if event.rows else decode_changes(event.changes)
        for consumer in self._consumers:
            consumer.follow(event, changes)

    async def catch_up(self) -> int:
        """Read what other processes did since; return the sequence reached."""
        if not self._store.shared:
            return self.applied
        async with self._reading:
            while True:
                since = self.applied
                found = await self._store.read(lambda connection: _page(connection, since))  # noqa: B023
                for event in found:
                    if event.seq > self.applied:
                        self._early[event.seq] = event
                self._drain()
                if len(found) < _PAGE:
                    return self.applied

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            if not await first_of(self._clock, _POLL_S, self._rung) and not self._store.shared:
                continue
            self._rung.clear()
            try:
                await self.catch_up()
            except Unavailable:
                await self._clock.sleep(_POLL_S)
            except Exception:  # a service loop must outlive its mistakes
                log.exception("an event could not be followed")
                await self._clock.sleep(_POLL_S)


def _page(connection: Connection, since: int) -> list[Event]:
    found = connection.execute(_NEXT, {"since": since})
    return [Event(**dict(zip(_COLUMNS, row, strict=True))) for row in found]
