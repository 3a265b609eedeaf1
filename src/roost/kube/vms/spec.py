"""A VM as Kubernetes keeps it: what is asked for, as a VirtualMachine object and back.

Two things are kept apart: what is allocated (and charged by the scheduler), and what is used of it
(which only metrics show).
"""

from decimal import Decimal
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from roost.base.errors import InvalidRequest
from roost.base.units import exact_cpu, parse_cpu
from roost.kube.base.client import VMS
from roost.kube.base.names import SCOPE_LABELS
from roost.kube.base.objects import Object
from roost.kube.base.quantities import bytes_quantity, parse_quantity

Ratio = Annotated[float, Meta(ge=0.0, le=1.0)]
PHASES = ("Pending", "Scheduling", "Scheduled", "Running", "Failed")

#: KubeVirt's usual ratio: a pod asks for a tenth of the cores its VM sees.
CPU_ALLOCATION_RATIO = 10

_GROUP_HINT = (
    "Maybe 'web anti-affinity host': a name; affinity, anti-affinity or spread; host, rack or "
    "zone; soft for a wish; max-skew=2."
)


class Group(Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A rule that a VM shares with the other members of a group in its namespace."""

    name: Annotated[str, Meta(pattern=r"^[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?$")]
    rule: Literal["affinity", "anti-affinity", "spread"]
    scope: Literal["host", "rack", "zone"] = "host"
    hard: bool = True
    max_skew: Annotated[int, Meta(ge=1)] = 1

    @property
    def topology_key(self) -> str:
        """Return the node label whose values are the domains."""
        return SCOPE_LABELS[self.scope]


class VM(Struct, kw_only=True, frozen=True):
    """What is asked for."""

    name: str
    namespace: str = "default"
    cpu_milli: int
    memory_bytes: int
    cpu_utilization: Ratio = 0.5
    memory_utilization: Ratio = 0.8
    dirty_rate_mbps: Annotated[float, Meta(ge=0.0)] = 800.0
    running: bool = True
    zones: tuple[str, ...] = ()
    node_labels: dict[str, str] = {}
    groups: tuple[Group, ...] = ()
    node: str = ""  # forced: the scheduler is not asked

    def __post_init__(self) -> None:
        if self.cpu_milli <= 0 or self.memory_bytes <= 0:
            raise ValueError(f"VM {self.name!r} needs cpu and memory")


def parse_group(text: str) -> Group:
    """Return a group as people write it: NAME RULE [SCOPE] [soft] [max-skew=N]."""
    words = text.split()
    if len(words) < 2:
        raise InvalidRequest(f"group {text!r} has no rule", hint=_GROUP_HINT)
    asked: dict[str, Any] = {"name": words[0], "rule": words[1]}
    for word in words[2:]:
        if word in SCOPE_LABELS:
            asked["scope"] = word
        elif word in ("soft", "hard"):
            asked["hard"] = word == "hard"
        elif word.startswith("max-skew="):
            asked["max_skew"] = word.partition("=")[2]
        else:
            raise InvalidRequest(f"group {text!r}: {word!r} is not known", hint=_GROUP_HINT)
    try:
        return msgspec.convert(asked, Group, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"group {text!r}: {error}", hint=_GROUP_HINT) from error


def group_text(group: Group) -> str:
    """Return a group as people write it."""
    words = [group.name, group.rule, group.scope]
    words += [] if group.hard else ["soft"]
    words += [f"max-skew={group.max_skew}"] if group.max_skew != 1 else []
    return " ".join(words)


def number_text(ratio: float) -> str:
    """Return a number so that `float` gives it back exactly, and never with an exponent."""
    text = format(Decimal(repr(ratio)), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def to_object(vm: VM) -> Object:
    """Return the VirtualMachine object that asks for a VM."""
    placement: Object = {}
    if vm.zones:
        placement["zones"] = list(vm.zones)
    if vm.node_labels:
        placement["nodeSelector"] = dict(vm.node_labels)
    if vm.node:
        placement["nodeName"] = vm.node
    if vm.groups:
        placement["groups"] = [
            {
                "name": group.name,
                "rule": group.rule,
                "scope": group.scope,
                "hard": group.hard,
                "maxSkew": group.max_skew,
            }
            for group in vm.groups
        ]
    spec: Object = {
        "running": vm.running,
        "resources": {"cpu": exact_cpu(vm.cpu_milli), "memory": bytes_quantity(vm.memory_bytes)},
        "utilization": {
            "cpu": number_text(vm.cpu_utilization),
            "memory": number_text(vm.memory_utilization),
        },
        "migration": {"dirtyRateMbps": vm.dirty_rate_mbps},
    }
    if placement:
        spec["placement"] = placement
    return {
        "apiVersion": VMS.api_version,
        "kind": VMS.kind,
        "metadata": {"name": vm.name, "namespace": vm.namespace},
        "spec": spec,
    }


def from_object(item: Object) -> VM:
    """Return what a VirtualMachine object asks for; InvalidRequest when it makes no sense."""
    metadata, spec = item["metadata"], item.get("spec") or {}
    resources, used = spec.get("resources") or {}, spec.get("utilization") or {}
    placement = spec.get("placement") or {}
    asked: dict[str, Any] = {
        "name": metadata["name"],
        "namespace": metadata.get("namespace", "default"),
        "cpu_milli": parse_cpu(str(resources.get("cpu", ""))),
        "memory_bytes": parse_quantity(str(resources.get("memory", ""))),
        "cpu_utilization": float(used.get("cpu", 0.5)),
        "memory_utilization": float(used.get("memory", 0.8)),
        "dirty_rate_mbps": float((spec.get("migration") or {}).get("dirtyRateMbps", 800.0)),
        "running": spec.get("running", True),
        "zones": placement.get("zones", ()),
        "node_labels": placement.get("nodeSelector", {}),
        "node": placement.get("nodeName", ""),
        "groups": [
            {("max_skew" if key == "maxSkew" else key): value for key, value in group.items()}
            for group in placement.get("groups", ())
        ],
    }
    try:
        return msgspec.convert(asked, VM)
    except (msgspec.ValidationError, ValueError) as error:
        raise InvalidRequest(f"VirtualMachine {metadata['name']}: {error}") from error
