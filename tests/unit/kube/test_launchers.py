"""Launcher pods: their names, what they ask for, and that a moving VM is not in its own way."""

from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from roost.kube.base.names import FINALIZER, HOSTNAME_LABEL, MIGRATION_LABEL, NAME_LABEL, ZONE_LABEL
from roost.kube.vms.launchers import LauncherSettings, launcher_pod, owner_of, pod_name
from roost.kube.vms.spec import VM, Group, to_object
from tests.unit.kube.test_vms import groups

GIB = 2**30


def vm(name: str = "web-1", **more: Any) -> VM:
    """Return a VM of which only the rules matter."""
    return VM(name=name, cpu_milli=2500, memory_bytes=4 * GIB, **more)


def owner(of: VM, uid: str = "u-1", present: str = "") -> dict[str, Any]:
    """Return the object of a VM as the cluster keeps it."""
    item = to_object(of)
    item["metadata"]["uid"] = uid
    return item | {"status": {"podName": present}}


def matches(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    """Say, as Kubernetes does, whether a selector is about something with these labels."""
    for key, value in selector.get("matchLabels", {}).items():
        if labels.get(key) != value:
            return False
    for each in selector.get("matchExpressions", ()):
        assert each["operator"] == "NotIn"
        if labels.get(each["key"]) in each["values"]:
            return False
    return True


def pod_terms(pod: dict[str, Any], kind: str) -> Iterator[dict[str, Any]]:
    """Yield the terms of pod affinity or anti-affinity, hard and soft."""
    found = pod["spec"].get("affinity", {}).get(kind, {})
    yield from found.get("requiredDuringSchedulingIgnoredDuringExecution", ())
    for each in found.get("preferredDuringSchedulingIgnoredDuringExecution", ()):
        yield each["podAffinityTerm"]


def test_a_pod_asks_for_a_tenth_of_the_cores_and_all_of_the_memory() -> None:
    pod = launcher_pod(vm(), owner(vm()), 0)
    assert pod["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "250m", "memory": str(4 * GIB)}
    }
    assert "nodeName" not in pod["spec"]
    assert pod["spec"]["nodeSelector"] == {"type": "kwok"}
    assert pod["metadata"]["finalizers"] == [FINALIZER]
    assert owner_of(pod) == ("web-1", "u-1")
    assert "affinity" not in pod["spec"]


def test_the_smallest_vm_asks_for_something() -> None:
    tiny = VM(name="t", cpu_milli=1, memory_bytes=1)
    asked = launcher_pod(tiny, owner(tiny), 0)["spec"]["containers"][0]["resources"]["requests"]
    assert asked == {"cpu": "1m", "memory": "1"}


def test_which_nodes_will_do_is_a_setting() -> None:
    settings = LauncherSettings(node_selector={"pool": "vms"}, scheduler="mine")
    spec = launcher_pod(vm(node_labels={"tier": "gold"}), owner(vm()), 0, settings=settings)["spec"]
    assert spec["nodeSelector"] == {"pool": "vms", "tier": "gold"}
    assert spec["schedulerName"] == "mine"
    anywhere = launcher_pod(vm(), owner(vm()), 0, settings=LauncherSettings(node_selector={}))
    assert "nodeSelector" not in anywhere["spec"]


def test_a_forced_node_holds_for_the_first_pod_and_not_for_one_that_leaves_it() -> None:
    forced = vm(node="n1")
    assert launcher_pod(forced, owner(forced), 0)["spec"]["nodeName"] == "n1"
    assert "nodeSelector" not in launcher_pod(forced, owner(forced), 0)["spec"]
    assert "nodeName" not in launcher_pod(forced, owner(forced), 3)["spec"]
    assert "nodeName" not in launcher_pod(forced, owner(forced), 0, exclude_nodes=["n1"])["spec"]
    assert launcher_pod(forced, owner(forced), 3, node="n2")["spec"]["nodeName"] == "n2"


def test_a_target_keeps_off_the_nodes_that_are_excluded() -> None:
    pod = launcher_pod(
        vm(zones=("a",)), owner(vm(), present="virt-launcher-old"), 3, exclude_nodes=["n1", "n2"]
    )
    required = pod["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    [term] = required["nodeSelectorTerms"]
    assert term["matchExpressions"] == [
        {"key": ZONE_LABEL, "operator": "In", "values": ["a"]},
        {"key": HOSTNAME_LABEL, "operator": "NotIn", "values": ["n1", "n2"]},
    ]
    assert [each["values"] for each in term["matchFields"]] == [["n1"], ["n2"]]
    assert pod["metadata"]["labels"][MIGRATION_LABEL] == "3"


def test_nodes_to_avoid_are_a_matter_of_preference() -> None:
    avoiding = vm(node="n1", zones=("a",))
    spec = launcher_pod(avoiding, owner(avoiding), -1, avoid_nodes=["n1"])["spec"]
    assert "nodeName" not in spec
    affinity = spec["affinity"]["nodeAffinity"]
    [term] = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term == {"matchExpressions": [{"key": ZONE_LABEL, "operator": "In", "values": ["a"]}]}
    [soft] = affinity["preferredDuringSchedulingIgnoredDuringExecution"]
    assert soft["weight"] == 100
    assert soft["preference"]["matchFields"][0]["values"] == ["n1"]


def test_a_hard_spread_must_see_the_node_that_its_vm_leaves() -> None:
    spread = vm(groups=(Group(name="web", rule="spread", scope="zone"),))
    pod = launcher_pod(spread, owner(spread, present="old"), 1, exclude_nodes=["n1"])
    assert "nodeAffinity" not in pod["spec"]["affinity"]
    [term] = pod_terms(pod, "podAntiAffinity")
    assert term["topologyKey"] == HOSTNAME_LABEL
    assert term["labelSelector"] == {"matchLabels": {NAME_LABEL: "web-1"}}
    # Without a pod that stands there, only the node's name can keep it off.
    again = launcher_pod(spread, owner(spread), 0, exclude_nodes=["n1"])
    assert "nodeAffinity" in again["spec"]["affinity"]


@given(st.text(min_size=1), st.text(min_size=1), st.integers(0, 99), st.integers(0, 99))
def test_a_pods_name_follows_from_vm_and_number_alone(
    one: str, other: str, first: int, second: int
) -> None:
    assert pod_name("vm", one, first) == pod_name("vm", one, first)
    same = (one, first) == (other, second)
    assert (pod_name("vm", one, first) == pod_name("vm", other, second)) == same
    assert len(pod_name("vm", one, first)) == len("virt-launcher-vm-12345")


@given(st.lists(groups, min_size=1, max_size=4).map(tuple), st.integers(1, 9))
def test_a_vm_that_moves_is_not_in_its_own_way(rules: tuple[Group, ...], number: int) -> None:
    moving, other = vm("moving", groups=rules), vm("other", groups=rules)
    item = owner(moving)
    source = launcher_pod(moving, item, 0)
    item["status"]["podName"] = source["metadata"]["name"]
    target = launcher_pod(moving, item, number)
    stranger = launcher_pod(other, owner(other, "u-2"), 0)

    def labels(pod: dict[str, Any]) -> dict[str, str]:
        found: dict[str, str] = pod["metadata"]["labels"]
        return found

    for pod in (source, target):
        for term in pod_terms(pod, "podAntiAffinity"):
            # Neither pod of the VM may keep the other away; other members must.
            assert not matches(term["labelSelector"], labels(source))
            assert not matches(term["labelSelector"], labels(target))
            assert matches(term["labelSelector"], labels(stranger))
    counting = [
        *(term["labelSelector"] for term in pod_terms(target, "podAffinity")),
        *(each["labelSelector"] for each in target["spec"].get("topologySpreadConstraints", ())),
    ]
    for selector in counting:
        # The target counts itself, so that the first of a group may go anywhere; not its source.
        assert matches(selector, labels(target))
        assert not matches(selector, labels(source))
        assert matches(selector, labels(stranger))
