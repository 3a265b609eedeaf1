"""Holds of counters on both databases: devices, cells and extended resources."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy import select, update

from roost.ledger.claims import capacity
from roost.ledger.claims.capacity import charge, fits, release
from roost.ledger.claims.proposals import Verdict
from roost.ledger.postgres import claims as postgresclaims
from roost.ledger.schema.rows import ClaimRow
from roost.ledger.schema.tables import host_counters
from roost.ledger.sqlite import claims as sqliteclaims
from roost.ledger.store import Store
from roost.ledger.upkeep.checks import examine
from roost.ledger.writes.transaction import Tx, row_json
from tests.databases import opened
from tests.integration.ledger.records import add_host, claim_of, proposal, vm_row
from tests.integration.ledger.test_holding import hold, put

HAS = {"device:00": 1000, "device:01": 1000, "x:fpga": 2}


def run(database_url: str, test: Callable[[Store], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with opened(database_url) as store:
            await store.write(lambda tx: add_host(tx, 1, counters=HAS))
            await test(store)
            assert not (await store.read(examine)).findings

    asyncio.run(whole())


def keeps(tx: Tx, name: str = "r/1", windows: str = "[[0,null]]", **counters: int) -> bool:
    return put(tx, hold(name, 0, windows=windows, counters=row_json(counters)))


def card(name: str, **given: Any) -> ClaimRow:
    row = claim_of(vm_row(name, cpu_milli=1000), 1, "run", {"device:00": 1000})
    for field, value in given.items():
        setattr(row, field, value)
    return row


def charged(tx: Tx, row: ClaimRow) -> bool:
    """Charge a claim; whoever is told that it does not fit leaves nothing behind."""
    if not (taken := fits(tx, row, [])):
        return False
    assert charge(tx, row, None)
    tx.event("vm.created", f"vm/{row.vm}", {"claims": {row.id: row}})
    return taken


def released(tx: Tx, row: ClaimRow) -> None:
    release(tx, row)
    tx.event("vm.deleted", f"vm/{row.vm}", {"claims": {row.id: None}})


async def held(store: Store) -> dict[str, int]:
    query = select(host_counters.c.counter, host_counters.c.held).where(host_counters.c.held != 0)
    return await store.read(lambda connection: dict(connection.execute(query).all()))


def test_an_owner_draws_on_a_held_card_and_gives_it_back(database_url: str) -> None:
    async def test(store: Store) -> None:
        assert await store.write(lambda tx: keeps(tx, **{"device:00": 1000}))
        assert not await store.write(lambda tx: keeps(tx, "r/2", **{"device:00": 1}))
        assert not await store.write(lambda tx: keeps(tx, "r/2", **{"device:07": 1}))
        assert not await store.write(lambda tx: charged(tx, card("other")))
        own = card("own", draws_on="r")
        assert await store.write(lambda tx: charged(tx, own))
        assert await held(store) == {}
        await store.write(lambda tx: released(tx, own))
        assert await held(store) == {"device:00": 1000}

    run(database_url, test)


def test_a_card_is_free_until_the_window_begins(database_url: str) -> None:
    later = 4_000_000_000_000

    async def test(store: Store) -> None:
        windows = f"[[{later},null]]"
        assert await store.write(lambda tx: keeps(tx, windows=windows, **{"device:00": 1000}))
        assert not await store.write(lambda tx: charged(tx, card("long", until_ms=later + 1)))
        assert await store.write(lambda tx: charged(tx, card("short", until_ms=later)))
        assert await held(store) == {}

    run(database_url, test)


def test_what_somebody_was_turned_away_from_is_not_given_to_the_next(database_url: str) -> None:
    """An owner's create that lacks another counter leaves its card held in the same batch."""

    async def test(store: Store) -> None:
        await store.write(lambda tx: keeps(tx, **{"device:00": 1000}))
        own = proposal("own", counters=[("device:00", 1000), ("x:fpga", 3)], cpu_milli=1000)
        assert own.claim is not None
        own.claim.draws_on = "r"
        other = proposal("other", counters=[("device:00", 1000)], cpu_milli=1000)
        free = proposal("free", counters=[("device:01", 1000)], cpu_milli=1000)
        outcomes = await store.claim([own, other, free], ["t"] * 3, 0)
        verdicts = [outcome.verdict for outcome in outcomes]
        assert verdicts == [Verdict.STALE, Verdict.STALE, Verdict.KEPT]
        assert await held(store) == {"device:00": 1000}

    run(database_url, test)


def test_what_an_owner_draws_on_is_not_given_to_somebody_before_it(database_url: str) -> None:
    """In one batch an owner's card is not free for others once the owner is counted to have it."""

    async def test(store: Store) -> None:
        await store.write(lambda tx: keeps(tx, **{"device:00": 1000}))
        other = proposal("other", counters=[("device:00", 1000)], cpu_milli=1000)
        own = proposal("own", counters=[("device:00", 1000)], cpu_milli=1000)
        assert own.claim is not None
        own.claim.draws_on = "r"
        outcomes = await store.claim([other, own], ["t"] * 2, 0)
        assert [outcome.verdict for outcome in outcomes] == [Verdict.STALE, Verdict.KEPT]

    run(database_url, test)


def test_a_batch_that_does_not_settle_again_is_caught(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (sqliteclaims, postgresclaims):
        real = module.coming_to
        # What the batch would hold if whoever was turned away still came.
        monkeypatch.setattr(
            module, "coming_to", lambda host, kept, real=real: [*real(host, kept), _OWN]
        )
    with pytest.raises(AssertionError):
        test_what_somebody_was_turned_away_from_is_not_given_to_the_next(database_url)


_OWN = card("own", draws_on="r")


def test_a_charge_that_forgets_what_is_held_is_caught(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = capacity.CHARGE_COUNTERS.update.replace(" + t.held", "")
    forgets = capacity.CHARGE_COUNTERS._replace(update=text)
    monkeypatch.setattr(capacity, "CHARGE_COUNTERS", forgets)
    with pytest.raises(AssertionError):
        test_what_somebody_was_turned_away_from_is_not_given_to_the_next(database_url)


def test_the_doctor_finds_a_card_that_is_not_held(sqlite_url: str) -> None:
    async def test(store: Store) -> None:
        await store.write(lambda tx: keeps(tx, **{"device:00": 1000}))
        for amount, counter in ((0, "device:00"), (1, "x:fpga")):
            there = host_counters.c.counter == counter
            await store.write(
                lambda tx, there=there, amount=amount: tx.connection.execute(
                    update(host_counters).where(there).values(held=amount)
                )
            )
            said = [str(found) for found in (await store.read(examine)).findings]
            assert any(counter in each for each in said), said
            await store.write(
                lambda tx, there=there, amount=amount: tx.connection.execute(
                    update(host_counters).where(there).values(held=0 if amount else 1000)
                )
            )

    run(sqlite_url, test)
