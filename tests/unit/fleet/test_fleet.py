"""The fleet's books: what is registered, promised, held and free, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest

from roost.base.errors import Conflict, InvalidRequest, InvariantBroken, NotFound
from roost.base.units import GIB
from roost.fleet.check import check, wrong_hosts
from roost.fleet.fleet import Fleet
from roost.fleet.layout import CPU, MEMORY
from roost.model.constraints import Constraints
from roost.model.description import FleetDescription, HoldSpec, PlacedVM, UsedSpec
from roost.model.groups import GroupRule, GroupSpec
from roost.model.hosts import Admin, Cell, Device, Health, Resource, Scope
from roost.model.resources import Demand, DeviceDemand, NumaMode
from roost.placement.batching import columns_of
from roost.placement.engine import Engine
from tests.builders import fleet_of, host, place, put, request


def free(fleet: Fleet, name: str, resource: int = CPU) -> int:
    """Return what is left of a resource on a host."""
    return int(fleet.hosts.arrays.headroom[fleet.row(name), resource])


def takes(fleet: Fleet, name: str) -> bool:
    """Say whether a host takes new VMs."""
    return bool(fleet.hosts.arrays.takes[fleet.row(name)])


# Hosts


def test_hosts_are_numbered_in_the_order_of_registration() -> None:
    fleet = fleet_of(host("b"), host("a"))
    assert (fleet.row("b"), fleet.row("a"), len(fleet)) == (0, 1, 2)


def test_a_description_numbers_hosts_in_the_order_of_their_names() -> None:
    fleet = Fleet.from_description(FleetDescription(hosts=(host("b"), host("a"))))
    assert (fleet.row("a"), fleet.row("b")) == (0, 1)


def test_hosts_registered_at_once_are_as_those_registered_one_by_one() -> None:
    specs = [
        host("a", zone="z1", rack="r1", labels=(("tier", "gold"),)),
        replace(host("b", zone="z2"), health=Health.OFFLINE, max_vms=7),
        replace(host("c"), cpu=Resource(None), admin=Admin.CORDONED, site="s", driver="virtual"),
        replace(host("d", labels=(("tier", "gold"), ("ssd", "yes"))), memory=Resource(9, 1, 1500)),
    ]
    large = host("x", extended=(("licences", Resource(3)),))
    one_by_one, at_once = fleet_of(large, *specs), fleet_of(large)
    assert at_once.register_plain(specs) == 1
    assert _columns(at_once) == _columns(one_by_one)
    assert at_once.to_description() == one_by_one.to_description()
    check(at_once)


def test_hosts_registered_at_once_can_be_taken_back() -> None:
    fleet = fleet_of(host("a"))
    before, mark = fleet.to_description(), fleet.mark()
    fleet.register_plain([host("b"), host("c")])
    fleet.undo(mark)
    assert fleet.to_description() == before
    assert fleet.register(host("b")) == 3  # a number is never used again


@pytest.mark.parametrize("names", [("a", "c"), ("b", "b")])
def test_hosts_of_one_name_are_not_registered_at_once(names: tuple[str, ...]) -> None:
    fleet = fleet_of(host("a"))
    before = fleet.to_description()
    with pytest.raises(Conflict, match="twice"):
        fleet.register_plain([host(name) for name in names])
    assert fleet.to_description() == before


def test_a_host_with_more_than_base_resources_is_registered_alone() -> None:
    with pytest.raises(InvariantBroken, match="alone"):
        Fleet().register_plain([host("a", extended=(("licences", Resource(3)),))])


def _columns(fleet: Fleet) -> dict[str, object]:
    """Return every column of the hosts as lists, not a number for what is none."""
    table = {**vars(fleet.hosts), **fleet.hosts.arrays._asdict()}
    return {
        name: np.nan_to_num(column[: fleet.hosts.count], nan=-7).tolist()
        for name, column in table.items()
        if isinstance(column, np.ndarray)
    }


def test_a_number_is_never_used_again() -> None:
    fleet = fleet_of(host("a"), host("b"))
    fleet.remove_host("b")
    assert fleet.register(host("b")) == 2
    check(fleet)


def test_a_second_host_of_the_same_name_is_a_conflict_and_changes_nothing() -> None:
    fleet = fleet_of(host("a"))
    before, version = fleet.to_description(), fleet.version
    with pytest.raises(Conflict, match="'a' is already registered"):
        fleet.register(host("a", 1))
    assert (fleet.to_description(), fleet.version) == (before, version)


def test_capacity_is_total_less_reserve_times_overcommit_rounded_down() -> None:
    fleet = fleet_of(host("a", Resource(10_001, reserve=1000, ratio_milli=1500)))
    assert free(fleet, "a") == 13_501
    assert fleet.hosts.spec(0).cpu == Resource(10_001, 1000, 1500)


def test_a_reserve_beyond_the_total_leaves_nothing_rather_than_less() -> None:
    assert free(fleet_of(host("a", Resource(1000, reserve=2000))), "a") == 0


def test_unknown_inventory_means_full() -> None:
    fleet = fleet_of(host("a", memory_bytes=None))
    assert free(fleet, "a", MEMORY) == 0
    assert not takes(fleet, "a")
    fleet.update_host(host("a"))
    assert takes(fleet, "a")


@pytest.mark.parametrize("health", Health)
@pytest.mark.parametrize("admin", Admin)
def test_only_online_and_open_takes_new_vms(health: Health, admin: Admin) -> None:
    fleet = fleet_of(host("a"))
    fleet.set_health("a", health)
    fleet.set_admin("a", admin)
    assert takes(fleet, "a") == (health is Health.ONLINE and admin is Admin.OPEN)
    check(fleet)


def test_a_host_with_vms_or_holds_cannot_be_removed() -> None:
    fleet = fleet_of(host("a"))
    number = put(fleet, "a")
    with pytest.raises(Conflict, match="still has 1 VMs"):
        fleet.remove_host("a")
    fleet.remove(number)
    fleet.hold("move", "a", Demand(1000, GIB))
    with pytest.raises(Conflict, match="still has holds move"):
        fleet.remove_host("a")
    fleet.release("move")
    fleet.remove_host("a")
    assert len(fleet) == 0
    with pytest.raises(NotFound, match="no host 'a'"):
        fleet.row("a")


def test_a_new_resource_is_zero_on_hosts_that_do_not_have_it() -> None:
    fleet = fleet_of(host("a"))
    number = put(fleet, "a")
    fleet.register(host("b", extended=(("licences", Resource(5)),)))
    assert fleet.hosts.arrays.headroom[:2, 3].tolist() == [0, 5]
    assert fleet.vms.demand[number].tolist() == [1000, GIB, 0, 0]
    check(fleet)


def test_columns_grow_with_the_fleet() -> None:
    fleet = fleet_of(*(host(f"h{number}") for number in range(100)))
    put(fleet, "h99")
    assert free(fleet, "h99") == 15_000
    check(fleet)


def test_too_many_device_models_are_refused_before_anything_changes() -> None:
    fleet = fleet_of()
    many = tuple(Device(f"m{number}") for number in range(62))
    fleet.register(host("a", devices=many))
    with pytest.raises(InvalidRequest, match="at most 62"):
        fleet.register(host("b", devices=(Device("another"),)))
    assert len(fleet) == 1
    check(fleet)


# Changing what a host is


def test_an_update_keeps_the_vms_even_where_they_no_longer_fit() -> None:
    fleet = fleet_of(host("a", 4000))
    put(fleet, "a", cpu_milli=3000)
    fleet.update_host(host("a", 2000))
    assert free(fleet, "a") == -1000
    check(fleet, over_capacity=True)
    with pytest.raises(InvariantBroken, match="'a' promised more cpu than it has"):
        check(fleet)


def test_an_update_moves_group_members_with_their_host() -> None:
    fleet = fleet_of(host("a", rack="r1"))
    group = fleet.add_group(GroupSpec("g", GroupRule.SPREAD, Scope.RACK))
    members = fleet.groups.set_number(("g",))
    fleet.apply("vm", 0, fleet.vector(Demand(1000, GIB)), group_set=members)
    fleet.update_host(host("a", rack="r2"))
    racks = fleet.hosts.racks
    counts = [fleet.groups.count(group, Scope.RACK, racks.find(name)) for name in ("r1", "r2")]
    assert counts == [0, 1]
    check(fleet)


def test_a_group_with_another_rule_is_judged_by_it_at_once() -> None:
    fleet = fleet_of(host("a", rack="r1"), host("b", rack="r1"), host("c", rack="r2"))
    engine = Engine(fleet)
    fleet.add_group(GroupSpec("g", GroupRule.AFFINITY, Scope.RACK))
    for name in ("one", "two"):
        assert place(engine, request(name, groups=("g",))) in ("a", "b")
    version = fleet.version
    fleet.change_group(GroupSpec("g", GroupRule.SPREAD, Scope.RACK))
    assert fleet.version > version
    assert [place(engine, request(f"more{n}", groups=("g",))) for n in range(2)] == ["c", "c"]
    check(fleet)


def test_a_group_that_is_gone_leaves_its_name_but_not_its_number() -> None:
    fleet = fleet_of(host("a"))
    engine = Engine(fleet)
    rule = GroupSpec("g", GroupRule.ANTI_AFFINITY)
    before = fleet.add_group(rule)
    assert place(engine, request("lost", groups=("g",))) == "a"  # proposed, and will lose
    fleet.remove_group("g")
    assert fleet.to_description().groups == ()
    with pytest.raises(InvalidRequest, match="unknown group 'g'"):
        fleet.groups.set_number(("g",))
    assert fleet.add_group(rule) != before
    assert place(engine, request("new", groups=("g",))) == "a"
    fleet.remove(fleet.vm_number("lost"))
    check(fleet)


def test_a_device_that_goes_while_in_use_does_not_come_back_by_itself() -> None:
    fleet = fleet_of(host("a", devices=(Device("t4"),)))
    place(Engine(fleet), request(devices=DeviceDemand(1)))
    fleet.update_host(host("a"))
    check(fleet, over_capacity=True)
    fleet.remove(fleet.vm_number("vm"))
    assert fleet.hosts.arrays.device_free.tolist()[0] == [-1]
    check(fleet)


def test_a_device_that_comes_back_is_still_in_use() -> None:
    fleet = fleet_of(host("a", devices=(Device("t4"),)))
    place(Engine(fleet), request(devices=DeviceDemand(1, 600)))
    fleet.update_host(host("a"))
    fleet.update_host(host("a", devices=(Device("t4"), Device("t4"))))
    assert fleet.hosts.arrays.device_free.tolist()[0] == [400, 1000]
    check(fleet)


def test_a_device_that_two_were_decided_for_at_once_is_there_and_right_when_one_has_lost() -> None:
    """A replica has decided for one, hears of the other's commit, and takes its own back."""
    fleet = fleet_of(host("a", devices=(Device("t4"), Device("a100"))))
    place(Engine(fleet), request("heard", devices=DeviceDemand(1, models=("t4",))))
    heard = fleet.vm_number("heard")
    own = fleet.apply(
        "own", 0, fleet.vms.demand[heard].copy(), int(fleet.vms.terms[heard]), devices=1
    )
    assert fleet.hosts.arrays.device_free.tolist()[0] == [-1000, 1000]
    assert wrong_hosts(fleet, np.array([0])) == {}
    assert [each.model for each in fleet.hosts.spec(0).devices] == ["t4", "a100"]
    fleet.update_host(fleet.hosts.spec(0))
    fleet.remove(own)
    assert fleet.hosts.arrays.device_free.tolist()[0] == [0, 1000]
    check(fleet)


