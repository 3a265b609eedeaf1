"""Where VMs are, read off objects; and what a status says of each state of a pod."""

from typing import Any

import pytest

from roost.kube.vms.assignments import own_pod, statistics
from roost.kube.vms.launchers import launcher_pod
from roost.kube.vms.spec import VM, to_object
from roost.kube.vms.status import changed, idle_status, migration_target, pod_status

NOW = "2026-11-16T10:00:00Z"
LATER = "2026-11-16T11:00:00Z"


def item(name: str, **status: Any) -> dict[str, Any]:
    """Return a VM's object."""
    made = to_object(VM(name=name, cpu_milli=1500, memory_bytes=2**30))
    made["metadata"]["uid"] = f"uid-{name}"
    return made | {"status": status}


def pod(of: dict[str, Any], number: int = 0, node: str = "", **status: Any) -> dict[str, Any]:
    """Return a pod of a VM."""
    vm = VM(name=of["metadata"]["name"], cpu_milli=1500, memory_bytes=2**30)
    made = launcher_pod(vm, of, number)
    if node:
        made["spec"]["nodeName"] = node
    return made | {"status": {"phase": "Pending"} | status}


def refused(words: str) -> list[dict[str, str]]:
    """Return the conditions of a pod that fits nowhere."""
    return [{"type": "PodScheduled", "status": "False", "message": words}]


def test_vms_are_counted_by_where_they_are() -> None:
    a, b, c, d = item("a"), item("b"), item("c"), item("d")
    pods = [pod(a, node="n1"), pod(b, conditions=refused("no room")), pod(c)]
    found = statistics([a, b, c, d], pods)
    assert found.scheduled == {"a": "n1"}
    assert [(each.vm, each.reason) for each in found.pending] == [("b", "no room"), ("c", "")]
    assert found.missing == ["d"]
    assert not found.is_decided
    assert statistics([a, b], pods).is_decided
    assert statistics([a], pods, ["a", "z"]).missing == ["z"]


def test_the_target_of_a_migration_is_not_where_a_vm_is() -> None:
    a = item("a")
    source, target = pod(a, node="n1"), pod(a, 1, node="n2")
    a["status"]["podName"] = source["metadata"]["name"]
    assert own_pod(a, [target, source]) is source
    a["status"]["podName"] = target["metadata"]["name"]
    assert own_pod(a, [target, source]) is target
    target["metadata"]["deletionTimestamp"] = NOW
    assert own_pod(a, [target, source]) is None


@pytest.mark.parametrize(
    ("node", "told", "phase", "reason"),
    [
        ("", {}, "Scheduling", None),
        ("", {"conditions": refused("0/3 nodes")}, "Scheduling", "0/3 nodes"),
        ("n1", {}, "Scheduled", None),
        ("n1", {"phase": "Running"}, "Running", None),
        ("n1", {"phase": "Failed", "reason": "OutOfcpu"}, "Failed", "OutOfcpu"),
        (
            "n1",
            {"containerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull"}}}]},
            "Scheduled",
            "ErrImagePull",
        ),
    ],
)
def test_the_phase_follows_the_pod(
    node: str, told: dict[str, Any], phase: str, reason: str | None
) -> None:
    found = pod_status(pod(item("a"), node=node, **told), {}, NOW)
    assert (found["phase"], found["reason"], found["nodeName"]) == (phase, reason, node or None)
    assert (found["allocatedCpu"], found["allocatedMemory"]) == ("1500m", "1Gi")


def test_a_status_that_says_all_is_not_written_again() -> None:
    running = pod(item("a"), node="n1", phase="Running")
    before = pod_status(running, {}, NOW)
    assert changed(before, pod_status(running, before, LATER)) == {}
    absent = {key: value for key, value in before.items() if value is not None}
    assert changed(absent, before) == {}


def test_conditions_stay_one_of_each_type_and_keep_when_they_turned() -> None:
    starting = pod_status(pod(item("a"), node="n1"), {}, NOW)
    running = pod_status(pod(item("a"), node="n1", phase="Running"), starting, LATER)
    when = {
        each["type"]: (each["status"], each["lastTransitionTime"]) for each in running["conditions"]
    }
    assert when == {"Scheduled": ("True", NOW), "Ready": ("True", LATER)}
    foreign = {"conditions": [{"type": "Mine", "status": "True"}]}
    idle = idle_status("Pending", "off", NOW, {"status": foreign})["conditions"]
    assert [each["type"] for each in idle] == ["Mine", "Scheduled", "Ready"]


def test_only_a_migration_under_way_has_a_target() -> None:
    assert migration_target({"migration": {"phase": "Copying", "targetPod": "p"}}) == "p"
    assert migration_target({"migration": {"phase": "Failed", "targetPod": "p"}}) is None
    assert migration_target({}) is None
