"""Each filter refuses what it is for, alone and for its own reason; and none lacks a part."""

from pathlib import Path

import numpy as np
import pytest

from roost.base.errors import InvalidRequest
from roost.base.units import GIB
from roost.fleet.fleet import Fleet
from roost.model.constraints import LabelOperator, LabelTerm, Predicate, Toleration
from roost.model.flow import PlaceRequest
from roost.model.groups import GroupRule, GroupSpec
from roost.model.hosts import Admin, Cell, Device, Health, HostSpec, Resource, Scope, Taint
from roost.model.reasons import Reason
from roost.model.resources import Demand, DeviceDemand, NumaMode
from roost.placement.attributes import question
from roost.placement.engine import Engine
from roost.placement.registry import FILTERS
from tests.builders import engine_on, fleet_of, host, put, request
from tests.naive.filters import TWINS

DOCUMENT = Path(__file__).parents[3] / "docs" / "reference" / "filters.md"

GOLD = LabelTerm("tier", LabelOperator.IN, ("gold",))
LICENCES = (("licences", Resource(2)),)
ONE_GPU = (Device("a100", 40 * GIB),)
TWO_CELLS = (Cell(8000, 32 * GIB), Cell(8000, 32 * GIB))
FIRST = Predicate("not the first", lambda fleet: np.arange(fleet.hosts.count) > 0)


def refusals(fleet: Fleet, asked: PlaceRequest, name: str) -> list[Reason]:
    """Return the reasons for which filters refuse a host."""
    posed, rows = question(fleet, asked), np.array([fleet.row(name)])
    return [
        each.reason
        for each in FILTERS
        if each.applies(posed) and not each.column(posed, rows).all()
    ]


#: For each reason a host that is refused for it, one that is not, and the request.
CASES: dict[Reason, tuple[HostSpec, HostSpec, PlaceRequest]] = {
    Reason.NOT_ONLINE: (host("bad", health=Health.SUSPECT), host("good"), request()),
    Reason.NOT_OPEN: (host("bad", admin=Admin.CORDONED), host("good"), request()),
    Reason.INVENTORY_UNKNOWN: (
        host("bad", extended=(("licences", Resource(None)),)),
        host("good"),
        request(),
    ),
    Reason.NOT_PINNED: (host("bad"), host("good"), request(pinned=("good", "gone"))),
    Reason.EXCLUDED: (host("bad"), host("good"), request(excluded=("bad", "gone"))),
    Reason.LABELS: (
        host("bad", labels=(("tier", "silver"),)),
        host("good", labels=(("tier", "gold"),)),
        request(labels=(GOLD,)),
    ),
    Reason.TAINT: (
        host("bad", taints=(Taint("dedicated", "b"),)),
        host("good", taints=(Taint("dedicated", "a"),)),
        request(tolerations=(Toleration("dedicated", "a"),)),
    ),
    Reason.ARCHITECTURE: (
        host("bad"),
        host("good", architecture="aarch64"),
        request(architecture="aarch64"),
    ),
    Reason.DRIVER: (host("bad"), host("good", driver="xen"), request(driver="xen")),
    Reason.CAPABILITY: (
        host("bad", capabilities=("live",)),
        host("good", capabilities=("live", "sev")),
        request(capabilities=("sev", "live")),
    ),
    Reason.ZONE: (host("bad"), host("good", zone="z2"), request(zones=("z1", "z2"))),
    Reason.RACK: (host("bad", rack="r3"), host("good", rack="r1"), request(racks=("r1",))),
    Reason.SITE: (host("bad", site="s2"), host("good", site="s1"), request(sites=("s1",))),
    Reason.PREDICATE: (host("bad"), host("good"), request(predicate=FIRST)),
    Reason.MAX_VMS: (host("bad", max_vms=0), host("good", max_vms=1), request()),
    Reason.CPU: (host("bad", 3999), host("good", 4000), request(cpu_milli=4000)),
    Reason.MEMORY: (
        host("bad", memory_bytes=4 * GIB - 1),
        host("good", memory_bytes=4 * GIB),
        request(memory_bytes=4 * GIB),
    ),
    Reason.DISK: (
        host("bad", disk_bytes=GIB - 1),
        host("good", disk_bytes=GIB),
        request(disk_bytes=GIB),
    ),
    Reason.EXTENDED: (
        host("bad"),
        host("good", extended=LICENCES),
        request(extended=(("licences", 2),)),
    ),
    Reason.DEVICE: (
        host("bad", devices=ONE_GPU),
        host("good", devices=ONE_GPU * 2),
        request(devices=DeviceDemand(2, models=("a100",))),
    ),
    Reason.NUMA: (
        host("bad", cells=TWO_CELLS[:1]),
        host("good", cells=TWO_CELLS),
        request(numa=NumaMode.SPLIT),
    ),
}


