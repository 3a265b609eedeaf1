"""A model control plane: what agents hear from `roost serve`, without a ledger or a fleet.

Per host it keeps a list of orders, the lease's epoch and whether the host is fenced; it says hello,
sends lists by digest and deltas, renews leases, refuses who is fenced, and carries moves and
recovery through their phases. It places nothing: a test says what goes where. Agents come in by
`agents`, as at a real `Plane`, so the same links and model agents speak with both.

    agent --Hello--> ModelSession --> Welcome, and the list if its digest differs
    agent --Heartbeat--> Renewed, or Refused when fenced; the list if the digest differs
    agent --Report--> `seen`; ready, moved, arrived and absent carry moves and deletions on
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import msgspec
from msgspec.structs import replace

from roost.base.clock import Clock, RealClock
from roost.control.agents.sessions import Link
from roost.parts.access import Principal
from roost.testing.orders import listing
from roost.wire.agentlink import (
    ConsoleReply,
    ConsoleRequest,
    Delta,
    Desired,
    DesiredVM,
    FromAgent,
    Heartbeat,
    HeldVM,
    Hello,
    Present,
    Refused,
    Renewed,
    Report,
    RollCall,
    Samples,
    SeenVM,
    ToAgent,
    Tombstone,
    Welcome,
    agree,
    decode_from_agent,
    disagreement,
    encode,
)

#: The longest that `until` waits; far more than anything needs.
PATIENCE_S = 20.0
#: The host that is meant when a test names none.
HOST = "host-1"

Phase = Literal["", "preparing", "moving", "landing", "recalling"]
#: What source and target are told of a VM, by the phase of its move.
_PARTS: dict[Phase, tuple[str, str]] = {
    "moving": ("outgoing", "incoming"),
    "landing": ("outgoing", "incoming"),
    "recalling": ("returning", "withdrawn"),
}
_GOING = ("starting", "running", "stopping")


@dataclass
class ModelHost:
    """What it knows of one host."""

    name: str
    desired: Desired = field(default_factory=listing)
    epoch: int = 0
    fenced: bool = False
    heard_at: float = float("-inf")
    guard_stop_s: float | None = None
    session: "ModelSession | None" = None
    told: set[str] = field(default_factory=set)  # the VMs of its reports since the last full one

    @property
    def orders(self) -> dict[str, DesiredVM | Tombstone]:
        """Return its list by VM."""
        listed: list[DesiredVM | Tombstone] = [*self.desired.vms, *self.desired.tombstones]
        return {each.id: each for each in listed}


@dataclass
class ModelVM:
    """A VM that it moves and recovers."""

    order: DesiredVM
    host: str
    target: str = ""
    phase: Phase = ""


class ModelSession:
    """Its end of one agent's connection."""

    def __init__(self, control: "ModelControl", link: Link, host: ModelHost) -> None:
        self._control, self.link, self.host = control, link, host
        self.epoch = -1  # none: it has not been welcomed

    def send(self, message: ToAgent) -> None:
        """Send one message."""
        self.link.send(encode(message))

    def received(self, data: bytes) -> None:
        """Take one message; what cannot be read ends the connection."""
        try:
            message = decode_from_agent(data)
        except msgspec.DecodeError as error:
            self.send(Refused("invalid_request", str(error)))
            self.link.close(1007, "a message that cannot be read")
            return
        self._control.hear(self, message)

    def rest_s(self, spent_s: float) -> float:
        """Return that the next message may be read at once."""
        return 0.0

    def closed(self) -> None:
        """Hear that the connection is gone."""
        if self.host.session is self:
            self.host.session = None


