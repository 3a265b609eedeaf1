"""Nodes that nobody runs: what a fake node looks like, and how KWOK plays its kubelet.

A pod on a fake node becomes Running at once. One that is deleted goes away only when nobody keeps
it by a finalizer: KWOK's own rules would go over that, and the end of a VM's pod is the
controller's to decide.
"""

from typing import Annotated

from msgspec import Meta, Struct

from roost.base.units import parse_bytes, parse_cpu
from roost.kube.base.names import (
    FAKE_TAINT_KEY,
    FAKE_TAINT_VALUE,
    HOSTNAME_LABEL,
    NODE_KIND,
    NODE_LABEL,
    RACK_LABEL,
    SCHEDULABLE_LABEL,
    ZONE_LABEL,
)
from roost.kube.base.objects import Object


class NodePool(Struct, kw_only=True, forbid_unknown_fields=True):
    """Some equal fake nodes; they stand in turn in the zones, and there in turn in the racks."""

    count: Annotated[int, Meta(ge=1, le=100_000)] = 5
    name: str = "kwok-node"  # of the nodes: NAME-1, NAME-2, ...
    cpu: str = "32"
    memory: str = "128GiB"
    pods: Annotated[int, Meta(ge=1)] = 110
    zones: tuple[str, ...] = ()
    racks: Annotated[int, Meta(ge=0)] = 0  # in each zone, called ZONE-r0, ZONE-r1, ...
    labels: dict[str, str] = {}

    def __post_init__(self) -> None:
        parse_cpu(self.cpu)
        parse_bytes(self.memory)

    def nodes(self) -> list[Object]:
        """Return the objects of all of them."""
        return [self.node(number) for number in range(self.count)]

    def node(self, number: int) -> Object:
        """Return the object of one of them, counted from 0."""
        name = f"{self.name}-{number + 1}"
        labels = {
            NODE_LABEL: NODE_KIND,
            SCHEDULABLE_LABEL: "true",
            HOSTNAME_LABEL: name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            "node-role.kubernetes.io/worker": "",
        }
        zone = self.zones[number % len(self.zones)] if self.zones else ""
        if zone:
            labels[ZONE_LABEL] = zone
        if self.racks:
            within = number // max(len(self.zones), 1)
            labels[RACK_LABEL] = f"{zone or 'rack'}-r{within % self.racks}"
        amounts = {
            "cpu": f"{parse_cpu(self.cpu)}m",
            "memory": str(parse_bytes(self.memory)),
            "pods": str(self.pods),
        }
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": labels | self.labels,
                "annotations": {"node.alpha.kubernetes.io/ttl": "0"},
            },
            "spec": {
                "taints": [
                    {"key": FAKE_TAINT_KEY, "value": FAKE_TAINT_VALUE, "effect": "NoSchedule"}
                ]
            },
            "status": {
                "capacity": amounts,
                "allocatable": amounts,
                "phase": "Running",
                "conditions": [
                    {"type": "Ready", "status": "True", "reason": "FakeNode", "message": "by KWOK"}
                ],
            },
        }


def is_ready(node: Object) -> bool:
    """Say whether a node's kubelet says that it is ready."""
    conditions = node.get("status", {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _when(path: str, operator: str, *values: str) -> Object:
    return {"key": path, "operator": operator} | ({"values": list(values)} if values else {})


def _stage(name: str, kind: str, when: list[Object], then: Object) -> Object:
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": kind},
            "selector": {"matchExpressions": when},
            "next": then,
        },
    }


_READY = '.status.conditions.[] | select( .type == "Ready" ) | .status'

_NODE_STATUS = """
{{ $now := Now }}
conditions:
{{ range NodeConditions }}
- type: {{ .type | Quote }}
  status: {{ .status | Quote }}
  reason: {{ .reason | Quote }}
  message: {{ .message | Quote }}
  lastHeartbeatTime: {{ $now | Quote }}
  lastTransitionTime: {{ $now | Quote }}
{{ end }}
phase: Running
"""

_POD_STATUS = """
{{ $now := Now }}
phase: Running
startTime: {{ $now | Quote }}
conditions:
- { type: Initialized, status: "True", lastTransitionTime: {{ $now | Quote }} }
- { type: Ready, status: "True", lastTransitionTime: {{ $now | Quote }} }
- { type: ContainersReady, status: "True", lastTransitionTime: {{ $now | Quote }} }
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  ready: true
  restartCount: 0
  state: { running: { startedAt: {{ $now | Quote }} } }
{{ end }}
"""


def kwok_stages() -> list[Object]:
    """Return the rules by which KWOK plays the kubelets."""
    alive = _when(".metadata.deletionTimestamp", "DoesNotExist")
    return [
        _stage(
            "node-ready", "Node", [_when(_READY, "NotIn", "True")],
            {"statusTemplate": _NODE_STATUS},
        ),
        _stage(
            "pod-running", "Pod",
            [alive, _when(".status.phase", "In", "Pending"), _when(_READY, "NotIn", "True")],
            {"statusTemplate": _POD_STATUS},
        ),
        _stage(
            "pod-gone", "Pod",
            [
                _when(".metadata.deletionTimestamp", "Exists"),
                _when(".metadata.finalizers", "DoesNotExist"),
            ],
            {"delete": True},
        ),
    ]  # fmt: skip
