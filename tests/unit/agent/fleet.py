"""Three hosts with whole agents and guards, and a control plane that moves and recovers their VMs.

The network delays messages, holds them back during a partition and delivers them late; agents are
killed and started. Watched at every change of a VM on any host: at most one copy of it executes.
In the end, with everything back, exactly one does.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

from roost.agent.agent import Agent, AgentSettings
from roost.agent.drivers.base import LocalVM
from roost.agent.drivers.virtual import VirtualDriver, VirtualSettings
from roost.agent.drivers.vmfiles import Change, MemoryVMs
from roost.agent.memoryguard import MemoryFences, MemoryGuard
from roost.agent.store import MemoryStore
from roost.base.ids import IdSource
from roost.hostkit.talk.link import Link, LinkLost
from roost.testing.clock import HandClock
from roost.wire.agentlink import (
    Delta,
    Desired,
    DesiredVM,
    Heartbeat,
    Hello,
    Refused,
    Renewed,
    Report,
    SeenVM,
    ToAgent,
    Tombstone,
    Welcome,
    decode_from_agent,
    encode,
)
from tests.unit.agent.fake_control import listing, vm

HEARTBEAT_S, LEASE_S, GUARD_STOP_S = 2.0, 10.0, 1.0
HOSTS = ("a", "b", "c")


# The network


class SlowLink:
    """One end of a link whose messages take their time, in order; a partition holds them back."""

    def __init__(self, net: "Network", host: str) -> None:
        self._net, self._host = net, host
        self._inbox: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._outbox: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.other: SlowLink = self
        self._closed = False
        self._pump = asyncio.create_task(self._deliver())
        net.pumps.add(self._pump)

    async def send(self, data: bytes) -> None:
        if self._closed:
            raise LinkLost("closed")
        self._outbox.put_nowait(data)

    async def receive(self) -> bytes | str:
        data = None if self._closed else await self._inbox.get()
        if data is None:
            self._closed = True
            raise LinkLost("closed")
        return data

    async def close(self) -> None:
        self._closed = True
        self._outbox.put_nowait(None)

    async def _deliver(self) -> None:
        while True:
            data = await self._outbox.get()
            await self._net.clock.sleep(self._net.random.choice((0.0, 0.01, 0.05, 0.4)))
            await self._net.open[self._host].wait()
            self.other._inbox.put_nowait(data)
            if data is None:
                return


class Network:
    """Connects agents with the control plane. Implements `Transport`; the server is the host."""

    def __init__(self, clock: HandClock, random: Random) -> None:
        self.clock, self.random = clock, random
        self.open = {host: asyncio.Event() for host in HOSTS}
        self.pumps: set[asyncio.Task[None]] = set()
        self.control: Control | None = None
        for event in self.open.values():
            event.set()

    async def connect(self, server: str, credential: str) -> Link:
        if not self.open[server].is_set():
            await self.clock.sleep(2.0)
            raise LinkLost("no way there")
        ours, theirs = SlowLink(self, server), SlowLink(self, server)
        ours.other, theirs.other = theirs, ours
        assert self.control is not None
        self.pumps.add(asyncio.create_task(self.control.talk(theirs, server)))
        return ours


# The control plane


_PARTS = {
    "moving": ("outgoing", "incoming"),
    "landing": ("outgoing", "incoming"),
    "recalling": ("returning", "withdrawn"),
}


@dataclass
class HostState:
    epoch: int = 0
    fenced: bool = False
    heard_at: float = -1e9
    guard_stop_s: float | None = None
    orders: dict[str, DesiredVM | Tombstone] = field(default_factory=dict)
    outbox: "asyncio.Queue[ToAgent] | None" = None


@dataclass
class VMState:
    order: DesiredVM
    host: str
    target: str = ""
    phase: str = ""  # "", preparing, moving, landing, recalling


class Control:
    """What the real one does about leases, moves and recovery, in as few lines as possible."""

    def __init__(self, clock: HandClock, random: Random) -> None:
        self.clock, self.random = clock, random
        self.hosts = {host: HostState() for host in HOSTS}
        self.vms: dict[str, VMState] = {}
        self.recovered = 0
        self.moved = 0

    async def talk(self, link: Link, host: str) -> None:
        outbox: asyncio.Queue[ToAgent] = asyncio.Queue()
        sender = asyncio.create_task(self._send_all(link, outbox))
        epoch = -1
        try:
            while True:
                message = decode_from_agent(await link.receive())
                state = self.hosts[host]
                if isinstance(message, Hello):
                    epoch = self._hello(state, message, outbox)
                elif isinstance(message, Heartbeat):
                    if epoch != state.epoch or state.fenced:
                        outbox.put_nowait(Refused("fenced", "this host was fenced", fenced=True))
                        continue
                    state.heard_at = self.clock.now
                    state.guard_stop_s = message.guard_stop_s
                    outbox.put_nowait(Renewed(message.number))
                    if message.digest != self._list(state).digest:
                        outbox.put_nowait(self._list(state))
                elif isinstance(message, Report) and epoch == state.epoch:
                    for seen in message.vms:
                        self._seen(host, seen)
        except LinkLost:
            pass
        finally:
            if self.hosts[host].outbox is outbox:
                self.hosts[host].outbox = None
            sender.cancel()

    def _hello(self, state: HostState, hello: Hello, outbox: "asyncio.Queue[ToAgent]") -> int:
        if state.fenced:
            going = [each.id for each in (*hello.vms, *hello.held) if each.seen in _GOING]
            if any(vm_id not in state.orders for vm_id in going):
                outbox.put_nowait(Refused("fenced", "VMs run astray", fenced=True))
                return -1
            state.fenced = False
            state.epoch += 1
        state.outbox = outbox
        state.guard_stop_s = hello.guard_stop_s
        outbox.put_nowait(Welcome(1, HEARTBEAT_S, LEASE_S, 60.0))
        if hello.digest != self._list(state).digest:
            outbox.put_nowait(self._list(state))
        return state.epoch

    async def _send_all(self, link: Link, outbox: "asyncio.Queue[ToAgent]") -> None:
        with suppress(LinkLost):
            while True:
                await link.send(encode(await outbox.get()))

    def _list(self, state: HostState) -> Desired:
        return listing(*state.orders.values())

    def _seen(self, host: str, seen: SeenVM) -> None:
        state = self.vms.get(seen.id)
        if seen.seen == "absent":
            order = self.hosts[host].orders.get(seen.id)
            if order is None or seen.generation < order.generation:
                return
            if isinstance(order, Tombstone):
                self._put(host, seen.id, None)
            elif order.part == "withdrawn" and state is not None and host == state.target:
                self._put(host, seen.id, None)
                state.target = ""
                self._change(state, phase="")
            return
        if state is None:
            return
        if seen.seen == "arrived" and host == state.target and state.phase != "preparing":
            old, state.host, state.target = state.host, state.target, ""
            self._change(state, phase="")
            self._put(old, seen.id, Tombstone(seen.id, state.order.generation))
            self.moved += 1
            return
        if seen.generation != state.order.generation:
            return
        lost = seen.seen == "failed" and seen.failure == "permanent"
        if lost and host == state.target and state.phase == "landing":
            self._change(state, phase="recalling")
        elif seen.seen == "ready" and host == state.target and state.phase == "preparing":
            self._change(state, phase="moving")
        elif seen.seen == "moved" and host == state.host and state.phase == "moving":
            self._change(state, phase="landing")

    def _change(self, state: VMState, **changes: object) -> None:
        """Give a VM a new generation and tell its hosts."""
        if "phase" in changes:
            state.phase = str(changes.pop("phase"))
        fields = {name: getattr(state.order, name) for name in state.order.__struct_fields__}
        state.order = DesiredVM(**{**fields, **changes, "generation": state.order.generation + 1})
        fields = {name: getattr(state.order, name) for name in state.order.__struct_fields__}
        sent = state.phase == "landing"
        here, there = _PARTS.get(state.phase, ("run", "incoming"))
        self._put(state.host, state.order.id, DesiredVM(**{**fields, "part": here}))
        if state.target:
            incoming = DesiredVM(**{**fields, "part": there, "sent": sent})
            self._put(state.target, state.order.id, incoming)

    def _put(self, host: str, vm_id: str, order: DesiredVM | Tombstone | None) -> None:
        state = self.hosts[host]
        base = self._list(state).digest
        before = state.orders.pop(vm_id, None)
        if order is not None:
            state.orders[vm_id] = order
        if state.outbox is None:
            return
        if self.random.random() < 0.3:
            state.outbox.put_nowait(self._list(state))
            return
        delta = Delta(base, self._list(state).digest)
        if isinstance(order, DesiredVM):
            delta.vms = [order]
        elif order is not None:
            delta.tombstones = [order]
        if isinstance(before, Tombstone):
            delta.buried = [vm_id]
        elif before is not None and not isinstance(order, DesiredVM):
            delta.dropped = [vm_id]
        state.outbox.put_nowait(delta)

    # What users and time do

    def create(self, vm_id: str) -> None:
        state = VMState(vm(vm_id, restart="elsewhere"), self.random.choice(HOSTS))
        self.vms[vm_id] = state
        self._change(state)

    def flip(self) -> None:
        if idle := self._idle():
            state = self.random.choice(idle)
            power = "stopped" if state.order.power == "running" else "running"
            self._change(state, power=power)

    def migrate(self) -> None:
        if idle := self._idle():
            state = self.random.choice(idle)
            targets = [host for host in HOSTS if self._takes(host, state)]
            if targets:
                state.target = self.random.choice(targets)
                self._change(state, phase="preparing")

    def recover(self) -> None:
        """Fence hosts of which nothing was heard for long enough, and restart their VMs."""
        for name, host in self.hosts.items():
            if host.guard_stop_s is None:
                continue
            silent_s = self.clock.now - host.heard_at
            if not host.fenced and silent_s >= LEASE_S * 1.05 + host.guard_stop_s:
                host.fenced = True
                host.epoch += 1
            for state in self.vms.values():
                if host.fenced and state.host == name:
                    self._restart_elsewhere(state)

    def _restart_elsewhere(self, state: VMState) -> None:
        if state.phase in ("moving", "landing"):
            self._change(state, phase="recalling")
        if state.phase == "recalling" and not self.hosts[state.target].fenced:
            return  # only the target can tell whether it has it
        targets = [host for host in HOSTS if self._takes(host, state) and host != state.target]
        if not targets:
            return
        grave = Tombstone(state.order.id, state.order.generation + 1)
        for old in sorted({state.host, state.target} - {""}):
            self._put(old, state.order.id, grave)
        state.order = vm(
            state.order.id,
            grave.generation,
            restart="elsewhere",
            power=state.order.power,
        )
        state.host, state.target = self.random.choice(targets), ""
        self._change(state, phase="")
        self.recovered += 1

    def _idle(self) -> list[VMState]:
        return [state for state in self.vms.values() if not state.phase and not state.target]

    def _takes(self, host: str, state: VMState) -> bool:
        there = self.hosts[host]
        fresh = not there.fenced and self.clock.now - there.heard_at < LEASE_S / 2
        return fresh and host != state.host and state.order.id not in there.orders


_GOING = ("starting", "running", "stopping")


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
        self.network = Network(self.clock, self.random)
        self.control = self.network.control = Control(self.clock, self.random)
        self.broken: list[str] = []
        self.vms = {host: CountedVMs(self) for host in HOSTS}
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
            random=self.random,
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
            self.control.flip()
        else:
            self.control.migrate()
        await self.pass_by(random.choice((0.3, 1.0, 4.0, 9.0, 14.0)))

    async def pass_by(self, seconds: float) -> None:
        for _ in range(max(1, int(seconds / 0.5))):
            await self.clock.pass_by(min(seconds, 0.5))
            self.control.recover()
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
            fleet.control.create(f"vm-{number}")
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
