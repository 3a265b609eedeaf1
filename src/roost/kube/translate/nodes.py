"""A Kubernetes node as a host."""

from collections.abc import Iterable
from dataclasses import dataclass

from roost.kube.base.names import HOSTNAME_LABEL, RACK_LABEL, ZONE_LABEL
from roost.kube.base.objects import Object
from roost.kube.translate.amounts import CPU, DISK, MEMORY, PODS, parse_amounts
from roost.kube.translate.taints import node_taints, translate_taint
from roost.model.hosts import HostSpec, Resource, Scope

REGION_LABEL = "topology.kubernetes.io/region"
_ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}
_ARCHITECTURE_LABEL = "kubernetes.io/arch"
_VOLUMES = "attachable-volumes-"


@dataclass(frozen=True, slots=True)
class Topology:
    """Which node labels are roost's fault domains; a host is always one itself."""

    zone: str = ZONE_LABEL
    rack: str = RACK_LABEL

    def scope(self, key: str) -> Scope | None:
        """Return the scope of a topology key, or None for one that has no place here."""
        return {HOSTNAME_LABEL: Scope.HOST, self.zone: Scope.ZONE, self.rack: Scope.RACK}.get(key)

    @classmethod
    def of(cls, keys: Iterable[str]) -> "Topology":
        """Return the topology for the keys that rules speak of.

        A key that is not a usual one takes the place of the rack, or else that of the zone, when
        nobody speaks of those.
        """
        spoken = set(keys)
        others = sorted(spoken - {HOSTNAME_LABEL, ZONE_LABEL, RACK_LABEL})
        zone = ZONE_LABEL
        rack = RACK_LABEL if RACK_LABEL in spoken or not others else others.pop(0)
        if ZONE_LABEL not in spoken and others:
            zone = others.pop(0)
        return cls(zone, rack)


USUAL = Topology()


def translate_node(node: Object, topology: Topology = USUAL) -> HostSpec:
    """Return the host of a node."""
    metadata = node["metadata"]
    labels = metadata.get("labels") or {}
    status = node.get("status") or {}
    amounts = parse_amounts(status.get("allocatable") or status.get("capacity"))
    base = {name: amounts.pop(name, 0) for name in (CPU, MEMORY, DISK, PODS)}
    architecture = labels.get(_ARCHITECTURE_LABEL, "amd64")
    return HostSpec(
        name=metadata["name"],
        cpu=Resource(base[CPU]),
        memory=Resource(base[MEMORY]),
        disk=Resource(base[DISK]),
        extended=tuple(
            (name, Resource(amount))
            for name, amount in sorted(amounts.items())
            if not name.startswith(_VOLUMES)  # counted by volumes, not asked for by pods
        ),
        zone=labels.get(topology.zone, ""),
        rack=labels.get(topology.rack, ""),
        site=labels.get(REGION_LABEL, ""),
        labels=tuple(sorted(labels.items())),
        taints=tuple(dict.fromkeys(translate_taint(taint) for taint in node_taints(node))),
        architecture=_ARCHITECTURES.get(architecture, architecture),
        max_vms=base[PODS],
    )
