"""A cluster as two lists of objects, with what translating a pod asks about it kept at hand."""

from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property

from roost.kube.base.names import HOSTNAME_LABEL
from roost.kube.base.objects import Key, Object, key_of
from roost.kube.translate.nodes import Topology
from roost.kube.translate.podrules import AntiTerm, PodRule, anti_terms, pod_rules
from roost.kube.translate.taints import node_taints

_FINISHED = ("Succeeded", "Failed")


class Cluster:
    """Nodes, and pods that have not finished; those that wait are part of it too."""

    def __init__(self, nodes: Iterable[Object], pods: Iterable[Object] = ()) -> None:
        self.nodes = {node["metadata"]["name"]: node for node in nodes}
        self.pods = [pod for pod in pods if (pod.get("status") or {}).get("phase") not in _FINISHED]

    @cached_property
    def placed(self) -> dict[str, list[Object]]:
        """Return the pods on each node that is there; those that end take room until they have."""
        found: dict[str, list[Object]] = defaultdict(list)
        for pod in self.pods:
            if (node := pod["spec"].get("nodeName")) in self.nodes:
                found[node].append(pod)
        return found

    @cached_property
    def taints(self) -> list[Object]:
        """Return every taint of any node once."""
        found = {
            (taint["key"], taint.get("value") or "", taint["effect"]): taint
            for node in self.nodes.values()
            for taint in node_taints(node)
        }
        return [found[each] for each in sorted(found)]

    @cached_property
    def rules(self) -> list[PodRule]:
        """Return every rule of any pod once, those that can be groups."""
        return list(dict.fromkeys(rule for pod in self.pods for rule in pod_rules(pod)[0]))

    @cached_property
    def topology(self) -> Topology:
        """Return the fault domains for the keys that rules speak of."""
        return Topology.of(rule.key for rule in self.rules)

    @cached_property
    def anti_terms(self) -> dict[AntiTerm, set[Key]]:
        """Return every required anti-affinity term with the pods that carry it."""
        found: dict[AntiTerm, set[Key]] = defaultdict(set)
        for pod in self.pods:
            for term in anti_terms(pod):
                found[term].add(key_of(pod))
        return found

    def matching(self, term: AntiTerm) -> set[Key]:
        """Return the pods that a term keeps away, or might."""
        return {key_of(pod) for pod in self.pods if term.matches(pod)}

    def values(self, key: str) -> dict[str, str | None]:
        """Return the domain of each node under a topology key; None where it has none."""
        return {
            name: (node["metadata"].get("labels") or {}).get(key)
            for name, node in self.nodes.items()
        }

    @cached_property
    def hosts_are_domains(self) -> bool:
        """Say whether every node has a host name that no other has."""
        names = list(self.values(HOSTNAME_LABEL).values())
        return None not in names and len(set(names)) == len(names)
