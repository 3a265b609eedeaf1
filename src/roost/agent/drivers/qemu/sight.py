"""What a VM is, from what is written down of it and what its QEMU says. Pure.

| process | QEMU says | role | state |
|---|---|---|---|
| alive | running | any | running; sending while it is copied |
| alive | prelaunch | run | starting |
| alive | paused, suspended, io-error, ... | any | paused |
| alive | shutdown | any | stopped, by its guest |
| alive | guest-panicked | any | stopped: it has crashed |
| alive | any, and it has no leave to execute or lacks memory | incoming | ready |
| alive | finish-migrate | any | sending; switching once the last step has begun |
| alive | postmigrate | any | moved; paused if the migration failed |
| gone, or none | | run | stopped; crashed if it should be there |
| gone, or none | | incoming | lost, unless it has arrived |
| gone, or none | | moved | moved |
"""

from typing import NamedTuple

from roost.agent.drivers.base import CRASHED, GUEST_SHUTDOWN, IO_ERROR, LocalState, LocalVM
from roost.agent.drivers.qemu.manifest import Manifest

#: How QEMU names the phases of a migration: those in which the guest is certainly here, and those
#: in which only the target knows whether it has it.
_HERE = frozenset({"setup", "active", "wait-unplug", "pre-switchover", "cancelling"})
POST_COPY = frozenset({"postcopy-active", "postcopy-paused", "postcopy-recover"})
_BETWEEN = POST_COPY | {"device"}
#: The connection broke in post-copy: the guest waits at the target for memory that will not come.
BROKEN = "postcopy-paused"
MEMORY_LOST = "memory_lost"
PANICKED = "the kernel of its guest has panicked"


class Told(NamedTuple):
    """What a QEMU says of itself: its run state and what it knows of a migration."""

    runstate: str
    migration: str = ""
    post_copy: bool = False  # that migration could turn into post-copy


def state_of(manifest: Manifest, told: Told | None) -> tuple[LocalState, str]:
    """Return the state and why it is stopped. `told` None: there is no process."""
    if told is None:
        return _without_process(manifest)
    if told.migration == BROKEN and told.runstate in ("running", "paused") and manifest.arrived:
        return "paused", MEMORY_LOST
    if manifest.role == "incoming" and (
        not manifest.arrived or told.migration in POST_COPY or told.runstate == "inmigrate"
    ):
        return ("ready" if manifest.endpoint else "lost"), ""
    match told.runstate:
        case "prelaunch":
            return "starting", ""
        case "shutdown":
            return "stopped", GUEST_SHUTDOWN
        case "guest-panicked":
            return "stopped", CRASHED
        case "postmigrate":
            return _left(told), ""
    if told.migration in _BETWEEN:
        return "switching", ""
    if told.migration in _HERE or told.runstate == "finish-migrate":
        return ("moved" if told.migration == "completed" else "sending"), ""
    if told.runstate == "running":
        return "running", ""
    if manifest.role == "moved":
        return "moved", ""
    return "paused", told.runstate if told.runstate in (IO_ERROR, "internal-error") else ""


def _left(told: Told) -> LocalState:
    """Return the state of a guest that stands still after a migration."""
    if told.migration == "cancelled" or (told.migration == "failed" and not told.post_copy):
        return "paused"  # as it was before
    return "switching" if told.migration == "failed" else "moved"


def _without_process(manifest: Manifest) -> tuple[LocalState, str]:
    if manifest.role == "moved":
        return "moved", ""
    if manifest.role == "incoming" and not manifest.arrived:
        return "lost", ""
    return "stopped", CRASHED if manifest.process is not None else manifest.reason


def local_vm(manifest: Manifest, told: Told | None) -> LocalVM:
    """Return the VM as the agent sees it."""
    state, reason = state_of(manifest, told)
    order = manifest.order
    return LocalVM(
        id=order.id,
        name=order.name,
        state=state,
        cpu_milli=order.cpu_milli,
        memory_bytes=order.memory_bytes,
        disk_bytes=order.disk_bytes,
        extended=order.extended,
        devices=order.devices,
        generation=order.generation,
        restarts=manifest.restarts,
        restart=order.restart,
        reason=reason,
        # Not while its memory still comes from the source, which would be destroyed then.
        arrived=manifest.arrived and manifest.role == "incoming" and state != "ready",
        endpoint=manifest.endpoint if state == "ready" else {},
        note=PANICKED if told and told.runstate == "guest-panicked" else _note(manifest, reason),
    )


def unknown_vm(vm_id: str, manifest: Manifest | None, why: str) -> LocalVM:
    """Return a VM in the state `unknown`: it is here, and perhaps its order is known."""
    if manifest is None:
        return LocalVM(id=vm_id, name="", state="unknown", reason=why)
    order = manifest.order
    return LocalVM(
        id=order.id,
        name=order.name,
        state="unknown",
        cpu_milli=order.cpu_milli,
        memory_bytes=order.memory_bytes,
        disk_bytes=order.disk_bytes,
        extended=order.extended,
        devices=order.devices,
        generation=order.generation,
        restarts=manifest.restarts,
        restart=order.restart,
        reason=why,
    )


def _note(manifest: Manifest, reason: str) -> str:
    if reason == IO_ERROR:
        return (
            "it stands still because its disk cannot be written or read; maybe the host's is full"
        )
    if reason == MEMORY_LOST:
        return "the connection to its earlier host broke before its memory was here; restart it"
    if reason == "internal-error":
        return "it stands still after an error in QEMU or KVM; it needs a restart"
    return manifest.note
