"""New amounts for a VM: what QEMU can change while it runs, and what waits for the next boot.

A disk grows at once. Memory follows within what the process was started with, by the balloon, as
far as the guest plays along. vCPUs are added at once; whether the guest uses them is its own
business. The rest is written into the VM's note.
"""

from msgspec.structs import replace

from roost.agent.drivers.qemu.command import DISK_NODE, MIB, shape_of
from roost.agent.drivers.qemu.disks import grow_disk
from roost.agent.drivers.qemu.handle import VMHandle
from roost.agent.drivers.qemu.launch import disk_path
from roost.agent.drivers.qemu.manifest import Manifest, Shape
from roost.agent.drivers.qemu.monitor import REFUSED, Monitor
from roost.agent.drivers.qemu.settings import QemuSettings
from roost.hostkit.failures import DriverError
from roost.wire.agentlink import DesiredVM

_RESIZE_S = 60.0


async def resize(settings: QemuSettings, handle: VMHandle, vm: DesiredVM) -> None:
    """Give a VM the amounts of an order, and write down which of them wait."""
    manifest = handle.manifest
    if manifest is None:
        raise DriverError("transient", "vm_unreadable", f"{vm.id} has no manifest")
    waits: list[str] = []
    disk_bytes = manifest.disk_bytes
    shape = manifest.shape or shape_of(vm)
    if handle.is_alive:
        monitor = await handle.reach()
        disk_bytes = await _disk(monitor, manifest, vm, waits)
        await _memory(monitor, shape, vm, waits)
        shape = await _vcpus(monitor, shape, vm, waits)
        if vm.devices != manifest.order.devices:
            waits.append("other devices hold from the next boot")
    elif manifest.storage in ("local", "shared") and vm.disk_bytes > disk_bytes:
        path = handle.folder / disk_path(settings, vm.id, manifest.storage)
        await grow_disk(path, vm.disk_bytes)
        disk_bytes = vm.disk_bytes
    if vm.disk_bytes < disk_bytes:
        waits.append(f"a disk never shrinks: it keeps its {disk_bytes // MIB} MiB")
    note = "; ".join(waits)
    storage = manifest.storage
    if storage == "unknown" and vm.disk_bytes == 0:
        storage = "none"
    await handle.note(order=vm, shape=shape, disk_bytes=disk_bytes, note=note, storage=storage)


async def _disk(monitor: Monitor, manifest: Manifest, vm: DesiredVM, waits: list[str]) -> int:
    if manifest.storage in ("none", "unknown"):
        if vm.disk_bytes and manifest.storage == "none":
            waits.append("its disk is there from the next boot")
        return manifest.disk_bytes
    if vm.disk_bytes <= manifest.disk_bytes:
        return manifest.disk_bytes
    size = {"node-name": DISK_NODE, "size": vm.disk_bytes}
    await monitor.execute("block_resize", size, within_s=_RESIZE_S)
    return vm.disk_bytes


async def _memory(monitor: Monitor, shape: Shape, vm: DesiredVM, waits: list[str]) -> None:
    wanted = shape_of(vm).memory_bytes
    await monitor.execute("balloon", {"value": min(wanted, shape.memory_bytes)})
    if wanted > shape.memory_bytes:
        now, then = shape.memory_bytes // MIB, wanted // MIB
        waits.append(f"{then} MiB of memory hold from the next boot, now it has {now} MiB")


async def _vcpus(monitor: Monitor, shape: Shape, vm: DesiredVM, waits: list[str]) -> Shape:
    wanted, have = shape_of(vm).vcpus, shape.vcpus
    try:
        while have < wanted and await _plug(monitor):
            have += 1
    except DriverError as error:
        if error.code != REFUSED:
            raise
    if have != wanted:
        waits.append(f"{wanted} vCPUs hold from the next boot, now it has {have}")
    return replace(shape, vcpus=have)


async def _plug(monitor: Monitor) -> bool:
    """Add one vCPU; return whether there was a free place for it."""
    places = await monitor.execute("query-hotpluggable-cpus")
    free = [place for place in places if "qom-path" not in place]
    if not free:
        return False
    place = min(free, key=lambda each: sorted(each["props"].items()))
    name = "cpu-" + "-".join(str(value) for _, value in sorted(place["props"].items()))
    await monitor.execute("device_add", {"driver": place["type"], "id": name, **place["props"]})
    return True
