"""VMs by request: one created or deleted, or a whole list brought about.

These are what a command or a scenario asks for; the controller does the rest. Deleting works
without a controller, too: it lets the VM's pods go itself.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec import Struct

from roost.base.clock import Clock, RealClock
from roost.base.errors import Conflict, InvalidRequest, NotFound, Unavailable
from roost.kube.base.client import PODS, VMS, Kube
from roost.kube.base.concurrent import each_of
from roost.kube.base.failures import AlreadyExists
from roost.kube.base.mirror import Mirror
from roost.kube.base.names import LIST_LABEL, LISTED, NAME_LABEL, VM_FINALIZER
from roost.kube.base.objects import Object
from roost.kube.vms.launchers import free_pod, is_going, owner_of
from roost.kube.vms.spec import VM, from_object, to_object

#: Reached only when something is stuck that should not be.
GONE_S = 60.0
_TRIES = 10


class Synced(Struct, kw_only=True):
    """What a list changed, by name."""

    created: list[str] = []
    updated: list[str] = []
    deleted: list[str] = []
    unchanged: int = 0


async def create_vm(kube: Kube, vm: VM, *, labels: dict[str, str] | None = None) -> Object:
    """Ask for a VM; AlreadyExists when there is another of its name."""
    body = _body(vm, labels or {})
    try:
        # `ensure` may be repeated by itself; that of another's making tells itself by its spec.
        return await kube.call("POST", VMS.path(vm.namespace), body=body)
    except AlreadyExists:
        found = await kube.get(VMS, vm.name, vm.namespace)
        if from_object(found) == vm and _is_new(found):
            return found
        raise AlreadyExists(
            f"there is a VM {vm.namespace}/{vm.name} already",
            hint="Maybe another name, or `roost kube vm delete` first.",
        ) from None
    except NotFound as error:
        raise _unknown(vm.namespace) from error


async def delete_vm(
    kube: Kube, name: str, namespace: str, *, wait_s: float = GONE_S, clock: Clock | None = None
) -> bool:
    """Delete a VM and its pods and wait until none is left; say whether there was anything."""
    return bool(await _delete(kube, {name: ""}, namespace, wait_s, clock or RealClock()))


async def cleanup_all(
    kube: Kube, namespace: str, *, wait_s: float = GONE_S, clock: Clock | None = None
) -> list[str]:
    """Delete every VM of a namespace, and every launcher pod whose VM is no more."""
    uids = _uids((await kube.list(VMS, namespace)).items)
    pods = (await kube.list(PODS, namespace, labels=NAME_LABEL)).items
    left = {owner[0] for pod in pods if (owner := owner_of(pod)) is not None} - uids.keys()
    asked = dict(sorted((uids | dict.fromkeys(left, "")).items()))
    return await _delete(kube, asked, namespace, wait_s, clock or RealClock())


async def sync(
    kube: Kube, namespace: str, vms: Sequence[VM], *, clock: Clock | None = None
) -> Synced:
    """Bring about that the namespace has these VMs; others go, if a list once made them.

    Conflict, and nothing is changed, when a VM of one of the names is there that no list made.
    """
    wanted: dict[str, VM] = {}
    for vm in vms:
        if vm.name in wanted:
            raise InvalidRequest(f"VM {vm.name!r} stands twice in the list")
        wanted[vm.name] = msgspec.structs.replace(vm, namespace=namespace)
    there = {item["metadata"]["name"]: item for item in (await kube.list(VMS, namespace)).items}
    by_hand = [
        name
        for name, item in there.items()
        if name in wanted and not _is_listed(item) and not is_going(item)
    ]
    if by_hand:
        raise Conflict(
            f"VM {', '.join(sorted(by_hand))} in {namespace} was not made from a list",
            hint="Maybe another name in the list, or `roost kube vm delete` first.",
        )
    synced = Synced()

    async def one(vm: VM) -> None:
        item = there.get(vm.name)
        if item is None:
            await create_vm(kube, vm, labels={LIST_LABEL: LISTED})
            synced.created.append(vm.name)
        elif is_going(item):
            # Its name is free when its pods are gone; then it is made anew.
            await _delete(kube, _uids([item]), namespace, GONE_S, clock or RealClock())
            await create_vm(kube, vm, labels={LIST_LABEL: LISTED})
            synced.created.append(vm.name)
        elif from_object(item) != vm:
            await _update(kube, vm)
            synced.updated.append(vm.name)
        else:
            synced.unchanged += 1

    await each_of(wanted.values(), one)
    extra = [item for name, item in there.items() if name not in wanted and _is_listed(item)]
    asked = dict(sorted(_uids(extra).items()))
    synced.deleted = await _delete(kube, asked, namespace, GONE_S, clock or RealClock())
    synced.created.sort()
    synced.updated.sort()
    return synced


# Single steps


def _body(vm: VM, labels: dict[str, str]) -> Object:
    body = to_object(vm)
    body["metadata"]["finalizers"] = [VM_FINALIZER]
    if labels:
        body["metadata"]["labels"] = dict(labels)
    return body


def _is_new(item: Object) -> bool:
    """Say whether nothing has happened to a VM yet: then it is the one that was just asked for."""
    return not item.get("status") and not item["metadata"].get("deletionTimestamp")


def _uids(items: Iterable[Object]) -> dict[str, str]:
    return {item["metadata"]["name"]: item["metadata"]["uid"] for item in items}


def _is_listed(item: Object) -> bool:
    return bool((item["metadata"].get("labels") or {}).get(LIST_LABEL) == LISTED)


async def _update(kube: Kube, vm: VM) -> None:
    spec = to_object(vm)["spec"]
    # A merge keeps what is not named: what is no longer asked for has to be taken out.
    spec.setdefault("placement", None)
    if spec["placement"] is not None:
        for key in ("zones", "nodeSelector", "nodeName", "groups"):
            spec["placement"].setdefault(key, None)
    await kube.patch(VMS, vm.name, {"spec": spec}, vm.namespace)


async def _delete(
    kube: Kube, names: Mapping[str, str], namespace: str, wait_s: float, clock: Clock
) -> list[str]:
    """Delete VMs with their pods; return the names of those of which there was anything.

    Each by its uid, or the one that has the name now when that is "".
    """
    found = await each_of(names.items(), lambda asked: _let_go(kube, *asked, namespace))
    if (gone := set[str]().union(*found)) and wait_s > 0:
        await _until_gone(kube, gone, namespace, wait_s, clock)
    return [name for name, uids in zip(names, found, strict=True) if uids]


async def _let_go(kube: Kube, name: str, uid: str, namespace: str) -> set[str]:
    """Delete one VM, free its pods, and then let the VM itself go.

    Return the uids of what goes: the VM, and VMs of its name that were, whose pods had stayed.
    """
    going = {uid} if uid else set[str]()
    for _ in range(_TRIES):
        item = await _present(kube, name, namespace)
        if item is not None:
            uid = uid or item["metadata"]["uid"]
            if item["metadata"]["uid"] != uid:
                # It is gone; somebody has made another of its name, which stays.
                return going | await _free_pods(kube, name, uid, namespace)
            going.add(uid)
            # First of all: from now on nobody makes new pods for it.
            await kube.delete(VMS, name, namespace, uid=uid)
        going |= await _free_pods(kube, name, uid, namespace)
        if item is None:
            return going
        try:
            await _drop_finalizer(kube, name, namespace, uid)
        except NotFound:
            return going
        except Conflict:
            continue
        return going
    raise Unavailable(f"VM {namespace}/{name} changes too fast to be deleted")


async def _free_pods(kube: Kube, name: str, uid: str, namespace: str) -> set[str]:
    """Let all pods go that a VM's name is on, but for those of another VM that has it by now.

    Return the uids of the VMs whose pods they are.
    """
    pods = (await kube.list(PODS, namespace, labels=f"{NAME_LABEL}={name}")).items
    ours = [(owner[1], pod) for pod in pods if (owner := owner_of(pod)) is not None]
    if any(owner != uid for owner, _ in ours):
        # Asked only now: whatever VM of that name has a pod on the list is there by now.
        now = await _present(kube, name, namespace)
        spared = now["metadata"]["uid"] if now is not None else uid
        ours = [(owner, pod) for owner, pod in ours if owner == uid or owner != spared]
    for _, pod in ours:
        await free_pod(kube, pod)
    return {owner for owner, _ in ours}


async def _present(kube: Kube, name: str, namespace: str) -> Object | None:
    try:
        return await kube.get(VMS, name, namespace)
    except NotFound:
        return None


async def _drop_finalizer(kube: Kube, name: str, namespace: str, uid: str) -> None:
    item = await kube.get(VMS, name, namespace)
    metadata = item["metadata"]
    if metadata["uid"] != uid or VM_FINALIZER not in (metadata.get("finalizers") or ()):
        return
    change = {
        "metadata": {
            "finalizers": [each for each in metadata["finalizers"] if each != VM_FINALIZER],
            "resourceVersion": metadata["resourceVersion"],
        }
    }
    await kube.patch(VMS, name, change, namespace)


async def _until_gone(
    kube: Kube, uids: set[str], namespace: str, wait_s: float, clock: Clock
) -> None:
    """Wait for the end of these VMs and of their pods, whatever else has their names by now."""
    vms = Mirror(kube, VMS, namespace, clock=clock)
    pods = Mirror(kube, PODS, namespace, labels=NAME_LABEL, clock=clock)

    def no_vms() -> bool:
        return not any(item["metadata"]["uid"] in uids for item in vms)

    def no_pods() -> bool:
        return not any((owner := owner_of(pod)) and owner[1] in uids for pod in pods)

    try:
        await vms.start()
        await pods.start()
        await vms.until(no_vms, wait_s, "the end of the VMs")
        await pods.until(no_pods, wait_s, "the end of the pods")
    finally:
        await vms.stop()
        await pods.stop()


def _unknown(namespace: str) -> NotFound:
    return NotFound(
        f"namespace {namespace!r}, or what a VirtualMachine is, are unknown to the cluster",
        hint="Maybe `kubectl create namespace`, or start `roost kube controller` once.",
    )
