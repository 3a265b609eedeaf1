"""Every field that rules can read has its value when the engine decides."""

from dataclasses import replace

import pytest

from roost.base.units import GIB
from roost.model.flow import PlaceRequest
from roost.model.groups import GroupRule, GroupSpec
from roost.model.hosts import Device, Resource, Taint, TaintEffect
from roost.model.resources import Demand, DeviceDemand
from roost.model.rules import Rule, RuleSet
from roost.placement.engine import Engine
from roost.rules.fields import Fields
from tests.builders import fleet_of, host

GROUP = GroupSpec("web", GroupRule.ANTI_AFFINITY)
CLOCK = {"hour": 22, "minute": 15, "weekday": 2}
FIELDS = Fields.of(("licences",))
TAINT = Taint("batch", "night", TaintEffect.PREFER_NOT)
#: What each field is in `world`; one of a record in a list, of the first record there.
VALUES = {
    "host.name": '"h1"', "host.zone": '"z1"', "host.rack": '"r1"', "host.site": '"s1"',
    "host.labels": '{"disk": "ssd"}', "host.taints[].key": '"batch"',
    "host.taints[].value": '"night"', "host.taints[].effect": '"prefer-not"',
    "host.capabilities": '["nested", "uefi"]', "host.architecture": '"arm64"',
    "host.driver": '"virtual"', "host.devices[].model": '"a100"',
    "host.devices[].memory": 'quantity("80Gi")', "host.devices[].shareable": "false",
    "host.vms": "1",
    "host.total.cpu": 'cores("16")', "host.total.memory": 'quantity("64Gi")',
    "host.total.disk": 'quantity("1Ti")', "host.total.licences": "8",
    "host.capacity.cpu": 'cores("32")', "host.capacity.memory": 'quantity("62Gi")',
    "host.capacity.disk": 'quantity("1Ti")', "host.capacity.licences": "8",
    "host.committed.cpu": 'cores("3")', "host.committed.memory": 'quantity("2Gi")',
    "host.committed.disk": "0", "host.committed.licences": "2",
    "host.free.cpu": 'cores("29")', "host.free.memory": 'quantity("60Gi")',
    "host.free.disk": 'quantity("1Ti")', "host.free.licences": "6",
    "host.used.cpu": "5200", "host.used.memory": 'quantity("9Gi")',
    "host.used.disk": 'quantity("3Gi")', "host.used.licences": "1",
    "host.pressure.cpu": "12.5", "host.pressure.memory": "0.5", "host.pressure.io": "3.0",
    "vm.name": '"new"', "vm.project": '"shop"', "vm.labels": '{"tier": "db"}',
    "vm.priority": "7", "vm.groups": '["web"]', "vm.strategy": '"best_fit"',
    "vm.restart": '"elsewhere"', "vm.devices": "1",
    "vm.demand.cpu": 'cores("1")', "vm.demand.memory": 'quantity("1Gi")',
    "vm.demand.disk": 'quantity("5Gi")', "vm.demand.licences": "3",
    "project.name": '"shop"', "project.vms": "1", "project.most_vms": "9",
    "project.committed.cpu": 'cores("2.5")', "project.committed.memory": 'quantity("3Gi")',
    "project.committed.disk": "0", "project.quota.cpu": 'cores("12")',
    "project.quota.memory": 'quantity("90Gi")', "project.quota.disk": 'quantity("2Ti")',
    "group.name": '"web"', "group.hosts": '["h2"]', "group.racks": '["r2"]',
    "group.zones": '["z2"]', "group.size": "1",
    "fleet.hosts": "2", "fleet.vms": "2", "fleet.load": "0.25",
    "fleet.hour": "22", "fleet.minute": "15", "fleet.weekday": "2",
    "fleet.capacity.cpu": 'cores("48")', "fleet.capacity.memory": 'quantity("126Gi")',
    "fleet.capacity.disk": 'quantity("2Ti")', "fleet.capacity.licences": "8",
    "fleet.committed.cpu": 'cores("4")', "fleet.committed.memory": 'quantity("3Gi")',
    "fleet.committed.disk": "0", "fleet.committed.licences": "2",
    "fleet.free.cpu": 'cores("44")', "fleet.free.memory": 'quantity("123Gi")',
    "fleet.free.disk": 'quantity("2Ti")', "fleet.free.licences": "6",
}  # fmt: skip


def world() -> Engine:
    """Return two hosts with a VM on each; the second is in the group, and asked about is the first.

    Everything of the first is another value than usual, and than that of the second.
    """
    fleet = fleet_of(
        host(
            "h1", Resource(16_000, 0, 2000), Resource(64 * GIB, 2 * GIB),
            extended=(("licences", Resource(8)),), zone="z1", rack="r1", site="s1",
            labels=(("disk", "ssd"),), taints=(TAINT,), architecture="arm64", driver="virtual",
            capabilities=("nested", "uefi"), devices=(Device("a100", 80 * GIB, shareable=False),),
        ),
        host("h2", zone="z2", rack="r2"),
    )  # fmt: skip
    engine = Engine(fleet)
    first = PlaceRequest("one", Demand(3000, 2 * GIB, 0, (("licences", 2),)))
    engine.commit(first, engine.find(first))
    second = PlaceRequest("two", Demand(1000, GIB), groups=(GROUP,))
    second = replace(second, constraints=replace(second.constraints, pinned=("h2",)))
    engine.commit(second, engine.find(second))
    used = {"cpu": 5200, "memory": 9 * GIB, "disk": 3 * GIB, "licences": 1}
    fleet.set_measured("h1", used, {"cpu": 12.5, "memory": 0.5, "io": 3.0})
    fleet.count_vm("theirs", "shop", (2500, 3 * GIB, 0))
    fleet.projects.set_quota("shop", (12_000, 90 * GIB, 2 * 1024 * GIB, 9))
    return engine


def asked() -> PlaceRequest:
    demand = Demand(1000, GIB, 5 * GIB, (("licences", 3),), DeviceDemand(1))
    made = PlaceRequest(
        "new", demand, groups=(GROUP,), strategy="best_fit", priority=7, project="shop",
        labels=(("tier", "db"),), restart="elsewhere",
    )  # fmt: skip
    return replace(made, constraints=replace(made.constraints, pinned=("h1",)))


def says(path: str, operator: str) -> str:
    """Return a rule that compares a field with what it is, as its text."""
    if "[]." not in path:
        return f"{path} {operator} {VALUES[path]}"
    listed, _, name = path.partition("[].")
    return f"{listed}.exists(each, each.{name} {operator} {VALUES[path]})"


@pytest.mark.parametrize("path", [each for each in FIELDS.by_path if each in VALUES])
def test_a_field_has_its_value(path: str) -> None:
    engine = world()
    for operator, passes in (("==", True), ("!=", False)):
        engine.set_rules(RuleSet((Rule("r", says(path, operator)),), 1), CLOCK)
        assert (engine.find(asked()) is not None) is passes, operator


def test_no_field_is_left_out() -> None:
    records = {"host.taints", "host.devices"}  # read by the fields of what is in them
    assert set(FIELDS.by_path) - records == set(VALUES)
