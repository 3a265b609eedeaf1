"""The event log over HTTP: pages of past events, and a live stream.

    ledger pages --> position reaches the head --> live buffer --> reader
          ^                                             |
          +------------- overflow or gap ---------------+

A reader first gets pages of the ledger, then what this process hears as it happens. Its buffer is
bounded: a slow reader's is thrown away and it goes back to pages, so nothing is lost and nothing
grows. Members see their project's events; tokens are shown to admins alone. What cloud-init of a VM
is given, which may be secret, is in no event.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection, select

from roost.base.timestamps import timestamp
from roost.control.memory.eventroutes import event_routes
from roost.ledger.changes import Changes
from roost.ledger.older import hide_asked
from roost.ledger.rows import Event
from roost.ledger.store import Store
from roost.ledger.tables import counters
from roost.ledger.tables import events as events_table
from roost.parts.access import Principal
from roost.parts.part import Part
from roost.parts.routes import Route
from roost.wire.bodies import EventBody, EventPage

#: Events that wait for one reader before it goes back to pages.
MOST_BUFFERED = 1000
#: Events of one page of a follower.
PAGE = 500
#: Sequences that one query looks through: a member's few events may be far apart.
WINDOW = 20_000

_decode: msgspec.json.Decoder[dict[str, Any]] = msgspec.json.Decoder(dict[str, Any])


class _Reader:
    """The events that wait for one reader of the stream."""

    def __init__(self) -> None:
        self.buffer: deque[Event] = deque()
        self.behind = True
        self.woken = asyncio.Event()

    def put(self, events: Sequence[Event]) -> None:
        if not self.behind:
            self.buffer.extend(events)
            if len(self.buffer) > MOST_BUFFERED:
                self.buffer.clear()
                self.behind = True
        self.woken.set()


class EventLog(Part):
    """Serves events in pages and as a live stream."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._readers: set[_Reader] = set()
        self._arrived: list[Event] = []

    def follow(self, event: Event, changes: Changes) -> None:
        """Apply one event of the ledger to what this part remembers."""
        self._arrived.append(event)

    def followed(self) -> None:
        """Wake the readers of the stream after a batch of events."""
        arrived, self._arrived = self._arrived, []
        for reader in self._readers:
            reader.put(arrived)

    @property
    def readers(self) -> int:
        """Return how many read along."""
        return len(self._readers)

    def routes(self) -> Sequence[Route]:
        """Return the HTTP routes of this part."""
        return event_routes(self)

    async def page(self, since: int, limit: int, who: Principal) -> EventPage:
        """Return events after a sequence; `next` goes past those the caller may not see."""
        found: list[EventBody] = []
        while True:
            rows, since, head = await self._window(since, limit - len(found), who)
            found += [event_body(event, who) for event in rows]
            if len(found) >= limit or since >= head:
                return EventPage(events=found, next=since)

    async def stream(self, since: int, who: Principal) -> AsyncIterator[EventBody]:
        """Yield past events after `since`, then new ones; never ends by itself."""
        reader = _Reader()
        self._readers.add(reader)
        try:
            while True:
                # From here on what happens is buffered; what happened before is in the pages.
                reader.behind = False
                head = since + 1
                while since < head:
                    rows, since, head = await self._window(since, PAGE, who)
                    for event in rows:
                        yield event_body(event, who)
                while not reader.behind:
                    if not reader.buffer:
                        reader.woken.clear()
                        await reader.woken.wait()
                        continue
                    event = reader.buffer.popleft()
                    if event.seq > since + 1:
                        break  # a gap: the ledger has what is missing
                    if event.seq == since + 1:
                        since = event.seq
                        if visible(event, who):
                            yield event_body(event, who)
        finally:
            self._readers.discard(reader)

    async def _window(self, since: int, limit: int, who: Principal) -> tuple[list[Event], int, int]:
        """Return some events, the sequence that they reach, and the last there is."""
        query = select(events_table).where(
            events_table.c.seq > since, events_table.c.seq <= since + WINDOW
        )
        if who.role == "member":
            query = query.where(events_table.c.project == who.project)
        if who.role != "admin":
            query = query.where(events_table.c.subject.not_like("token/%"))
        query = query.order_by(events_table.c.seq).limit(limit)

        def question(connection: Connection) -> tuple[list[Event], int]:
            # The head first: what commits after it is left for the next time.
            last = select(counters.c.value).where(counters.c.name == "events")
            head = int(connection.execute(last).scalar_one())
            return [Event(**row._mapping) for row in connection.execute(query)], head

        rows, head = await self._store.read(question)
        if len(rows) == limit:
            return rows, rows[-1].seq, head
        reached = max(since, min(head, since + WINDOW))
        return [event for event in rows if event.seq <= reached], reached, head


def visible(event: Event, who: Principal) -> bool:
    """Say whether a principal may see an event."""
    if who.role == "member" and event.project != who.project:
        return False
    return who.role == "admin" or not event.subject.startswith("token/")


def event_body(event: Event, who: Principal) -> EventBody:
    """Return an event as a body, without what the principal may not see."""
    changes = _decode.decode(event.changes)
    if who.role != "admin":
        changes.pop("tokens", None)
    hide_asked(changes)
    return EventBody(
        seq=event.seq,
        at=timestamp(event.at_ms),
        actor=event.actor,
        kind=event.kind,
        subject=event.subject,
        project=event.project,
        changes=changes,
        note=event.note,
    )
