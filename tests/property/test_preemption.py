"""The choice of victims against every set there is, on small fleets; and broken choices caught."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roost.base.units import GIB
from roost.fleet.fleet import Fleet
from roost.fleet.vms import STOPS
from roost.model.flow import PlaceRequest
from roost.model.groups import GroupRule, GroupSpec
from roost.model.hosts import Admin, Cell, HostSpec, Resource
from roost.model.resources import Demand, NumaMode
from roost.placement import preempting
from roost.placement.engine import Engine
from roost.placement.kernels import victims
from roost.placement.preempting import Limits, MadeRoom, make_room
from tests.builders import host
from tests.naive.preempting import PlainHost, PlainVM, least_harm

pytestmark = pytest.mark.kernel
_GROUPS = ("g0", "g1")


class World(NamedTuple):
    """A small fleet that is about full, the same in plain values, and a request."""

    engine: Engine
    hosts: list[PlainHost]
    vms: list[PlainVM]
    request: PlaceRequest
    limits: Limits
    left: dict[int, int]


def draw(seed: int) -> World:
    rng, fleet = Random(seed), Fleet()
    groups = [fleet.add_group(GroupSpec(name, GroupRule.SPREAD, hard=False)) for name in _GROUPS]
    for number in range(rng.randint(1, 4)):
        limit = rng.choice((None, None, 3, 5))
        admin = Admin.CORDONED if rng.random() < 0.15 else Admin.OPEN
        cpu, memory = rng.randint(2, 8) * 1000, rng.randint(4, 16) * GIB
        fleet.register(host(f"h{number}", cpu, memory, max_vms=limit, admin=admin))
    vms: list[PlainVM] = []
    for number in range(rng.randint(1, 18)):
        row = rng.randrange(fleet.hosts.count)
        demand = (rng.randint(1, 4) * 500, rng.randint(1, 4) * GIB, rng.choice((0, 0, GIB)))
        free = fleet.hosts.arrays.headroom[row]
        if any(need > have for need, have in zip(demand, free, strict=False)) or free[3] < 1:
            continue
        leaves, since = rng.choice((0, 1, 2, 2)), rng.randrange(5)
        member_of = tuple(g for g in groups if rng.random() < 0.3)
        names = tuple(_GROUPS[groups.index(g)] for g in member_of)
        priority = rng.choice((-1, 0, 0, 1, 3))
        at = fleet.apply(
            f"vm{number}", row, fleet.vector(Demand(*demand)), 0, fleet.groups.set_number(names)
        )
        assert at == len(vms)
        fleet.vms.set_standing(at, leaves, priority, since)
        vms.append(PlainVM(row, demand, priority, since, leaves, member_of))
    left = {g: rng.randint(0, 2) for g in groups if rng.random() < 0.6}
    wanted = Demand(rng.randint(1, 8) * 1000, rng.randint(1, 12) * GIB)
    request = PlaceRequest("new", wanted, priority=rng.choice((0, 1, 2, 9)))
    plain = [
        PlainHost(
            tuple(fleet.hosts.arrays.headroom[row, :3].tolist()),
            int(fleet.hosts.arrays.headroom[row, 3]),
            Admin(fleet.hosts.admin[row]) is Admin.OPEN,
        )
        for row in range(fleet.hosts.count)
    ]
    return World(Engine(fleet, "first_fit"), plain, vms, request, Limits(left), left)


def expected(world: World) -> tuple[int, dict[int, bool]] | None:
    wanted = world.request.demand
    asked = (wanted.cpu_milli, wanted.memory_bytes, wanted.disk_bytes)
    return least_harm(world.hosts, world.vms, asked, world.request.priority, world.left)


def as_plain(found: MadeRoom | None) -> tuple[int, dict[int, bool]] | None:
    return None if found is None else (found.row, {v.number: v.stops for v in found.victims})


def harm(world: World, found: tuple[int, dict[int, bool]] | None) -> tuple[int, ...] | None:
    """Return the harm of a set: between equal ones either will do."""
    if found is None:
        return None
    row, stops = found
    chosen = [world.vms[each] for each in stops]
    return (
        max(vm.priority for vm in chosen),
        len(chosen),
        sum(stops.values()),
        sum(vm.demand[1] + vm.demand[2] for vm in chosen),
        -sum(vm.since_ms for vm in chosen),
        row,
    )


def agrees(seed: int) -> bool:
    """Say whether the choice is the least harmful there is, for a request that fits nowhere."""
    world = draw(seed)
    if world.engine.find(world.request) is not None:
        return True
    before = world.engine.fleet.hosts.arrays.committed.copy()
    found = as_plain(make_room(world.engine, world.request, world.limits))
    assert (world.engine.fleet.hosts.arrays.committed == before).all()
    return harm(world, found) == harm(world, expected(world))


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 2**32))
def test_the_least_harmful_set_is_chosen(seed: int) -> None:
    assert agrees(seed)


def test_most_worlds_have_victims() -> None:
    found = [expected(draw(seed)) for seed in range(200)]
    assert sum(each is not None for each in found) > 40
    assert sum(each is not None and len(each[1]) > 1 for each in found) > 5


def test_trying_host_by_host_gives_sets_that_no_victim_can_be_left_out_of() -> None:
    for seed in range(60):
        world = draw(seed)
        if world.engine.find(world.request) is not None:
            continue
        found = _tried(world)
        least = expected(world)
        assert (found is None) <= (least is None) or world.left  # budgets are met greedily
        if found is None or least is None:
            continue
        fleet, numbers = world.engine.fleet, [v.number for v in found.victims]
        for stays in numbers:
            rest = [number for number in numbers if number != stays]
            assert not preempting.without(
                fleet,
                rest,
                lambda: preempting.fits_on(world.engine, world.request, found.row),  # noqa: B023
            )


def _tried(world: World) -> MadeRoom | None:
    fleet = world.engine.fleet
    eligible = preempting._eligible(world.engine, world.request, world.limits)
    numbers = preempting._lower(fleet, world.request.priority, eligible, world.limits)
    stops = preempting._who_stops(world.engine, numbers, world.limits)
    kept = stops >= 0
    return preempting._by_trying(
        world.engine, world.request, numbers[kept], stops[kept], world.limits
    )


@pytest.mark.parametrize("broken", ["equal", "budgets", "stops", "cost", "age"])
def test_broken_choices_are_caught(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def choice(seed: int) -> bool:
        world = draw(seed)
        if world.engine.find(world.request) is not None:
            return True
        asked = world.request
        limits = Limits() if broken == "budgets" else world.limits
        vms = world.engine.fleet.vms
        if broken == "equal":
            asked = replace(asked, priority=asked.priority + 1)
        if broken == "age":
            vms.since_ms *= -1
        found = as_plain(make_room(world.engine, asked, limits))
        return harm(world, found) == harm(world, expected(world))

    if broken == "stops":
        monkeypatch.setattr(preempting, "F_STOPS", victims.F_BUDGET)
    if broken == "cost":
        monkeypatch.setattr(preempting, "F_COST", victims.F_SINCE)
    assert not all(choice(seed) for seed in range(400))


def test_sets_that_break_any_budget_are_never_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet()
    for name in ("a", "b"):
        fleet.add_group(GroupSpec(name, GroupRule.SPREAD, hard=False))
    both, one = (fleet.groups.set_number(of) for of in (("a", "b"), ("b",)))
    for each in range(40):
        row = fleet.register(
            HostSpec(f"h{each:02}", Resource(12_000), Resource(12 * GIB), Resource(GIB))
        )
        for place in range(12):
            demand = fleet.vector(Demand(1000, GIB))
            at = fleet.apply(f"{each}-{place}", row, demand, 0, both if place % 2 else one)
            fleet.vms.set_standing(at, STOPS, 0, place)
    asked = []

    def counted(crowd: victims.Crowd, choice: victims.Choice) -> None:
        asked.append(crowd)
        victims.least_victims(crowd, choice)

    monkeypatch.setattr(preempting, "least_victims", counted)
    left = {fleet.groups.find("a"): 4, fleet.groups.find("b"): 5}
    request = PlaceRequest("new", Demand(8000, 8 * GIB), priority=9)
    assert make_room(Engine(fleet), request, Limits(left)) is None
    assert len(asked) == 1


def test_the_only_set_that_keeps_both_budgets_is_found() -> None:
    """Three must leave; of the small ones, all in `b`, two may; so the large one is among them."""
    fleet = Fleet()
    for name in ("a", "b"):
        fleet.add_group(GroupSpec(name, GroupRule.SPREAD, hard=False))
    row = fleet.register(HostSpec("h", Resource(11_000), Resource(64 * GIB), Resource(GIB)))
    for place in range(10):
        of = ("a", "b") if place < 2 else ("b",)
        demand = fleet.vector(Demand(1000, GIB))
        at = fleet.apply(f"small-{place}", row, demand, 0, fleet.groups.set_number(of))
        fleet.vms.set_standing(at, STOPS, 0, place)
    large = fleet.apply("large", row, fleet.vector(Demand(1000, 8 * GIB)), 0, 0)
    fleet.vms.set_standing(large, STOPS, 0, 0)
    left = {fleet.groups.find("a"): 1, fleet.groups.find("b"): 2}
    found = make_room(
        Engine(fleet), PlaceRequest("new", Demand(3000, GIB), priority=9), Limits(left)
    )
    assert found is not None
    assert large in {each.number for each in found.victims}
    assert len(found.victims) == 3


def test_hosts_are_tried_least_harm_first_and_few_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request for one cell is tried host by host: not on all, and not VM by VM."""
    fleet = Fleet()
    cells = (Cell(16_000, 32 * GIB), Cell(16_000, 32 * GIB))
    for each in range(100):
        row = fleet.register(
            HostSpec(
                f"h{each:03}", Resource(32_000), Resource(64 * GIB), Resource(GIB), cells=cells
            )
        )
        for place in range(30):
            demand = fleet.vector(Demand(1000, 2 * GIB))
            at = fleet.apply(f"{each}-{place}", row, demand, 0, 0, 0, 1 << (place % 2))
            fleet.vms.set_standing(at, STOPS, 100 - each, place)
    asked = []

    def counted(fleet: Fleet, numbers: Iterable[int], ask: Callable[[], bool]) -> bool:
        asked.append(numbers)
        return without(fleet, numbers, ask)

    without = preempting.without
    monkeypatch.setattr(preempting, "without", counted)
    wanted = Demand(8000, 16 * GIB, numa=NumaMode.ONE_CELL)
    found = make_room(Engine(fleet), PlaceRequest("new", wanted, priority=1000))
    assert found is not None
    assert found.row == 99  # the least important VMs are on the last host
    assert len(found.victims) == 7  # of one cell, which has room for one more
    assert len(asked) <= 40
