"""Launcher pods: the pod in which a VM runs, as the scheduler sees it.

The pod asks for what the VM is charged for; what the VM uses of it stands in annotations, for
metrics. The VM's rules become node affinity, pod affinity and spread constraints. While a VM
moves it has two pods, and neither may be in the other's way: see `_others` and `_members`.
"""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct, field

from roost.base.errors import Conflict, NotFound
from roost.kube.base.client import PODS, VMS, Kube
from roost.kube.base.names import (
    APP,
    APP_LABEL,
    CPU_CORES_ANNOTATION,
    CPU_UTILIZATION_ANNOTATION,
    DIRTY_RATE_ANNOTATION,
    DOMAIN_ANNOTATION,
    DOMAIN_LABEL,
    EVICT_ONLY_ANNOTATION,
    FAKE_TAINT_KEY,
    FAKE_TAINT_VALUE,
    FINALIZER,
    GROUP,
    GROUP_LABEL,
    HOSTNAME_LABEL,
    LAUNCHER_LABEL,
    MEMBER,
    MEMORY_BYTES_ANNOTATION,
    MEMORY_UTILIZATION_ANNOTATION,
    MIGRATION_LABEL,
    NAME_LABEL,
    NODE_KIND,
    NODE_LABEL,
    POD_PREFIX,
    ZONE_LABEL,
)
from roost.kube.base.objects import Object
from roost.kube.vms.spec import CPU_ALLOCATION_RATIO, VM, Group, number_text

#: As labels are asked for: all launcher pods.
LAUNCHERS = f"{APP_LABEL}={APP}"
_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"
_SUFFIX = 5
_SOFT_WEIGHT = 100
_FREE_TRIES = 10


class LauncherSettings(Struct, kw_only=True, frozen=True):
    """What all launcher pods of a cluster share."""

    #: Nodes that VMs may stand on; fake ones unless told otherwise.
    node_selector: dict[str, str] = field(default_factory=lambda: {NODE_LABEL: NODE_KIND})
    scheduler: str = ""  # which scheduler is asked; the cluster's own when empty
    image: str = "registry.k8s.io/pause:3.10"  # never pulled on fake nodes


def pod_name(vm_name: str, uid: str, number: int) -> str:
    """Return the name of a VM's pod: number 0 is the first, -1 takes its place when it is lost, and
    so on; the target of a migration has the migration's number.

    The same question gives the same name, so that nobody can create a pod twice. And no name comes
    twice: some who delete pods, KWOK among them, go by the name, and may come late.
    """
    rest = int.from_bytes(hashlib.sha256(f"{uid}/{number}".encode()).digest()[:8], "big")
    suffix = ""
    for _ in range(_SUFFIX):
        rest, digit = divmod(rest, len(_ALPHABET))
        suffix += _ALPHABET[digit]
    return f"{POD_PREFIX}-{vm_name}-{suffix}"


def own_number(item: Object) -> int:
    """Return the number of the pod that a VM has next, or has had since the last one was lost."""
    return -int((item.get("status") or {}).get("restarts") or 0)


def own_name(item: Object) -> str:
    """Return the name of the pod that a VM runs in, or would if it had one."""
    named = (item.get("status") or {}).get("podName")
    if named:
        return str(named)
    metadata = item["metadata"]
    return pod_name(metadata["name"], metadata["uid"], own_number(item))


