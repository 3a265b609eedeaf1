"""Puts together agents of virtual hosts: with a folder they survive a crash, without one they are
light enough for a thousand in one process.
"""

from pathlib import Path
from random import Random

from roost.agent.agent import Agent, AgentSettings
from roost.agent.drivers.base import Fences
from roost.agent.drivers.virtual import VirtualDriver, VirtualSettings
from roost.agent.drivers.vmfiles import FolderVMs, MemoryVMs, VMFiles
from roost.agent.fencing.guard import boot_id
from roost.agent.fencing.recipes import FolderFences, GuardHandle
from roost.agent.store import FolderStore, MemoryStore
from roost.base import private
from roost.base.clock import Clock
from roost.base.ids import IdSource
from roost.hostkit.talk.link import Transport


def virtual_agent(
    settings: AgentSettings,
    virtual: VirtualSettings,
    *,
    folder: Path,
    clock: Clock,
    transport: Transport,
    random: Random,
    ids: IdSource,
    guard: GuardHandle | None = None,
) -> Agent:
    """Return the agent of a virtual host that lives in a folder; its credential is there too."""
    private.make_folder(folder)
    driver = VirtualDriver(
        virtual,
        clock=clock,
        vms=FolderVMs(folder / "vms"),
        fences=FolderFences(folder),
    )
    return Agent(
        settings,
        clock=clock,
        transport=transport,
        driver=driver,
        store=FolderStore(folder, boot=boot_id()),
        random=random,
        ids=ids,
        guard=guard,
    )


def memory_agent(
    settings: AgentSettings,
    virtual: VirtualSettings,
    *,
    credential: str,
    clock: Clock,
    transport: Transport,
    random: Random,
    ids: IdSource,
    vms: VMFiles | None = None,
    store: MemoryStore | None = None,
    fences: Fences | None = None,
    guard: GuardHandle | None = None,
) -> Agent:
    """Return the agent of a virtual host in memory; hand in its parts to let them outlive it."""
    return Agent(
        settings,
        clock=clock,
        transport=transport,
        driver=VirtualDriver(virtual, clock=clock, vms=vms or MemoryVMs(), fences=fences),
        store=store or MemoryStore(credential),
        random=random,
        ids=ids,
        guard=guard,
    )
