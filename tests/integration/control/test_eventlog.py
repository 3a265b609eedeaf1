import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing

import msgspec
import pytest

from roost.base.clock import RealClock
from roost.base.errors import EventsRewritten
from roost.base.ids import IdSource
from roost.control.memory import eventlog, eventsearch
from roost.control.memory.eventlog import EventLog
from roost.control.memory.follower import Follower
from roost.ledger.schema.changes import Changes
from roost.ledger.schema.rows import Event
from roost.ledger.store import Store
from roost.ledger.writes.transaction import Tx
from roost.parts.access import Access, Principal
from roost.wire.bodies import CreateJoinToken, CreateToken, EventBody, JoinBody
from roost.wire.eventstream import event_frame, read_place
from tests.databases import opened

ROOT = Principal("root", "admin")
VIEWER = Principal("vic", "viewer")
MEMBER = Principal("ann", "member", "lab")


class Place:
    """One process: a store, its follower, and the events that it shows."""

    def __init__(self, store: Store) -> None:
        self.store, self.log = store, EventLog(store)
        self.follower = Follower(store, RealClock())
        self.follower.start([self.log])

    async def say(self, *projects: str | None) -> None:
        """Make one event for each project."""

        def change(tx: Tx) -> None:
            for project in projects:
                tx.event("test.said", "vm/vm-1", {}, project=project)

        await self.store.write(change, "ann")


def run(url: str, test: Callable[[Place], Awaitable[None]]) -> None:
    async def both() -> None:
        async with opened(url) as store:
            place = Place(store)
            following = asyncio.create_task(place.follower.run())
            try:
                await test(place)
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)

    asyncio.run(both())


async def take(source: AsyncIterator[bytes], count: int) -> list[EventBody]:
    """Read frames until so many events have come, which must be exactly so many."""
    events: list[EventBody] = []
    while len(events) < count:
        for frame in (await asyncio.wait_for(anext(source), 20)).decode().split("\n\n")[:-1]:
            if frame.startswith("tx: "):
                continue
            lines = dict(line.split(": ", 1) for line in frame.split("\n"))
            events.append(msgspec.json.decode(lines["data"], type=EventBody))
            assert (lines["id"], lines["event"]) == (str(events[-1].seq), events[-1].kind)
    assert len(events) == count
    return events


def test_pages_go_on_where_the_last_one_ended(database_url: str) -> None:
    async def test(place: Place) -> None:
        await place.say(*["lab"] * 25)
        since, seen = 0, []
        for _ in range(4):
            page = await place.log.page(since, 10, ROOT)
            seen += [event.seq for event in page.events]
            since = page.next
        assert seen == list(range(1, 26))
        assert (await place.log.page(25, 10, ROOT)).next == 25
        assert (await place.log.page(1000, 10, ROOT)).next == 1000

    run(database_url, test)


def test_an_event_says_who_did_what_and_when(database_url: str) -> None:
    async def test(place: Place) -> None:
        await place.say("lab")
        (event,) = (await place.log.page(0, 10, ROOT)).events
        assert (event.actor, event.kind, event.subject, event.project) == (
            "ann", "test.said", "vm/vm-1", "lab",
        )  # fmt: skip
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", event.at)

    run(database_url, test)


def test_members_see_their_projects_events_and_get_past_the_others(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eventsearch, "WINDOW", 7)

    async def test(place: Place) -> None:
        await place.say(*["other"] * 50, "lab", *[None] * 20, "lab", "other")
        page = await place.log.page(0, 10, MEMBER)
        assert ([event.seq for event in page.events], page.next) == ([51, 72], 73)
        page = await place.log.page(0, 1, MEMBER)
        assert ([event.seq for event in page.events], page.next) == ([51], 51)
        async with aclosing(place.log.stream(0, MEMBER)) as source:
            assert [event.seq for event in await take(source, 2)] == [51, 72]
            await place.say("other", "lab")
            assert [event.seq for event in await take(source, 1)] == [75]

    run(database_url, test)


