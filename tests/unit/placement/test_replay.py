"""A decision comes out again, byte for byte, from its record and its snapshot."""

import pytest

from roost.base.errors import Conflict
from roost.model.flow import Rejection
from roost.placement.replay import record, replay
from roost.placement.strategies import STRATEGIES
from tests.builders import engine_on, host, put, request


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_replays_byte_for_byte(strategy: str) -> None:
    engine = engine_on(*(host(f"h{n}", 16_000 + 1000 * n) for n in range(20)), strategy=strategy)
    put(engine.fleet, "h3", cpu_milli=4000)
    engine.cursor = 7
    decision = record(engine, request("web"))
    again = replay(decision, engine.fleet.snapshot())
    assert repr(again).encode() == decision.answer_bytes()


def test_a_rejection_replays_too() -> None:
    engine = engine_on(host("a"), host("b", zone="x"))
    decision = record(engine, request(zones=("y",)))
    assert isinstance(decision.answer, Rejection)
    assert repr(replay(decision, engine.fleet.snapshot())).encode() == decision.answer_bytes()


def test_another_snapshot_is_refused() -> None:
    engine = engine_on(host("a"))
    decision = record(engine, request())
    put(engine.fleet, "a")
    with pytest.raises(Conflict, match="belongs to snapshot"):
        replay(decision, engine.fleet)
