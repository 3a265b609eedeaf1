"""Stands in for an agent that is killed: starts VMs with a lease, starts a guard, then hangs.

python -m tests.unit.agent.agent_stand_in DIR LEASE_S
"""

import asyncio
import sys
from pathlib import Path

from roost.agent.drivers.virtual import VirtualDriver, VirtualSettings
from roost.agent.drivers.vmfiles import FolderVMs
from roost.agent.fencing.guard import boot_id
from roost.agent.fencing.recipes import FolderFences, ProcessGuard
from roost.agent.store import FolderStore
from roost.base.clock import RealClock
from roost.testing.orders import vm


async def main(folder: Path, lease_s: float) -> None:
    clock = RealClock()
    store = FolderStore(folder, boot=boot_id())
    store.open()
    store.save_lease(clock.monotonic() + lease_s)
    driver = VirtualDriver(
        VirtualSettings(boot_s=0.0),
        clock=clock,
        vms=FolderVMs(folder / "vms"),
        fences=FolderFences(folder),
    )
    await driver.start(vm("movable", restart="elsewhere"))
    await driver.start(vm("homely"))
    guard = ProcessGuard(folder, clock=clock)
    while guard.ensure():
        await asyncio.sleep(0.02)
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), float(sys.argv[2])))
