"""Leases: one process acts for all and another takes over, beside older releases too."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from sqlalchemy import select
from sqlalchemy.util import await_only

from roost.ledger.schema.tables import leases
from roost.ledger.store import Store
from roost.ledger.writes.transaction import Tx
from roost.parts.singleton import GATE, HOLDER, Leases, NotHolder
from tests.databases import opened
from tests.integration.control.rig import TIMERS, HandClock, Rig
from tests.integration.control.rig import run as run_plane

LENGTH_S = 15.0


class Place:
    """Some processes on one database, each with its wishes."""

    def __init__(self, store: Store) -> None:
        self.store, self.clock = store, HandClock()

    def process(self, name: str, *wishes: str) -> Leases:
        made = Leases(self.store, self.clock, f"{HOLDER}-{name}", length_s=LENGTH_S)
        for wish in wishes:
            made.singleton(wish)
        return made

    async def older_takes(self) -> None:
        """Let a process of the first release take over, as it does."""

        def change(tx: Tx) -> None:
            found = tx.find(leases, name=GATE, lock=True)
            if found is None:
                row = {"name": GATE, "holder": "plane-old", "token": 1, "renewals": 0}
                tx.insert(leases, row)
                return
            token = found["token"] + (found["holder"] != "plane-old")
            renewals = found["renewals"] + 1
            tx.change(leases, {"name": GATE}, holder="plane-old", token=token, renewals=renewals)

        await self.store.write(change)

    async def rows(self) -> dict[str, str]:
        query = select(leases.c.name, leases.c.holder)
        return dict(await self.store.read(lambda c: [tuple(row) for row in c.execute(query)]))


def run(url: str, test: Callable[[Place], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with opened(url) as store:
            await test(Place(store))

    asyncio.run(asyncio.wait_for(whole(), 60))


def held(process: Leases, *names: str) -> list[bool]:
    return [process.singleton(name).token is not None for name in names]


def test_only_one_process_holds_a_lease_and_another_takes_over_after_silence(
    database_url: str,
) -> None:
    async def test(place: Place) -> None:
        first, second = place.process("a", "drain"), place.process("b", "drain")
        await first.tick()
        for _ in range(10):
            place.clock.move(5)
            await second.tick()
            await first.tick()
            assert (held(first, "drain"), held(second, "drain")) == ([True], [False])
        await second.tick()
        place.clock.move(LENGTH_S - 1)
        await second.tick()
        assert held(second, "drain") == [False]
        place.clock.move(2)
        await second.tick()
        assert held(second, "drain") == [True]
        with pytest.raises(NotHolder):
            await place.store.write(first.singleton("drain").check)
        await place.store.write(second.singleton("drain").check)
        await first.tick()
        assert held(first, "drain") == [False]

    run(database_url, test)


def test_each_lease_has_a_holder_of_its_own(database_url: str) -> None:
    async def test(place: Place) -> None:
        first, second = place.process("a", "drain"), place.process("b", "drain", "queue")
        await first.tick()
        await second.tick()
        assert held(second, "drain", "queue") == [False, True]
        await place.store.write(second.singleton("queue").check)
        with pytest.raises(NotHolder):
            await place.store.write(second.singleton("drain").check)
        holder = f"{HOLDER}-a"
        assert await place.rows() == {"drain": holder, GATE: holder, "queue": f"{HOLDER}-b"}

    run(database_url, test)


def test_nothing_is_held_while_a_process_of_the_first_release_acts(database_url: str) -> None:
    async def test(place: Place) -> None:
        await place.older_takes()
        one, two = place.process("a", "drain"), place.process("b", "drain")
        for _ in range(10):
            place.clock.move(5)
            await place.older_takes()  # it renews
            await one.tick()
            await two.tick()
            assert held(one, "drain") + held(two, "drain") == [False, False]
        assert await place.rows() == {GATE: "plane-old"}
        for _ in range(int(LENGTH_S / 5)):  # it is gone
            place.clock.move(5)
            await one.tick()
            await two.tick()
        assert held(one, "drain") + held(two, "drain") == [True, False]

    run(database_url, test)


def test_a_lease_ends_with_the_transaction_in_which_an_older_process_takes_over(
    database_url: str,
) -> None:
    async def test(place: Place) -> None:
        one, two = place.process("a", "drain"), place.process("b", "queue")
        await one.tick()
        await two.tick()
        await place.store.write(two.singleton("queue").check)
        await place.older_takes()
        for process, name in ((one, "drain"), (two, "queue")):
            with pytest.raises(NotHolder):
                await place.store.write(process.singleton(name).check)
            await process.tick()
            assert held(process, name) == [False]

    run(database_url, test)


def test_an_older_process_waits_for_the_transaction_that_has_checked_its_lease(
    postgres_url: str,
) -> None:
    async def test(place: Place) -> None:
        one, checked = place.process("a", "drain"), asyncio.Event()
        happened: list[str] = []
        await one.tick()

        def act(tx: Tx) -> None:
            one.singleton("drain").check(tx)
            checked.set()
            await_only(asyncio.sleep(0.5))  # without the lock the other one is through by then
            happened.append("the holder acts")

        async def take_over() -> None:
            await checked.wait()
            await place.older_takes()
            happened.append("an older process takes over")

        await asyncio.gather(place.store.write(act), take_over())
        assert happened == ["the holder acts", "an older process takes over"]
        with pytest.raises(NotHolder):
            await place.store.write(one.singleton("drain").check)

    run(postgres_url, test)


def test_a_holder_of_this_release_is_known_by_its_name(database_url: str) -> None:
    async def test(place: Place) -> None:
        with pytest.raises(ValueError, match="cannot hold leases"):
            Leases(place.store, place.clock, "plane-a")

    run(database_url, test)


def test_a_plane_beside_one_of_the_first_release_looks_at_nothing(database_url: str) -> None:
    async def test(rig: Rig) -> None:
        await Place(rig.store).older_takes()
        await rig.host("h1", cpu=1)
        await rig.create("waits", cpu=2, on_no_fit="queue")
        await rig.host("h2", cpu=4)
        await rig.plane.run_singletons()
        waiting = await rig.row("waits")
        assert waiting is not None
        assert waiting.host is None
        rig.clock.move(TIMERS.singleton_s)
        await rig.plane.run_singletons()
        placed = await rig.row("waits")
        assert placed is not None
        assert placed.host == rig.number("h2")

    run_plane(database_url, test)
