"""Holds on both databases: kept from everybody else, drawn on exactly, given back."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from sqlalchemy import select

from roost.ledger.claims import capacity, holding
from roost.ledger.claims.capacity import charge, fits, give_back, release, resize_claim, room_of
from roost.ledger.claims.holding import HELD, changed_holds, drop_holds, holds_of, put_holds
from roost.ledger.claims.holdsums import Limits
from roost.ledger.claims.makingroom import QUEUE, begin_hold, hold_freed
from roost.ledger.claims.proposals import Verdict
from roost.ledger.postgres import claims as postgresclaims
from roost.ledger.schema.rows import ClaimRow, HoldRow
from roost.ledger.schema.tables import events, host_amounts, vms
from roost.ledger.sqlite import claims as sqliteclaims
from roost.ledger.store import Store
from roost.ledger.upkeep.checks import examine
from roost.ledger.writes.transaction import Tx
from tests.databases import opened
from tests.integration.ledger.records import GIB, add_host, claim_of, proposal, vm_row

ALWAYS = "[[0,null]]"
#: The hosts here have eight cores.
CORES = 8000


def hold(name: str = "r/1", cpu_milli: int = 6000, **given: Any) -> HoldRow:
    fields = {"host": 1, "kind": "reservation", "owner": "r", "windows": ALWAYS} | given
    return HoldRow(id=name, cpu_milli=cpu_milli, **fields)


def put(tx: Tx, *rows: HoldRow) -> bool:
    if not put_holds(tx, rows):
        return False
    tx.event("reservation.created", "reservation/r", {"holds": changed_holds(rows)})
    return True


def drop(tx: Tx) -> None:
    rows = holds_of(tx, "r")
    drop_holds(tx, rows)
    tx.event("reservation.deleted", "reservation/r", {"holds": changed_holds(dropped=rows)})


def claim(name: str, cores: int, **given: Any) -> ClaimRow:
    row = claim_of(vm_row(name, cpu_milli=cores * 1000), 1, "run")
    return msgspec.structs.replace(row, **given)


def charged(tx: Tx, row: ClaimRow) -> bool:
    taken = charge(tx, row, None)
    if taken:
        tx.event("vm.created", f"vm/{row.vm}", {"claims": {row.id: row}})
    return taken


def held(tx: Tx) -> int:
    row = tx.find(host_amounts, host=1)
    assert row is not None
    return int(row["cpu_milli_held"])


def run(database_url: str, *changes: Callable[[Tx], Any]) -> list[Any]:
    async def all_of_them(store: Store) -> list[Any]:
        await store.write(lambda tx: add_host(tx, 1))
        found = []
        for change in changes:
            try:
                found.append(await store.write(change))
            except Refused:
                found.append(False)
        assert not (await store.read(examine)).findings
        return found

    async def opened_store() -> list[Any]:
        async with opened(database_url) as store:
            return await all_of_them(store)

    return asyncio.run(opened_store())


class Refused(Exception):
    """Leaves a transaction."""


def test_nobody_else_gets_what_is_held(database_url: str) -> None:
    found = run(
        database_url,
        lambda tx: put(tx, hold()),
        lambda tx: charged(tx, claim("a", 2)),
        lambda tx: charged(tx, claim("b", 1)),
        lambda tx: put(tx, hold("r/2", 1000)),
        drop,
        lambda tx: charged(tx, claim("b", 6)),
    )
    assert found == [True, True, False, False, None, True]


def test_an_owner_draws_exactly_and_gives_back(database_url: str) -> None:
    own = claim("own", 4, draws_on="r")
    found = run(
        database_url,
        lambda tx: put(tx, hold()),
        lambda tx: charged(tx, own),
        held,
        lambda tx: charged(tx, claim("more", 3, draws_on="r")),
        held,
        lambda tx: charged(tx, claim("other", 2)),
        lambda tx: (release(tx, own), tx.event("vm.deleted", "vm", {"claims": {own.id: None}})),
        held,
    )
    assert found[:6] == [True, True, 2000, True, 0, False]
    assert found[-1] == 3000


def test_a_short_vm_has_the_room_before_a_reservation(database_url: str) -> None:
    later = 4_000_000_000_000
    windows = f"[[{later},null]]"
    found = run(
        database_url,
        lambda tx: put(tx, hold(windows=windows)),
        lambda tx: charged(tx, claim("long", 4)),
        lambda tx: charged(tx, claim("short", 4, until_ms=later)),
        held,
        lambda tx: charged(tx, claim("too-long", 4, until_ms=later + 1)),
        lambda tx: charged(tx, claim("shorter", 4, until_ms=later - 1)),
        held,
        lambda tx: charged(tx, claim("one", 1)),
    )
    assert found == [True, False, True, 2000, False, True, 0, False]


def test_a_claim_grows_into_what_it_draws_on_and_no_further(database_url: str) -> None:
    own, other = claim("own", 1, draws_on="r"), claim("other", 2)

    def resized(tx: Tx, row: ClaimRow, cores: int) -> bool:
        amounts = row.amounts._replace(cpu_milli=cores * 1000)
        found = resize_claim(tx, row, amounts)
        if found is not None:
            tx.event("vm.resized", f"vm/{row.vm}", {"claims": {row.id: found}})
        return found is not None

    found = run(
        database_url,
        lambda tx: put(tx, hold()),
        lambda tx: charged(tx, own) and charged(tx, other),
        lambda tx: (room_of(tx, own).cpu_milli, room_of(tx, other).cpu_milli),
        lambda tx: resized(tx, other, 3),
        lambda tx: resized(tx, own, 6),
        held,
    )
    assert found == [True, True, (6000, 2000), False, True, 0]


def test_a_batch_of_creates_draws_in_its_transaction(database_url: str) -> None:
    async def check(store: Store) -> None:
        await store.write(lambda tx: add_host(tx, 1))
        await store.write(lambda tx: put(tx, hold()))
        batch = [proposal(name, cpu_milli=2000) for name in ("a", "b", "c", "d", "e")]
        for each in batch[:4]:
            assert each.claim is not None
            each.claim.draws_on = "r"
        outcomes = await store.claim(batch, ["t"] * 5, 0)
        assert [o.verdict for o in outcomes] == [Verdict.KEPT] * 4 + [Verdict.STALE]
        assert not (await store.read(examine)).findings
        assert await store.write(held) == 0
        kinds = select(events.c.kind).order_by(events.c.seq)
        told = await store.read(lambda connection: connection.execute(kinds).scalars().all())
        assert told[-1] == "hosts.held_room"

    async def opened_store() -> None:
        async with opened(database_url) as store:
            await check(store)

    asyncio.run(opened_store())


def test_a_batch_that_fits_settles_its_host_before_and_after(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a host holds is not reckoned for each of its VMs: other writes wait for that."""
    reckoned, real = 0, holding.held_by_rows

    def counted(*given: Any) -> Limits:
        nonlocal reckoned
        reckoned += 1
        return real(*given)

    for module in (sqliteclaims, postgresclaims):
        monkeypatch.setattr(module, "held_by_rows", counted)

    async def opened_store() -> None:
        async with opened(database_url) as store:
            await store.write(lambda tx: add_host(tx, 1))
            await store.write(lambda tx: put(tx, hold()))
            batch = [proposal(f"v{n}", cpu_milli=1000) for n in range(CORES // 1000)]
            for each in batch[1:7]:
                assert each.claim is not None
                each.claim.draws_on = "r"
            outcomes = await store.claim(batch, ["t"] * len(batch), 0)
            assert {o.verdict for o in outcomes} == {Verdict.KEPT}
            assert not (await store.read(examine)).findings
            assert await store.write(held) == 0

    asyncio.run(opened_store())
    assert reckoned == 2


def test_two_writers_never_draw_on_the_same_room(database_url: str) -> None:
    async def check(one: Store, other: Store) -> None:
        await one.write(lambda tx: add_host(tx, 1))
        await one.write(lambda tx: put(tx, hold(cpu_milli=CORES)))

        async def take(store: Store, name: str) -> bool:
            def change(tx: Tx) -> None:
                if not charged(tx, claim(name, 1, draws_on="r")):
                    raise Refused

            try:
                await store.write(change)
            except Refused:
                return False
            return True

        taken = await asyncio.gather(
            *(take((one, other)[n % 2], f"v{n}") for n in range(12)),
        )
        assert sum(taken) == CORES // 1000
        assert await one.write(held) == 0

    async def opened_stores() -> None:
        async with opened(database_url) as one:
            if not one.shared:
                await check(one, one)
                return
            async with opened(database_url) as other:
                await check(one, other)

    asyncio.run(opened_stores())


def test_a_charge_that_forgets_what_is_held_is_caught(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    update = capacity.CHARGE_HOSTS.update
    for name in HELD:
        update = update.replace(f" + t.{name}", "")
    monkeypatch.setattr(capacity, "CHARGE_HOSTS", capacity.CHARGE_HOSTS._replace(update=update))
    with pytest.raises(AssertionError):
        test_nobody_else_gets_what_is_held(database_url)


def test_memory_is_held_by_itself(database_url: str) -> None:
    found = run(
        database_url,
        lambda tx: put(tx, hold(cpu_milli=0, memory_bytes=64 * GIB)),
        lambda tx: charged(tx, claim("a", 1)),
    )
    assert found == [True, False]


def test_what_fits_after_windows_have_passed_is_charged(database_url: str) -> None:
    """A ledger that was restored sums up windows that were to come when it was copied."""

    def later(tx: Tx) -> list[bool]:
        tx.at_ms = 2**50
        asked = claim("b", 4)
        return [fits(tx, asked, []), charged(tx, asked)]

    windows = f"[[0,{2**49}]]"
    assert run(database_url, lambda tx: put(tx, hold(windows=windows)), later)[1] == [True, True]


def test_what_is_charged_again_at_once_is_not_held_for_others(database_url: str) -> None:
    waits, old, new = vm_row("waits", cpu_milli=CORES), claim("a", 8), claim("b", 6)

    def wait(tx: Tx) -> bool:
        tx.insert(vms, msgspec.structs.asdict(waits))
        begin_hold(tx, "waits", 1, QUEUE)
        tx.event("vm.queued", "vm/waits", {"vms": {"waits": waits}})
        return True

    def swap(tx: Tx) -> tuple[bool, bool]:
        found = fits(tx, new, [old])
        give_back(tx, old)
        taken = charge(tx, new, None)
        hold_freed(tx, 1)
        tx.event("vm.adopted", "vm/b", {"claims": {old.id: None, new.id: new}})
        return found, taken

    assert run(database_url, lambda tx: charged(tx, old), wait, swap, held) == [
        True, True, (True, True), 2000,
    ]  # fmt: skip
