"""A start whose database is away: it waits, says so, and gives up at its limit."""

import asyncio
import logging
from typing import cast

import pytest

from roost.app.options import ServeOptions
from roost.app.serve import open_patiently, plane_settings
from roost.base.errors import Conflict, Unavailable
from roost.ledger.store import Store
from roost.testing.clock import HandClock

STORE = cast("Store", object())


def opened(answers: list[Exception | Store], most_s: float, clock: HandClock) -> Store:
    """Open a store that answers so, while time passes."""

    async def open_once() -> Store:
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    async def whole() -> Store:
        opening = asyncio.create_task(open_patiently(open_once, clock, most_s))
        while not opening.done():
            await clock.pass_by(0.5)
        return await opening

    return asyncio.run(whole())


def test_a_start_waits_for_its_database(caplog: pytest.LogCaptureFixture) -> None:
    clock, away = HandClock(0.0), Unavailable("connection refused")
    with caplog.at_level(logging.WARNING, "roost.serve"):
        assert opened([away, away, away, STORE], 300.0, clock) is STORE
    assert [record.getMessage() for record in caplog.records] == [
        f"waiting for the database, for {left} s more: connection refused"
        for left in (300, 299, 297)
    ]
    assert clock.now == pytest.approx(1 + 2 + 4, abs=0.5)


def test_a_start_gives_up_at_its_limit() -> None:
    clock = HandClock(0.0)
    with pytest.raises(Unavailable, match="refused"):
        opened([Unavailable("refused")] * 100, 20.0, clock)
    assert 20.0 <= clock.now <= 21.0
    with pytest.raises(Unavailable):
        opened([Unavailable("refused")], 0.0, clock)


def test_what_is_wrong_for_good_is_not_waited_for() -> None:
    with pytest.raises(Conflict):
        opened([Conflict("another roost process uses it")], 300.0, HandClock(0.0))


def test_a_plane_predicts_as_its_options_say() -> None:
    told = plane_settings(ServeOptions(predict_quantile=0.95, predict_hours=6))
    assert (told.predict_quantile, told.predict_hours) == (0.95, 6)
    usual = plane_settings(ServeOptions())
    assert (usual.predict_quantile, usual.predict_hours) == (0.9, 4)
