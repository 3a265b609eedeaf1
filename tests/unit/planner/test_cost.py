"""The cost of a move: rounds of pre-copy against the sums worked out by hand."""

import pytest

from roost.base.units import GIB, MIB
from roost.control.plans.gathering import _pairs
from roost.control.plans.record import cost_text
from roost.ledger.schema.rows import PlanMoveRow
from roost.ledger.writes.transaction import row_json
from roost.planner.cost import (
    FIXED_S,
    SWITCH_S,
    Load,
    MemoryRead,
    MoveCost,
    NotConverging,
    learnt_factor,
    median_ratio,
    move_cost,
)
from roost.wire.plans import MoveCostBody

SPEED = 1024 * MIB  # a GiB in a second


def test_an_idle_vm_is_sent_once() -> None:
    found = move_cost(Load(4 * GIB, 0.0), SPEED)
    assert found.sent_bytes == 4 * GIB
    assert found.total_s == pytest.approx(4 + SWITCH_S + FIXED_S)
    assert (found.convergence, found.then) == (1.0, "converges")


def test_only_memory_that_was_ever_written_is_sent() -> None:
    read = MemoryRead(dirty_bytes_per_s=0.0, resident_bytes=GIB)
    found = move_cost(Load(4 * GIB).as_read(read), SPEED)
    assert found.sent_bytes == GIB
    assert found.total_s == pytest.approx(1 + SWITCH_S + FIXED_S)
    more = MemoryRead(dirty_bytes_per_s=0.0, resident_bytes=5 * GIB)
    assert move_cost(Load(4 * GIB).as_read(more), SPEED).sent_bytes == 4 * GIB


def test_every_round_sends_what_the_one_before_left() -> None:
    # Half of the bandwidth is written anew: 4 + 2 + 1 + 0.5 GiB, then 0.25 GiB standing still.
    found = move_cost(Load(4 * GIB, SPEED / 2), SPEED)
    assert found.sent_bytes == int(7.75 * GIB)
    assert found.stand_still_s == pytest.approx(0.25 + SWITCH_S)
    assert found.total_s == pytest.approx(7.75 + SWITCH_S + FIXED_S)
    assert found.rounds == 5


@pytest.mark.parametrize("then", ["auto_converge", "post_copy", "refuse"])
def test_a_vm_that_writes_faster_than_the_path_needs_help(then: NotConverging) -> None:
    load = Load(4 * GIB, 2 * SPEED)
    found = move_cost(load, SPEED, not_converging=then)
    assert found.then == then
    assert found.convergence < 0.1


def test_convergence_falls_with_the_dirty_rate_and_is_even_at_the_bandwidth() -> None:
    told = [move_cost(Load(GIB, share * SPEED), SPEED).convergence for share in (0.1, 0.5, 1, 2)]
    assert told == sorted(told, reverse=True)
    assert told[2] == 0.5


def test_less_bandwidth_never_makes_a_move_quicker() -> None:
    slow, quick = (move_cost(Load(GIB, 50 * MIB), speed) for speed in (100 * MIB, 1000 * MIB))
    assert slow.total_s > quick.total_s
    assert slow.sent_bytes >= quick.sent_bytes


def test_a_stopped_vm_sends_its_disk() -> None:
    found = move_cost(Load(GIB, None, 10 * GIB, "cold"), SPEED)
    assert (found.sent_bytes, found.total_s) == (10 * GIB, 10 + FIXED_S)


def test_predictions_learn_from_three_moves_on_and_within_bounds() -> None:
    assert learnt_factor([(1.0, 2.0), (1.0, 2.0)]) == 1.0
    assert learnt_factor([(1.0, 2.0), (2.0, 4.0), (1.0, 3.0)]) == 2.0
    assert learnt_factor([(1.0, 100.0)] * 3) == 4.0
    assert median_ratio([(1.0, 100.0)] * 3) == 100.0  # as it is told, not as it is used
    assert median_ratio([(1.0, 2.0), (0.0, 2.0), (1.0, 2.0)]) is None


def test_what_was_learnt_is_in_a_prediction_once_and_is_not_learnt_again() -> None:
    truth = 2.0
    factor = 1.0
    for _ in range(6):  # every move takes twice as long as the model says by itself
        costs = [move_cost(Load(GIB, rate * MIB), SPEED, factor=factor) for rate in (1, 50, 200)]
        moved = [
            move_row(cost, truth * move_cost(Load(GIB, rate * MIB), SPEED).total_s)
            for cost, rate in zip(costs, (1, 50, 200), strict=True)
        ]
        factor = learnt_factor(_pairs(moved))
        assert factor == pytest.approx(truth, rel=0.02)


def move_row(cost: MoveCost, took_s: float) -> PlanMoveRow:
    """Return a move that was made, with what it was to take and what it took."""
    return PlanMoveRow(
        plan="p", number=1, wave=1, vm="v", name="v", source=1, target=2, state="done", why="",
        draft=0, predicted=cost_text(cost), actual=row_json(MoveCostBody(total_s=took_s)),
        begun_ms=0, ended_ms=1,
    )  # fmt: skip
