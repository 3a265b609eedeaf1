"""Refusals name the reasons, the nearest miss and a smallest fix that works."""

import pytest

from roost.base.units import GIB
from roost.model.constraints import LabelOperator, LabelTerm
from roost.model.flow import FixKind, Placement, Rejection, RejectionCode
from roost.model.groups import GroupRule, GroupSpec
from roost.model.hosts import Admin, Cell, Device, Health, Scope, Taint
from roost.model.reasons import Reason
from roost.model.resources import DeviceDemand, NumaMode
from roost.placement.explain import explain
from tests.builders import engine_on, host, put, request


def refused(engine, asked) -> Rejection:
    answer = engine.place(asked)
    assert isinstance(answer, Rejection)
    return answer


def test_no_host_online_is_no_available_agents() -> None:
    engine = engine_on(host("a", health=Health.OFFLINE), host("b", health=Health.SUSPECT))
    assert refused(engine, request()).code is RejectionCode.NO_AVAILABLE_AGENTS


def test_an_empty_fleet_is_no_available_agents() -> None:
    assert refused(engine_on(), request()).code is RejectionCode.NO_AVAILABLE_AGENTS


def test_a_host_that_lacks_only_amounts_makes_it_insufficient_resources() -> None:
    engine = engine_on(host("small", 1000), host("shut", 64_000, admin=Admin.CORDONED))
    assert refused(engine, request(cpu_milli=2000)).code is RejectionCode.INSUFFICIENT_RESOURCES


def test_rules_that_no_host_satisfies_are_constraints_unsatisfied() -> None:
    engine = engine_on(host("a", zone="x"))
    assert refused(engine, request(zones=("y",))).code is RejectionCode.CONSTRAINTS_UNSATISFIED


def test_first_counts_add_up_to_all_hosts() -> None:
    engine = engine_on(
        host("a", health=Health.OFFLINE),
        host("b", admin=Admin.DRAINING),
        host("c", 1000),
        host("d", 500),
    )
    answer = refused(engine, request(cpu_milli=2000))
    assert {count.reason: count.first for count in answer.reasons} == {
        Reason.NOT_ONLINE: 1,
        Reason.NOT_OPEN: 1,
        Reason.CPU: 2,
    }
    assert sum(count.first for count in answer.reasons) == answer.hosts == 4


def test_the_nearest_miss_has_numbers_and_counts_equal_hosts() -> None:
    engine = engine_on(
        *(host(f"h{n}", memory_bytes=6 * GIB) for n in range(14)), host("z", memory_bytes=GIB)
    )
    miss = refused(engine, request(memory_bytes=8 * GIB)).nearest_miss
    assert miss is not None
    assert (miss.host, miss.hosts) == ("h0", 14)
    assert [(each.resource, each.short) for each in miss.shortages] == [("memory", 2 * GIB)]


def test_a_host_with_most_of_the_devices_is_nearer_than_one_without() -> None:
    engine = engine_on(host("plain"), host("gpus", devices=(Device("A100"),) * 3))
    miss = refused(engine, request(devices=DeviceDemand(4))).nearest_miss
    assert miss is not None
    assert miss.host == "gpus"


def test_larger_than_any_host_is_said_as_such() -> None:
    answer = refused(engine_on(host("a"), host("b")), request(memory_bytes=512 * GIB))
    assert "larger than any host" in answer.message
    assert [(each.resource, each.free) for each in answer.larger_than_any_host] == [
        ("memory", 64 * GIB)
    ]


