"""What is kept of devices, cells and extended resources, whatever is charged and taken back."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.base.errors import InvariantBroken
from roost.fleet.check import check
from roost.fleet.fleet import Fleet
from roost.fleet.hosts import HostTable
from roost.model.constraints import HostRequirements
from roost.model.hosts import Cell, Device, HostSpec, Resource
from roost.model.kept import NOTHING_KEPT, Kept, counters_in_order
from roost.model.resources import Demand, DeviceDemand, NumaMode

GIB = 2**30
COUNTERS = ("device:00", "device:01", "cell:00:cpu", "cell:01:memory", "x:fpga")
_kept = st.dictionaries(st.sampled_from(COUNTERS), st.integers(1, 1500)).map(
    lambda counters: Kept(1000, GIB, 0, 1, counters_in_order(counters))
)
_steps = st.lists(
    st.one_of(
        _kept,
        st.just(NOTHING_KEPT),
        st.sampled_from(("charge", "remove", "shrink", "grow", "many")),
    ),
    max_size=8,
)


def host(cards: int = 2) -> HostSpec:
    return HostSpec(
        "h", Resource(64_000), Resource(256 * GIB), Resource(0),
        extended=(("fpga", Resource(9000)),), devices=(Device("a100"),) * cards,
        cells=(Cell(32_000, 128 * GIB),) * 2,
    )  # fmt: skip


class World:
    """One host, and what is done to it."""

    def __init__(self) -> None:
        self.fleet = Fleet()
        self.fleet.register(host())
        self.numbers: list[int] = []
        demand = Demand(1000, GIB, 0, (), DeviceDemand(1, 400), NumaMode.ONE_CELL)
        self.vector = self.fleet.vector(demand)
        self.terms = self.fleet.terms.number(HostRequirements(demand.devices, demand.numa))

    def do(self, step: Any) -> None:
        if isinstance(step, Kept):
            self.fleet.keep_free(0, step)
        elif step == "many":
            self.fleet.keep_free_many({0: Kept(counters=(("device:01", 700), ("x:fpga", 3)))})
        elif step == "charge" and len(self.numbers) < 2:
            made = self.fleet.apply(None, 0, self.vector, self.terms, devices=1, cells=1)
            self.numbers.append(made)
        elif step == "remove" and self.numbers:
            self.fleet.remove(self.numbers.pop())
        elif step in ("shrink", "grow"):
            self.fleet.update_host(host(1 if step == "shrink" else 3))

    def free(self) -> tuple[Any, ...]:
        self.fleet.settle_ends()
        arrays = self.fleet.hosts.arrays
        columns = (arrays.device_free[0, :2], arrays.cell_free[0], arrays.headroom[0])
        return tuple(column.tolist() for column in columns)


@given(_steps)
def test_columns_are_those_of_the_vms_and_of_what_is_kept(steps: list[Any]) -> None:
    world = World()
    for step in steps:
        world.do(step)
        check(world.fleet)
    world.fleet.update_host(host())
    for number in world.numbers:
        world.fleet.remove(number)
    world.fleet.keep_free(0, NOTHING_KEPT)
    assert world.free() == World().free()


@given(_kept, st.sampled_from(("charge", "remove", "many")))
def test_what_was_kept_for_a_question_is_taken_back(kept: Kept, step: str) -> None:
    world = World()
    world.do("charge")
    world.do(Kept(counters=(("device:00", 1000),)))
    before, mark = world.free(), world.fleet.mark()
    world.fleet.keep_free_many({0: kept})
    world.do(step)
    world.fleet.undo(mark)
    assert world.free() == before


def test_a_device_that_is_kept_is_not_free_once_a_vm_has_left_it() -> None:
    world = World()
    world.do("charge")
    world.do(Kept(counters=(("device:00", 1000),)))
    assert world.free()[0][0] == 0
    world.do("remove")
    assert world.free()[0][0] == 0


def test_a_fleet_that_does_not_keep_again_what_a_vm_leaves_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    world.do("charge")
    world.do(Kept(counters=(("device:00", 1000),)))
    monkeypatch.setattr(HostTable, "keep_parts", lambda *given: None)
    world.do("remove")
    with pytest.raises(InvariantBroken):
        check(world.fleet)
