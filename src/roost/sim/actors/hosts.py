"""One simulated host: a machine with its VMs, its fence guard and its agent, life after life.

VMs, records, lease and recipes belong to the machine and outlive the agent; a reboot of the machine
ends every VM. The driver's changes and the agent's writes are events of the world, and the agent
can be made to die at any of them.
"""

from collections.abc import Callable
from random import Random

from msgspec.structs import replace

from roost.agent.agent import Agent, AgentSettings
from roost.agent.compose import memory_agent
from roost.agent.drivers.base import CRASHED, LocalState, LocalVM
from roost.agent.drivers.virtual import VirtualSettings
from roost.agent.drivers.vmfiles import Change, MemoryVMs
from roost.agent.memoryguard import MemoryFences, MemoryGuard
from roost.agent.store import HostLimits, MemoryStore, Record
from roost.base.ids import IdSource
from roost.hostkit.talk.link import Transport
from roost.sim.faults.kinds import site_of
from roost.sim.faults.of_hosts import Ailments
from roost.sim.ground.clocks import Machine, NodeClock
from roost.sim.ground.lives import Life
from roost.sim.ground.network import HostTransport, Network
from roost.wire.agentlink import Desired, LedgerPoint


class WatchedVMs(MemoryVMs):
    """VMs in memory that report every change to the laws."""

    def __init__(self, changed: Callable[[str, LocalVM | None], None]) -> None:
        super().__init__()
        self._changed = changed

    async def change(self, vm_id: str, change: Change) -> LocalVM | None:
        """Change one VM, and report that to the laws."""
        before = self.vms.get(vm_id)
        after = await super().change(vm_id, change)
        if after != before:
            self._changed(vm_id, after)
        return after

    def put(self, vm: LocalVM) -> None:
        """Change one VM without an order, and report that to the laws."""
        self.vms[vm.id] = vm
        self._changed(vm.id, vm)

    def drop(self, vm_id: str) -> None:
        """Destroy one VM by hand, and report that to the laws."""
        del self.vms[vm_id]
        self._changed(vm_id, None)


class LifeVMs:
    """The VMs as one life of the agent reaches them: not at all once it is dead."""

    def __init__(self, vms: WatchedVMs, host: "SimHost", life: Life) -> None:
        self._vms, self._host, self._life = vms, host, life

    async def all(self) -> list[LocalVM]:
        """Return all VMs of the machine."""
        await self._life.gate()
        self._host.ailments.look("look:all")
        return await self._vms.all()

    async def get(self, vm_id: str) -> LocalVM | None:
        """Return one VM, or None."""
        await self._life.gate()
        return await self._vms.get(vm_id)

    async def change(self, vm_id: str, change: Change) -> LocalVM | None:
        """Change one VM, and perhaps die before or after."""
        await self._life.gate()
        site = f"vm:{site_of(change).rpartition('.')[2]}"
        self._host.may_die("before", site)
        self._life.check()
        self._host.ailments.change(site)
        after = await self._vms.change(vm_id, change)
        self._host.may_die("after", site)
        self._life.check()
        return after

    def recipe(self, vm_id: str) -> dict[str, object]:
        """Return how the fence guard stops this VM."""
        return self._vms.recipe(vm_id)


class LifeStore(MemoryStore):
    """The agent's memory as one life reaches it."""

    def __init__(self, kept: MemoryStore, host: "SimHost", life: Life) -> None:
        self._kept, self._host, self._life = kept, host, life

    def credential(self) -> str | None:
        """Return the host's credential."""
        return self._kept.credential()

    def records(self) -> list[Record]:
        """Return the records of all VMs."""
        return self._kept.records()

    def desired(self) -> Desired | None:
        """Return the last list."""
        return self._kept.desired()

    async def save_desired(self, desired: Desired) -> None:
        """Store the desired list."""
        await self._life.gate()
        self._host.may_die("before", "write:list")
        self._life.check()
        self._host.ailments.write("write:list")
        await self._kept.save_desired(desired)

    async def save_record(self, record: Record) -> None:
        """Store a VM's record."""
        await self._life.gate()
        site = "write:record of a grave" if record.gone else "write:record"
        self._host.may_die("before", site)
        self._life.check()
        self._host.ailments.write(site)
        await self._kept.save_record(record)
        self._host.may_die("after", site)
        self._life.check()

    async def forget_record(self, vm_id: str) -> None:
        """Delete a VM's record."""
        await self._life.gate()
        await self._kept.forget_record(vm_id)

    def lease(self) -> float | None:
        """Return the stored deadline of the lease."""
        return self._kept.lease()

    def save_lease(self, deadline: float | None) -> None:
        """Store the deadline of the lease."""
        self._life.check()
        self._host.ailments.write("write:lease")
        self._kept.save_lease(deadline)

    def heard(self) -> LedgerPoint | None:
        """Return the newest point of a ledger."""
        return self._kept.heard()

    def save_heard(self, point: LedgerPoint | None) -> None:
        """Keep a point of the ledger."""
        self._life.check()
        self._host.ailments.write("write:heard")
        self._kept.save_heard(point)

    def limits(self) -> HostLimits | None:
        """Return the limits that were told last."""
        return self._kept.limits()

    def save_limits(self, limits: HostLimits) -> None:
        """Keep the limits."""
        self._life.check()
        self._host.ailments.write("write:limits")
        self._kept.save_limits(limits)


