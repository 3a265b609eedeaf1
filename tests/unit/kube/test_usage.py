"""Sums kept up by single events equal sums made anew, whatever happened in between."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roost.base.units import GIB
from roost.kube.base.names import APP, APP_LABEL, NAME_LABEL
from roost.kube.base.objects import Key, key_of
from roost.kube.metering.usage import (
    ASSUMED_CPU_MILLI,
    ASSUMED_MEMORY_BYTES,
    NodeUse,
    Usage,
    capacity_of,
    charge_of,
)

NOTE = "simulation.node-classifier.io/vm-"
Object = dict[str, Any]


def pod(
    name: str = "p", node: str = "", phase: str = "Running", vm: str = "", **notes: object
) -> Object:
    """Return a pod with what its annotations say: cpu_cores=2, memory_utilization=0.5."""
    labels = {APP_LABEL: APP, NAME_LABEL: vm} if vm else {}
    annotations = {NOTE + key.replace("_", "-"): str(value) for key, value in notes.items()}
    return {
        "metadata": {
            "name": name, "namespace": "n", "labels": labels, "annotations": annotations
        },
        "spec": {"containers": [{"name": "c"}]} | ({"nodeName": node} if node else {}),
        "status": {"phase": phase},
    }  # fmt: skip


def node(name: str = "a", **allocatable: str) -> Object:
    """Return a node."""
    return {
        "metadata": {"name": name, "uid": f"u-{name}"},
        "status": {"allocatable": allocatable},
    }


def usage_of(nodes: list[Object], pods: list[Object]) -> Usage:
    made = Usage()
    for each in nodes:
        made.heard_node(None, each)
    for each in pods:
        made.heard_pod(None, each)
    return made


def figures(usage: Usage) -> dict[str, tuple[object, ...]]:
    return {
        each.name: (
            each.cpu_micro, each.memory_bytes, each.vms, each.capacity, dict(each.charges)
        )
        for each in usage
    }  # fmt: skip


# Random histories

names = st.sampled_from("abc")
amounts = st.sampled_from([{}, {"cpu": "4", "memory": "8Gi"}, {"cpu": "2500m", "memory": "1e9"}])
pods_ = st.builds(
    pod,
    name=st.sampled_from("pqrs"),
    node=st.sampled_from(["", "a", "b", "c"]),
    phase=st.sampled_from(["Pending", "Running", "Succeeded", "Failed"]),
    vm=st.sampled_from(["", "v"]),
    cpu_cores=st.sampled_from(["4", "0.3", "junk"]),
    memory_bytes=st.sampled_from(["1000000007", "junk"]),
    cpu_utilization=st.sampled_from(["0.1", "0.333", "1", "nan"]),
    memory_utilization=st.sampled_from(["0", "0.7", "-3"]),
)
nodes_ = st.builds(lambda name, has: node(name, **has), names, amounts)
event = st.one_of(
    st.tuples(st.just("pod"), pods_),
    st.tuples(st.just("pod gone"), st.sampled_from("pqrs")),
    st.tuples(st.just("node"), nodes_),
    st.tuples(st.just("node gone"), names),
    st.tuples(st.just("relist"), st.lists(pods_, max_size=4)),
    st.tuples(st.just("unknown pod gone"), pods_),
    st.tuples(st.just("told twice"), st.just(None)),
)


@given(st.lists(event, max_size=40))
def test_what_is_kept_up_equals_what_is_made_anew(history: list[tuple[str, Any]]) -> None:
    usage = Usage()
    pods: dict[Key, Object] = {}
    nodes: dict[str, Object] = {}
    for kind, what in history:
        match kind:
            case "pod":
                before = pods.get(key_of(what))
                pods[key_of(what)] = what
                usage.heard_pod(before, what)
            case "pod gone":
                if (before := pods.pop(("n", what), None)) is not None:
                    usage.heard_pod(before, None)
            case "node":
                usage.heard_node(nodes.get(what["metadata"]["name"]), what)
                nodes[what["metadata"]["name"]] = what
            case "node gone":
                if (before := nodes.pop(what, None)) is not None:
                    usage.heard_node(before, None)
            case "relist":  # as a mirror tells it: those that went, then those that differ
                fresh = {key_of(each): each for each in what}
                for key in [key for key in pods if key not in fresh]:
                    usage.heard_pod(pods.pop(key), None)
                for key, each in fresh.items():
                    usage.heard_pod(pods.get(key), each)
                    pods[key] = each
            case "unknown pod gone":  # a mirror tells this with what was deleted as `before`
                if key_of(what) not in pods:
                    usage.heard_pod(what, None)
            case "told twice":
                for each in pods.values():
                    usage.heard_pod(None, each)
        assert figures(usage) == figures(usage_of(list(nodes.values()), list(pods.values())))


# Single rules


def only(usage: Usage) -> NodeUse:
    [found] = usage
    return found


def test_use_is_cores_times_utilisation_of_what_the_node_has() -> None:
    busy = pod(
        node="a", vm="v", cpu_cores=8, cpu_utilization=0.5, memory_bytes=64 * GIB,
        memory_utilization=0.25,
    )  # fmt: skip
    found = only(usage_of([node("a", cpu="32", memory="128Gi")], [busy]))
    assert (found.cpu_ratio, found.memory_ratio, found.vms) == (0.125, 0.125, 1)
    assert found.available_bytes == 112 * GIB


def test_demand_may_exceed_the_node_and_use_may_not() -> None:
    many = [pod(f"p{n}", "a", cpu_cores=4, cpu_utilization=1, memory_bytes=3000) for n in range(3)]
    found = only(usage_of([node("a", cpu="8", memory="6000")], many))
    assert (found.cpu_demand, found.cpu_ratio, found.memory_ratio) == (1.5, 1.0, 1.0)
    assert (found.busy_micro, found.available_bytes) == (8_000_000, 0)


def test_source_and_target_of_a_migration_are_both_charged() -> None:
    notes = {"cpu_cores": 2, "cpu_utilization": 1, "memory_bytes": 1000}
    source = pod("source", "a", vm="v", memory_utilization=1, **notes)
    usage = usage_of(
        [node("a", cpu="4", memory="1000"), node("b", cpu="4", memory="1000")], [source]
    )
    for copied in ("0", "0.5", "1"):  # the target's memory grows as it is copied
        usage.heard_pod(None, pod("target", "b", vm="v", memory_utilization=copied, **notes))
        assert [each.memory_ratio for each in usage] == [1.0, float(copied)]
        assert [each.cpu_ratio for each in usage] == [0.5, 0.5]
    usage.heard_pod(source, None)
    assert [each.memory_ratio for each in usage] == [0.0, 1.0]


@pytest.mark.parametrize(
    ("asked", "vm", "cpu_micro", "memory"),
    [
        pytest.param({"cpu": "500m", "memory": "1Gi"}, "", 500_000, GIB, id="by its requests"),
        pytest.param({"cpu": "500m", "memory": "1Gi"}, "v", 5_000_000, GIB, id="a VM has more"),
        pytest.param(
            {}, "", ASSUMED_CPU_MILLI * 1000, ASSUMED_MEMORY_BYTES, id="as the scheduler assumes"
        ),
    ],
)
def test_unknown_use_is_full_use(asked: Object, vm: str, cpu_micro: int, memory: int) -> None:
    bare = pod(node="a", vm=vm)
    bare["spec"]["containers"][0]["resources"] = {"requests": asked}
    charge = charge_of(bare)
    assert charge is not None
    assert (charge.cpu_micro, charge.memory_bytes) == (cpu_micro, memory)


@pytest.mark.parametrize("ratio", ["", "nan", "-0.1", "1.5", "all"])
def test_a_utilisation_that_makes_no_sense_is_full(ratio: str) -> None:
    charge = charge_of(pod(node="a", cpu_cores=2, cpu_utilization=ratio))
    assert charge is not None
    assert charge.cpu_micro == 2_000_000


def test_a_node_whose_amounts_are_unknown_is_used_up() -> None:
    found = only(usage_of([node("a")], []))
    assert (found.cpu_ratio, found.memory_ratio, found.pressure) == (1.0, 1.0, 0.8)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_finished_takes_nothing(phase: str) -> None:
    assert charge_of(pod(node="a", phase=phase)) is None
    assert charge_of(pod(node="", phase="Pending")) is None


def test_a_node_has_the_roles_of_its_labels() -> None:
    labelled = node("a", cpu="1")
    labelled["metadata"]["labels"] = {"node-role.kubernetes.io/control-plane": ""}
    assert capacity_of(labelled).roles == ("control-plane",)
    assert capacity_of(node("a", cpu="1")).roles == ("worker",)


def test_a_node_that_comes_back_under_its_name_is_told_as_gone_and_new() -> None:
    usage, told = usage_of([node("a", cpu="1", memory="1")], []), []
    usage.listen(lambda use: told.append(use.capacity and use.capacity.uid))
    another = node("a", cpu="1", memory="1")
    another["metadata"]["uid"] = "other"
    usage.heard_node(None, another)
    assert told == ["u-a", None, "other"]
