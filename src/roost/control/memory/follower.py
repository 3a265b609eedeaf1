"""Brings what this process keeps in memory up to date with the ledger, event by event, in order.

Events of this process arrive from the store as it commits them; those of other processes are read
when the doorbell rings, when there is a gap, and every second in any case. Every part is told of
each event once and in sequence.

An event that cannot be taken (it cannot be decoded, or a part raises) stops the follower: its
sequence does not move on without it, nothing behind it is applied, and `trouble` says why. It reads
the event again, less and less often, until it can be taken; a newer roost on the same ledger may
have written what this one does not understand. Meanwhile the plane refuses requests as while it
starts.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

from sqlalchemy import Connection, bindparam, select

from roost.base.clock import Clock, first_of
from roost.base.errors import FleetUnavailable, Unavailable
from roost.ledger.schema.changes import Changes, changes_decoder
from roost.ledger.schema.rows import Event
from roost.ledger.schema.tables import counters
from roost.ledger.schema.tables import events as events_table
from roost.ledger.store import Store
from roost.ledger.upkeep.examination import Examination
from roost.parts.part import Loop, Part

log = logging.getLogger("roost.follower")

_PAGE = 2000
_COLUMNS = tuple(events_table.c.keys())
_NEXT = (
    select(events_table)
    .where(events_table.c.seq > bindparam("since"))
    .order_by(events_table.c.seq)
    .limit(_PAGE)
)
_NEWEST = select(counters.c.value).where(counters.c.name == "events")
#: Kinds of events that are counted, for metrics: what goes wrong, and what it is held against.
COUNTED = (
    "vm.created", "vm.queued", "vm.placed", "vm.refused", "vm.failed", "vm.crashed",
    "vm.move_begun", "vm.moved", "vm.move_abandoned", "vm.recovered", "vm.displaced",
    "vm.misplaced", "vm.expired", "vm.deleted", "host.registered", "host.online", "host.suspect",
    "host.offline", "host.fenced", "host.removed", "plan.done", "plan.failed", "plan.move_failed",
    "reservation.unhonoured", "ledger.restored",
)  # fmt: skip
#: How long a doorbell that nobody heard can go unnoticed.
_POLL_S = 1.0
#: A follower that has not seen the newest event for this long is behind.
_LAG_S = 5 * _POLL_S
#: An event that cannot be taken is tried again after so long, twice as long each time.
_FIRST_RETRY_S = 1.0
_MOST_RETRY_S = 60.0


class Follower(Part):
    """Reads the ledger's events in sequence and hands each to every part."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.applied = 0
        self.trouble = ""  # why it has stopped
        #: Events of each kind since this process began, whoever made them.
        self.counted = dict.fromkeys(COUNTED, 0)
        self.changed: Callable[[], None] = lambda: None  # called when it stops and when it goes on
        self._store, self._clock = store, clock
        self._parts: Sequence[Part] = ()
        self._touched: dict[tuple[str, ...], tuple[Part, ...]] = {}  # by an event's tables
        self._decode = changes_decoder(())
        self._early: dict[int, Event] = {}
        self._current_at = 0.0  # when it had applied all that the ledger had
        self._taken = 0  # parts that have taken the next event already
        self._missed = False  # something was committed here while nothing is followed
        self._retry_s = _FIRST_RETRY_S
        self._reading = asyncio.Lock()
        self._rung = asyncio.Event()

    def load(self, connection: Connection) -> None:
        """Begin after the newest event of the view that all parts are loaded from."""
        self._current_at = self._clock.monotonic()
        self.applied = int(connection.execute(_NEWEST).scalar_one())

    @property
    def lags(self) -> bool:
        """Return whether there may be events that are not applied for longer than usual."""
        if self.trouble or self._early:
            return True
        silent_s = self._clock.monotonic() - self._current_at
        return self._store.shared and silent_s >= _LAG_S

    def start(self, parts: Sequence[Part]) -> None:
        """Hand events to these parts from now on, in this order."""
        self._decode = changes_decoder(table for part in parts for table in part.follows)
        self._parts = [part for part in parts if _follows(part)]
        self._touched.clear()
        self._store.listener = self.receive
        self._store.doorbell = self._rung.set

    def loops(self) -> Sequence[Loop]:
        """Return the background loops of this part."""
        return (Loop(self.run),)

    def receive(self, events: list[Event]) -> None:
        """Apply events that this process committed; those behind a gap wait for it to be filled."""
        if self.trouble:
            self._missed = True  # they are read later, behind the one that cannot be taken
            return
        self._early.update((event.seq, event) for event in events if event.seq > self.applied)
        self._drain()
        if self._early:
            self._rung.set()

    def _drain(self) -> bool:
        """Apply the next events as far as they are here; return False at one that cannot be."""
        moved, able = False, True
        while able and (event := self._early.pop(self.applied + 1, None)) is not None:
            try:
                self._apply(event)
                moved = True
            except Exception as error:  # noqa: BLE001 - whatever it is, nothing may pass it by
                self._stop(event, error)
                able = False
        if moved:
            for part in self._parts:
                part.followed()
        return able

    def _apply(self, event: Event) -> None:
        """Hand one event to the parts that it concerns; after a failure, to those left.

        A part that names tables is told of events that change one of them, any other of all.
        """
        changes = Changes(event.rows) if event.rows else self._decode(event.changes)
        parts = self._touched.get(changes.tables)
        if parts is None:
            parts = self._touched[changes.tables] = self._concerned(changes.tables)
        for part in parts[self._taken :] if self._taken else parts:
            part.follow(event, changes)
            self._taken += 1
        self._taken = 0
        self.applied = event.seq
        if event.kind in self.counted:
            self.counted[event.kind] += 1

    def _concerned(self, tables: Iterable[str]) -> tuple[Part, ...]:
        """Return the parts that follow one of these tables, or whatever happens."""
        changed = set(tables)
        return tuple(
            part
            for part in self._parts
            if not part.follows or not changed.isdisjoint(table.name for table in part.follows)
        )

    def _stop(self, event: Event, error: Exception) -> None:
        self.trouble = f"event {event.seq} ({event.kind}) cannot be taken: {error!r}"
        log.error("%s; nothing behind it is followed", self.trouble, exc_info=error)
        self._early.clear()
        self.changed()
        self._rung.set()

    def _say_late(self, oldest: int) -> None:
        """Stop for good: this process slept for so long that what it missed is kept no longer."""
        self.trouble = (
            f"events after {self.applied} are kept no longer, the oldest is {oldest}: "
            "this process must be started again"
        )
        log.error("%s", self.trouble)
        self._early.clear()
        self.changed()

    async def catch_up(self) -> int:
        """Read and apply the events of other processes; return the sequence reached."""
        if self.trouble:
            raise FleetUnavailable(f"not ready: {self.trouble}")
        if self._store.shared:
            async with self._reading:
                await self._read()
        return self.applied

    async def _read(self) -> bool:
        """Read and apply all new events; return False when one cannot be applied."""
        while True:
            since, asked_at = self.applied, self._clock.monotonic()
            found = await self._store.read(lambda connection: _page(connection, since))  # noqa: B023
            if found and found[0].seq > since + 1:
                self._say_late(found[0].seq)
                return False
            for event in found:
                if event.seq > self.applied:
                    self._early[event.seq] = event
            if not self._drain():
                return False
            if len(found) < _PAGE:
                self._current_at = asked_at
                return True

    async def retry(self) -> None:
        """Retry the event that could not be applied, and go on behind it if it can be by now."""
        async with self._reading:
            self._missed = True
            while self._missed:
                self._missed = False
                if not await self._read():
                    return
            self.trouble = ""
        log.warning("events are followed again, as far as %d", self.applied)
        self.changed()

    async def run(self) -> None:
        """Follow the ledger's events until cancelled."""
        while True:
            try:
                if self.trouble:
                    await self._clock.sleep(self._retry_s)
                    self._retry_s = min(_MOST_RETRY_S, 2 * self._retry_s)
                    await self.retry()
                    continue
                self._retry_s = _FIRST_RETRY_S
                if not await first_of(self._clock, _POLL_S, self._rung) and not self._store.shared:
                    continue
                self._rung.clear()
                await self.catch_up()
            except Unavailable:
                await self._clock.sleep(_POLL_S)
            except Exception:  # a service loop must outlive its mistakes
                log.exception("events could not be read")
                await self._clock.sleep(_POLL_S)

    def examine(self, connection: Connection, found: Examination) -> None:
        """Report to the doctor why the follower has stopped."""
        if self.trouble:
            found.find("follower", self.trouble)


def _follows(part: Part) -> bool:
    kind = type(part)
    return kind.follow is not Part.follow or kind.followed is not Part.followed


def _page(connection: Connection, since: int) -> list[Event]:
    found = connection.execute(_NEXT, {"since": since})
    return [Event(**dict(zip(_COLUMNS, row, strict=True))) for row in found]
