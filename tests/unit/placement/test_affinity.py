"""Affinity to a rack or a zone in a fleet of many blocks: hosts elsewhere are passed over."""

from dataclasses import replace

import pytest

from roost.model.groups import GroupRule, GroupSpec
from roost.model.hosts import Scope
from roost.placement.engine import Engine
from tests.builders import engine_on, host, place, request

HOSTS = 300


def together(scope: Scope, name: str = "friends") -> tuple[GroupSpec]:
    """Return a set of one hard affinity group."""
    return (GroupSpec(name, GroupRule.AFFINITY, scope),)


def fleet_with(zones: int, strategy: str = "least_loaded") -> Engine:
    """Return many hosts, dealt to so many zones."""
    hosts = [host(f"h{number:03d}", 4000, zone=f"z{number % zones:02d}") for number in range(HOSTS)]
    return engine_on(*hosts, strategy=strategy)


@pytest.mark.parametrize("strategy", ["least_loaded", "best_fit", "round_robin", "random"])
@pytest.mark.parametrize("zones", [3, 30])
def test_a_zone_is_filled_to_its_last_host_and_no_other_is_entered(
    strategy: str, zones: int
) -> None:
    engine, groups = fleet_with(zones, strategy), together(Scope.ZONE)
    fits = 4 * HOSTS // zones
    placed = [place(engine, request(f"vm{n}", groups=groups)) for n in range(fits + 1)]
    assert placed.pop() is None
    assert len({int(name[1:]) % zones for name in placed if name}) == 1
    assert all(placed)


def test_groups_in_zones_that_share_a_bit_stay_apart() -> None:
    engine = fleet_with(30)
    first = place(engine, request("a", groups=together(Scope.ZONE), zones=("z00",)))
    other = place(engine, request("b", groups=together(Scope.ZONE, "others"), zones=("z21",)))
    assert (first, other) == ("h000", "h021")
    for number in range(20):
        name = place(engine, request(f"vm{number}", groups=together(Scope.ZONE)))
        assert name is not None
        assert int(name[1:]) % 30 == 0


def test_two_groups_of_one_vm_must_both_be_met() -> None:
    engine = engine_on(*(host(f"h{n:02d}", rack=f"r{n % 10}", zone=f"z{n % 4}") for n in range(80)))
    rack, zone = together(Scope.RACK, "rack"), together(Scope.ZONE, "zone")
    assert place(engine, request("a", groups=rack, racks=("r7",))) == "h07"
    assert place(engine, request("b", groups=zone, zones=("z1",))) == "h01"
    assert place(engine, request("c", groups=rack + zone)) == "h17"


def test_a_host_that_moves_to_another_zone_is_found_there() -> None:
    engine = fleet_with(3, "first_fit")
    assert place(engine, request("a", groups=together(Scope.ZONE))) == "h000"
    moved = replace(engine.fleet.hosts.spec(1), zone="z00")
    engine.fleet.update_host(moved)
    assert place(engine, request("b", groups=together(Scope.ZONE), pinned=("h001",))) == "h001"
    engine.fleet.update_host(replace(engine.fleet.hosts.spec(3), zone="z01"))
    assert place(engine, request("c", 4000, groups=together(Scope.ZONE))) == "h006"


def test_the_last_member_frees_the_group_to_begin_elsewhere() -> None:
    engine = fleet_with(3, "first_fit")
    groups = together(Scope.ZONE)
    assert place(engine, request("a", groups=groups, zones=("z02",))) == "h002"
    assert engine.find(request("b", groups=groups, zones=("z00",))) is None
    engine.fleet.remove(engine.fleet.vm_number("a"))
    assert place(engine, request("b", groups=groups, zones=("z00",))) == "h000"