def test_a_cell_that_shrinks_below_its_vms_and_grows_again_counts_them_all_along() -> None:
    fleet = fleet_of(host("a", cells=(Cell(8000, 8 * GIB),)))
    place(Engine(fleet), request(cpu_milli=6000, numa=NumaMode.ONE_CELL))
    for cpu_milli, left in ((4000, -2000), (5000, -1000), (5000, -1000), (9000, 3000)):
        fleet.update_host(host("a", cells=(Cell(cpu_milli, 8 * GIB),)))
        assert fleet.hosts.arrays.cell_free[0, 0, 0] == left
        check(fleet, over_capacity=True)


def test_an_update_of_an_unknown_host_is_not_found() -> None:
    with pytest.raises(NotFound):
        fleet_of().update_host(host("a"))


# VMs


def test_free_is_capacity_less_committed() -> None:
    fleet = fleet_of(host("a", 4000))
    number = put(fleet, "a", cpu_milli=1500)
    assert (free(fleet, "a"), fleet.hosts.arrays.vm_count[0]) == (2500, 1)
    fleet.remove(number)
    assert (free(fleet, "a"), fleet.hosts.arrays.vm_count[0]) == (4000, 0)


def test_a_vm_cannot_be_placed_twice_under_one_name() -> None:
    fleet = fleet_of(host("a"))
    put(fleet, "a", "vm")
    with pytest.raises(Conflict, match="'vm' is already placed"):
        put(fleet, "a", "vm")
    check(fleet)


