"""Marking a VM to leave its node: what the webhook does at an eviction, and a user by a command.

The mark is all there is: `migrating` sees it and does the rest. Whoever wants to know what became
of it follows the VM's status.
"""

from collections.abc import Callable

from roost.base.clock import Clock
from roost.base.errors import Conflict, InvalidRequest, NotFound, Unavailable
from roost.kube.base.client import NODES, VMS, Kube
from roost.kube.base.mirror import Mirror
from roost.kube.base.moments import moment_text
from roost.kube.base.objects import Object
from roost.kube.moving.migrationrecord import migration_of
from roost.kube.vms.launchers import is_going
from roost.kube.vms.status import UNDER_WAY, status_of

_TRIES = 10


async def mark(
    kube: Kube,
    vm: Object,
    node: str,
    *,
    cause: str,
    at_ms: int,
    wanted: str = "",
    forced: str = "",
) -> Object:
    """Write the mark; Conflict when the VM has changed since it was read."""
    metadata = vm["metadata"]
    change = {
        "metadata": {"resourceVersion": metadata["resourceVersion"]},
        "status": {
            "evacuationNodeName": node,
            "evacuation": {
                "cause": cause,
                "wantedNode": wanted or None,
                "forcedNode": forced or None,
                "requestedAt": moment_text(at_ms, micro=True),
            },
        },
    }
    return await kube.patch(VMS, metadata["name"], change, metadata["namespace"], part="status")


async def ask_to_move(
    kube: Kube,
    name: str,
    namespace: str,
    clock: Clock,
    *,
    leaving: str = "",
    wanted: str = "",
    forced: str = "",
) -> Object:
    """Ask that a VM leaves its node; return the VM as it was, whose last migration has a number.

    Whoever says which node it is `leaving` gets a Conflict when the VM is on another one.
    """
    for node in filter(None, (wanted, forced)):
        await _check_node(kube, node)
    for _ in range(_TRIES):
        vm = await kube.get(VMS, name, namespace)
        here = status_of(vm).get("nodeName")
        if leaving and here and leaving != here:
            raise Conflict(f"VM {name} is on {here}, not on {leaving}")
        node = _movable_from(vm, wanted, forced)
        try:
            await mark(
                kube, vm, node, cause="request", at_ms=clock.wall_ms(), wanted=wanted,
                forced=forced,
            )  # fmt: skip
        except Conflict:
            continue
        return vm
    raise Conflict(f"VM {name} changes too fast to mark it")


async def follow(
    kube: Kube,
    vm: Object,
    limit_s: float,
    tell: Callable[[Object], None] = lambda _: None,
) -> Object:
    """Return the migration that follows the VM's last one, once it has ended."""
    name, namespace = vm["metadata"]["name"], vm["metadata"]["namespace"]
    before = int(migration_of(vm).get("number") or 0)
    vms = Mirror(kube, VMS, namespace)

    def ended() -> Object | None:
        item = vms.get(name, namespace)
        if item is None or is_going(item):
            raise NotFound(f"VM {namespace}/{name} was deleted meanwhile")
        migration = migration_of(item)
        if int(migration.get("number") or 0) <= before:
            return None
        tell(migration)
        return migration if migration.get("phase") not in UNDER_WAY else None

    try:
        await vms.start()
        return await vms.until(ended, limit_s, f"the end of the migration of {name}")
    except Unavailable as error:
        begun = int(migration_of(vms.get(name, namespace) or {}).get("number") or 0) > before
        error.hint = (
            "Maybe it goes on: see `roost kube vm migrations`."
            if begun
            else "Maybe no controller runs: `roost kube controller` is what moves VMs."
        )
        raise
    finally:
        await vms.stop()


def _movable_from(vm: Object, wanted: str, forced: str) -> str:
    name, status = vm["metadata"]["name"], status_of(vm)
    node = status.get("nodeName") or ""
    if is_going(vm):
        raise Conflict(f"VM {name} is being deleted")
    if not node:
        raise Conflict(
            f"VM {name} is not on a node: {status.get('reason') or status.get('phase', 'Pending')}",
            hint="Maybe `roost kube vm show` tells why.",
        )
    if status.get("evacuationNodeName") or migration_of(vm).get("phase") in UNDER_WAY:
        raise Conflict(
            f"VM {name} is to leave {status.get('evacuationNodeName') or node} already",
            hint=f"Maybe `roost kube vm migrations {name}` shows how far it is.",
        )
    if node in (wanted, forced):
        raise InvalidRequest(f"VM {name} is on {node} already")
    return str(node)


async def _check_node(kube: Kube, node: str) -> None:
    try:
        await kube.get(NODES, node)
    except NotFound:
        raise NotFound(f"there is no node {node!r}") from None
