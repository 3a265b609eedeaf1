"""The ends of a move at its source: left for good, or taken back while that is certainly safe."""

import asyncio

from msgspec.structs import replace

from roost.agent.drivers.qemu.handle import VMHandle
from roost.agent.drivers.qemu.launch import Parts
from roost.agent.drivers.qemu.manifest import Manifest
from roost.agent.drivers.qemu.monitor import Monitor
from roost.agent.drivers.qemu.move import mirror
from roost.agent.drivers.qemu.move.endpoints import Address, parse, storage_id
from roost.agent.drivers.qemu.sight import POST_COPY
from roost.hostkit.failures import DriverError
from roost.wire.agentlink import DesiredVM

#: QEMU's words for phases in which a migration can still be cancelled, and all in which it goes on.
CANCELLABLE = frozenset({"setup", "active", "wait-unplug", "pre-switchover"})
UNDER_WAY = CANCELLABLE | {"device", "cancelling"} | POST_COPY

_POLL_S = 0.02
_SETTLE_S = 10.0
#: A migrate-continue that an earlier life of this agent has sent has been acted upon by then.
_CONTINUED_S = 0.5


async def leave(parts: Parts, handle: VMHandle, vm: DesiredVM) -> None:
    """Record durably that a VM has left; then it needs no stop recipe any more."""
    manifest = handle.manifest
    assert manifest is not None
    order = replace(manifest.order, generation=vm.generation)
    await handle.note(order=order, role="moved", arrived=False, endpoint={})
    parts.fences.drop(handle.id)


async def phase(monitor: Monitor) -> str:
    """Return QEMU's status of the last migration; empty without one."""
    return str((await monitor.execute("query-migrate")).get("status", ""))


async def cancel(parts: Parts, handle: VMHandle, monitor: Monitor) -> None:
    """Cancel a migration unless the switch-over has begun; a guest that should run goes on."""
    status = await phase(monitor)
    if status == "pre-switchover":
        # It may have been told to go on a moment ago, by a life of this agent that is over, and
        # QEMU has not woken up yet. To cancel what has gone on could leave two running.
        await parts.clock.sleep(_CONTINUED_S)
        status = await phase(monitor)
    if status not in CANCELLABLE | {"cancelling"}:
        return
    await mirror.clear(monitor)  # first, as QEMU may wait for the target in it
    await monitor.execute("migrate_cancel")
    give_up_at = parts.clock.monotonic() + _SETTLE_S
    while (status := await phase(monitor)) in UNDER_WAY:
        if parts.clock.monotonic() > give_up_at:
            text = f"QEMU does not end the migration of {handle.id}"
            raise DriverError("transient", "not_cancelled", text)
        await parts.clock.sleep(_POLL_S)
    runstate = await settled(parts, monitor)
    wanted = handle.manifest is not None and handle.manifest.order.power == "running"
    if wanted and runstate == "postmigrate" and status == "cancelled":
        # QEMU resumes by itself what it stopped in its plain way, but not on the way to post-copy.
        await monitor.execute("cont")


async def settled(parts: Parts, monitor: Monitor) -> str:
    """Return QEMU's run state once it has settled after a migration's end."""
    give_up_at = parts.clock.monotonic() + _SETTLE_S
    while True:
        runstate = str((await monitor.execute("query-status"))["status"])
        if runstate != "finish-migrate" or parts.clock.monotonic() > give_up_at:
            return runstate
        await parts.clock.sleep(_POLL_S)


async def disk_target(parts: Parts, handle: VMHandle, vm: DesiredVM) -> Address | None:
    """Return where the disk is to be copied to, None when there is nothing to copy."""
    manifest, settings = handle.manifest, parts.settings
    storage = manifest.storage if manifest is not None else "none"
    if storage == "none":
        return None
    if storage == "shared" and settings.shared_disks is not None:
        ours = await asyncio.to_thread(storage_id, settings.shared_disks, parts.clock)
        if vm.endpoint.get("storage") == ours:
            return None
    if "nbd" not in vm.endpoint:
        text = f"the target keeps {vm.name}'s disk on a shared storage that this host does not use"
        raise DriverError("permanent", "storage_differs", text)
    return parse(vm.endpoint["nbd"])


def same_image(manifest: Manifest, endpoint: dict[str, str]) -> bool:
    """Return whether the target's disk begins as this one did, so that the rest can be left out."""
    ours = manifest.image.digest if manifest.image is not None else ""
    return endpoint.get("image", "") == ours