def test_tokens_are_shown_to_admins_alone(database_url: str) -> None:
    async def test(place: Place) -> None:
        clock = RealClock()
        access = Access(place.store, clock, IdSource(clock.wall_ms))
        await access.create_token(CreateToken(name="ci"), ROOT)
        joining = await access.create_join_token(CreateJoinToken(), ROOT)
        assert joining.secret is not None
        await access.join(JoinBody(host="h1"), joining.secret)
        everything = (await place.log.page(0, 10, ROOT)).events
        assert [event.kind for event in everything] == [
            "token.created", "token.created", "agent.joined",
        ]  # fmt: skip
        assert len(everything[2].changes["tokens"]) == 2
        assert all("hash" not in str(event.changes) for event in everything)
        (seen,) = (await place.log.page(0, 10, VIEWER)).events
        assert (seen.subject, seen.changes) == ("host/h1", {})
        async with aclosing(place.log.stream(0, VIEWER)) as source:
            assert (await take(source, 1))[0].kind == "agent.joined"
            await access.create_token(CreateToken(name="ci"), ROOT)
            await place.say(None)
            assert (await take(source, 1))[0].kind == "test.said"

    run(database_url, test)


def test_a_follower_reads_what_was_and_then_what_happens(database_url: str) -> None:
    async def test(place: Place) -> None:
        await place.say(*["lab"] * 5)
        async with aclosing(place.log.stream(2, ROOT)) as source:
            assert [event.seq for event in await take(source, 3)] == [3, 4, 5]
            for seq in range(6, 10):
                await place.say("lab")
                assert [event.seq for event in await take(source, 1)] == [seq]
            assert place.log.readers == 1
        assert place.log.readers == 0

    run(database_url, test)


def test_a_slow_follower_goes_back_to_pages_and_loses_nothing(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eventlog, "MOST_RECENT", 10)
    monkeypatch.setattr(eventlog, "PAGE", 7)

    async def test(place: Place) -> None:
        async with aclosing(place.log.stream(0, ROOT)) as source:
            await place.say("lab")
            seen = [event.seq for event in await take(source, 1)]
            for _ in range(20):
                await place.say(*["lab"] * 5)
                assert len(place.log._tail) <= 20
            await place.say(*["lab"] * 3)
            seen += [event.seq for event in await take(source, 103)]
            assert seen == list(range(1, 105))

    run(database_url, test)


def test_who_read_another_history_is_told(database_url: str) -> None:
    async def test(place: Place) -> None:
        await place.say("lab", "lab")
        both = (await place.log.page(0, 10, ROOT)).events
        last = both[-1]
        assert (await place.log.page(last.seq, 10, ROOT, tx=last.tx)).events == []
        for since, tx in ((last.seq, "another"), (last.seq + 1, last.tx)):
            with pytest.raises(EventsRewritten):
                await place.log.page(since, 10, ROOT, tx=tx)
            with pytest.raises(EventsRewritten):
                await anext(place.log.stream(since, ROOT, tx=tx))

    run(database_url, test)


def test_a_stream_begins_with_the_places_of_events_before_it(database_url: str) -> None:
    async def test(place: Place) -> None:
        await place.say(*["lab"] * 12)
        made = {event.seq: event.tx for event in (await place.log.page(0, 20, ROOT)).events}
        async with aclosing(place.log.stream(12, ROOT)) as source:
            lines = (await anext(source)).decode().split("\n")
        told = dict(filter(None, (read_place(each.removeprefix("tx: ")) for each in lines)))
        assert told == {seq: made[seq] for seq in (4, 8, 10, 11, 12)}

    run(database_url, test)


def test_a_gap_in_what_is_heard_is_filled_from_the_ledger(database_url: str) -> None:
    async def test(place: Place) -> None:
        heard: list[Event] = []
        place.store.listener = heard.extend
        async with aclosing(place.log.stream(0, ROOT)) as source:
            waiting = asyncio.ensure_future(take(source, 1))
            await place.say("lab")
            place.log.follow(heard[0], Changes({}))
            place.log.followed()
            await waiting
            await place.say(*["lab"] * 4)
            waiting = asyncio.ensure_future(take(source, 4))
            await asyncio.sleep(0)
            place.log.follow(heard[-1], Changes({}))
            place.log.followed()  # the fifth; two to four were never heard
            assert [event.seq for event in await waiting] == [2, 3, 4, 5]

    run(database_url, test)


