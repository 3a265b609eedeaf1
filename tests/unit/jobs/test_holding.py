"""A large job in a pool that is full of small ones gets its turn."""

from typing import Any

import pytest

from roost.base.units import GIB
from roost.jobs.deciding.ordering import Queued
from roost.jobs.deciding.planning import HOLD_AFTER_S, plan_pool
from roost.model.job import Pool
from roost.providers.mix.problem import MixLimits

SMALL = Queued("small", "p", 1000, GIB, 0, 100)


def machine(name: str, committed: int) -> dict[str, Any]:
    return {
        "id": name, "state": "ready", "market": "on_demand",
        "cpu_milli_capacity": 4000, "cpu_milli_committed": committed,
        "memory_bytes_capacity": 16 * GIB, "memory_bytes_committed": 0,
        "disk_bytes_capacity": 0, "disk_bytes_committed": 0,
        "attempts_capacity": 64, "attempts_committed": committed // 1000,
    }  # fmt: skip


def large(waits_s: float) -> Queued:
    return Queued("large", "p", 4000, GIB, 0, 1, waits_s=waits_s)


def planned(machines: list[dict[str, Any]], *queued: Queued) -> dict[tuple[str, str], int]:
    pool = Pool(name="p", provider="model", max_machines=len(machines))
    return dict(plan_pool(pool, machines, queued, {}, (), MixLimits()).assigned)


def ends_until_placed(waits_s: float) -> int | None:
    """Return after how many ends of small jobs the large one has its machine."""
    rows = [machine("a", 4000), machine("b", 4000)]
    for step in range(40):
        rows[step % 2]["cpu_milli_committed"] -= 1000
        for (name, array), number in planned(rows, SMALL, large(waits_s)).items():
            if array == "large":
                return step + 1
            row = next(row for row in rows if row["id"] == name)
            row["cpu_milli_committed"] += 1000 * number
        for row in rows:
            assert row["cpu_milli_committed"] <= 4000
    return None


def test_small_ones_pass_a_large_one_for_ever_unless_it_has_waited_for_a_minute() -> None:
    assert ends_until_placed(0.0) is None
    assert ends_until_placed(HOLD_AFTER_S) is not None


def test_room_that_is_held_is_given_to_the_job_before_all_others() -> None:
    found = planned([machine("a", 0), machine("b", 3000)], SMALL, large(HOLD_AFTER_S))
    assert found == {("a", "large"): 1, ("b", "small"): 1}


@pytest.mark.parametrize("waits_s", [0.0, HOLD_AFTER_S - 1])
def test_nothing_is_held_before_its_time(waits_s: float) -> None:
    assert set(planned([machine("a", 1000)], SMALL, large(waits_s))) == {("a", "small")}


def test_nothing_is_held_for_what_no_machine_could_ever_hold() -> None:
    huge = Queued("huge", "p", 64_000, GIB, 0, 1, waits_s=1e6)
    assert set(planned([machine("a", 1000)], SMALL, huge)) == {("a", "small")}


def test_nothing_is_held_while_the_pool_may_grow() -> None:
    pool = Pool(name="p", provider="model", max_machines=2)
    rows = [machine("a", 1000)]
    found = plan_pool(pool, rows, [SMALL, large(HOLD_AFTER_S)], {}, (), MixLimits())
    assert set(found.assigned) == {("a", "small")}


def test_a_machine_with_room_now_is_held_before_one_of_which_less_is_taken() -> None:
    """A large one with room for it, and a small one that is emptier and has none."""
    big = {**machine("big", 8000), "cpu_milli_capacity": 16_000}
    small = machine("small", 1000)
    assert planned([small, big], large(HOLD_AFTER_S)) == {("big", "large"): 1}
    assert planned([small, big], SMALL, large(HOLD_AFTER_S)) == {
        ("big", "large"): 1, ("small", "small"): 3,
    }  # fmt: skip


def test_a_machine_that_has_all_the_attempts_it_may_have_has_no_room_now() -> None:
    full = {**machine("a", 0), "attempts_committed": 64}
    assert planned([full, machine("b", 0)], large(HOLD_AFTER_S)) == {("b", "large"): 1}