@pytest.mark.parametrize("reason", CASES, ids=str)
def test_a_filter_refuses_for_its_own_reason_alone(reason: Reason) -> None:
    bad, good, asked = CASES[reason]
    engine = engine_on(bad, good)
    assert refusals(engine.fleet, asked, "bad") == [reason]
    assert refusals(engine.fleet, asked, "good") == []
    assert engine.find(asked).host == "good"


# Reasons that need VMs or holds beside the hosts


def test_held_names_only_hosts_that_a_hold_makes_short() -> None:
    fleet = fleet_of(host("held", 4000), host("small", 1000), host("good", 4000))
    for name in ("held", "small"):
        fleet.hold(f"move to {name}", name, Demand(1000, GIB))
    asked = request(cpu_milli=3500)
    assert refusals(fleet, asked, "held") == [Reason.HELD]
    assert refusals(fleet, asked, "small") == [Reason.CPU]
    assert Engine(fleet).find(asked).host == "good"


def grouped(rule: GroupRule, scope: Scope, max_skew: int = 1) -> tuple[Engine, PlaceRequest]:
    """Return an engine on three racks with one member in the first, and a request to join it."""
    engine = engine_on(
        host("h1", rack="r1"), host("h2", rack="r1"), host("h3", rack="r2"), host("h4")
    )
    group = GroupSpec("group", rule, scope, max_skew=max_skew)
    first = request("first", groups=(group,), pinned=("h1",))
    engine.commit(first, engine.find(first))
    return engine, request(groups=(group,))


@pytest.mark.parametrize(
    ("rule", "scope", "refused"),
    [
        (GroupRule.AFFINITY, Scope.HOST, ["h2", "h3", "h4"]),
        (GroupRule.AFFINITY, Scope.RACK, ["h3", "h4"]),
        (GroupRule.ANTI_AFFINITY, Scope.HOST, ["h1"]),
        (GroupRule.ANTI_AFFINITY, Scope.RACK, ["h1", "h2", "h4"]),
        (GroupRule.SPREAD, Scope.HOST, ["h1"]),
        (GroupRule.SPREAD, Scope.RACK, ["h1", "h2", "h4"]),
    ],
)
def test_a_hard_group_refuses_domains_and_hosts_whose_domain_is_unknown(
    rule: GroupRule, scope: Scope, refused: list[str]
) -> None:
    engine, asked = grouped(rule, scope)
    names = ("h1", "h2", "h3", "h4")
    assert [name for name in names if refusals(engine.fleet, asked, name)] == refused
    assert engine.find(asked).host == next(name for name in names if name not in refused)


def test_the_first_member_of_an_affinity_group_may_go_to_any_known_domain() -> None:
    engine = engine_on(host("nowhere"), host("somewhere", rack="r1"))
    group = GroupSpec("group", GroupRule.AFFINITY, Scope.RACK)
    assert engine.find(request(groups=(group,))).host == "somewhere"


def test_spread_allows_a_difference_of_max_skew_and_no_more() -> None:
    engine, asked = grouped(GroupRule.SPREAD, Scope.RACK, max_skew=2)
    assert engine.find(asked).host == "h1"
    engine, asked = grouped(GroupRule.SPREAD, Scope.RACK, max_skew=1)
    assert engine.find(asked).host == "h3"


def test_spread_does_not_compare_domains_whose_hosts_are_not_eligible() -> None:
    engine, asked = grouped(GroupRule.SPREAD, Scope.RACK)
    engine.fleet.set_admin("h3", Admin.MAINTENANCE)
    assert engine.find(asked).host == "h1"


# Boundaries