def test_readers_at_the_same_place_share_one_page_and_one_encoding(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eventlog, "PAGE", 10)
    framed: list[int] = []

    def frame(event: EventBody) -> bytes:
        framed.append(event.seq)
        return event_frame(event)

    monkeypatch.setattr(eventlog, "event_frame", frame)

    async def read(place: Place, who: Principal) -> None:
        async with aclosing(place.log.stream(0, who)) as source:
            frames = b""
            while frames.count(b"id: ") < 35:
                frames += await asyncio.wait_for(anext(source), 20)

    async def test(place: Place) -> None:
        await place.say(*["lab"] * 30)
        readers = [asyncio.create_task(read(place, VIEWER)) for _ in range(200)]
        readers += [asyncio.create_task(read(place, MEMBER)) for _ in range(200)]
        while len(place.log._waiting) < len(readers):
            await asyncio.sleep(0.001)
        await place.say(*["lab"] * 5)
        await asyncio.gather(*readers)
        assert sorted(framed) == sorted(2 * list(range(1, 36)))  # once for each kind of reader

    run(sqlite_url, test)


def test_others_have_their_turn_while_many_readers_are_woken(sqlite_url: str) -> None:
    async def test(place: Place) -> None:
        sources = [place.log.stream(0, ROOT) for _ in range(10 * eventlog.ROUSED)]
        readers = [asyncio.ensure_future(take(source, 1)) for source in sources]
        await asyncio.sleep(0)
        heard: list[Event] = []
        place.store.listener = heard.extend
        await place.say("lab")
        place.log.follow(heard[0], Changes({}))
        place.log.followed()
        turns = 0
        while not all(reader.done() for reader in readers):
            turns += 1
            await asyncio.sleep(0)
        assert turns > 10
        for source in sources:
            await source.aclose()

    run(sqlite_url, test)


def test_a_follower_misses_nothing_of_many_writers(database_url: str) -> None:
    """Two processes write; readers that begin anywhere see every sequence once, in order."""

    async def race() -> None:
        async with AsyncExitStack() as stack:
            count = 2 if database_url.startswith("postgresql") else 1
            places = [
                Place(await stack.enter_async_context(opened(database_url))) for _ in range(count)
            ]
            following = [asyncio.create_task(place.follower.run()) for place in places]

            async def write(place: Place) -> None:
                for turn in range(40):
                    await place.say(*["lab"] * (1 + turn % 3))

            total = 4 * sum(1 + turn % 3 for turn in range(40))

            async def read(place: Place, since: int) -> list[int]:
                async with aclosing(place.log.stream(since, ROOT)) as source:
                    return [event.seq for event in await take(source, total - since)]

            readers = [read(places[n % count], 7 * n) for n in range(6)]
            writers = [write(places[n % count]) for n in range(4)]
            seen, _ = await asyncio.gather(asyncio.gather(*readers), asyncio.gather(*writers))
            for n, sequences in enumerate(seen):
                assert sequences == list(range(7 * n + 1, total + 1))
            for task in following:
                task.cancel()
            await asyncio.gather(*following, return_exceptions=True)

    asyncio.run(race())


def test_pages_without_an_event_are_bounded_too(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eventlog, "PAGES_BYTES", 3000)

    async def test(place: Place) -> None:
        await place.say(*["other"] * 50)
        audience = eventlog._Audience(False, MEMBER.project)
        head = (await place.log.page(0, 100, ROOT)).next
        assert (await place.log._page(head, MEMBER, audience)).reached == head
        assert not place.log._pages  # what is there next is not known yet
        for since in range(1, head):
            assert await place.log._page(since, MEMBER, audience) == (b"", head)
        assert 0 < len(place.log._pages) <= 10

    run(database_url, test)
