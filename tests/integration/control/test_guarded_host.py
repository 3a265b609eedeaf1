"""A host with a fence guard: the seconds of its promise stay what they were in every change."""

import asyncio

from sqlalchemy import update

from roost.control.hosts.registering import change_host
from roost.ledger.schema.tables import hosts
from roost.ledger.writes.transaction import Tx
from tests.databases import opened
from tests.examining import doctor
from tests.integration.ledger.records import add_host


def test_a_whole_number_of_seconds_is_the_same_in_rows_and_events(database_url: str) -> None:
    def guarded(tx: Tx) -> None:
        add_host(tx, 1)
        tx.connection.execute(update(hosts).values(guard_stop_s=5.0))
        row = change_host(tx, 1, "host.suspect", health="suspect")
        assert isinstance(row.guard_stop_s, float)

    async def run() -> None:
        async with opened(database_url) as store:
            await store.write(guarded)
            assert (await doctor(store)).findings == []

    asyncio.run(run())