@pytest.mark.parametrize(
    ("specs", "asked", "rule"),
    [
        ((host("a", zone="x"),), request(zones=("y",)), "zone y"),
        ((host("a", rack="x"),), request(racks=("y",)), "rack y"),
        ((host("a", site="x"),), request(sites=("y",)), "site y"),
        (
            (host("a"),),
            request(labels=(LabelTerm("ssd", LabelOperator.EXISTS),)),
            "label ssd exists",
        ),
        ((host("a", taints=(Taint("db", "1"),)),), request(), "taint db=1"),
        ((host("a"),), request(architecture="arm64"), "architecture arm64"),
        ((host("a"),), request(driver="libvirt"), "driver libvirt"),
        ((host("a"),), request(capabilities=("vtpm",)), "capability vtpm"),
        ((host("a"),), request(pinned=("b",)), "pinned to b (no such host)"),
        ((host("a"), host("b", 100)), request(pinned=("b",)), "pinned to b"),
        ((host("a"),), request(excluded=("a",)), "excludes a"),
        ((host("a", cells=(Cell(500, GIB),)),), request(numa=NumaMode.ONE_CELL), "numa one"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_lifting_the_rule_that_refuses_is_found(specs, asked, rule: str) -> None:
    fixes = refused(engine_on(*specs), asked).fixes
    assert (FixKind.LIFT_RULE, rule, "a") in {(fix.kind, fix.rule, fix.host) for fix in fixes}


def test_lifting_a_group_is_found() -> None:
    group = GroupSpec("web", GroupRule.ANTI_AFFINITY, Scope.HOST)
    engine = engine_on(host("a"))
    first = request("first", groups=(group,))
    engine.commit(first, engine.find(first))
    [fix] = refused(engine, request("second", groups=(group,))).fixes
    assert fix.rule == "anti-affinity of group web over hosts"


def test_opening_a_cordoned_host_is_the_smallest_fix() -> None:
    engine = engine_on(host("full", 1000), host("shut", admin=Admin.CORDONED))
    fix = refused(engine, request(cpu_milli=2000)).smallest_fix
    assert fix is not None
    assert (fix.kind, fix.host) == (FixKind.UNCORDON, "shut")


def test_freeing_the_missing_amount_makes_it_fit() -> None:
    engine = engine_on(host("a"))
    tenant = put(engine.fleet, "a", cpu_milli=15_000)
    fix = refused(engine, request(cpu_milli=3000)).smallest_fix
    assert fix is not None
    assert fix.kind is FixKind.FREE
    [short] = fix.shortages
    assert short.short == 2000
    engine.fleet.resize(tenant, engine.fleet.vms.demand[tenant] - [short.short, 0, 0])
    assert isinstance(engine.place(request(cpu_milli=3000)), Placement)


def test_freeing_is_looked_for_on_hosts_that_are_large_enough() -> None:
    engine = engine_on(host("large", 16_000), host("small", 3500))
    put(engine.fleet, "large", cpu_milli=14_000)
    answer = refused(engine, request(cpu_milli=4000))
    assert answer.nearest_miss is not None
    assert answer.nearest_miss.host == "small"
    fix = answer.smallest_fix
    assert fix is not None
    assert (fix.kind, fix.host, fix.shortages[0].short) == (FixKind.FREE, "large", 2000)


def test_freeing_is_no_fix_for_a_host_that_may_have_no_vm() -> None:
    assert refused(engine_on(host("a", max_vms=0)), request()).fixes == ()


def test_bringing_a_host_online_comes_last() -> None:
    engine = engine_on(host("full", 3000), host("gone", health=Health.OFFLINE))
    put(engine.fleet, "full", cpu_milli=2000)
    kinds = [fix.kind for fix in refused(engine, request(cpu_milli=2000)).fixes]
    assert kinds == [FixKind.FREE, FixKind.BRING_ONLINE]


def test_looking_for_fixes_leaves_the_fleet_as_it_was() -> None:
    engine = engine_on(host("full", 3000), host("gone", health=Health.OFFLINE))
    before, version = engine.fleet.to_description(), engine.fleet.version
    engine.place(request(cpu_milli=4000, zones=("x",)))
    assert (engine.fleet.to_description(), engine.fleet.version) == (before, version)


def test_an_explanation_has_a_verdict_for_every_host() -> None:
    engine = engine_on(host("a"), host("b", 500), host("c", zone="x"), strategy="least_loaded")
    explained = explain(engine, request())
    assert isinstance(explained.answer, Placement)
    assert [(v.host, v.fits, v.reasons) for v in explained.verdicts()] == [
        ("a", True, ()),
        ("b", False, (Reason.CPU,)),
        ("c", True, ()),
    ]
    assert explained.fitting == 2
    assert explained.verdict("b").shortages[0].short == 500