@pytest.mark.parametrize("operator", LabelOperator, ids=str)
def test_a_host_without_the_label_satisfies_only_not_in_and_absent(
    operator: LabelOperator,
) -> None:
    bare = operator in (LabelOperator.EXISTS, LabelOperator.ABSENT)
    term = LabelTerm("generation", operator, () if bare else ("7",))
    passes = engine_on(host()).find(request(labels=(term,))) is not None
    assert passes == (operator in (LabelOperator.NOT_IN, LabelOperator.ABSENT))


@pytest.mark.parametrize(("value", "passes"), [("8", True), ("7", False), ("new", False)])
def test_greater_compares_whole_numbers_and_nothing_else(value: str, passes: bool) -> None:
    engine = engine_on(host(labels=(("generation", value),)))
    term = LabelTerm("generation", LabelOperator.GREATER, ("7",))
    assert (engine.find(request(labels=(term,))) is not None) == passes


def test_a_fleet_of_one_tainted_host_refuses_what_does_not_tolerate_it() -> None:
    engine = engine_on(host(taints=(Taint("dedicated"),)))
    assert engine.find(request()) is None
    assert engine.find(request(tolerations=(Toleration(),))) is not None


def test_an_overcommitted_resource_is_not_compared_when_nothing_of_it_is_asked() -> None:
    engine = engine_on(host("a", disk_bytes=10 * GIB))
    put(engine.fleet, "a", disk_bytes=10 * GIB)
    engine.fleet.update_host(host("a", disk_bytes=GIB))
    assert engine.find(request()) is not None
    assert engine.find(request(disk_bytes=1)) is None


def test_a_part_of_a_device_needs_a_shareable_one() -> None:
    engine = engine_on(host(devices=(Device("t4", shareable=False),)))
    assert engine.find(request(devices=DeviceDemand(1, 500))) is None
    assert engine.find(request(devices=DeviceDemand(1, 1000))) is not None


def test_two_shares_of_one_request_are_never_on_one_device() -> None:
    engine = engine_on(host(devices=ONE_GPU))
    assert engine.find(request(devices=DeviceDemand(2, 500))) is None


def test_the_lower_cell_takes_the_larger_half() -> None:
    asked = request(cpu_milli=3, memory_bytes=2, numa=NumaMode.SPLIT)
    assert engine_on(host(cells=(Cell(2, 1), Cell(1, 1)))).find(asked) is not None
    assert engine_on(host(cells=(Cell(1, 1), Cell(2, 1)))).find(asked) is None


def test_a_predicate_must_speak_of_every_host() -> None:
    engine = engine_on(host("a"), host("b"))
    short = Predicate("short", lambda fleet: np.ones(1, np.bool_))
    with pytest.raises(InvalidRequest, match="1 verdicts for 2 hosts"):
        engine.find(request(predicate=short))


# No part is missing


def test_the_registry_is_in_the_order_of_the_reasons_and_complete() -> None:
    assert [each.reason for each in FILTERS] == list(Reason)


def test_every_filter_has_a_twin() -> None:
    assert set(TWINS) == {each.reason for each in FILTERS}


def test_every_filter_has_an_example_here() -> None:
    grouping = {Reason.AFFINITY, Reason.ANTI_AFFINITY, Reason.SPREAD}
    ruled = {Reason.RULE, Reason.RULE_ERROR}  # in test_rules.py
    ruled |= {Reason.PRESSURE}  # in test_outlook.py
    ruled |= {Reason.LATENCY, Reason.BANDWIDTH}  # in test_nearness.py
    assert set(CASES) | grouping | ruled | {Reason.HELD} == {each.reason for each in FILTERS}


def test_every_filter_has_its_row_in_the_document_in_order() -> None:
    rows = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("| `")]
    named = [line.split("`")[1] for line in rows]
    assert named == [each.reason.value for each in FILTERS]


def test_every_document_row_names_the_file_of_its_filter() -> None:
    for each in FILTERS:
        module = each.column.__module__.removeprefix("roost.placement.filters.")
        file = f"`{module.replace('.', '/')}.py`"
        [row] = [
            line
            for line in DOCUMENT.read_text().splitlines()
            if line.startswith(f"| `{each.reason.value}` ")
        ]
        assert file in row
        assert each.form.value in row