def test_a_resize_changes_the_amounts_and_nothing_else() -> None:
    fleet = fleet_of(host("a", 4000))
    number = put(fleet, "a", cpu_milli=1500)
    fleet.resize(number, fleet.vector(Demand(500, GIB)))
    assert (free(fleet, "a"), fleet.hosts.arrays.vm_count[0]) == (3500, 1)
    check(fleet)


@pytest.mark.parametrize("number", [-1, 0, 7])
def test_a_vm_that_is_gone_can_neither_be_removed_nor_resized(number: int) -> None:
    fleet = fleet_of(*(host(f"h{each}") for each in range(16)))
    fleet.remove(put(fleet, "h0"))
    with pytest.raises(NotFound, match=f"no VM number {number}"):
        fleet.remove(number)
    with pytest.raises(NotFound, match=f"no VM number {number}"):
        fleet.resize(number, fleet.vector(Demand(1000, GIB)))
    check(fleet)


# Holds and measurements


def test_a_hold_keeps_capacity_free_until_it_is_released() -> None:
    fleet = fleet_of(host("a", 4000))
    fleet.hold("move", "a", Demand(1000, GIB))
    assert free(fleet, "a") == 3000
    with pytest.raises(Conflict, match="hold 'move' exists"):
        fleet.hold("move", "a", Demand(1000, GIB))
    fleet.release("move")
    assert free(fleet, "a") == 4000
    with pytest.raises(NotFound, match="no hold 'move'"):
        fleet.release("move")
    check(fleet)