class ModelControl:
    """Serves agents. What it heard is in plain attributes; `news` is set on everything heard."""

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        heartbeat_s: float = 0.05,
        lease_s: float = 30.0,
        full_list_s: float = 300.0,
        whole_list: Callable[[], bool] = lambda: False,
    ) -> None:
        self.welcome = Welcome(1, heartbeat_s, lease_s, full_list_s)
        self.hosts: dict[str, ModelHost] = {}
        self.vms: dict[str, ModelVM] = {}
        self.hellos: list[Hello] = []
        self.beats: list[Heartbeat] = []
        self.reports: list[Report] = []
        self.samples: list[Samples] = []
        self.presents: list[Present] = []
        self.replies: list[ConsoleReply] = []
        self.seen: dict[str, SeenVM] = {}
        self.credentials: list[str] = []
        self.lists_sent = 0
        self.recovered = 0
        self.moved = 0
        self.renews = True
        self.answers = True
        self.refusal: Refused | None = None
        self.news = asyncio.Event()
        self._clock = clock or RealClock()
        self._whole_list = whole_list  # whether a change goes out as a whole list, not as a delta

    # The door for agents, as a `Plane` has it

    @property
    def agents(self) -> "ModelControl":
        """Return where agents are let in."""
        return self

    def connect(self, link: Link, who: Principal) -> ModelSession:
        """Take a new connection of the agent of one host."""
        return ModelSession(self, link, self.host(who.host or HOST))

    def host(self, name: str = HOST) -> ModelHost:
        """Return a host; one that was never named before has an empty list."""
        return self.hosts.setdefault(name, ModelHost(name))

    # What a test orders

    @property
    def desired(self) -> Desired:
        """Return the list of the host that is meant when none is named."""
        return self.host().desired

    @desired.setter
    def desired(self, desired: Desired) -> None:
        """Change that list without telling the agent."""
        self.host().desired = desired

    def order(self, *orders: DesiredVM | Tombstone, host: str = HOST) -> None:
        """Send a whole new list."""
        self.host(host).desired = listing(*orders)
        self.push(self.host(host).desired, host)

    def change(self, delta: Delta, *orders: DesiredVM | Tombstone, host: str = HOST) -> None:
        """Send a delta; `orders` is the list afterwards."""
        self.host(host).desired = listing(*orders)
        self.push(delta, host)

    def put(self, host: str, vm_id: str, order: DesiredVM | Tombstone | None) -> None:
        """Change one entry of a host's list, and tell it by a delta or the whole list."""
        there = self.host(host)
        base, orders = there.desired.digest, there.orders
        before = orders.pop(vm_id, None)
        if order is not None:
            orders[vm_id] = order
        there.desired = listing(*orders.values())
        if there.session is None:
            return
        if self._whole_list():
            self.push(there.desired, host)
            return
        delta = Delta(base, there.desired.digest)
        if isinstance(order, DesiredVM):
            delta.vms = [order]
        elif order is not None:
            delta.tombstones = [order]
        if isinstance(before, Tombstone):
            delta.buried = [vm_id]
        elif before is not None and not isinstance(order, DesiredVM):
            delta.dropped = [vm_id]
        self.push(delta, host)

    def refuse(self, refused: Refused, host: str = HOST) -> None:
        """Refuse an agent that is connected."""
        self.push(refused, host)

    def call_roll(self, host: str = HOST) -> None:
        """Ask a host what it has of every VM."""
        self.push(RollCall(), host)

    def ask_console(self, question: ConsoleRequest, host: str = HOST) -> None:
        """Ask a host for a piece of a VM's serial log."""
        self.push(question, host)

    def push(self, message: ToAgent, host: str = HOST) -> None:
        """Say anything to a host, if it is connected."""
        session = self.host(host).session
        if session is not None:
            session.send(message)

    # What a test waits for

    async def until(self, condition: Callable[[], object], what: str = "") -> None:
        """Wait until something is true, looking after everything heard."""
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                self.news.clear()
                await self.news.wait()

    async def until_seen(self, vm_id: str, seen: str, generation: int | None = None) -> SeenVM:
        """Wait until a VM was reported in a state."""

        def is_so() -> bool:
            found = self.seen.get(vm_id)
            right = found is not None and found.seen == seen
            return right and generation in (None, found.generation if found else None)

        await self.until(is_so, f"{vm_id} {seen}")
        return self.seen[vm_id]

    # The conversation

    def hear(self, session: ModelSession, message: FromAgent) -> None:
        """Take a message of an agent."""
        match message:
            case Hello():
                self.hellos.append(message)
                if self.answers:
                    self._hello(session, message)
            case _ if session.epoch < 0 and self.answers:
                if not session.host.fenced and self.refusal is None:
                    session.send(Refused("invalid_request", "say hello first"))
            case Heartbeat():
                self.beats.append(message)
                if self.answers:
                    self._heartbeat(session, message)
            case Report():
                self._report(session, message)
            case Samples():
                self.samples.append(message)
            case Present():
                self.presents.append(message)
            case ConsoleReply():
                self.replies.append(message)
        self.news.set()

    def _hello(self, session: ModelSession, hello: Hello) -> None:
        host = session.host
        if hello.host != host.name:
            session.send(Refused("forbidden", f"this credential is for host {host.name!r}"))
            session.link.close(1008, "another host's credential")
            return
        if agree(hello) is None:
            session.send(Refused("protocol_unknown", disagreement(hello)))
            session.link.close(1008, "another protocol")
            return
        if host.fenced:
            said: list[SeenVM | HeldVM] = [*hello.vms, *hello.held]
            going = [each.id for each in said if each.seen in _GOING]
            if any(vm_id not in host.orders for vm_id in going):
                session.send(Refused("fenced", "VMs run astray", fenced=True))
                return
            host.fenced = False
            host.epoch += 1
        if host.session is not None and host.session is not session:
            host.session.link.close(1001, "replaced by a newer connection")
        host.session, host.guard_stop_s = session, hello.guard_stop_s
        session.epoch = host.epoch
        session.send(self.refusal or self.welcome)
        self._send_list_unless(hello.digest, session)

    def _heartbeat(self, session: ModelSession, beat: Heartbeat) -> None:
        host = session.host
        if session.epoch != host.epoch or host.fenced:
            session.send(Refused("fenced", "this host was fenced", fenced=True))
            session.link.close(1008, "fenced")
            return
        host.heard_at, host.guard_stop_s = self._clock.monotonic(), beat.guard_stop_s
        if self.renews:
            session.send(Renewed(beat.number))
        self._send_list_unless(beat.digest, session)

    def _send_list_unless(self, digest: str, session: ModelSession) -> None:
        if digest != session.host.desired.digest:
            self.lists_sent += 1
            session.send(session.host.desired)

    def _report(self, session: ModelSession, report: Report) -> None:
        self.reports.append(report)
        host = session.host
        if report.full:
            for vm_id in host.told:
                self.seen.pop(vm_id, None)
            host.told.clear()
        host.told.update(each.id for each in report.vms)
        self.seen.update({each.id: each for each in report.vms})
        if session.epoch == host.epoch:
            for seen in report.vms:
                self._observe(host.name, seen)

    # Moves, deletions and recovery

    def create(self, order: DesiredVM, host: str) -> None:
        """Let a VM run on a host."""
        self.vms[order.id] = ModelVM(order, host)
        self._change(self.vms[order.id], "")

    def power(self, vm_id: str, power: Literal["running", "paused", "stopped"]) -> None:
        """Let a VM run, pause or stop."""
        vm = self.vms[vm_id]
        vm.order = replace(vm.order, power=power)
        self._change(vm, vm.phase)

    def delete(self, vm_id: str) -> None:
        """Let a VM be destroyed wherever it is."""
        vm = self.vms.pop(vm_id)
        for host in sorted({vm.host, vm.target} - {""}):
            self.put(host, vm_id, Tombstone(vm_id, vm.order.generation + 1))

    def migrate(self, vm_id: str, target: str) -> None:
        """Begin a move."""
        vm = self.vms[vm_id]
        vm.target = target
        self._change(vm, "preparing")

    def fence(self, host: str) -> None:
        """Count a host as cut off: its heartbeats are refused, its VMs may run elsewhere."""
        there = self.host(host)
        there.fenced = True
        there.epoch += 1

    def is_silent(self, host: str) -> bool:
        """Return whether a host's VMs have surely stopped: lease and guard's time are over."""
        there = self.host(host)
        if there.guard_stop_s is None or there.fenced:
            return False
        silent_s = self._clock.monotonic() - there.heard_at
        return silent_s >= self.welcome.lease_s * 1.05 + there.guard_stop_s

    def recover(self, vm_id: str, targets: list[str], choose: Callable[[list[str]], str]) -> None:
        """Start a VM of a fenced host elsewhere, unless the target of a move may have it."""
        vm = self.vms[vm_id]
        if vm.phase in ("moving", "landing"):
            self._change(vm, "recalling")
        if vm.phase == "recalling" and not self.host(vm.target).fenced:
            return  # only the target can tell whether it has it
        free = [host for host in targets if host != vm.target]
        if not free:
            return
        grave = Tombstone(vm_id, vm.order.generation + 1)
        for old in sorted({vm.host, vm.target} - {""}):
            self.put(old, vm_id, grave)
        vm.order = replace(vm.order, generation=grave.generation)
        vm.host, vm.target = choose(free), ""
        self._change(vm, "")
        self.recovered += 1

    def _observe(self, host: str, seen: SeenVM) -> None:
        vm = self.vms.get(seen.id)
        if seen.seen == "absent":
            order = self.host(host).orders.get(seen.id)
            if order is None or seen.generation < order.generation:
                return
            if isinstance(order, Tombstone):
                self.put(host, seen.id, None)
            elif order.part == "withdrawn" and vm is not None and host == vm.target:
                self.put(host, seen.id, None)
                vm.target = ""
                self._change(vm, "")
            return
        if vm is None:
            return
        if seen.seen == "arrived" and host == vm.target and vm.phase != "preparing":
            old, vm.host, vm.target = vm.host, vm.target, ""
            self._change(vm, "")
            self.put(old, seen.id, Tombstone(seen.id, vm.order.generation))
            self.moved += 1
            return
        if seen.generation != vm.order.generation:
            return
        lost = seen.seen == "failed" and seen.failure == "permanent"
        if lost and host == vm.target and vm.phase == "landing":
            self._change(vm, "recalling")
        elif seen.seen == "ready" and host == vm.target and vm.phase == "preparing":
            self._change(vm, "moving")
        elif seen.seen == "moved" and host == vm.host and vm.phase == "moving":
            self._change(vm, "landing")

    def _change(self, vm: ModelVM, phase: Phase) -> None:
        """Give a VM a new generation and tell its hosts."""
        vm.phase = phase
        vm.order = order = replace(vm.order, generation=vm.order.generation + 1)
        here, there = _PARTS.get(phase, ("run", "incoming"))
        self.put(vm.host, order.id, replace(order, part=here, peer=vm.target))
        if vm.target:
            sent = phase == "landing"
            self.put(vm.target, order.id, replace(order, part=there, peer=vm.host, sent=sent))
