"""Where the scheduler put VMs: read back by watch, with its own reason for each that waits."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from roost.kube.base.client import PODS, VMS, Kube
from roost.kube.base.mirror import Mirror
from roost.kube.base.objects import Object
from roost.kube.vms.launchers import LAUNCHERS, is_going, own_name, owner_of
from roost.kube.vms.status import why_unscheduled


class Waiting(Struct, frozen=True):
    """A VM whose pod has no node."""

    vm: str
    reason: str  # the scheduler's own words; '' before it has tried


class Statistics(Struct, kw_only=True, frozen=True):
    """Some VMs by where they are: on a node, waiting for one, or without any pod."""

    scheduled: dict[str, str]  # VM to node
    pending: list[Waiting]
    missing: list[str]

    @property
    def is_decided(self) -> bool:
        """Say whether the scheduler has spoken on every one."""
        return not self.missing and all(each.reason for each in self.pending)


def own_pod(item: Object, pods: Iterable[Object]) -> Object | None:
    """Return the pod in which a VM runs, or will; never the target of a migration."""
    uid, named = item["metadata"]["uid"], own_name(item)
    for pod in pods:
        if pod["metadata"]["name"] == named and not is_going(pod):
            owner = owner_of(pod)
            return pod if owner is not None and owner[1] == uid else None
    return None


def statistics(
    vms: Iterable[Object], pods: Iterable[Object], names: Sequence[str] | None = None
) -> Statistics:
    """Count VMs of one namespace; of `names`, those that have no object are missing, too."""
    by_owner: dict[str, list[Object]] = {}
    for pod in pods:
        if (owner := owner_of(pod)) is not None:
            by_owner.setdefault(owner[1], []).append(pod)
    items = {item["metadata"]["name"]: item for item in vms}
    scheduled: dict[str, str] = {}
    pending: list[Waiting] = []
    missing: list[str] = []
    for name in sorted(items) if names is None else names:
        own: Object | None = None
        if name in items:
            own = own_pod(items[name], by_owner.get(items[name]["metadata"]["uid"], ()))
        if own is None:
            missing.append(name)
        elif node := own["spec"].get("nodeName"):
            scheduled[name] = node
        else:
            pending.append(Waiting(name, why_unscheduled(own) or ""))
    return Statistics(scheduled=scheduled, pending=pending, missing=missing)


async def read_statistics(kube: Kube, namespace: str) -> Statistics:
    """Return where the VMs of a namespace are now."""
    vms = (await kube.list(VMS, namespace)).items
    pods = (await kube.list(PODS, namespace, labels=LAUNCHERS)).items
    return statistics(vms, pods)


async def node_of(kube: Kube, name: str, namespace: str) -> str:
    """Return the node that the scheduler chose for a VM; '' while it has none."""
    item = await kube.get(VMS, name, namespace)
    pods = (await kube.list(PODS, namespace, labels=LAUNCHERS)).items
    pod = own_pod(item, pods)
    return str((pod or {}).get("spec", {}).get("nodeName") or "")


async def until_decided(
    vms: Mirror, pods: Mirror, namespace: str, names: Sequence[str], limit_s: float
) -> Statistics:
    """Wait until every VM has a node or the scheduler's word that it cannot have one."""

    def decided() -> Statistics | None:
        found = statistics(
            (item for name in names if (item := vms.get(name, namespace))),
            (pod for pod in pods if pod["metadata"]["namespace"] == namespace),
            names,
        )
        return found if found.is_decided else None

    def known() -> bool:
        return all(vms.get(name, namespace) for name in names)

    await vms.until(known, limit_s, "the VMs")
    return await pods.until(decided, limit_s, "the scheduler's decision")
