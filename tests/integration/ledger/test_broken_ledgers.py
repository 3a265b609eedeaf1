"""Ledgers that are broken on purpose: the laws must catch every one of them."""

import asyncio
import re
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest

from roost.ledger.claims import capacity
from roost.ledger.claims import proposals as claims_module
from roost.ledger.postgres import claims as postgresclaims
from roost.ledger.postgres import store as postgres
from roost.ledger.postgres.claims import PostgresClaims
from roost.ledger.schema.rows import Event
from roost.ledger.sqlite import claims as sqliteclaims
from roost.ledger.sqlite import store as sqlite
from roost.ledger.sqlite import whole as sqlitewhole
from roost.ledger.sqlite import writer as sqlitewriter
from tests.databases import opened
from tests.examining import doctor
from tests.integration.ledger.histories import History, broken_laws
from tests.integration.ledger.records import add_group, add_host, proposal
from tests.integration.ledger.storm import crowd, prepare, storm, verify

Break = Callable[[pytest.MonkeyPatch], None]
_BOTH = (sqliteclaims, postgresclaims)


def _without(pattern: str, name: str) -> Break:
    """Take a condition out of a charge, on both databases."""

    def change(patch: pytest.MonkeyPatch) -> None:
        charge = getattr(capacity, name)
        shorter = re.sub(pattern, "", charge.update)
        assert shorter != charge.update
        patch.setattr(capacity, name, charge._replace(update=shorter))

    return change


def _never_back(name: str) -> Break:
    """Let a charge take, but give nothing back."""

    def change(patch: pytest.MonkeyPatch) -> None:
        charge = getattr(capacity, name)
        patch.setattr(capacity, name, charge._replace(update=charge.update + " AND u.vms > 0"))

    return change


def _nobody_is_outpaced(patch: pytest.MonkeyPatch) -> None:
    for module in _BOTH:
        patch.setattr(module, "outpaced", lambda *_: [])


def _batches_are_not_looked_at_for_spread(patch: pytest.MonkeyPatch) -> None:
    real = claims_module.outpaced
    for module in _BOTH:
        patch.setattr(module, "outpaced", lambda *given: real(*given[:-1], ()))


def _events_leave_out_claims(patch: pytest.MonkeyPatch) -> None:
    real = claims_module.created_events

    def shorter(*given: Any) -> list[Event]:
        events = real(*given)
        for event in events:
            event.changes = re.sub(r'"claims":\{.*?\}\}', '"claims":{}', event.changes)
        return events

    for module in (sqlite, postgres):
        patch.setattr(module, "created_events", shorter)


def _an_event_too_few(patch: pytest.MonkeyPatch) -> None:
    # A whole batch has an event for each VM: this is for the steps.
    patch.setattr(sqlitewhole, "separable", lambda _: False)
    real = claims_module.created_events
    for module in (sqlite, postgres):
        patch.setattr(module, "created_events", lambda *given: real(*given)[:-1])


def _a_sequence_is_skipped(patch: pytest.MonkeyPatch) -> None:
    skip = "UPDATE counters SET value = value + 1 WHERE name = 'events'"
    on_sqlite, on_postgres = sqlitewriter._append_events, postgres.append_events_directly
    at_once = PostgresClaims.keep_all

    def skipping(raw: Any, events: list[Event]) -> int:
        raw.execute(skip)
        return on_sqlite(raw, events)

    async def skipping_too(connection: Any, events: list[Event], constraints: Any) -> None:
        await connection.execute(skip)
        await on_postgres(connection, events, constraints)

    async def skipping_at_once(self: PostgresClaims, events: list[Event], tx: str) -> bool:
        await self.connection.execute(skip)
        return await at_once(self, events, tx)

    patch.setattr(sqlitewriter, "_append_events", skipping)
    patch.setattr(postgres, "append_events_directly", skipping_too)
    patch.setattr(PostgresClaims, "keep_all", skipping_at_once)


#: What is broken, how, and the check that must say so.
BROKEN: Sequence[tuple[str, Break, str]] = [
    ("hosts are charged whatever they have",
     _without(r"AND \(u\.\w+ <= 0 OR .*_capacity\)", "CHARGE_HOSTS"), "over_capacity"),
    ("counters are charged whatever they have",
     _without(r"AND \(u\.amount <= 0 OR .*", "CHARGE_COUNTERS"), "over_capacity"),
    ("quotas are not looked at",
     _without(r"AND \(u\.\w+ <= 0 OR .*_quota\)", "CHARGE_PROJECTS"), "quota_below_use"),
    ("who is turned away keeps the room",
     _never_back("CHARGE_HOSTS"), "committed"),
    ("who is turned away keeps the quota",
     _never_back("CHARGE_PROJECTS"), "quotas"),
    ("groups are not compared", _nobody_is_outpaced, "groups"),
    ("events leave out the claims", _events_leave_out_claims, "fold"),
    ("the last VM of a batch has no event", _an_event_too_few, "fold"),
    ("a sequence is skipped", _a_sequence_is_skipped, "sequence"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("break_it", "check"), [each[1:] for each in BROKEN], ids=[each[0] for each in BROKEN]
)
def test_a_broken_ledger_is_caught(
    database_url: str, monkeypatch: pytest.MonkeyPatch, break_it: Break, check: str
) -> None:
    async def run() -> list[str]:
        async with AsyncExitStack() as stack:
            count = 2 if database_url.startswith("postgresql") else 1
            stores = [await stack.enter_async_context(opened(database_url)) for _ in range(count)]
            await stores[0].write(prepare)
            break_it(monkeypatch)
            truth = await storm(stores, clients=8, turns=12, together=True)
            await crowd(stores, truth)
            return await verify(stores[0], truth)

    wrong = asyncio.run(run())
    assert any(each.startswith(f"{check}:") for each in wrong), wrong


def test_a_spread_that_does_not_mind_who_was_turned_away_is_caught(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of four lose their host; the others stand where they are only because of them."""

    async def run() -> list[str]:
        async with opened(database_url) as store:
            for number in (1, 2):
                await store.write(lambda tx: add_host(tx, number))  # noqa: B023
            await store.write(lambda tx: add_group(tx, "even", "spread"))
            _batches_are_not_looked_at_for_spread(monkeypatch)
            seen = [("default/even", 0)]
            asked = [
                proposal(f"vm-{n}", 2 - n % 2, groups=seen, generation=1 + n % 2) for n in range(4)
            ]
            await store.claim(asked, ["test"] * 4, 0)
            return [note.check for note in (await doctor(store)).notes]

    assert asyncio.run(run()) == ["uneven_spread"]


@pytest.mark.parametrize(
    "break_it",
    [_events_leave_out_claims, _an_event_too_few, _a_sequence_is_skipped,
     _never_back("CHARGE_HOSTS")],
)  # fmt: skip
def test_the_plain_fold_catches_it_too(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, break_it: Break
) -> None:
    async def run() -> list[str]:
        async with opened(sqlite_url) as store:
            history = History(store, 1)
            await history.begin()
            break_it(monkeypatch)
            await history.live(40)
            return await broken_laws(store)

    wrong = asyncio.run(run())
    assert any(":" not in each for each in wrong)  # what doctor says has a colon
