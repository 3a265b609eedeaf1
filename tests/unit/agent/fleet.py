"""Three hosts with whole agents and guards, and a control plane that moves and recovers their VMs.

The network delays messages, holds them back during a partition and delivers them late; agents are
killed and started. Watched at every change of a VM on any host: at most one copy of it executes.
In the end, with everything back, exactly one does.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from random import Random

from roost.agent.agent import Agent, AgentSettings
from roost.agent.drivers.base import LocalVM
from roost.agent.drivers.virtual import VirtualDriver, VirtualSettings
from roost.agent.drivers.vmfiles import Change, MemoryVMs
from roost.agent.memoryguard import MemoryFences, MemoryGuard
from roost.agent.store import MemoryStore
from roost.base.ids import IdSource
from roost.hostkit.talk.link import Link, LinkLost
from roost.parts.access import Principal
from roost.testing.clock import HandClock
from roost.testing.control import ModelControl
from roost.testing.orders import vm

HEARTBEAT_S, LEASE_S, GUARD_STOP_S = 2.0, 10.0, 1.0
HOSTS = ("a", "b", "c")


# The network


class SlowWire:
    """One connection whose messages take their time, in order; a partition holds them back.

    It is the agent's `Link`; the plane's end is what `control.connect` gets.
    """

    peer = "wire"

    def __init__(self, net: "Network", host: str) -> None:
        self._net, self._host = net, host
        self._inbox: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._to_agent: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._to_plane: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._closed = False
        self._session = net.control.connect(
            PlaneEnd(self._to_agent), Principal(f"agent/{host}", "agent", None, host)
        )
        net.pumps.add(asyncio.create_task(self._deliver(self._to_agent, self._inbox.put_nowait)))
        net.pumps.add(asyncio.create_task(self._deliver(self._to_plane, self._arrive)))

    async def send(self, data: bytes) -> None:
        if self._closed:
            raise LinkLost("closed")
        self._to_plane.put_nowait(data)

    async def receive(self) -> bytes | str:
        data = None if self._closed else await self._inbox.get()
        if data is None:
            self._closed = True
            raise LinkLost("closed")
        return data

    async def close(self) -> None:
        self._closed = True
        self._to_plane.put_nowait(None)

    def _arrive(self, data: bytes | None) -> None:
        if data is None:
            self._session.closed()
        else:
            self._session.received(data)

    async def _deliver(
        self, queue: "asyncio.Queue[bytes | None]", take: Callable[[bytes | None], None]
    ) -> None:
        while True:
            data = await queue.get()
            await self._net.clock.sleep(self._net.random.choice((0.0, 0.01, 0.05, 0.4)))
            await self._net.open[self._host].wait()
            take(data)
            if data is None:
                return


class PlaneEnd:
    """The plane's end of a slow wire."""

    peer = "wire"

    def __init__(self, queue: "asyncio.Queue[bytes | None]") -> None:
        self._queue = queue

    def send(self, data: bytes) -> None:
        self._queue.put_nowait(data)

    def close(self, code: int, reason: str) -> None:
        self._queue.put_nowait(None)


class Network:
    """Connects agents with the control plane. Implements `Transport`; the server is the host."""

    def __init__(self, clock: HandClock, random: Random, control: ModelControl) -> None:
        self.clock, self.random, self.control = clock, random, control
        self.open = {host: asyncio.Event() for host in HOSTS}
        self.pumps: set[asyncio.Task[None]] = set()
        for event in self.open.values():
            event.set()

    async def connect(self, server: str, credential: str) -> Link:
        if not self.open[server].is_set():
            await self.clock.sleep(2.0)
            raise LinkLost("no way there")
        return SlowWire(self, server)


# What users and time do


class Users:
    """Create, switch, move and recover VMs at random."""

    def __init__(
        self,
        control: ModelControl,
        clock: HandClock,
        random: Random,
        has: Callable[[str, str], bool],
    ) -> None:
        self.control, self.clock, self.random, self._has = control, clock, random, has

    def create(self, vm_id: str) -> None:
        self.control.create(vm(vm_id, restart="elsewhere"), self.random.choice(HOSTS))

    def flip(self) -> None:
        if idle := self._idle():
            vm_id = self.random.choice(idle)
            running = self.control.vms[vm_id].order.power == "running"
            self.control.power(vm_id, "stopped" if running else "running")

    def migrate(self) -> None:
        """Move a VM that its host has: one recovered while stopped is made at its next start."""
        vms = self.control.vms
        if idle := [vm_id for vm_id in self._idle() if self._has(vms[vm_id].host, vm_id)]:
            vm_id = self.random.choice(idle)
            if targets := self._targets(vm_id):
                self.control.migrate(vm_id, self.random.choice(targets))

    def recover(self) -> None:
        """Fence hosts of which nothing was heard for long enough, and restart their VMs."""
        for name in HOSTS:
            if self.control.is_silent(name):
                self.control.fence(name)
            if not self.control.host(name).fenced:
                continue
            for vm_id in [each for each, found in self.control.vms.items() if found.host == name]:
                self.control.recover(vm_id, self._targets(vm_id), self.random.choice)

    def _idle(self) -> list[str]:
        found = self.control.vms.items()
        return [vm_id for vm_id, each in found if not each.phase and not each.target]

    def _targets(self, vm_id: str) -> list[str]:
        return [host for host in HOSTS if self._takes(host, vm_id)]

    def _takes(self, host: str, vm_id: str) -> bool:
        there = self.control.host(host)
        fresh = not there.fenced and self.clock.now - there.heard_at < LEASE_S / 2
        return fresh and host != self.control.vms[vm_id].host and vm_id not in there.orders