def test_a_hold_beyond_capacity_is_found_by_the_check() -> None:
    fleet = fleet_of(host("a", 4000))
    fleet.hold("move", "a", Demand(5000, GIB))
    with pytest.raises(InvariantBroken, match="promised more cpu"):
        check(fleet)


def test_a_measurement_makes_no_room_and_a_wrong_one_changes_nothing() -> None:
    fleet = fleet_of(host("a", 4000))
    fleet.set_used("a", [("cpu", 1)])
    assert free(fleet, "a") == 4000
    with pytest.raises(InvalidRequest, match="'heat' = 5 cannot be measured on 'a'"):
        fleet.set_used("a", [("cpu", 2), ("heat", 5)])
    with pytest.raises(InvalidRequest, match="'cpu' = -1"):
        fleet.set_used("a", [("memory", 2), ("cpu", -1)])
    assert fleet.to_description().used == (UsedSpec("a", (("cpu", 1),)),)


# Undo


def test_undo_to_an_inner_mark_keeps_what_was_before_it() -> None:
    fleet = fleet_of(host("a", 4000))
    outer = fleet.mark()
    put(fleet, "a", "first")
    inner = fleet.mark()
    put(fleet, "a", "second")
    fleet.undo(inner)
    assert set(fleet.vms.numbers) == {"first"}
    fleet.undo(outer)
    assert (set(fleet.vms.numbers), free(fleet, "a")) == (set(), 4000)


def test_changes_that_were_kept_inside_an_outer_mark_are_undone_with_it() -> None:
    fleet = fleet_of(host("a"))
    outer = fleet.mark()
    inner = fleet.mark()
    put(fleet, "a")
    fleet.keep(inner)
    fleet.undo(outer)
    assert fleet.vms.alive == 0


def test_what_is_kept_cannot_be_undone_any_more() -> None:
    fleet = fleet_of(host("a"))
    mark = fleet.mark()
    put(fleet, "a")
    fleet.keep(mark)
    fleet.undo(mark)
    assert fleet.vms.alive == 1


