"""The event log over HTTP: pages of past events, and a live stream.

    ledger pages --> position reaches the tail --> tail in memory --> the newest: wait --> ...
          ^                                             |
          +------------- too slow, or a gap ------------+

A reader of the stream is a position and nothing else. What it gets next is a page of the ledger or
the newest events in memory, as bytes that all readers who may see the same share: pages are read
one at a time and kept for those who come next, an event is encoded once. So a reader who takes
nothing costs no work, thousands of them cost little, and nothing is lost. Readers who wait are
woken a few at a time, which leaves other requests their turn. Old events are kept no longer
(`ledger/upkeep/base.py`): whoever asks to go on behind one that is gone is told with `events_gone`,
in a stream as its last event. Members see their project's events;
tokens are shown to admins alone. What cloud-init of a VM is given, which may be secret, is in no
event.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Connection, Select, select

from roost.base.errors import EventsGone, EventsRewritten, InvalidRequest
from roost.base.timestamps import timestamp
from roost.control.memory import eventsearch
from roost.control.memory.eventroutes import event_routes
from roost.control.memory.eventsearch import (
    EVERYTHING,
    Wanted,
    backwards,
    before_moment,
    forwards,
    has_filters,
    wanted,
)
from roost.ledger.schema.changes import Changes
from roost.ledger.schema.rows import Event
from roost.ledger.schema.tables import counters
from roost.ledger.schema.tables import events as events_table
from roost.ledger.store import Store
from roost.ledger.upgrade.older import hide_asked
from roost.ledger.upkeep.base import read_base
from roost.parts.access import Principal
from roost.parts.part import Part
from roost.parts.routes import Route
from roost.wire.bodies import EventBody, EventPage
from roost.wire.eventstream import event_frame, places_frame
from roost.wire.queries import ListEvents

#: Newest events that are kept in memory for readers.
MOST_RECENT = 1000
#: Bytes of them that a reader is given at once, one event at least.
RECENT_BYTES = 64 * 1024
#: Events of one page of the stream, and bytes of pages that are kept for others.
PAGE = 100
PAGES_BYTES = 8 * 2**20
#: What a page costs beside its frames: it may have none, and there may be one for every sequence.
ENTRY_BYTES = 300
#: Readers who are woken in one turn of the event loop.
ROUSED = 32
#: Who makes room for a VM, and for whom one was stopped: members are not told in events.
_OTHERS = (("preemptions", "victims"), ("displaced", "preemptor"))

_decode: msgspec.json.Decoder[dict[str, Any]] = msgspec.json.Decoder(dict[str, Any])


class _Audience(NamedTuple):
    """Who sees the same of every event."""

    admin: bool
    project: str | None  # None: of every project


class _Recent:
    """One of the newest events, and its frames as far as somebody asked for them."""

    __slots__ = ("event", "frames")

    def __init__(self, event: Event) -> None:
        self.event = event
        self.frames: dict[_Audience, bytes] = {}


class _Page(NamedTuple):
    """The frames of a piece of the ledger, and the sequence that they reach."""

    frames: bytes
    reached: int

    @property
    def cost(self) -> int:
        """Return how many bytes of memory it takes, about."""
        return len(self.frames) + ENTRY_BYTES


#: How far before its first event a new reader's places are: a restored copy is seldom much older.
_STEPS_BACK = (0, *(1 << power for power in range(20)))


class EventLog(Part):
    """Serves events in pages and as a live stream."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._streams = 0
        self._arrived: list[Event] = []
        self._newest = 0  # sequence of the last event that the readers were told of
        self._tail: list[_Recent] = []  # the newest events without a gap, while somebody reads
        self._waiting: dict[asyncio.Future[None], None] = {}  # readers who have seen the newest
        self._rousing: deque[asyncio.Future[None]] = deque()  # those of them to wake
        self._again = False  # something happened since they were listed
        self._pages: OrderedDict[tuple[_Audience, int], _Page] = OrderedDict()
        self._pages_bytes = 0
        self._one_page = asyncio.Lock()

    def load(self, connection: Connection) -> None:
        """Begin after the newest event of the view that all parts are loaded from."""
        self._newest = _head(connection)

    def follow(self, event: Event, changes: Changes) -> None:
        """Apply one event of the ledger to what this part remembers."""
        self._arrived.append(event)

    def followed(self) -> None:
        """Wake the readers of the stream after a batch of events."""
        arrived, self._arrived = self._arrived, []
        if not arrived:
            return
        self._newest = arrived[-1].seq
        if not self._streams:
            self._tail.clear()
            return
        for event in arrived:
            if self._tail and event.seq != self._tail[-1].event.seq + 1:
                self._tail.clear()  # the ledger has what is missing
            self._tail.append(_Recent(event))
        if len(self._tail) > 2 * MOST_RECENT:
            del self._tail[:-MOST_RECENT]
        if self._rousing:
            self._again = True  # some of those who were woken may wait again already
        elif self._waiting:
            self._rousing.extend(self._waiting)
            asyncio.get_running_loop().call_soon(self._rouse)

    def _rouse(self) -> None:
        """Wake some of the readers who wait; the others after everybody else had a turn."""
        for _ in range(min(ROUSED, len(self._rousing))):
            waiting = self._rousing.popleft()
            if not waiting.done():
                waiting.set_result(None)
        if self._again and not self._rousing:
            self._again = False
            self._rousing.extend(self._waiting)
        if self._rousing:
            asyncio.get_running_loop().call_soon(self._rouse)

    @property
    def readers(self) -> int:
        """Return how many read along."""
        return self._streams

    def routes(self) -> Sequence[Route]:
        """Return the HTTP routes of this part."""
        return event_routes(self)

    async def listed(self, asked: ListEvents, who: Principal) -> EventPage:
        """Return a page of events, of all or of those that a query asks for."""
        if not has_filters(asked):
            return await self.page(asked.since, asked.limit, who, tx=asked.tx)
        await self._require_same(asked.since, asked.tx)
        want, since, head = await self._store.read(lambda c: _sought(c, asked, who))
        if asked.last is not None:
            return await self._last(asked.last, since, head, want, who)
        return await self._first(asked.limit, since, head, want, who)

    async def _first(
        self, limit: int, since: int, head: int, want: Wanted, who: Principal
    ) -> EventPage:
        """Return the first events after a sequence that are looked for."""
        found: list[Event] = []
        while len(found) < limit and since < head:
            query = forwards(since, want, who).limit(limit - len(found))
            rows = await self._store.read(lambda c: _read(c, query))  # noqa: B023
            found += [event for event in rows if event.seq <= head]
            since = head if want.is_indexed else since + eventsearch.WINDOW
        reached = found[-1].seq if len(found) == limit else head
        return EventPage(events=[event_body(event, who) for event in found], next=reached)

    async def _last(
        self, number: int, since: int, head: int, want: Wanted, who: Principal
    ) -> EventPage:
        """Return the newest events that are looked for, oldest first."""
        found: list[Event] = []
        before = head
        while len(found) < number and before > since:
            query = backwards(before, want, who).limit(number - len(found))
            rows = await self._store.read(lambda c: _read(c, query))  # noqa: B023
            found += [event for event in rows if event.seq > since]
            before = since if want.is_indexed else before - eventsearch.WINDOW
        bodies = [event_body(event, who) for event in reversed(found)]
        return EventPage(events=bodies, next=head)

    async def page(self, since: int, limit: int, who: Principal, *, tx: str = "") -> EventPage:
        """Return events after a sequence; `next` goes past those the caller may not see."""
        await self._require_same(since, tx)
        found: list[EventBody] = []
        while True:
            after, wanted = since, limit - len(found)
            rows, since, head = await self._store.read(
                lambda connection: _window(connection, after, wanted, who)  # noqa: B023
            )
            found += [event_body(event, who) for event in rows]
            if len(found) >= limit or since >= head:
                return EventPage(events=found, next=since)

    async def _require_same(self, since: int, tx: str) -> None:
        """Refuse to go on behind an event that this ledger has not: an older one was restored.

        What is folded away cannot be compared; whoever asks for it is told that it is gone.
        """
        if not since or not tx:
            return

        def is_same(connection: Connection) -> bool:
            query = select(events_table.c.tx).where(events_table.c.seq == since)
            found = connection.execute(query).scalar()
            return since <= read_base(connection) if found is None else bool(found == tx)

        if not await self._store.read(is_same):
            raise EventsRewritten(since)

    async def _places(self, since: int) -> list[tuple[int, str]]:
        """Return which transactions made the event a reader begins behind, and some before it.

        A reader that has not been given any event can say with them where it was when an older
        copy of the ledger is restored, and finds an event that both have.
        """
        back = [since - step for step in _STEPS_BACK if step < since]
        query = select(events_table.c.seq, events_table.c.tx).where(events_table.c.seq.in_(back))

        def ask(connection: Connection) -> list[tuple[int, str]]:
            found = connection.execute(query.order_by(events_table.c.seq))
            return [(seq, tx) for seq, tx in found if tx]

        return await self._store.read(ask)

    def followed_by(self, asked: ListEvents, since: int, who: Principal) -> AsyncIterator[bytes]:
        """Yield all events after `since`, then new ones; a stream is shared and has no filters."""
        if has_filters(asked):
            raise InvalidRequest(
                "a stream tells of all events",
                hint="Maybe leave out vm, host, kind, text, times and last, and choose from it.",
            )
        return self.stream(since, who, tx=asked.tx)

    async def stream(self, since: int, who: Principal, *, tx: str = "") -> AsyncIterator[bytes]:
        """Yield past events after `since` as frames, then new ones; never ends by itself."""
        await self._require_same(since, tx)
        if since and not tx and (places := await self._places(since)):
            yield places_frame(places)
        seen_by = _Audience(who.role == "admin", who.project if who.role == "member" else None)
        self._streams += 1
        try:
            while True:
                if since >= self._newest:
                    await self._news(since)
                    continue
                if self._tail and since + 1 >= self._tail[0].event.seq:
                    frames, since = self._recent(since, who, seen_by)
                else:
                    before = since
                    frames, since = await self._page(since, who, seen_by)
                    if since == before:  # the ledger has less than we were told of
                        await self._news(self._newest)
                if frames:
                    yield frames
        finally:
            self._streams -= 1
            if not self._streams:
                self._tail.clear()
                self._pages.clear()
                self._pages_bytes = 0

    async def _news(self, since: int) -> None:
        """Wait for an event after a sequence."""
        while since >= self._newest:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting[future] = None
            try:
                await future
            finally:
                del self._waiting[future]

    def _recent(self, since: int, who: Principal, seen_by: _Audience) -> tuple[bytes, int]:
        """Return frames of the newest events after a sequence, and the sequence they reach."""
        frames, size = [], 0
        for recent in self._tail[since + 1 - self._tail[0].event.seq :]:
            frame = recent.frames.get(seen_by)
            if frame is None:
                shown = visible(recent.event, who)
                frame = event_frame(event_body(recent.event, who)) if shown else b""
                recent.frames[seen_by] = frame
            frames.append(frame)
            size += len(frame)
            since = recent.event.seq
            if size > RECENT_BYTES:
                break
        return b"".join(frames), since

    async def _page(self, since: int, who: Principal, seen_by: _Audience) -> _Page:
        """Return a page of the ledger; readers at the same place share one."""
        key = seen_by, since
        found = self._pages.get(key)
        if found is not None:
            return found
        async with self._one_page:
            found = self._pages.get(key)
            if found is None:
                found = await self._read_page(since, who)
                if found.reached == since:
                    return found  # the end of the ledger, which is elsewhere soon
                self._pages[key] = found
                self._pages_bytes += found.cost
                while self._pages_bytes > PAGES_BYTES:
                    self._pages_bytes -= self._pages.popitem(last=False)[1].cost
        return found

    async def _read_page(self, since: int, who: Principal) -> _Page:
        def question(connection: Connection) -> _Page:
            # Encoded here, beside the event loop where the store has threads.
            rows, reached, _ = _window(connection, since, PAGE, who)
            return _Page(b"".join(event_frame(event_body(row, who)) for row in rows), reached)

        return await self._store.read(question)