# The fleet


class CountedVMs(MemoryVMs):
    """VMs of one host; every change is checked against all hosts."""

    def __init__(self, fleet: "Fleet") -> None:
        super().__init__()
        self._fleet = fleet

    async def change(self, vm_id: str, change: Change) -> LocalVM | None:
        after = await super().change(vm_id, change)
        where = self._fleet.executing(vm_id)
        if len(where) > 1:
            self._fleet.broken.append(f"{vm_id} executes on {where} at {self._fleet.clock.now}")
        return after


class Fleet:
    """All of it together."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.clock = HandClock()
        self.control = ModelControl(
            self.clock,
            heartbeat_s=HEARTBEAT_S,
            lease_s=LEASE_S,
            full_list_s=60.0,
            whole_list=lambda: self.random.random() < 0.3,
        )
        self.network = Network(self.clock, self.random, self.control)
        self.broken: list[str] = []
        self.vms = {host: CountedVMs(self) for host in HOSTS}
        self.users = Users(
            self.control, self.clock, self.random, lambda host, vm_id: vm_id in self.vms[host].vms
        )
        self.stores = {host: MemoryStore("secret") for host in HOSTS}
        self.fences = {host: MemoryFences() for host in HOSTS}
        self.guards = {host: self._guard(host) for host in HOSTS}
        self.agents: dict[str, asyncio.Task[object]] = {}
        self.guarding = [asyncio.create_task(guard.run()) for guard in self.guards.values()]

    def _guard(self, host: str) -> MemoryGuard:
        return MemoryGuard(
            clock=self.clock,
            store=self.stores[host],
            vms=self.vms[host],
            fences=self.fences[host],
            stop_s=GUARD_STOP_S,
        )

    def executing(self, vm_id: str) -> list[str]:
        return [
            host
            for host in HOSTS
            if (here := self.vms[host].vms.get(vm_id)) and here.state in ("starting", "running")
        ]

    def start(self, host: str) -> None:
        if host in self.agents:
            return
        driver = VirtualDriver(
            VirtualSettings(boot_s=3.0, stop_s=0.5, move_s=2.0),
            clock=self.clock,
            vms=self.vms[host],
            fences=self.fences[host],
        )
        agent = Agent(
            AgentSettings(host, (host,), observe_s=3.0, sample_s=1e6),
            clock=self.clock,
            transport=self.network,
            driver=driver,
            store=self.stores[host],
            random=self.random,
            ids=IdSource(self.clock.wall_ms, self.random),
            guard=self.guards[host],
        )
        self.agents[host] = asyncio.create_task(agent.run())

    async def kill(self, host: str) -> None:
        task = self.agents.pop(host, None)
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def do_something(self) -> None:
        random, host = self.random, self.random.choice(HOSTS)
        what = random.choice(
            ("cut", "cut", "heal", "heal", "kill", "start", "start", "flip", "migrate", "migrate")
        )
        if what == "cut":
            self.network.open[host].clear()
        elif what == "heal":
            self.network.open[host].set()
        elif what == "kill":
            await self.kill(host)
        elif what == "start":
            self.start(host)
        elif what == "flip":
            self.users.flip()
        else:
            self.users.migrate()
        await self.pass_by(random.choice((0.3, 1.0, 4.0, 9.0, 14.0)))

    async def pass_by(self, seconds: float) -> None:
        for _ in range(max(1, int(seconds / 0.5))):
            await self.clock.pass_by(min(seconds, 0.5))
            self.users.recover()
        assert not self.broken, self.broken[0]

    def check_at_rest(self) -> None:
        for vm_id, state in self.control.vms.items():
            expected = [state.host] if state.order.power == "running" else []
            assert self.executing(vm_id) == expected, f"{vm_id}: {state}"
            assert not state.phase, f"{vm_id} is still {state.phase}"

    async def end(self) -> None:
        for host in HOSTS:
            await self.kill(host)
        tasks = [*self.guarding, *self.network.pumps]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def one_copy_executes(seed: int, steps: int) -> Fleet:
    """Live through so many random steps, then put everything right and look again."""

    async def life() -> Fleet:
        fleet = Fleet(seed)
        for host in HOSTS:
            fleet.start(host)
        await fleet.pass_by(1.0)
        for number in range(3):
            fleet.users.create(f"vm-{number}")
        await fleet.pass_by(3.0)
        for _ in range(steps):
            await fleet.do_something()
        for host in HOSTS:
            fleet.network.open[host].set()
            fleet.start(host)
        await fleet.pass_by(60.0)
        fleet.check_at_rest()
        await fleet.end()
        return fleet

    return asyncio.run(life())
