"""A model agent: what `roost agent` does for the control plane, without time, tasks or a socket.

It decides with the agent's own pure parts: `converge.next_step`, `sightings`, `DesiredList` and
`Lease`; only what a driver would do is played, on copies that a test may look at and break. Both
directions of its connection are queues that a test may hold back, drop, repeat or shuffle.

Where the real agent has a choice in time, the model takes the worst that is allowed: it stops
what may run elsewhere at the very last moment that its fence guard promised, and never when it has
no guard (its process may hang). It does not play budgets, back-off, the agent's own books of
capacity or the guard against mass destruction: those never speak to the control plane.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from msgspec.structs import replace

from roost.agent import sightings
from roost.agent.capacity import amounts_of
from roost.agent.converge import FENCEABLE, Leased, Step, held_ids, needs_confirming, next_step
from roost.agent.desired import DesiredList, Order
from roost.agent.drivers.base import FENCED, LocalState, LocalVM
from roost.agent.fencing.lease import Lease
from roost.agent.store import Record
from roost.base.units import GIB
from roost.control.agents.sessions import Link
from roost.hostkit.lanes import Failure
from roost.parts.access import Principal
from roost.wire.agentlink import (
    PROTOCOL,
    AmountInfo,
    ConsoleReply,
    ConsoleRequest,
    CopyInfo,
    Delta,
    Desired,
    DesiredVM,
    FromAgent,
    Heartbeat,
    HeldVM,
    Hello,
    Inventory,
    LedgerPoint,
    Present,
    ProbeInfo,
    ProbeOrder,
    ProbeReply,
    Refused,
    Renewed,
    Report,
    RollCall,
    SeenVM,
    ToAgent,
    Tombstone,
    Welcome,
    decode_to_agent,
    encode,
)

#: More steps than any order takes: then `converge` goes round in circles.
_MOST_STEPS = 20


def inventory(cpu: int = 4, memory: int = 8, disk: int = 100, **rest: object) -> Inventory:
    """Return what a host of so many cores and GiB registers with."""
    amounts = AmountInfo(cpu * 1000), AmountInfo(memory * GIB), AmountInfo(disk * GIB)
    return Inventory(*amounts, **rest)  # type: ignore[arg-type]


class PlaneSession(Protocol):
    """A control plane's end of one agent's connection."""

    def received(self, data: bytes) -> None:
        """Take a message of the agent."""

    def closed(self) -> None:
        """Hear that the connection is lost."""


class AgentDoor(Protocol):
    """Where a control plane lets agents in."""

    def connect(self, link: Link, who: Principal) -> PlaneSession:
        """Begin a conversation."""


class ControlPlane(Protocol):
    """What a model agent needs of a control plane: a real `Plane`, or a `ModelControl`."""

    @property
    def agents(self) -> AgentDoor:
        """Return where agents are let in."""


@dataclass(slots=True)
class Copy:
    """One copy of a VM on one host."""

    order: DesiredVM  # which it was last changed by
    state: LocalState
    generation: int
    received: LocalState | None = None  # what an incoming copy holds, once all was sent
    sent_as: LocalState = "running"  # what it was before it was sent
    arrived: bool = False
    stale: bool = False  # another copy has executed since this one stood still
    reason: str = ""

    @property
    def runs(self) -> bool:
        """Return whether the guest executes here."""
        return self.state in ("starting", "running", "sending")

    @property
    def size(self) -> tuple[int, int, int]:
        """Return the amounts that it takes."""
        return self.order.cpu_milli, self.order.memory_bytes, self.order.disk_bytes

    def local(self, host: str) -> LocalVM:
        """Return it as a driver would show it."""
        order = self.order
        return LocalVM(
            order.id, order.name, self.state, order.cpu_milli, order.memory_bytes,
            order.disk_bytes, order.extended, order.devices, self.generation, order.restarts,
            order.restart, self.reason, self.arrived,
            {"uri": f"model:{host}"} if self.state == "ready" else {},
        )  # fmt: skip


class ModelLink:
    """The plane's end of the connection: what it sends is queued at the agent."""

    peer = "model"

    def __init__(self, agent: "ModelAgent") -> None:
        self._agent = agent
        self.closing: str | None = None

    def send(self, data: bytes) -> None:
        """Queue a message at the agent."""
        if self.closing is None:
            self._agent.inbox.append(data)
            self._agent.rung()

    def close(self, code: int, reason: str) -> None:
        """Take nothing more."""
        self.closing = reason