def launcher_pod(
    vm: VM,
    owner: Object,
    number: int,
    *,
    exclude_nodes: Sequence[str] = (),
    avoid_nodes: Sequence[str] = (),
    node: str = "",
    settings: LauncherSettings | None = None,
) -> Object:
    """Return the pod of a VM; `owner` is the VirtualMachine object as the cluster keeps it.

    With a number above 0 it is the target of that migration: the VM's present pod, which `owner`
    names in its status, does not count for the rules of the VM's groups. A forced node goes past
    the scheduler; the VM's own wish for one does not hold for targets. Nodes to avoid will do when
    no other does; nodes to exclude never.
    """
    settings = settings or LauncherSettings()
    name = pod_name(vm.name, owner["metadata"]["uid"], number)
    present = (owner.get("status") or {}).get("podName") or ""
    moving = present if number > 0 and present != name else ""
    kept_off = [*exclude_nodes, *avoid_nodes]
    node = node or (vm.node if number <= 0 and vm.node not in kept_off else "")
    spec: Object = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [
            {
                "name": "compute",
                "image": settings.image,
                "resources": {
                    "requests": {
                        "cpu": f"{-(-vm.cpu_milli // CPU_ALLOCATION_RATIO)}m",
                        "memory": str(vm.memory_bytes),
                    }
                },
            }
        ],
        "tolerations": [
            {
                "key": FAKE_TAINT_KEY,
                "operator": "Equal",
                "value": FAKE_TAINT_VALUE,
                "effect": "NoSchedule",
            }
        ],
    }
    # A forced node is taken as it is: a kubelet would refuse a pod whose selector it fails.
    if selector := vm.node_labels if node else {**settings.node_selector, **vm.node_labels}:
        spec["nodeSelector"] = dict(selector)
    if affinity := _affinity(vm, exclude_nodes, avoid_nodes, moving):
        spec["affinity"] = affinity
    if spread := [_spread(group, moving) for group in vm.groups if group.rule == "spread"]:
        spec["topologySpreadConstraints"] = spread
    if settings.scheduler:
        spec["schedulerName"] = settings.scheduler
    if node:
        spec["nodeName"] = node
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": vm.namespace,
            "labels": _labels(vm, name, number),
            "annotations": {
                DOMAIN_ANNOTATION: vm.name,
                EVICT_ONLY_ANNOTATION: "true",
                **annotations(vm),
            },
            "finalizers": [FINALIZER],
            "ownerReferences": [
                {
                    "apiVersion": VMS.api_version,
                    "kind": VMS.kind,
                    "name": vm.name,
                    "uid": owner["metadata"]["uid"],
                    "controller": True,
                    # Deletion in the foreground waits for pods, which the controller frees.
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": spec,
    }


def annotations(vm: VM) -> dict[str, str]:
    """Return what is noted of a VM on its pod: what it was given, and what it uses of that."""
    return {
        CPU_CORES_ANNOTATION: number_text(vm.cpu_milli / 1000),
        MEMORY_BYTES_ANNOTATION: str(vm.memory_bytes),
        CPU_UTILIZATION_ANNOTATION: number_text(vm.cpu_utilization),
        MEMORY_UTILIZATION_ANNOTATION: number_text(vm.memory_utilization),
        DIRTY_RATE_ANNOTATION: number_text(vm.dirty_rate_mbps),
    }


def used_annotations(vm: VM) -> dict[str, str]:
    """Return those of the annotations that may change while the pod runs."""
    given = {CPU_CORES_ANNOTATION, MEMORY_BYTES_ANNOTATION}
    return {key: value for key, value in annotations(vm).items() if key not in given}


def owner_of(pod: Object) -> tuple[str, str] | None:
    """Return name and uid of the VM whose pod this is; None for a pod that is not ours."""
    for each in pod["metadata"].get("ownerReferences") or ():
        ours = each["kind"] == VMS.kind and each["apiVersion"].startswith(f"{GROUP}/")
        if ours and each.get("controller"):
            return each["name"], each["uid"]
    return None


def is_protected(pod: Object) -> bool:
    """Say whether a pod stays until the controller lets it go."""
    return FINALIZER in (pod["metadata"].get("finalizers") or ())


def is_going(item: Object) -> bool:
    """Say whether an object was deleted and only waits for its finalizers."""
    return bool(item["metadata"].get("deletionTimestamp"))


async def free_pod(kube: Kube, pod: Object) -> None:
    """Let a pod go and delete it at once; one that is gone, or another by now, is no error."""
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    uid = pod["metadata"]["uid"]
    for _ in range(_FREE_TRIES):
        if not is_protected(pod):
            break
        metadata: Object = pod["metadata"]
        change = {
            "metadata": {
                "finalizers": [each for each in metadata["finalizers"] if each != FINALIZER],
                # Nobody else's finalizer is lost: the list is written only as it was read.
                "resourceVersion": metadata["resourceVersion"],
            }
        }
        try:
            pod = await kube.patch(PODS, name, change, namespace)
        except NotFound:
            return
        except Conflict:
            try:
                pod = await kube.get(PODS, name, namespace)
            except NotFound:
                return
        if pod["metadata"].get("uid") != uid:
            return
    else:
        raise Conflict(f"pod {namespace}/{name} changes too fast to let it go")
    await kube.delete(PODS, name, namespace, grace_s=0, uid=uid)


def _labels(vm: VM, name: str, number: int) -> dict[str, str]:
    labels = {APP_LABEL: APP, DOMAIN_LABEL: vm.name, NAME_LABEL: vm.name}
    labels[LAUNCHER_LABEL] = launcher_id(name)
    labels |= {f"{GROUP_LABEL}{group.name}": MEMBER for group in vm.groups}
    if number > 0:
        labels[MIGRATION_LABEL] = str(number)
    return labels


def launcher_id(name: str) -> str:
    """Return what stands for a pod's name in a label, which takes 63 characters at most."""
    return hashlib.sha256(name.encode()).hexdigest()[:16]


# Rules


def _affinity(
    vm: VM, exclude_nodes: Sequence[str], avoid_nodes: Sequence[str], moving: str
) -> Object:
    affinity: Object = {}
    where: Object = {}
    term: Object = {}
    apart = list(_apart_terms(vm, "anti-affinity", moving))
    if vm.zones:
        term["matchExpressions"] = [_term(ZONE_LABEL, "In", vm.zones)]
    if exclude_nodes:
        if moving and any(group.rule == "spread" and group.hard for group in vm.groups):
            # The scheduler does not count pods of nodes that node affinity excludes. A hard spread
            # would be broken by what it does not see there, so the source is kept away from by
            # being the same VM's instead.
            own = {"matchLabels": {NAME_LABEL: vm.name}}
            apart.append((True, {"labelSelector": own, "topologyKey": HOSTNAME_LABEL}))
        else:
            off = _off(exclude_nodes)
            term.setdefault("matchExpressions", []).extend(off["matchExpressions"])
            term["matchFields"] = off["matchFields"]
    if term:
        where["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": [term]}
    if avoid_nodes:
        where["preferredDuringSchedulingIgnoredDuringExecution"] = [
            {"weight": _SOFT_WEIGHT, "preference": _off(avoid_nodes)}
        ]
    if where:
        affinity["nodeAffinity"] = where
    if together := list(_apart_terms(vm, "affinity", moving)):
        affinity["podAffinity"] = _hard_and_soft(together)
    if apart:
        affinity["podAntiAffinity"] = _hard_and_soft(apart)
    return affinity


def _off(nodes: Sequence[str]) -> Object:
    return {
        "matchExpressions": [_term(HOSTNAME_LABEL, "NotIn", nodes)],
        # Not every cluster's nodes are named as their label says. One value is allowed each.
        "matchFields": [_term("metadata.name", "NotIn", [node]) for node in nodes],
    }


def _apart_terms(vm: VM, rule: str, moving: str) -> Iterator[tuple[bool, Object]]:
    for group in vm.groups:
        if group.rule == rule:
            selector = _members(group, moving) if rule == "affinity" else _others(group, vm)
            yield group.hard, {"labelSelector": selector, "topologyKey": group.topology_key}


def _hard_and_soft(terms: list[tuple[bool, Object]]) -> Object:
    found: Object = {}
    if hard := [term for is_hard, term in terms if is_hard]:
        found["requiredDuringSchedulingIgnoredDuringExecution"] = hard
    if soft := [term for is_hard, term in terms if not is_hard]:
        found["preferredDuringSchedulingIgnoredDuringExecution"] = [
            {"weight": _SOFT_WEIGHT, "podAffinityTerm": term} for term in soft
        ]
    return found


def _spread(group: Group, moving: str) -> Object:
    return {
        "maxSkew": group.max_skew,
        "topologyKey": group.topology_key,
        "whenUnsatisfiable": "DoNotSchedule" if group.hard else "ScheduleAnyway",
        "labelSelector": _members(group, moving),
    }


def _others(group: Group, vm: VM) -> Object:
    """Return a selector of the other members: no pod of the VM itself, now or later.

    Anti-affinity is asked in both directions: the source's own rule must let the target in, too,
    and was written before anyone knew of a target.
    """
    return {
        "matchLabels": {f"{GROUP_LABEL}{group.name}": MEMBER},
        "matchExpressions": [_term(NAME_LABEL, "NotIn", [vm.name])],
    }


def _members(group: Group, moving: str) -> Object:
    """Return a selector of all members, the new pod among them, but not the one it takes over from.

    The new pod has to match: the first of an affinity group is let in because it matches its own
    rule, and a spread counts it where it would stand.
    """
    selector: Object = {"matchLabels": {f"{GROUP_LABEL}{group.name}": MEMBER}}
    if moving:
        selector["matchExpressions"] = [_term(LAUNCHER_LABEL, "NotIn", [launcher_id(moving)])]
    return selector


def _term(key: str, operator: str, values: Sequence[str]) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


__all__ = [
    "LAUNCHERS", "LauncherSettings", "annotations", "free_pod", "is_going",
    "is_protected", "launcher_id", "launcher_pod", "own_name", "own_number", "owner_of", "pod_name",
    "used_annotations",
]  # fmt: skip
