import asyncio

import pytest

from roost.ledger.schema.rows import Event
from tests.databases import opened
from tests.integration.ledger.histories import History, broken_laws


@pytest.mark.parametrize("seed", range(6))
def test_folding_the_events_yields_the_rows(database_url: str, seed: int) -> None:
    async def run() -> None:
        async with opened(database_url) as store:
            heard: list[Event] = []
            store.listener = heard.extend
            history = History(store, seed)
            await history.begin()
            for _ in range(4):
                await history.live(25)
                assert await broken_laws(store) == []
            await asyncio.sleep(0)
            assert [event.seq for event in heard] == list(range(1, len(heard) + 1))

    asyncio.run(run())