def _head(connection: Connection) -> int:
    """Return the sequence of the last event there is."""
    last = select(counters.c.value).where(counters.c.name == "events")
    return int(connection.execute(last).scalar_one())


def _window(
    connection: Connection, since: int, limit: int, who: Principal
) -> tuple[list[Event], int, int]:
    """Return some events, the sequence that they reach, and the last there is."""
    # The head first: what commits after it is left for the next time.
    head = _head(connection)
    since = _begin(connection, since)
    rows = _read(connection, forwards(since, EVERYTHING, who).limit(limit))
    if len(rows) == limit:
        return rows, rows[-1].seq, head
    reached = max(since, min(head, since + eventsearch.WINDOW))
    return [event for event in rows if event.seq <= reached], reached, head


def _sought(connection: Connection, asked: ListEvents, who: Principal) -> tuple[Wanted, int, int]:
    """Return which events are looked for, behind which sequence to begin, and the last there is."""
    head = _head(connection)
    want, since = wanted(connection, asked, who), _begin(connection, asked.since)
    if want.from_ms is not None:
        since = max(since, before_moment(connection, since, head, want.from_ms))
    return want, since, head


def _read(connection: Connection, query: Select[Any]) -> list[Event]:
    return [Event(**row._mapping) for row in connection.execute(query)]


def _begin(connection: Connection, since: int) -> int:
    """Return where to begin: who has seen nothing yet begins with the oldest that is kept.

    Everybody else would miss what came between, and is told so.
    """
    base = read_base(connection)
    if since and since < base:
        raise EventsGone(since, base)
    return max(since, base)


def visible(event: Event, who: Principal) -> bool:
    """Say whether a principal may see an event."""
    if who.role == "member" and event.project != who.project:
        return False
    return who.role == "admin" or not event.subject.startswith("token/")


def _hide_others(changes: dict[str, Any]) -> None:
    """Take out of an event the VMs with which it has to do that may be another project's."""
    for table, column in _OTHERS:
        for row in changes.get(table, {}).values():
            if row is not None:
                row.pop(column, None)


def event_body(event: Event, who: Principal) -> EventBody:
    """Return an event as a body, without what the principal may not see."""
    changes = _decode.decode(event.changes)
    if who.role != "admin":
        changes.pop("tokens", None)
    if who.role == "member":
        _hide_others(changes)
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
        tx=event.tx,
    )
