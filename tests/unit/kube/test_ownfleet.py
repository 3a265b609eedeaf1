"""Without Kubernetes: roost's engine places, moves are direct and checked, and it says so."""

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roost.base.units import GIB
from roost.fleet.check import check
from roost.kube.cluster.nodes import NodePool
from roost.kube.metering.loaded import Loaded, read_body
from roost.kube.metering.ownfleet import OwnFleet
from roost.kube.metering.sources import Asked, Landed, Moved
from roost.kube.metering.usage import Usage
from roost.kube.vms.spec import VM, Group
from roost.wire.text import fleetfile


def vm(name: str, memory_gib: int = 8, **more: Any) -> VM:
    return VM(name=name, cpu_milli=4000, memory_bytes=memory_gib * GIB, **more)


def load(fleet: OwnFleet, vms: list[VM], nodes: list[Any] | None = None) -> Landed:
    return asyncio.run(fleet.load(Loaded("test", vms, nodes or []), 0.0))


def move(fleet: OwnFleet, vm_id: str, from_node: str = "", to_node: str = "") -> Moved:
    asked = Asked(vm_id=vm_id, from_node=from_node, to_node=to_node)
    [moved] = asyncio.run(fleet.move([asked], 0.0))
    return moved


def pool(count: int = 3, **more: Any) -> list[Any]:
    return NodePool(count=count, name="n", **more).nodes()


def test_vms_go_where_there_is_most_room() -> None:
    fleet = OwnFleet(why="no cluster")
    landed = load(fleet, [vm(f"v{n}") for n in range(10)])
    assert sorted(landed.placed) == [f"v{n}" for n in range(10)]
    assert {use.vms for use in fleet.usage} == {2}  # five nodes by default
    assert (fleet.health().source, fleet.health().why) == ("own-fleet", "no cluster")


def test_a_vm_that_fits_nowhere_waits_with_the_reason() -> None:
    fleet = OwnFleet()
    landed = load(fleet, [vm("large", 500), vm("small")], pool(2))
    assert list(landed.placed) == ["small"]
    assert "memory" in landed.pending["large"]


def test_the_next_scenario_takes_away_what_it_does_not_name() -> None:
    fleet = OwnFleet()
    load(fleet, [vm("a"), vm("b")])
    stayed = fleet._where()["b"]
    landed = load(fleet, [vm("b"), vm("c")])
    assert (landed.created, landed.deleted, sorted(landed.placed)) == (1, 1, ["b", "c"])
    assert landed.placed["b"] == stayed
    assert fleet.usage.vms == 2


def test_a_move_goes_straight_to_where_it_is_wanted() -> None:
    fleet = OwnFleet()
    source = load(fleet, [vm("a", cpu_utilization=1.0)], pool()).placed["a"]
    target = next(use.name for use in fleet.usage if use.name != source)
    moved = move(fleet, "a", source, target)
    assert (moved.accepted, moved.chosen, moved.phase) == (True, target, "Succeeded")
    assert {use.name: use.cpu_micro for use in fleet.usage if use.cpu_micro} == {target: 4_000_000}


def test_a_move_without_a_wish_goes_anywhere_else() -> None:
    fleet = OwnFleet()
    source = load(fleet, [vm("a")], pool(2)).placed["a"]
    assert move(fleet, "a").chosen not in (None, source)


def test_a_move_that_does_not_fit_is_refused_with_the_engines_reason() -> None:
    fleet = OwnFleet()
    placed = load(fleet, [vm("a", 100), vm("b", 100)], pool(2)).placed
    before = {use.name: dict(use.charges) for use in fleet.usage}
    moved = move(fleet, "a", placed["a"], placed["b"])
    assert not moved.accepted
    assert moved.error is not None
    assert moved.error["code"] == "insufficient_resources"
    assert "memory" in moved.error["message"]
    assert {use.name: dict(use.charges) for use in fleet.usage} == before
    check(fleet._engine.fleet)


@pytest.mark.parametrize(
    ("vm_id", "from_node", "to_node", "code"),
    [
        ("nobody", "", "n-2", "not_found"),
        ("a", "n-2", "n-3", "conflict"),
        ("a", "n-1", "nowhere", "not_found"),
        ("a", "n-1", "n-1", "invalid_request"),
    ],
)
def test_a_move_that_makes_no_sense_is_told_by_itself(
    vm_id: str, from_node: str, to_node: str, code: str
) -> None:
    fleet = OwnFleet()
    load(fleet, [vm("a", node="n-1")], pool())
    moved = move(fleet, vm_id, from_node, to_node)
    assert not moved.accepted
    assert moved.error is not None
    assert moved.error["code"] == code


def test_rules_of_groups_hold_for_moves_too() -> None:
    apart = (Group(name="web", rule="anti-affinity"),)
    fleet = OwnFleet()
    placed = load(fleet, [vm("a", groups=apart), vm("b", groups=apart)], pool(2)).placed
    moved = move(fleet, "a", placed["a"], placed["b"])
    assert moved.error is not None
    assert moved.error["code"] == "constraints_unsatisfied"


