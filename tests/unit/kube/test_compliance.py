"""Rules in fact: random placements against a twin in plain loops, and what is said of each kind."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.kube.base.names import HOSTNAME_LABEL, RACK_LABEL, ZONE_LABEL
from roost.kube.vms.compliance import Placed, violations
from roost.kube.vms.spec import VM, Group, group_text, parse_group
from tests.turns import draws_in_turn

KEYS = {"host": HOSTNAME_LABEL, "rack": RACK_LABEL, "zone": ZONE_LABEL}
NODES = {
    f"n{number}": {
        HOSTNAME_LABEL: f"n{number}",
        ZONE_LABEL: "ab"[number % 2],
        RACK_LABEL: f"{'ab'[number % 2]}-r{number // 2}",
        "tier": "gold" if number < 4 else "tin",
    }
    for number in range(6)
} | {"bare": {HOSTNAME_LABEL: "bare"}}


def vm(name: str, **more: Any) -> VM:
    """Return a VM of which only the rules matter."""
    return VM(name=name, cpu_milli=1000, memory_bytes=2**30, **more)


groups = st.builds(
    Group,
    name=st.sampled_from(["web", "db"]),
    rule=st.sampled_from(["affinity", "anti-affinity", "spread"]),
    scope=st.sampled_from(["host", "rack", "zone"]),
    hard=st.booleans(),
    max_skew=st.integers(1, 2),
)


@st.composite
def placements(draw: st.DrawFn) -> list[Placed]:
    """Draw some VMs on few nodes that share few rules, or hardly anything would be at stake."""
    rules = draw(st.lists(groups, min_size=1, max_size=2))
    nodes = draw(st.lists(st.sampled_from([*NODES, "bare", "gone"]), min_size=1, max_size=2))
    zones = draw(st.sampled_from([("a",), ("b", "a")]))
    return [
        Placed(
            vm(
                f"vm{number}",
                namespace=draw(st.sampled_from(["one", "one", "one", "two"])),
                zones=draw(st.sampled_from([(), zones])),
                node_labels=draw(st.sampled_from([{}, {"tier": "gold"}])),
                groups=tuple(draw(st.lists(st.sampled_from(rules), min_size=1, max_size=2))),
            ),
            draw(st.sampled_from(nodes)),
        )
        for number in range(draw(st.integers(1, 5)))
    ]


def able(each: VM, node: str) -> bool:
    """Say whether a VM may stand on a node by zone and labels."""
    if each.zones and NODES[node].get(ZONE_LABEL) not in each.zones:
        return False
    return all(NODES[node].get(key) == value for key, value in each.node_labels.items())


def holds(where: list[Placed], each: Placed, group: Group) -> bool:
    """Say, one VM and node after the other, whether one rule of a group holds."""
    key = KEYS[group.scope]
    members = [
        other for other in where
        if other.vm.namespace == each.vm.namespace
        and any(theirs.name == group.name for theirs in other.vm.groups)
    ]  # fmt: skip
    others = [other for other in members if other.vm.name != each.vm.name]
    mine = NODES[each.node].get(key)
    if group.rule == "anti-affinity":
        for other in others:
            if other.node in NODES and mine is not None and NODES[other.node].get(key) == mine:
                return False
        return True
    if mine is None:
        return False
    if group.rule == "affinity":
        for other in others:
            if group in other.vm.groups and (
                other.node not in NODES or NODES[other.node].get(key) != mine
            ):
                return False
        return True
    needed = [
        KEYS[theirs.scope] for theirs in each.vm.groups
        if theirs.rule == "spread" and theirs.hard == group.hard
    ]  # fmt: skip
    counts: dict[str, int] = {}
    for node, labels in NODES.items():
        if able(each.vm, node) and all(each_key in labels for each_key in needed):
            counts.setdefault(labels[key], 0)
            for other in members:
                if other.node == node:
                    counts[labels[key]] += 1
    return bool(counts) and counts.get(mine, 0) - min(counts.values()) <= group.max_skew


def broken(where: list[Placed]) -> set[tuple[str, str, str]]:
    """Return namespace, VM and rule of all that does not hold."""
    found = set()
    for each in where:
        key = each.vm.namespace, each.vm.name
        if each.node not in NODES:
            found.add((*key, "node"))
            continue
        labels = NODES[each.node]
        if each.vm.zones and labels.get(ZONE_LABEL) not in each.vm.zones:
            found.add((*key, f"zones {', '.join(each.vm.zones)}"))
        for name, value in each.vm.node_labels.items():
            if labels.get(name) != value:
                found.add((*key, f"label {name}={value}"))
        for group in each.vm.groups:
            if not holds(where, each, group):
                found.add((*key, group_text(group)))
    return found


@draws_in_turn(400)
@given(placements())
def test_what_does_not_hold_is_what_a_plain_loop_finds(where: list[Placed]) -> None:
    found = {(each.namespace, each.vm, each.rule) for each in violations(where, NODES)}
    assert found == broken(where)


@given(placements())
def test_the_order_of_vms_does_not_matter(where: list[Placed]) -> None:
    assert violations(where, NODES) == violations(where[::-1], NODES)


@pytest.mark.parametrize(
    ("rule", "nodes", "said"),
    [
        ("web anti-affinity zone", ("n0", "n2"), "vm1 stands in the same zone a"),
        ("web affinity zone", ("n0", "n1"), "vm1 stands outside of zone a"),
        ("web affinity rack", ("bare", "n1"), "bare has no rack"),
        ("web spread zone", ("n0", "n2"), "2 members in zone a, but 0 in b"),
    ],
)
def test_what_is_wrong_is_said(rule: str, nodes: tuple[str, str], said: str) -> None:
    group = parse_group(rule)
    where = [Placed(vm(f"vm{n}", groups=(group,)), node) for n, node in enumerate(nodes)]
    first = violations(where, NODES)[0]
    assert (first.vm, first.wrong) == ("vm0", said)


def test_a_vm_that_was_moved_off_its_forced_node_breaks_no_hard_rule() -> None:
    [found] = violations([Placed(vm("v", node="n1"), "n2")], NODES)
    assert not found.hard


def test_a_node_that_is_gone_is_told_once() -> None:
    [found] = violations([Placed(vm("v", zones=("a",)), "gone")], NODES)
    assert found.rule == "node"


@pytest.mark.parametrize(("zone_rule", "holds_there"), [("hard", True), ("soft", False)])
def test_a_node_without_a_zone_is_no_host_for_who_must_spread_over_zones(
    zone_rule: str, holds_there: bool
) -> None:
    both = parse_group("web spread host"), parse_group(f"web spread zone {zone_rule}")
    at = ["n0", *(f"n{number}" for number in range(6))]  # two on n0; none on the one without
    where = [Placed(vm(f"vm{n}", groups=both), node) for n, node in enumerate(at)]
    assert (violations(where, NODES) == []) == holds_there