class SimHost:
    """One host of the world."""

    def __init__(
        self,
        name: str,
        network: Network,
        random: Random,
        virtual: VirtualSettings,
        *,
        servers: tuple[str, ...],
        zone: str,
        rack: str = "",
        guard: bool,
        transport: Callable[[Network, str, Life], Transport] = HostTransport,
        changed: Callable[[str, str, LocalVM | None], None],
        note: Callable[[str, str, str], None],
    ) -> None:
        self.name, self.virtual = name, virtual
        self.machine = Machine()
        self.vms = WatchedVMs(lambda vm_id, vm: changed(name, vm_id, vm))
        self.kept = MemoryStore("credential")
        self.fences = MemoryFences()
        self.life: Life | None = None
        self.guard_life: Life | None = None
        self.agent: Agent | None = None
        self.ailments = Ailments(name, note)
        self.die_at: tuple[str, int] | None = None  # before or after so many writes from now
        self._network, self._random, self._note = network, random, note
        self._servers, self._guarded = servers, guard
        self._transport = transport
        self.zone, self.rack = zone, rack
        self._lives = 0

    def start(self) -> None:
        """Start the agent, and the guard if none runs."""
        if self.life is not None:
            return
        self._lives += 1
        guard = self._start_guard() if self._guarded else None
        life = self.life = Life(f"{self.name}.{self._lives}")
        self._note("start", self.name, life.name)
        clock = NodeClock(self.machine, life)
        random = Random(self._random.getrandbits(64))
        agent = memory_agent(
            AgentSettings(self.name, self._servers, zone=self.zone, rack=self.rack, sample_s=1e9),
            self.virtual,
            credential="credential",
            clock=clock,
            transport=self._transport(self._network, self.name, life),
            random=random,
            ids=IdSource(clock.wall_ms, Random(random.getrandbits(64))),
            vms=LifeVMs(self.vms, self, life),
            store=LifeStore(self.kept, self, life),
            fences=self.fences,
            guard=guard,
        )
        self.agent = agent
        life.spawn(agent.run())

    def _start_guard(self) -> MemoryGuard:
        if self.guard_life is None:
            life = self.guard_life = Life(f"{self.name}.guard")
            self._guard = MemoryGuard(
                clock=NodeClock(self.machine, life),
                store=self.kept,
                vms=self.vms,
                fences=self.fences,
            )
            life.spawn(self._guard.run())
        return self._guard

    @property
    def is_well(self) -> bool:
        """Return whether its agent runs and speaks with a plane over a whole wire."""
        agent, life = self.agent, self.life
        if agent is None or life is None or life.frozen is not None:
            return False
        return agent.session.connected.is_set() and self._network.wire(self.name).is_whole

    @property
    def is_still(self) -> bool:
        """Return whether nothing is under way here that time would complete."""
        if not self.is_well or self.agent is None:
            return False
        reconciler, lease = self.agent.reconciler, self.kept.lease()
        has_lease = lease is not None and self.machine.monotonic() < lease
        return has_lease and reconciler.is_quiet() and not reconciler.needs_confirming

    def kill_agent(self) -> None:
        """Kill the agent; VMs and guard go on."""
        if self.life is not None:
            self.life.end()
            self.life = self.agent = None

    def power_off(self) -> None:
        """Cut the machine's power: every VM ends, and what was in memory alone is gone."""
        self.kill_agent()
        if self.guard_life is not None:
            self.guard_life.end()
            self.guard_life = None
        self.kept.save_lease(None)
        listed = self.kept.desired()  # what was not forced to the disk may be gone
        self.kept.save_heard(listed.point if listed is not None else None)
        for vm_id, vm in list(self.vms.vms.items()):
            if vm.state in ("starting", "running", "paused"):
                self.crash_vm(vm_id)
            elif vm.state == "ready":
                self.vms.put(replace(vm, state="lost", endpoint={}))

    def crash_vm(self, vm_id: str) -> None:
        """Let the process of one VM die."""
        vm = self.vms.vms.get(vm_id)
        if vm is not None and vm.state in ("starting", "running", "paused"):
            self.vms.put(replace(vm, state="stopped", reason=CRASHED))

    def lose_incoming(self, vm_id: str) -> None:
        """Let the process of an incoming copy die."""
        vm = self.vms.vms.get(vm_id)
        if vm is not None and vm.state == "ready":
            self.vms.put(replace(vm, state="lost", endpoint={}))

    def arrive(self, vm_id: str, generation: int, state: LocalState) -> None:
        """Let an incoming copy take over, if it still waits."""
        vm = self.vms.vms.get(vm_id)
        if vm is not None and vm.state == "ready" and vm.generation >= generation:
            self._note("arrived", self.name, vm_id)
            self.vms.put(replace(vm, state=state, arrived=True, endpoint={}))
            if self.agent is not None:
                self.agent.reconciler.look_at(vm_id)

    def sends_to(self, vm_id: str) -> str:
        """Return the host that it was told to send a VM to; empty when its list does not say."""
        listed = self.kept.desired()
        orders = listed.vms if listed is not None else []
        return next((vm.peer for vm in orders if vm.id == vm_id and vm.part == "outgoing"), "")

    def may_die(self, when: str, site: str) -> None:
        """Kill the agent here if the history says so."""
        if when == "before":
            self._note("at", self.name, site)
        if self.die_at is None or self.die_at[0] != when:
            return
        left = self.die_at[1]
        self.die_at = None if left == 0 else (when, left - 1)
        if left == 0:
            self._note(f"fault.die_{when}_write", self.name, site)
            self.kill_agent()