def test_a_fleet_file_brings_its_vms_whose_use_is_unknown_and_so_full() -> None:
    text = "hosts h[1-2] cpu=8 memory=32GiB disk=0B\nvm db on h1 cpu=4 memory=16GiB\n"
    fleet = OwnFleet(fleetfile.parse(text))
    assert {use.name: (use.cpu_ratio, use.memory_ratio) for use in fleet.usage} == {
        "h1": (0.5, 0.5),
        "h2": (0.0, 0.0),
    }
    assert move(fleet, "db", "h1", "h2").accepted


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("load"), st.lists(st.sampled_from("abcdefgh"), unique=True)),
            st.tuples(st.just("move"), st.tuples(st.sampled_from("abcdefgh"), st.integers(1, 4))),
        ),
        max_size=12,
    )
)
@settings(max_examples=40, deadline=None)
def test_what_is_shown_is_what_the_fleet_holds(history: list[tuple[str, Any]]) -> None:
    fleet = OwnFleet()
    load(fleet, [], pool(3))
    for kind, what in history:
        if kind == "load":
            load(fleet, [vm(name, 48) for name in what])
        else:
            move(fleet, what[0], to_node=f"n-{what[1]}")
        check(fleet._engine.fleet)
        anew = Usage()
        for use in fleet.usage:
            anew.set_node(use.name, use.capacity)
            for key, charge in use.charges.items():
                anew.charge(key, charge)
        where = {key[1]: use.name for use in fleet.usage for key in use.charges}
        assert where == fleet._where()
        assert {use.name: use.memory_bytes for use in anew} == {
            use.name: use.memory_bytes for use in fleet.usage
        }
        assert all(use.memory_bytes <= 128 * GIB for use in fleet.usage)


# The old simulator's files

OLD = {
    "light": [
        {
            "name": "node-1", "cpu_usage": 0.1, "cpu_pressure": 0.0, "memory_usage": 0.2,
            "vms": [
                {
                    "id": "VM_1", "cpu_cores": 8, "memory_bytes": 8 * GIB, "cpu_utilization": 0.25,
                    "memory_utilization": 0.5,
                },
                {"id": "7", "cpu_consumption": 0.25, "memory_consumption": 0.015625},
            ],
        },
        {"name": "node-2", "vms": []},
    ],
    "heavy": [{"name": "n", "vms": []}],
}  # fmt: skip


def test_the_old_simulators_form_is_taken() -> None:
    loaded = read_body(msgspec.json.encode(OLD), "light", "space")
    assert [node["metadata"]["name"] for node in loaded.nodes] == ["node-1", "node-2"]
    new, old = loaded.vms
    assert (new.name, new.cpu_milli, new.cpu_utilization, new.namespace) == (
        "vm-1", 8000, 0.25, "space"
    )  # fmt: skip
    # A share of a node: a quarter of 32 cores kept busy, and 2 GiB of 4 touched.
    assert (old.name, old.cpu_milli, old.cpu_utilization) == ("vm-7", 8000, 1.0)
    assert (old.memory_bytes, old.memory_utilization) == (4 * GIB, 0.5)
    landed = asyncio.run(OwnFleet().load(loaded, 0.0))
    assert set(landed.placed.values()) == {"node-1", "node-2"}


@pytest.mark.parametrize(
    ("body", "name", "told"),
    [
        (b"", None, "no scenario in the body"),
        (msgspec.json.encode(OLD), None, "several scenarios: light, heavy"),
        (msgspec.json.encode(OLD), "other", "no scenario 'other'"),
        (b'{"s": [{"name": "n", "vms": [{"cpu_cores": 1}]}]}', None, "missing required field"),
        (b'{"s": [{"name": "n", "vms": [{"id": "a"}, {"id": "A"}]}]}', None, "two VMs"),
        (b'{"s": [{"name": "n", "vms": [{"id": "a", "cpu_cores": 0}]}]}', None, "needs cpu"),
        (b"about: x\nvms: 3\n", None, "<body>"),
        (b"\xff", None, "UTF-8"),
    ],
)
def test_a_scenario_that_cannot_be_read_says_why(body: bytes, name: str | None, told: str) -> None:
    with pytest.raises(Exception, match=told):
        read_body(body, name, "default")


def test_a_scenario_of_roosts_own_form_is_taken() -> None:
    text = b"about: two\nvms: [{name: web, count: 2, cpu: 4, memory: 8GiB}]\n"
    loaded = read_body(text, None, "space")
    assert [(each.name, each.cpu_milli) for each in loaded.vms] == [
        ("web-1", 4000), ("web-2", 4000)
    ]  # fmt: skip
    assert loaded.nodes == []
