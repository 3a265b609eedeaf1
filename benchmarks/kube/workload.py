"""Nodes, and the four kinds of pods; everything follows from a number."""

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum

from benchmarks.api.verifying import Wrong
from roost.kube.base.names import HOSTNAME_LABEL, RACK_LABEL, ZONE_LABEL
from roost.kube.base.objects import Object
from roost.model.groups import GroupRule, GroupSpec
from roost.model.hosts import Scope

ZONES = ("a", "b", "c")
_RACKS = 50
_CORES, _MEMORY_GIB, _PODS = 32, 256, 500
_POD_MILLI, _POD_GIB = 500, 1
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_LIKE = {"matchLabels": {"app": "bench"}}


class Case(StrEnum):
    """What every pod of a run asks for besides cpu and memory."""

    PLAIN = "plain"
    SPREAD = "hard zone spread"
    APART = "anti-affinity on host"
    TOGETHER = "zone affinity"


def node(number: int) -> Object:
    """Return a node, counted from 0: ready, and nobody is behind it."""
    name = f"node-{number:05d}"
    amounts = {"cpu": str(_CORES), "memory": f"{_MEMORY_GIB}Gi", "pods": str(_PODS)}
    labels = {
        HOSTNAME_LABEL: name,
        ZONE_LABEL: ZONES[number % len(ZONES)],
        RACK_LABEL: f"r{number % _RACKS}",
    }
    return {
        "metadata": {"name": name, "labels": labels},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(case: Case, number: int) -> Object:
    """Return a pod that waits."""
    requests = {"cpu": f"{_POD_MILLI}m", "memory": f"{_POD_GIB}Gi"}
    spec: Object = {
        "containers": [{"name": "vm", "image": "vm", "resources": {"requests": requests}}]
    }
    term = {"labelSelector": _LIKE}
    match case:
        case Case.SPREAD:
            spec["topologySpreadConstraints"] = [
                term
                | {
                    "maxSkew": 1,
                    "topologyKey": ZONE_LABEL,
                    "whenUnsatisfiable": "DoNotSchedule",
                }
            ]
        case Case.APART:
            terms = [term | {"topologyKey": HOSTNAME_LABEL}]
            spec["affinity"] = {"podAntiAffinity": {_REQUIRED: terms}}
        case Case.TOGETHER:
            terms = [term | {"topologyKey": ZONE_LABEL}]
            spec["affinity"] = {"podAffinity": {_REQUIRED: terms}}
    metadata = {"name": f"pod-{number:05d}", "labels": {"app": "bench"}}
    return {"metadata": metadata, "spec": spec}


_GROUPS = {
    Case.SPREAD: GroupSpec("bench", GroupRule.SPREAD, Scope.ZONE),
    Case.APART: GroupSpec("bench", GroupRule.ANTI_AFFINITY, Scope.HOST),
    Case.TOGETHER: GroupSpec("bench", GroupRule.AFFINITY, Scope.ZONE),
}


def create_body(case: Case, number: int) -> Object:
    """Return the same as a request to roost's API."""
    body: Object = {
        "name": f"pod-{number:05d}",
        "demand": {"cpu": _POD_MILLI / 1000, "memory": f"{_POD_GIB}GiB"},
    }
    if group := _GROUPS.get(case):
        rule = {"name": group.name, "rule": group.rule.label, "scope": group.scope.label}
        body["groups"] = [rule]
    return body


def same_rule(case: Case, groups: Sequence[GroupSpec | str]) -> bool:
    """Say whether what was translated from a pod is the rule that the API is asked for."""
    expected = [] if case is Case.PLAIN else [_GROUPS[case]]
    found = [group for group in groups if isinstance(group, GroupSpec)]
    return [_meaning(group) for group in found] == [_meaning(group) for group in expected]


def _meaning(group: GroupSpec) -> tuple[object, ...]:
    return group.rule, group.scope, group.hard, group.max_skew


def check(name: str, case: Case, nodes: Sequence[Object], placed: Mapping[str, str]) -> None:
    """Raise Wrong unless the pods' nodes satisfy the rule and nothing is over its capacity."""
    zones = {each["metadata"]["name"]: each["metadata"]["labels"][ZONE_LABEL] for each in nodes}
    if unknown := set(placed.values()) - zones.keys():
        raise Wrong(f"{name}: {len(unknown)} pods are on nodes that do not exist")
    on_node = Counter(placed.values())
    fits = min(_CORES * 1000 // _POD_MILLI, _MEMORY_GIB // _POD_GIB, _PODS)
    most = max(on_node.values())
    if most > fits:
        raise Wrong(f"{name}: a node has {most} pods, of which {fits} fit")
    by_zone = Counter(zones[where] for where in placed.values())
    counts = [by_zone[zone] for zone in set(zones.values())]
    if case is Case.SPREAD and max(counts) - min(counts) > 1:
        raise Wrong(f"{name}: zones have {dict(by_zone)}")
    if case is Case.APART and most > 1:
        raise Wrong(f"{name}: a node has {most} pods that keep apart")
    if case is Case.TOGETHER and len(by_zone) > 1:
        raise Wrong(f"{name}: pods that keep together are in {dict(by_zone)}")
