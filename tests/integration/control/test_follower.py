"""An event that cannot be taken: nothing passes it by, everybody hears of it, and it is retried."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from roost.base.errors import FleetUnavailable
from roost.ledger.schema.changes import HOST_AMOUNTS, Changes, HostCapacity, changes_decoder
from roost.ledger.schema.rows import Event
from roost.ledger.schema.tables import leases
from roost.ledger.writes.transaction import Tx
from roost.parts.part import Part
from tests.integration.control.rig import Rig, run

BROKEN = "test.broken"


class Picky(Part):
    """A part that cannot take one kind of event, for as long as it is told to."""

    def __init__(self) -> None:
        self.raises = True
        self.tried = 0
        self.taken: list[int] = []

    def follow(self, event: Event, changes: Changes) -> None:
        self.tried += event.kind == BROKEN
        if self.raises and event.kind == BROKEN:
            raise KeyError("a row that is not there")
        self.taken.append(event.seq)


class Recording(Part):
    """A part that takes everything."""

    def __init__(self) -> None:
        self.taken: list[int] = []

    def follow(self, event: Event, changes: Changes) -> None:
        self.taken.append(event.seq)


async def say(rig: Rig, kind: str, changes: dict[str, Any] | None = None) -> None:
    await rig.store.write(lambda tx: tx.event(kind, "test", changes or {}))


async def refused(rig: Rig) -> None:
    """Check that this process serves nobody, and says why everywhere."""
    plane, said = rig.plane, rig.plane.follower.trouble
    assert BROKEN in said
    assert plane.readiness().status != "ready"
    assert plane.readiness().detail == said
    with pytest.raises(FleetUnavailable, match=BROKEN):
        plane.require_ready()
    with pytest.raises(FleetUnavailable, match=BROKEN):
        await plane.follower.catch_up()
    assert not plane.agents.ready.is_set()
    assert [f.check for f in (await plane.doctor()).findings] == ["follower"]
    assert b"roost_follower_stuck 1.0" in plane.telemetry.text()


def well(rig: Rig) -> None:
    rig.plane.require_ready()
    assert rig.plane.agents.ready.is_set()
    assert b"roost_follower_stuck 0.0" in rig.plane.telemetry.text()


def test_a_part_that_raises_stops_the_follower_until_it_does_not(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(rig: Rig) -> None:
        first, picky, last = Recording(), Picky(), Recording()
        follower = rig.plane.follower
        follower.start([*rig.plane.parts, first, picky, last])
        await say(rig, "test.fine")
        before = follower.applied
        await say(rig, BROKEN)
        await say(rig, "test.behind")
        assert follower.applied == before
        assert (picky.taken, last.taken) == ([before], [before])
        assert "nothing behind it is followed" in caplog.text
        await refused(rig)

        await follower.retry()
        assert follower.applied == before
        picky.raises = False
        await follower.retry()
        assert follower.applied == before + 2
        # Whoever had taken it before the other raised is not told twice.
        for part in (first, picky, last):
            assert part.taken == [before, before + 1, before + 2]
        well(rig)
        await rig.host("h1")
        await rig.running("web")

    run(database_url, test)


def test_it_tries_again_by_itself_less_and_less_often(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        picky, follower, clock = Picky(), rig.plane.follower, rig.clock
        follower.start([*rig.plane.parts, picky])
        await say(rig, BROKEN)
        times = [clock.monotonic()]
        following = asyncio.create_task(follower.run())
        try:
            async with asyncio.timeout(30):
                for number in range(2, 6):
                    await clock.tick()
                    while picky.tried < number:
                        await asyncio.sleep(0)
                    times.append(clock.monotonic())
                picky.raises = False
                await clock.tick()
                while follower.trouble:
                    await asyncio.sleep(0)
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
        assert [later - earlier for earlier, later in pairwise(times)] == [1, 2, 4, 8]
        well(rig)

    run(database_url, test)


def test_what_is_committed_while_it_tries_again_is_followed_too(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(rig: Rig) -> None:
        picky, follower = Picky(), rig.plane.follower
        follower.start([*rig.plane.parts, picky])
        before = follower.applied
        await say(rig, BROKEN)
        picky.raises = False
        read, late = rig.store.read, ["test.late"]

        async def read_before_a_commit(question: Any) -> Any:
            found = await read(question)
            if late:
                await say(rig, late.pop())
            return found

        monkeypatch.setattr(rig.store, "read", read_before_a_commit)
        await follower.retry()
        assert follower.applied == before + 2
        assert picky.taken == [before + 1, before + 2]
        well(rig)

    run(database_url, test)


def test_an_event_that_cannot_be_decoded_stops_the_follower(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1")
        follower, before = rig.plane.follower, rig.plane.follower.applied
        decode = follower._decode
        await say(rig, BROKEN, {"rules": "as many as there are"})
        assert follower.applied == before
        await refused(rig)
        # A later release may know how.
        follower._decode = lambda text: Changes({}) if "as many" in text else decode(text)
        await follower.retry()
        assert follower.applied == before + 1
        well(rig)

    run(database_url, test)


def test_tables_and_fields_that_nobody_knows_are_no_trouble(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.host("h1")
        before = rig.plane.follower.applied
        await say(rig, "later.said", {"weather": {"a": {"rain": True}}})
        assert rig.plane.follower.applied == before + 1
        well(rig)

    run(database_url, test)
    decode = changes_decoder([HOST_AMOUNTS])
    amounts = decode('{"host_amounts": {"1": {"generation": 2, "weather": "rain"}}}')
    assert dict(amounts.of(HOST_AMOUNTS)) == {"1": HostCapacity(2)}


def test_a_process_that_cannot_follow_gives_up_its_leases(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await rig.plane.run_singletons()

        def renewals(tx: Tx) -> int:
            found = tx.find(leases, name="drain")
            assert found is not None
            return int(found["renewals"])

        before = await rig.store.write(renewals)
        await rig.plane.run_singletons()
        assert await rig.store.write(renewals) == before + 1
        picky = Picky()
        rig.plane.follower.start([*rig.plane.parts, picky])
        await say(rig, BROKEN)
        await rig.plane.run_singletons()
        assert await rig.store.write(renewals) == before + 1
        picky.raises = False
        await rig.plane.follower.retry()

    run(database_url, test)
