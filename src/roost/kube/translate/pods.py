"""A pod as a request, or, when it is on a node, as a VM there."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import msgspec

from roost.kube.base.objects import Key, Object, key_of
from roost.kube.translate.amounts import CPU, DISK, MEMORY, pod_amounts
from roost.kube.translate.cluster import Cluster
from roost.kube.translate.groups import translate_groups
from roost.kube.translate.nodes import translate_node
from roost.kube.translate.nodeselectors import NodeChoice, node_choice, node_term
from roost.kube.translate.taints import translate_tolerations
from roost.kube.translate.unsupported import Unsupported
from roost.model.constraints import Constraints, Preference
from roost.model.description import FleetDescription, PlacedVM
from roost.model.flow import PlaceRequest
from roost.model.resources import Demand

_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
#: Volumes that any node can mount; all others have a say in where the pod may go.
_FREE_VOLUMES = frozenset(
    {"configMap", "downwardAPI", "emptyDir", "hostPath", "image", "nfs", "projected", "secret"}
)
#: Fields of a pod that have a say in where it may go, and that roost does not know.
_UNKNOWN = {
    "resourceClaims": "devices claimed from a driver",
    "schedulingGates": "waits until its gates are lifted",
    "schedulingGroup": "is placed with its pod group or not at all",
    "workloadRef": "is placed with its workload or not at all",
}


@dataclass(frozen=True, slots=True)
class Translated:
    """A request, and what of the pod is not in it."""

    request: PlaceRequest
    unsupported: tuple[Unsupported, ...] = ()

    @property
    def is_exact(self) -> bool:
        """Say whether roost finds the same nodes feasible as Kubernetes."""
        return not any(each.hard for each in self.unsupported)


class Translator:
    """Translates the pods of one cluster as it is; pods of one template are worked out once."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._kept: dict[bytes, Translated] = {}

    def pod(self, pod: Object) -> Translated:
        """Return the request of a pod that waits; the pod is one of the cluster's."""
        metadata = pod["metadata"]
        alike = (metadata.get("namespace"), metadata.get("labels"), pod["spec"])
        key = msgspec.json.encode(alike, order="deterministic")
        if key not in self._kept:
            self._kept[key] = translate_pod(self.cluster, pod)
        kept = self._kept[key]
        return replace(kept, request=replace(kept.request, name=name_of(pod)))


def name_of(pod: Object) -> str:
    """Return what a pod is called as a VM."""
    return "/".join(key_of(pod))


def translate_pod(cluster: Cluster, pod: Object) -> Translated:
    """Return the request of a pod that waits; the pod is one of the cluster's."""
    choice = node_choice(pod)
    demand, unsupported = translate_demand(pod)
    tolerations, more = translate_tolerations(pod, cluster.taints)
    unsupported += more
    wishes, more = _preferences(pod)
    unsupported += more
    groups, more = translate_groups(cluster, pod, choice)
    unsupported += more
    unsupported += _unknown(pod["spec"])
    constraints = replace(
        _constraints(choice, pod["spec"].get("nodeName") or ""),
        tolerations=tolerations,
        preferences=wishes,
    )
    request = PlaceRequest(
        name_of(pod), demand, constraints, groups, priority=pod["spec"].get("priority") or 0
    )
    return Translated(request, tuple(dict.fromkeys(unsupported)))


def translate_demand(pod: Object) -> tuple[Demand, list[Unsupported]]:
    """Return a pod's amounts; one that asks for nothing is charged the least there is."""
    amounts = pod_amounts(pod)
    unsupported = [
        Unsupported(f"resources.requests.{name}", "asks for none; counted as the smallest amount")
        for name in (CPU, MEMORY)
        if not amounts.get(name)
    ]
    base = [amounts.pop(name, 0) for name in (CPU, MEMORY, DISK)]
    extended = tuple((name, amount) for name, amount in sorted(amounts.items()) if amount)
    return Demand(max(base[0], 1), max(base[1], 1), base[2], extended), unsupported


def _constraints(choice: NodeChoice, node: str) -> Constraints:
    term = choice.only_term
    if term is None or (term.named is not None and not term.named):
        pinned = (node,) if node else ()
        return Constraints(choice.selector, pinned=pinned, predicate=choice.predicate())
    named = term.named or ()
    if node and named and node not in named:
        return Constraints(choice.selector, pinned=(node,), predicate=choice.predicate())
    return Constraints(term.labels, pinned=(node,) if node else named, excluded=term.not_named)


def _preferences(pod: Object) -> tuple[tuple[Preference, ...], list[Unsupported]]:
    found, unsupported = [], []
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    for each in affinity.get(_PREFERRED) or ():
        term = node_term(each["preference"])
        if term is None:
            continue
        if len(term.labels) == 1 and term.named is None and not term.not_named:
            found.append(Preference(term.labels[0], each["weight"]))
        else:
            unsupported.append(
                Unsupported(
                    "affinity.nodeAffinity, preferred",
                    "a wish of roost has one condition on labels",
                    hard=False,
                )
            )
    return tuple(found), unsupported


def _unknown(spec: Object) -> Iterator[Unsupported]:
    for field, why in _UNKNOWN.items():
        if spec.get(field):
            yield Unsupported(field, why)
    for volume in spec.get("volumes") or ():
        if kinds := volume.keys() - {"name"} - _FREE_VOLUMES:
            yield Unsupported("volumes", f"{min(kinds)} has a say in the node")
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    if any(port.get("hostPort") for each in containers for port in each.get("ports") or ()):
        yield Unsupported("containers.ports.hostPort", "roost does not count ports of hosts")


def describe(cluster: Cluster) -> tuple[FleetDescription, dict[Key, list[Unsupported]]]:
    """Return nodes and the pods on them as a fleet, and the amounts that are not exact.

    A pod is a member of every group that counts it, whether or not it carries the rule: its own
    place is decided.
    """
    topology = cluster.topology
    rules = [(rule, topology.scope(rule.key)) for rule in cluster.rules]
    groups = [(rule, rule.group(scope)) for rule, scope in rules if scope is not None]
    unsupported: dict[Key, list[Unsupported]] = {}
    vms = []
    for node, pods in cluster.placed.items():
        labels = cluster.nodes[node]["metadata"].get("labels") or {}
        there = [(rule, group) for rule, group in groups if rule.key in labels]
        for pod in pods:
            demand, inexact = translate_demand(pod)
            if inexact:
                unsupported[key_of(pod)] = inexact
            counted = (group.name for rule, group in there if rule.counts(pod))
            vms.append(PlacedVM(name_of(pod), node, demand, groups=tuple(dict.fromkeys(counted))))
    hosts = tuple(translate_node(node, topology) for node in cluster.nodes.values())
    distinct = tuple(dict.fromkeys(group for _, group in groups))
    return FleetDescription(hosts, distinct, tuple(vms)), unsupported
