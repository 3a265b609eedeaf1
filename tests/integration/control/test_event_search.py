"""Events looked for by VM, host, kind, time and text, and the newest of them, on both databases."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from sqlalchemy import Connection, insert, text, update

from roost.base.errors import InvalidRequest, NotFound
from roost.base.timestamps import timestamp
from roost.control.memory import eventsearch
from roost.control.memory.eventlog import EventLog
from roost.control.memory.eventsearch import SKEW_MS, Wanted, backwards, before_moment, forwards
from roost.ledger.schema.tables import counters, events
from roost.ledger.store import Store
from roost.parts.access import Principal
from roost.wire.queries import ListEvents
from tests.databases import opened
from tests.integration.ledger.records import add_host, proposal

ROOT = Principal("root", "admin")
VIEWER = Principal("vic", "viewer")
MEMBER = Principal("ann", "member", "lab")
HOUR_MS = 3_600_000
BEGAN_MS = 1_790_000_000_000
NUMBER = 600
KINDS = ("vm.created", "vm.started", "host.online", "token.created")


def run(url: str, test: Callable[[Store, EventLog], Awaitable[None]], number: int = NUMBER) -> None:
    async def whole() -> None:
        async with opened(url) as store:
            await store.write(lambda tx: fill(tx.connection, number))
            await test(store, EventLog(store))

    asyncio.run(whole())


def fill(connection: Connection, number: int) -> None:
    """Write events about ten VMs, ten hosts and tokens, one a minute."""
    rows = [
        {
            "seq": seq,
            "at_ms": BEGAN_MS + seq * 60_000,
            "actor": "token/ann" if seq % 5 else "roost",
            "kind": (kind := KINDS[seq % 4]),
            "subject": f"{kind.split('.')[0]}/{kind.split('.')[0]}-{seq % 10}",
            "project": "lab" if seq % 3 == 0 else "default",
            "changes": "{}",
            "note": f"Note {seq} 100%_sure" if seq % 7 == 0 else "",
            "tx": f"tx-{seq}",
        }
        for seq in range(1, number + 1)
    ]
    for at in range(0, len(rows), 1000):
        connection.execute(insert(events), rows[at : at + 1000])
    connection.execute(update(counters).where(counters.c.name == "events").values(value=number))


def naive(asked: ListEvents, who: Principal = ROOT, number: int = NUMBER) -> list[int]:
    """Return the sequences that a query is to find, by looking at every event."""
    found = []
    for seq in range(1, number + 1):
        kind = KINDS[seq % 4]
        subject = f"{kind.split('.')[0]}/{kind.split('.')[0]}-{seq % 10}"
        note = f"Note {seq} 100%_sure" if seq % 7 == 0 else ""
        actor = "token/ann" if seq % 5 else "roost"
        moment = timestamp(BEGAN_MS + seq * 60_000)
        keep = seq > asked.since
        keep &= not asked.vm or subject == f"vm/{asked.vm}"
        keep &= not asked.host or subject == f"host/{asked.host}"
        begins = asked.kind.removesuffix("*")
        keep &= kind.startswith(begins) if asked.kind.endswith("*") else begins in ("", kind)
        keep &= not asked.since_time or moment >= asked.since_time
        keep &= not asked.until_time or moment < asked.until_time
        words = (note, subject, actor, kind)
        keep &= not asked.text or any(asked.text.lower() in each.lower() for each in words)
        keep &= who.role != "member" or seq % 3 == 0
        keep &= who.role == "admin" or not subject.startswith("token/")
        if keep:
            found.append(seq)
    return found[-asked.last :] if asked.last is not None else found[: asked.limit]


QUERIES = (
    ListEvents(last=5),
    ListEvents(last=1000),
    ListEvents(host="host-2"),
    ListEvents(host="host-2", last=3),
    ListEvents(kind="vm.created", limit=7),
    ListEvents(kind="vm.*", last=9),
    ListEvents(kind="nothing"),
    ListEvents(text="note 42", last=4),
    ListEvents(text="100%_SURE", limit=1000),
    ListEvents(text="1000_sure"),
    ListEvents(text="roost", since=300, limit=1000),
    ListEvents(since_time=timestamp(BEGAN_MS + 590 * 60_000)),
    ListEvents(until_time=timestamp(BEGAN_MS + 3 * 60_000)),
    ListEvents(
        kind="vm.started",
        since_time=timestamp(BEGAN_MS + HOUR_MS),
        until_time=timestamp(BEGAN_MS + 2 * HOUR_MS),
        last=2,
    ),
)


@pytest.mark.parametrize("window", [20_000, 7], ids=["wide", "narrow"])
def test_a_search_finds_what_looking_at_every_event_finds(
    database_url: str, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eventsearch, "WINDOW", window)

    async def test(store: Store, log: EventLog) -> None:
        for asked in QUERIES:
            for who in (ROOT, VIEWER, MEMBER):
                page = await log.listed(asked, who)
                found = [event.seq for event in page.events]
                assert found == naive(asked, who), (asked, who)
                if asked.last is None and len(found) == asked.limit:
                    assert page.next == found[-1]
                else:
                    assert page.next == NUMBER

    run(database_url, test)


def test_pages_of_a_search_are_the_whole_of_it(database_url: str) -> None:
    async def test(store: Store, log: EventLog) -> None:
        found: list[int] = []
        since = 0
        while True:
            page = await log.listed(ListEvents(kind="vm.started", since=since, limit=13), ROOT)
            found += [event.seq for event in page.events]
            if not page.events:
                break
            since = page.next
        assert found == naive(ListEvents(kind="vm.started", limit=1000))

    run(database_url, test)


def test_a_vm_is_known_by_name_in_its_project_or_by_id(database_url: str) -> None:
    async def test(store: Store, log: EventLog) -> None:
        await store.write(lambda tx: add_host(tx, 1))
        await store.claim([proposal("vm-1")], ["ann"], 0)
        page = await log.listed(ListEvents(vm="vm-1"), ROOT)
        assert "vm/vm-1" in {event.subject for event in page.events}
        with pytest.raises(NotFound):
            await log.listed(ListEvents(vm="nobody"), ROOT)
        with pytest.raises(NotFound):  # another project's names are no business of a member
            await log.listed(ListEvents(vm="vm-1"), MEMBER)
        with pytest.raises(NotFound):  # nor is whether there is such a name
            await log.listed(ListEvents(vm="vm-1", project="default"), MEMBER)
        await store.claim([proposal("vm-2", name="vm-frontend-01")], ["ann"], 0)
        page = await log.listed(ListEvents(vm="vm-frontend-01"), ROOT)
        assert {event.subject for event in page.events} == {"vm/vm-2"}
        gone = await log.listed(ListEvents(vm="vm-1m7h1jvd0g32zhxhww40"), ROOT)
        assert gone.events == []
        with pytest.raises(InvalidRequest, match="which of them"):
            await log.listed(ListEvents(vm="vm-1", host="h1"), ROOT)
        with pytest.raises(InvalidRequest):
            await log.listed(ListEvents(since_time="yesterday"), ROOT)
        with pytest.raises(InvalidRequest, match="all events"):
            log.followed_by(ListEvents(kind="vm.created"), 0, ROOT)

    run(database_url, test)


def test_a_moment_is_found_by_halving_though_clocks_differ(database_url: str) -> None:
    async def test(store: Store, log: EventLog) -> None:
        def skew(connection: Connection) -> None:
            behind = events.c.at_ms - (SKEW_MS - 60_000)
            connection.execute(update(events).where(events.c.seq % 2 == 1).values(at_ms=behind))

        await store.write(lambda tx: skew(tx.connection))
        for minute in (1, 30, 299, 599):
            moment = BEGAN_MS + minute * 60_000
            since = await store.read(
                lambda connection: before_moment(connection, 0, NUMBER, moment)  # noqa: B023
            )
            earlier = await store.read(
                lambda connection: connection.execute(
                    text("SELECT count(*) FROM events WHERE seq <= :seq AND at_ms >= :at"),
                    {"seq": since, "at": moment},  # noqa: B023
                ).scalar()
            )
            assert earlier == 0, minute

    run(database_url, test)


def test_subjects_and_kinds_are_found_by_their_index(database_url: str) -> None:
    queries = {
        "events_subject": (
            forwards(10, Wanted(subject="vm/vm-seldom"), ROOT).limit(5),
            backwards(5000, Wanted(subject="vm/vm-seldom"), ROOT).limit(5),
        ),
        "events_kind": (backwards(5000, Wanted(kind="host.gone"), VIEWER).limit(5),),
    }

    async def test(store: Store, log: EventLog) -> None:
        await store.write(lambda tx: tx.connection.execute(text("ANALYZE")) and None)

        def plan(connection: Connection, query: object) -> str:
            compiled = query.compile(  # type: ignore[attr-defined]
                dialect=connection.dialect, compile_kwargs={"literal_binds": True}
            )
            word = "EXPLAIN QUERY PLAN" if connection.dialect.name == "sqlite" else "EXPLAIN"
            statement = str(compiled).replace("%", "%%") if word == "EXPLAIN" else str(compiled)
            return "\n".join(str(row) for row in connection.exec_driver_sql(f"{word} {statement}"))

        for index, asked in queries.items():
            for query in asked:
                found = await store.read(lambda connection: plan(connection, query))  # noqa: B023
                assert index in found, found

    run(database_url, test, 6000)