def test_a_vm_comes_back_with_its_number_even_after_a_batch() -> None:
    fleet = fleet_of(host("a"))
    mark = fleet.mark()
    fleet.remove(put(fleet, "a", "early"))
    Engine(fleet).place_columns(columns_of(fleet, [request("x"), request("y")], []))
    fleet.undo(mark)
    assert (fleet.vms.alive, fleet.vms.count) == (0, 1)
    check(fleet)


def test_a_group_that_was_tried_may_have_another_rule_afterwards() -> None:
    """Its number is given out again: what is tried over and over must not fill the table."""
    fleet = fleet_of(host("h1"), host("h2"))
    engine = Engine(fleet)
    for rule in (GroupRule.SPREAD, GroupRule.AFFINITY, GroupRule.ANTI_AFFINITY):
        mark = fleet.mark()
        tried = [place(engine, request(f"vm-{n}", groups=(GroupSpec("web", rule),))) for n in "12"]
        assert len(set(tried)) == (1 if rule is GroupRule.AFFINITY else 2)
        fleet.undo(mark)
        assert fleet.groups.find("web") == -1
        check(fleet)
    assert len(fleet.groups) == 0


def test_undo_of_a_removal_gives_back_devices_cells_and_groups() -> None:
    fleet = fleet_of(host("a", devices=(Device("t4"),), cells=(Cell(4000, 4 * GIB),)))
    asked = request(
        devices=DeviceDemand(1, 300),
        numa=NumaMode.ONE_CELL,
        groups=(GroupSpec("g", GroupRule.AFFINITY),),
    )
    place(Engine(fleet), asked)
    before = fleet.to_description()
    mark = fleet.mark()
    fleet.remove(fleet.vm_number("vm"))
    fleet.undo(mark)
    assert fleet.to_description() == before
    check(fleet)


@pytest.mark.parametrize("change", ["remove", "resize"])
def test_undo_gives_back_a_vm_from_before_a_resource_was_known(change: str) -> None:
    fleet = fleet_of(host("a"))
    number = put(fleet, "a")
    before = free(fleet, "a")
    mark = fleet.mark()
    if change == "remove":
        fleet.remove(number)
    else:
        fleet.resize(number, fleet.vector(Demand(2000, GIB)))
    fleet.vector(Demand(1000, GIB, extended=(("vendor/thing", 1),)))
    fleet.undo(mark)
    assert (free(fleet, "a"), fleet.vm_number("tenant")) == (before, number)
    check(fleet)


# Snapshots and descriptions


def test_a_snapshot_does_not_see_what_happens_later() -> None:
    fleet = fleet_of(host("a", 4000))
    kept = fleet.snapshot()
    put(fleet, "a")
    fleet.set_labels("a", (("tier", "gold"),))
    assert (free(kept, "a"), kept.hosts.spec(0).labels) == (4000, ())
    assert kept.version < fleet.version
    check(kept)


def test_a_description_survives_being_built_and_described_again() -> None:
    constraints = Constraints(zones=("z1",))
    vm = PlacedVM("vm", "a", Demand(1000, GIB), constraints, ("g",))
    description = FleetDescription(
        hosts=(host("a", zone="z1", extended=(("licences", Resource(3, 1, 2000)),)), host("b")),
        groups=(GroupSpec("g", GroupRule.SPREAD, Scope.ZONE, hard=False),),
        vms=(vm, replace(vm, name="other", groups=())),
        holds=(HoldSpec("move", "b", Demand(500, GIB)),),
        used=(UsedSpec("a", (("cpu", 700),)),),
    )
    fleet = Fleet.from_description(description)
    assert fleet.to_description() == description
    check(fleet)


def test_a_description_that_names_no_devices_gets_the_tightest_ones() -> None:
    demand = Demand(1000, GIB, devices=DeviceDemand(1, 400), numa=NumaMode.ONE_CELL)
    description = FleetDescription(
        hosts=(host("a", devices=(Device("t4"),) * 2, cells=(Cell(1000, GIB),) * 2),),
        vms=tuple(PlacedVM(name, "a", demand) for name in ("one", "two")),
    )
    placed = Fleet.from_description(description).to_description().vms
    assert [vm.devices for vm in placed] == [(0,), (0,)]
    assert [vm.cells for vm in placed] == [(0,), (1,)]