@dataclass(slots=True)
class ModelAgent:
    """One host's agent. `now` is the clock of the test."""

    name: str
    now: Callable[[], float]
    inventory: Inventory = field(default_factory=inventory)
    guard_stop_s: float | None = None
    peers: dict[str, "ModelAgent"] = field(default_factory=dict)
    instance: str = "first"
    mute: bool = False  # it reports nothing
    arrives_alone: bool = False  # incoming copies take over by themselves, as real ones do
    copies: dict[str, Copy] = field(default_factory=dict)
    records: dict[str, Record] = field(default_factory=dict)
    failing: dict[str, str] = field(default_factory=dict)  # VM -> code: what cannot be done
    consoles: dict[str, str] = field(default_factory=dict)  # VM -> its serial log
    probe: ProbeInfo | None = None  # None: it is too old to probe
    #: What it says to an order to probe; None: nothing at all.
    probes: Callable[[ProbeOrder], ProbeReply | None] = lambda order: ProbeReply(order.number)
    desired: DesiredList | None = None
    lease: Lease = field(default_factory=Lease)
    link: ModelLink | None = None
    session: PlaneSession | None = None
    rung: Callable[[], None] = lambda: None  # called when a message was queued in the inbox
    inbox: list[bytes] = field(default_factory=list)
    outbox: list[bytes] = field(default_factory=list)
    heard: list[ToAgent] = field(default_factory=list)
    welcome: Welcome | None = None
    refusal: Refused | None = None
    number: int = 0
    confirmed: bool = False
    asked: bool = False
    reported: dict[str, SeenVM] = field(default_factory=dict)
    reported_held: list[HeldVM] | None = None
    point: LedgerPoint | None = None  # the newest of a ledger that it heard of
    anew: bool = True  # none of this connection was heard yet
    conversations: int = 0
    _failures: dict[str, Failure] = field(default_factory=dict)

    # The connection

    def connect(self, plane: ControlPlane) -> None:
        """Open a connection; the hello waits in the outbox."""
        self.disconnect()
        self.link = ModelLink(self)
        who = Principal(f"agent/{self.name}", "agent", None, self.name)
        self.session = plane.agents.connect(self.link, who)
        self.refusal, self.anew = None, True
        self.conversations += 1
        self._say(self.hello())

    def hello(self) -> Hello:
        """Return how it introduces itself."""
        return Hello(
            PROTOCOL, self.name, self.instance, "1", self.inventory, self.digest,
            list(self.seen().values()), self.held(), self.guard_stop_s, self.point,
            self.conversations, probe=self.probe,
        )  # fmt: skip

    def disconnect(self) -> None:
        """Lose the connection with all that was on its way."""
        if self.session is not None:
            self.session.closed()
        self.link = self.session = self.welcome = None
        self.inbox.clear()
        self.outbox.clear()
        self.forget_reported()
        self.asked = False

    def forget_reported(self) -> None:
        """Report all VMs anew: earlier reports may be lost."""
        self.reported, self.reported_held = {}, None

    @property
    def connected(self) -> bool:
        """Return whether what it says arrives."""
        return self.link is not None and self.link.closing is None

    def heartbeat(self) -> None:
        """Queue a heartbeat; the lease is counted from now."""
        if self.welcome is None:
            return
        self.number += 1
        self.lease.sent(self.number, self.now())
        self.asked = self.needs_confirming and self.leased
        digest = "" if self.asked else self.digest
        self._say(Heartbeat(self.number, digest, self.guard_stop_s))

    def report(self, *, full: bool = False) -> None:
        """Queue what is seen that was not reported on this connection."""
        if self.mute or self.welcome is None:
            return
        seen, held = self.seen(), self.held()
        full = full or self.reported_held is None
        news = [vm for vm_id, vm in seen.items() if full or self.reported.get(vm_id) != vm]
        if news or full or held != self.reported_held:
            self.reported, self.reported_held = seen, held
            self._say(Report(news, held, full))

    def speak(self, rng: Random | None = None, *, repeat: bool = False) -> None:
        """Let what waits in the outbox arrive at the plane, shuffled when told how."""
        waiting, self.outbox = self.outbox, []
        if repeat:
            waiting = [data for data in waiting for _ in range(2)]
        if rng is not None:
            rng.shuffle(waiting)
        for data in waiting:
            if self.session is not None and self.connected:
                self.session.received(data)

    def listen(self) -> None:
        """Take what the plane has sent."""
        waiting, self.inbox = self.inbox, []
        for data in waiting:
            self._take(decode_to_agent(data))

    def _say(self, message: FromAgent) -> None:
        self.outbox.append(encode(message))

    def _take(self, message: ToAgent) -> None:
        self.heard.append(message)
        match message:
            case Welcome():
                self.welcome = message
            case Desired():
                self._take_list(message)
            case Delta():
                # A delta for another list: the next heartbeat's digest brings the whole list.
                changed = self.desired.changed(message) if self.desired else None
                if changed is not None:
                    self.desired = changed
                    self._hear(message.point)
            case RollCall():
                self._say(Present(self.digest, self.present()))
            case Renewed():
                self._hear(message.point)
                self._renewed(message.number)
            case ConsoleRequest():
                self._say(self._console(message))
            case ProbeOrder():
                assert self.probe is not None, "an older agent was sent what it does not know"
                if (probed := self.probes(message)) is not None:
                    self._say(probed)
            case Refused():
                self.refusal = message
                if message.fenced:
                    self.lease.void()
                    self.confirmed = False
                    self._fence()

    def _take_list(self, message: Desired) -> None:
        read = DesiredList.read(message)
        assert read is not None, "a list is not what its digest says"
        self.desired = read
        self._hear(message.point)
        if not message.confirms:
            self.asked = False  # the next heartbeat asks again
        elif self.asked and self.leased:
            self.asked, self.confirmed = False, True

    def _hear(self, point: LedgerPoint | None) -> None:
        if point is not None and (self.anew or self.point is None or point.seq > self.point.seq):
            self.point, self.anew = point, False

    def _renewed(self, number: int) -> None:
        assert self.welcome is not None
        if not self.leased and self._movable():
            # Counted again only once everything has stopped that may have been started elsewhere.
            self._fence()
            return
        gap = not self.leased
        if self.lease.renewed(number, self.welcome.lease_s) and gap:
            self.confirmed = False

    def _console(self, ask: ConsoleRequest) -> ConsoleReply:
        if ask.vm not in self.copies:
            return ConsoleReply(ask.number, code="not_here", message=f"{ask.vm} is not here")
        log = self.consoles.get(ask.vm, "").encode()
        start = max(0, len(log) - ask.limit) if ask.start is None else min(ask.start, len(log))
        part = log[start : start + ask.limit]
        return ConsoleReply(ask.number, part.decode(), start, start + len(part))

    # What it knows

    @property
    def digest(self) -> str:
        """Return the digest of its list; empty without one."""
        return self.desired.digest if self.desired else ""

    @digest.setter
    def digest(self, digest: str) -> None:
        """Believe that its list is another one, as an agent with an old file does."""
        self.desired = DesiredList(
            Desired(digest, list(self.vms.values()), list(self.tombstones.values()))
        )

    @property
    def vms(self) -> dict[str, DesiredVM]:
        """Return the orders of its list."""
        return self.desired.vms if self.desired else {}

    @property
    def tombstones(self) -> dict[str, Tombstone]:
        """Return the tombstones of its list."""
        return self.desired.tombstones if self.desired else {}

    @property
    def leased(self) -> bool:
        """Return whether its lease holds."""
        return self.lease.is_valid(self.now())

    @property
    def needs_confirming(self) -> bool:
        """Return whether VMs wait for a list that is newer than the lease's renewal."""
        return not self.confirmed and any(
            needs_confirming(vm, self.records.get(vm.id), self._local(vm.id))
            for vm in self.vms.values()
        )

    def done(self, vm_id: str) -> int:
        """Return the newest generation of a VM that was carried out."""
        record, copy = self.records.get(vm_id), self.copies.get(vm_id)
        return max(record.generation if record else 0, copy.generation if copy else 0)

    def order(self, vm_id: str) -> Order | None:
        """Return what its list wants of a VM."""
        return self.desired.order(vm_id) if self.desired else None

    def _local(self, vm_id: str) -> LocalVM | None:
        copy = self.copies.get(vm_id)
        return copy.local(self.name) if copy else None

    def _leased(self) -> Leased:
        if self.leased:
            return Leased.CONFIRMED if self.confirmed else Leased.HELD
        return Leased.OVER if self._guard_is_due() else Leased.HELD

    def _guard_is_due(self) -> bool:
        if self.lease.deadline is None:
            return True  # it never had one, or was told that it is fenced
        return self.guard_stop_s is not None and self.now() >= (
            self.lease.deadline + self.guard_stop_s
        )

    def _movable(self) -> list[str]:
        """Return the VMs that may execute here and may run elsewhere."""
        return [
            vm_id
            for vm_id, copy in self.copies.items()
            if copy.state in FENCEABLE and copy.order.restart == "elsewhere"
        ]

    # Acting

    def guard(self) -> None:
        """Stop what may run elsewhere, at the very last moment that the guard promised."""
        if not self.leased:
            self.confirmed = False
        if self._guard_is_due():
            self._fence()

    def _fence(self) -> None:
        for vm_id in list(self.copies):
            step = self._next_step(vm_id, Leased.OVER)
            if step is not None and step.code == FENCED:
                self._do(step, vm_id, self.order(vm_id))

    def work(self) -> None:
        """Let come what was sent, and carry out every order."""
        for copy in self.copies.values():
            if self.arrives_alone and copy.state == "ready" and copy.received:
                self._arrive(copy)
        for vm_id in sorted(self.copies.keys() | self.vms.keys() | self.tombstones.keys()):
            self.carry_out(vm_id)

    def carry_out(self, vm_id: str) -> None:
        """Do what the order of one VM asks for, as far as it can be done now."""
        self._failures.pop(vm_id, None)
        for _ in range(_MOST_STEPS):
            order = self.order(vm_id)
            step = self._next_step(vm_id, self._leased())
            if step is None:
                return
            failure = self._do(step, vm_id, order)
            if failure is not None:
                self._failures[vm_id] = failure
                return
            if self.copies.get(vm_id) is not None and self.copies[vm_id].state == "sending":
                return  # under way until the target can take it
        raise AssertionError(f"{self.name} never comes to an end with {vm_id}")

    def _next_step(self, vm_id: str, leased: Leased) -> Step | None:
        return next_step(self.order(vm_id), self.records.get(vm_id), self._local(vm_id), leased)

    def _do(self, step: Step, vm_id: str, order: Order | None) -> Failure | None:
        generation = order.generation if order else 0
        if step.kind in ("refuse", "wait"):
            return Failure(generation, step.failure, step.code, step.message)
        if vm_id in self.failing and isinstance(order, DesiredVM) and step.code != FENCED:
            return Failure(generation, "transient", self.failing[vm_id], "cannot")
        copy = self.copies.get(vm_id)
        if step.kind == "stop":
            assert copy is not None
            self._stop(copy, step.code)
        elif step.kind in ("destroy", "withdraw"):
            assert copy is not None
            assert step.kind == "destroy" or not copy.runs
            if step.kind == "destroy":
                self._settle(vm_id, order)
            del self.copies[vm_id]
        elif step.kind == "settle":
            self._settle(vm_id, order)
        else:
            assert isinstance(order, DesiredVM)
            return self._change(step, order, copy)
        return None

    def _settle(self, vm_id: str, order: Order | None) -> None:
        """Write down that a VM is as ordered."""
        if isinstance(order, Tombstone):
            self.records[vm_id] = Record(vm_id, generation=order.generation, gone=True)
        elif order is not None:
            local, before = self._local(vm_id), self.records.get(vm_id)
            amounts = amounts_of(local) if local else before.amounts if before else {}
            text = sightings.order_text(order)
            record = Record(
                vm_id, order.name, order.generation, order.restarts, amounts, order=text
            )
            self.records[vm_id] = record

    def _change(self, step: Step, order: DesiredVM, copy: Copy | None) -> Failure | None:
        match step.kind:
            case "start" if copy is None or copy.state not in ("moved", "switching"):
                self.copies[order.id] = Copy(order, _executing(order), order.generation)
                return None
            case "prepare":
                self.copies[order.id] = Copy(order, "ready", order.generation)
                return None
        assert copy is not None
        match step.kind:
            case "start":
                anew = order.restarts > copy.order.restarts
                assert anew or not copy.stale, "stale memory goes on"
                copy.stale, copy.state = False, _executing(order)
            case "restart" | "pause" | "resume":
                copy.state = _executing(order)
            case "send":
                return self._send(order, copy)
            case "recall":
                copy.state = copy.sent_as
                return None
            case "land":
                return self._land(order, copy)
            case "protect":
                copy.order = replace(copy.order, restart=order.restart)
                return None
            case "resize":
                pass
            case _:
                raise AssertionError(f"the model does not know the step {step.kind}")
        copy.order, copy.generation, copy.reason = order, order.generation, ""
        return None

    def _stop(self, copy: Copy, reason: str) -> None:
        if copy.state in ("ready", "lost"):
            copy.state, copy.received = "lost", None
        else:
            copy.state, copy.reason = "stopped", reason

    def _send(self, order: DesiredVM, copy: Copy) -> Failure | None:
        if copy.state != "sending":
            copy.sent_as = copy.state
        there = self.peers.get(order.peer)
        waiting = there.copies.get(order.id) if there is not None else None
        if waiting is None or waiting.state != "ready":
            if copy.state == "stopped":
                return Failure(order.generation, "transient", "not_sent", "nobody waits for it")
            copy.state = "sending"
            return None
        waiting.received = copy.sent_as
        copy.state, copy.order, copy.generation = "moved", order, order.generation
        return None

    def _land(self, order: DesiredVM, copy: Copy) -> Failure | None:
        if copy.state == "ready":
            if copy.received is None:
                return Failure(order.generation, "transient", "not_ready", "not here yet")
            self._arrive(copy)
        copy.arrived = order.part == "incoming"
        copy.generation = order.generation
        if not copy.arrived:
            copy.order = replace(copy.order, restart=order.restart)
        return None

    def _arrive(self, copy: Copy) -> None:
        assert copy.received is not None
        if copy.received == "running":
            for peer in self.peers.values():
                left = peer.copies.get(copy.order.id) if peer is not self else None
                if left is not None and left.state == "moved":
                    left.stale = True
        copy.state, copy.arrived = copy.received, True

    def lose_incoming(self, vm_id: str) -> None:
        """Let the process of a copy that waits die."""
        copy = self.copies.get(vm_id)
        if copy is not None and copy.state == "ready":
            copy.state, copy.received = "lost", None

    # Telling

    def seen(self) -> dict[str, SeenVM]:
        """Return what it sees of the VMs with an order; without a list, of those with a record."""
        ids = self.desired.ids() if self.desired else self.records.keys() & self.copies.keys()
        found = {
            vm_id: sightings.sighting(
                vm_id,
                self.order(vm_id),
                self.records.get(vm_id),
                self._local(vm_id),
                None,
                self._failures.get(vm_id),
            )
            for vm_id in sorted(ids)
        }
        return {vm_id: seen for vm_id, seen in found.items() if seen is not None}

    def held(self) -> list[HeldVM]:
        """Return what is here and on no list."""
        if self.desired is None:
            return []
        local = {vm_id: copy.local(self.name) for vm_id, copy in self.copies.items()}
        return [
            sightings.held(local[vm_id], self.records.get(vm_id))
            for vm_id in sorted(held_ids(self.desired, local))
        ]

    def present(self) -> list[CopyInfo]:
        """Return what a roll call is told."""
        return [
            sightings.copy_info(vm_id, self.records.get(vm_id), self._local(vm_id), None)
            for vm_id in sorted(self.copies.keys() | self.records.keys())
        ]

    def said(self, kind: type) -> list[ToAgent]:
        """Return the messages of a kind that came so far."""
        return [message for message in self.heard if isinstance(message, kind)]


def _executing(order: DesiredVM) -> LocalState:
    return "paused" if order.power == "paused" else "running"