def test_a_description_whose_vm_finds_no_device_or_cell_is_a_conflict() -> None:
    for demand in (
        Demand(1000, GIB, devices=DeviceDemand(1)),
        Demand(1000, GIB, numa=NumaMode.SPLIT),
    ):
        description = FleetDescription(hosts=(host("a"),), vms=(PlacedVM("vm", "a", demand),))
        with pytest.raises(Conflict, match="host 'a' has no"):
            Fleet.from_description(description)


# Groups


def test_a_known_group_must_bring_the_same_rule() -> None:
    fleet = fleet_of()
    fleet.add_group(GroupSpec("g", GroupRule.SPREAD))
    assert fleet.add_group(GroupSpec("g", GroupRule.SPREAD)) == 0
    with pytest.raises(Conflict, match="group 'g'"):
        fleet.add_group(GroupSpec("g", GroupRule.AFFINITY))


def test_an_unknown_group_is_an_invalid_request() -> None:
    with pytest.raises(InvalidRequest, match="unknown group 'g'"):
        fleet_of().groups.set_number(("g",))


def test_group_counts_survive_the_growth_of_their_table() -> None:
    fleet = fleet_of(*(host(f"h{number}", rack=f"r{number % 7}") for number in range(60)))
    for number in range(20):
        fleet.add_group(GroupSpec(f"g{number}", GroupRule.SPREAD, Scope.RACK))
    vector = fleet.vector(Demand(1, 1))
    for number in range(600):
        groups = fleet.groups.set_number((f"g{number % 20}", f"g{number % 3}"))
        fleet.apply(None, number % 60, vector, group_set=groups)
    check(fleet)
    for number in range(600):
        fleet.remove(number)
    assert not fleet.groups.arrays.counts.any()
    check(fleet)


# The check itself


@pytest.mark.parametrize(
    ("column", "told"),
    [
        ("committed", "column headroom|column committed"),
        ("headroom", "column headroom"),
        ("vm_count", "column vm_count|column headroom"),
        ("takes", "column takes"),
    ],
)
def test_the_check_finds_a_column_that_is_wrong(column: str, told: str) -> None:
    fleet = fleet_of(host("a"), host("b"))
    put(fleet, "a")
    array = getattr(fleet.hosts.arrays, column)
    array[0] = ~array[0] if column == "takes" else array[0] + 1
    with pytest.raises(InvariantBroken, match=told):
        check(fleet)


def test_the_check_finds_a_member_that_was_not_counted() -> None:
    fleet = fleet_of(host("a"))
    fleet.add_group(GroupSpec("g", GroupRule.AFFINITY))
    members = fleet.groups.set_number(("g",))
    fleet.apply("vm", 0, fleet.vector(Demand(1, 1)), group_set=members)
    fleet.groups.arrays.counts[:] = 0
    with pytest.raises(InvariantBroken, match="group counts"):
        check(fleet)


def test_the_check_finds_a_hold_that_was_not_added_up() -> None:
    fleet = fleet_of(host("a"))
    fleet.hold("move", "a", Demand(1, 1))
    fleet.hosts.held[0] = 0
    with pytest.raises(InvariantBroken, match="column held"):
        check(fleet)


# Sets of groups


def test_the_groups_of_each_set_are_in_the_columns_too() -> None:
    groups = fleet_of().groups
    for number in range(50):
        groups.register(GroupSpec(f"g{number}", GroupRule.SPREAD))
        groups.set_number(tuple(f"g{each}" for each in range(number, -1, -7)))
    start, pool = groups.arrays.set_start, groups.arrays.set_groups
    kept = [tuple(pool[start[n] : start[n + 1]].tolist()) for n in range(len(groups.sets()))]
    assert kept == groups.sets()
    assert groups.most_in_set == 8
    assert groups.copy().most_in_set == 8


def test_a_set_that_is_asked_for_again_is_known_by_its_groups_not_by_who_asks() -> None:
    groups = fleet_of().groups
    one, other = GroupSpec("one", GroupRule.SPREAD), GroupSpec("other", GroupRule.AFFINITY)
    both = (one, other)
    assert [groups.set_number(asked) for asked in (both, both, (other, one), (one,), ())] == [
        *(1, 1, 1),
        *(2, 0),
    ]
    with pytest.raises(Conflict, match="group 'one' is"):
        groups.set_number((GroupSpec("one", GroupRule.AFFINITY),))
    assert groups.copy().set_number(both) == 1
