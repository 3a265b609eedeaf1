"""A small faithful agent: what `roost agent` does, without time, processes or a socket.

It keeps its list by digest, acts on orders as `agent/converge.py` does, and counts its lease from
when it sent a heartbeat. Both directions of its connection are queues that a test may hold back,
drop, repeat or shuffle. A VM's copies exist on the model alone; the rig counts them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Literal

import msgspec

from roost.control.agents.sessions import Session
from roost.control.plane import Plane
from roost.model.states import Seen
from roost.parts.access import Principal
from roost.wire.agentlink import (
    PROTOCOL,
    AmountInfo,
    CopyInfo,
    CopyState,
    Delta,
    Desired,
    DesiredVM,
    Heartbeat,
    HeldVM,
    Hello,
    Inventory,
    LedgerPoint,
    Present,
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
    list_digest,
)

GIB = 2**30


def inventory(cpu: int = 4, memory: int = 8, disk: int = 100, **rest: object) -> Inventory:
    """Return what a host of so many cores and GiB registers with."""
    return Inventory(
        AmountInfo(cpu * 1000), AmountInfo(memory * GIB), AmountInfo(disk * GIB), **rest
    )


#: What copies that do not run are called in a roll call.
_IS: dict[str, CopyState] = {
    "stopped": "stopped", "ready": "ready", "moved": "moved", "lost": "lost",
}  # fmt: skip


@dataclass(slots=True)
class Copy:
    """One copy of a VM on one host."""

    state: Seen | Literal["lost"]
    generation: int
    order: DesiredVM
    size: tuple[int, int, int]
    received: str = ""  # what an incoming copy holds of the VM's power, once all was sent
    arrived: bool = False
    ran: bool = False  # it has executed since it arrived
    stale: bool = False  # another copy has executed since this one stood still

    @property
    def runs(self) -> bool:
        return self.state in ("starting", "running", "stopping")


def size_of(order: DesiredVM) -> tuple[int, int, int]:
    return order.cpu_milli, order.memory_bytes, order.disk_bytes


class ModelLink:
    """The plane's end of the connection: what it sends is queued at the agent."""

    peer = "model"

    def __init__(self, agent: "ModelAgent") -> None:
        self._agent = agent
        self.closing: str | None = None

    def send(self, data: bytes) -> None:
        if self.closing is None:
            self._agent.inbox.append(data)

    def close(self, code: int, reason: str) -> None:
        self.closing = reason


@dataclass(slots=True)
class ModelAgent:
    """One host's agent. `now` is the hand clock of the test."""

    name: str
    now: Callable[[], float]
    inventory: Inventory = field(default_factory=inventory)
    guard_stop_s: float | None = None
    lease_s: float = 60.0
    peers: dict[str, "ModelAgent"] = field(default_factory=dict)
    instance: str = "first"
    mute: bool = False  # it reports nothing
    arrives_alone: bool = False  # incoming copies take over by themselves, as real ones do
    vms: dict[str, DesiredVM] = field(default_factory=dict)
    tombstones: dict[str, Tombstone] = field(default_factory=dict)
    digest: str = ""
    copies: dict[str, Copy] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=dict)  # the newest generation carried out
    gone: set[str] = field(default_factory=set)
    failing: dict[str, str] = field(default_factory=dict)  # VM -> code: what cannot be done
    link: ModelLink | None = None
    session: Session | None = None
    inbox: list[bytes] = field(default_factory=list)
    outbox: list[bytes] = field(default_factory=list)
    heard: list[ToAgent] = field(default_factory=list)
    welcome: Welcome | None = None
    refusal: Refused | None = None
    number: int = 0
    sent_at: dict[int, float] = field(default_factory=dict)
    leased_until: float = float("-inf")
    confirmed: bool = False
    asked: bool = False
    reported: dict[str, SeenVM] = field(default_factory=dict)
    reported_held: list[HeldVM] | None = None
    point: LedgerPoint | None = None  # the newest of a ledger that it heard of
    anew: bool = True  # none of this connection was heard yet
    conversations: int = 0

    # The connection

    def connect(self, plane: Plane) -> None:
        """Open a connection; the hello waits in the outbox."""
        self.disconnect()
        self.link = ModelLink(self)
        who = Principal(f"agent/{self.name}", "agent", None, self.name)
        self.session = plane.agents.connect(self.link, who)
        self.refusal, self.anew = None, True
        self.conversations += 1
        self.outbox.append(encode(self.hello()))

    def hello(self) -> Hello:
        return Hello(
            PROTOCOL, self.name, self.instance, "1", self.inventory, self.digest,
            list(self.sightings().values()), self.held(), self.guard_stop_s, self.point,
            self.conversations,
        )  # fmt: skip

    def disconnect(self) -> None:
        """Lose the connection with all that was on its way."""
        if self.session is not None:
            self.session.closed()
        self.link = self.session = self.welcome = None
        self.inbox.clear()
        self.outbox.clear()
        self.reported, self.reported_held = {}, None
        self.asked = False

    @property
    def connected(self) -> bool:
        return self.link is not None and self.link.closing is None

    def heartbeat(self) -> None:
        """Queue a heartbeat; the lease is counted from now."""
        if self.welcome is None:
            return
        self.number += 1
        self.sent_at[self.number] = self.now()
        self.asked = not self.confirmed and self.leased
        digest = "" if self.asked else self.digest
        self.outbox.append(encode(Heartbeat(self.number, digest, self.guard_stop_s)))

    def report(self, *, full: bool = False) -> None:
        """Queue what is seen that was not reported on this connection."""
        if self.mute:
            return
        if self.welcome is None:
            return
        seen, held = self.sightings(), self.held()
        news = [vm for vm_id, vm in seen.items() if full or self.reported.get(vm_id) != vm]
        if news or full or held != (self.reported_held or []):
            self.reported, self.reported_held = seen, held
            self.outbox.append(encode(Report(news, held, full)))

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

    def _take(self, message: ToAgent) -> None:
        self.heard.append(message)
        match message:
            case Welcome():
                self.welcome = message
            case Desired():
                assert list_digest(message) == message.digest
                self.vms = {vm.id: vm for vm in message.vms}
                self.tombstones = {grave.id: grave for grave in message.tombstones}
                self.digest = message.digest
                self._hear(message.point)
                if not message.confirms:
                    self.asked = False
                elif self.asked and self.leased:
                    self.asked, self.confirmed = False, True
            case Delta():
                self._take_delta(message)
            case RollCall():
                self.outbox.append(encode(Present(self.digest, self.present())))
            case Renewed():
                self._hear(message.point)
                self.leased_until = max(
                    self.leased_until, self.sent_at[message.number] + self.lease_s
                )
            case Refused():
                self.refusal = message
                if message.fenced:
                    self._stop_unleased(force=True)

    def _take_delta(self, delta: Delta) -> None:
        if delta.base != self.digest:
            return  # the next heartbeat's digest brings the whole list
        vms, tombstones = dict(self.vms), dict(self.tombstones)
        for vm_id in delta.dropped:
            vms.pop(vm_id, None)
            tombstones.pop(vm_id, None)
        for vm_id in delta.buried:
            tombstones.pop(vm_id, None)
        for grave in delta.tombstones:
            vms.pop(grave.id, None)
            tombstones[grave.id] = grave
        for vm in delta.vms:
            tombstones.pop(vm.id, None)
            vms[vm.id] = vm
        whole = Desired(delta.digest, list(vms.values()), list(tombstones.values()))
        if list_digest(whole) == delta.digest:
            self.vms, self.tombstones, self.digest = vms, tombstones, delta.digest
            self._hear(delta.point)

    def _hear(self, point: LedgerPoint | None) -> None:
        if point is not None and (self.anew or self.point is None or point.seq > self.point.seq):
            self.point, self.anew = point, False

    def present(self) -> list[CopyInfo]:
        """Return what a roll call is told."""
        found = []
        for vm_id in sorted(self.copies.keys() | self.done.keys()):
            copy, done = self.copies.get(vm_id), self.done.get(vm_id, 0)
            if copy is None:
                found.append(CopyInfo(vm_id, done, "gone" if vm_id in self.gone else "stopped"))
                continue
            state: CopyState = "running" if copy.runs else _IS.get(copy.state, "unclear")
            if copy.state == "paused":
                state = "running"
            found.append(CopyInfo(vm_id, max(done, copy.generation), state))
        return found

    # Acting

    @property
    def leased(self) -> bool:
        return self.now() < self.leased_until

    def guard(self) -> None:
        """Stop what may run elsewhere, at the very last moment that the guard promised."""
        if not self.leased:
            self.confirmed = False
        if self.now() >= self.leased_until + (self.guard_stop_s or 0.0):
            self._stop_unleased()

    def _stop_unleased(self, *, force: bool = False) -> None:
        for vm_id, copy in self.copies.items():
            policy = self.vms[vm_id].restart if vm_id in self.vms else copy.order.restart
            elsewhere = "elsewhere" in (policy, copy.order.restart)
            if not elsewhere or (self.guard_stop_s is None and not force):
                continue
            if copy.state == "ready":
                copy.state, copy.received = "lost", ""
            elif copy.runs:
                copy.state = "stopped"

    def order(self, vm_id: str) -> DesiredVM | Tombstone | None:
        vm, grave = self.vms.get(vm_id), self.tombstones.get(vm_id)
        if vm is None or grave is None:
            return vm or grave
        return vm if vm.generation > grave.generation else grave

    def carry_out(self, vm_id: str) -> None:
        """Do what the order of one VM asks for, as far as it can be done now."""
        order = self.order(vm_id)
        copy = self.copies.get(vm_id)
        done = max(self.done.get(vm_id, 0), copy.generation if copy else 0)
        if order is None or order.generation < done:
            return
        if isinstance(order, Tombstone):
            self.copies.pop(vm_id, None)
            self.done[vm_id] = order.generation
            self.gone.add(vm_id)
            return
        if vm_id in self.gone and order.generation <= self.done[vm_id]:
            return
        if vm_id in self.failing:
            return
        match order.part:
            case "incoming":
                self._incoming(order, copy)
            case "withdrawn":
                self._withdrawn(order, copy)
            case "outgoing":
                self._outgoing(order, copy)
            case "returning":
                self._returning(order, copy)
            case "run":
                self._run(order, copy, done)

    def _settled(self, order: DesiredVM) -> None:
        self.done[order.id] = order.generation
        self.gone.discard(order.id)

    def _run(self, order: DesiredVM, copy: Copy | None, done: int) -> None:
        if copy is not None and copy.state in ("moved", "lost") and order.generation <= done:
            return
        if copy is not None and copy.state == "moved":
            assert not copy.stale or order.restarts > copy.order.restarts, "stale memory goes on"
        if order.power == "running" and not (copy and copy.state == "running"):
            if order.restart == "elsewhere" and not (self.confirmed and self.leased):
                return
            self.copies[order.id] = Copy("running", order.generation, order, size_of(order))
        elif order.power != "running" and copy is not None:
            copy.state = order.power
        if order.id in self.copies:
            copy = self.copies[order.id]
            copy.order, copy.size, copy.generation = order, size_of(order), order.generation
            copy.arrived = False
        self._settled(order)

    def _incoming(self, order: DesiredVM, copy: Copy | None) -> None:
        if copy is None or copy.state in ("moved", "lost"):
            if order.sent:
                return  # refused: what was sent is lost
            if order.restart == "elsewhere" and not (self.confirmed and self.leased):
                return
            self.copies[order.id] = Copy("ready", order.generation, order, size_of(order))
        elif copy.state == "ready":
            if order.sent and not copy.received:
                return  # not here yet
            if order.sent:
                self._arrive(copy)
        elif not copy.arrived:
            return  # a copy is here: refused
        self.copies[order.id].generation = order.generation
        self._settled(order)

    def _arrive(self, copy: Copy) -> None:
        if copy.received == "running":
            copy.ran = True
            for peer in self.peers.values():
                left = peer.copies.get(copy.order.id) if peer is not self else None
                if left is not None and left.state == "moved":
                    left.stale = True
        copy.state, copy.arrived = copy.received, True  # type: ignore[assignment]

    def _withdrawn(self, order: DesiredVM, copy: Copy | None) -> None:
        if copy is not None and not copy.arrived:
            assert not copy.runs
            del self.copies[order.id]
        self._settled(order)

    def _outgoing(self, order: DesiredVM, copy: Copy | None) -> None:
        if copy is None or copy.state in ("ready", "lost"):
            return
        if copy.state != "moved":
            there = self.peers.get(order.peer)
            waiting = there.copies.get(order.id) if there is not None else None
            if waiting is None or waiting.state != "ready":
                return  # it cannot be sent now; tried again later
            waiting.received = copy.state
            copy.state = "moved"
        copy.generation = order.generation
        self._settled(order)

    def _returning(self, order: DesiredVM, copy: Copy | None) -> None:
        self._settled(order)

    def lose_incoming(self, vm_id: str) -> None:
        """Let the process of a copy that waits die."""
        copy = self.copies.get(vm_id)
        if copy is not None and copy.state == "ready":
            copy.state, copy.received = "lost", ""

    def work(self) -> None:
        """Let come what was sent, and carry out every order."""
        for copy in self.copies.values():
            if self.arrives_alone and copy.state == "ready" and copy.received:
                self._arrive(copy)
        for vm_id in sorted(self.vms.keys() | self.tombstones.keys()):
            self.carry_out(vm_id)

    # Telling

    def sightings(self) -> dict[str, SeenVM]:
        found = {}
        for vm_id in sorted(self.vms.keys() | self.tombstones.keys()):
            order, copy = self.order(vm_id), self.copies.get(vm_id)
            assert order is not None
            done = max(self.done.get(vm_id, 0), copy.generation if copy else 0)
            if vm_id in self.failing and isinstance(order, DesiredVM):
                code = self.failing[vm_id]
                running = copy is not None and copy.state == "running"
                at = done if running else order.generation
                seen: Seen = "running" if running else "failed"
                found[vm_id] = SeenVM(vm_id, at, seen, code, "cannot", "transient")
            elif isinstance(order, DesiredVM) and order.part == "withdrawn" and copy is None:
                if self.done.get(vm_id, 0) >= order.generation:
                    found[vm_id] = SeenVM(vm_id, done, "absent")
            elif isinstance(order, DesiredVM) and order.sent and self._is_lost(copy):
                lost = ("failed", "incoming_lost", "lost", "permanent")
                found[vm_id] = SeenVM(vm_id, order.generation, *lost)  # type: ignore[arg-type]
            elif copy is not None:
                found[vm_id] = self._sighting(vm_id, done, order, copy)
            elif vm_id in self.gone and isinstance(order, Tombstone):
                found[vm_id] = SeenVM(vm_id, done, "absent")
            elif vm_id in self.done and vm_id not in self.gone:
                found[vm_id] = SeenVM(vm_id, done, "stopped")
        return found

    def _is_lost(self, copy: Copy | None) -> bool:
        return copy is None or copy.state in ("lost", "moved")

    def _sighting(self, vm_id: str, done: int, order: DesiredVM | Tombstone, copy: Copy) -> SeenVM:
        incoming = isinstance(order, DesiredVM) and order.part in ("incoming", "withdrawn")
        if copy.arrived and incoming:
            return SeenVM(vm_id, done, "arrived")
        if copy.state == "lost":
            return SeenVM(vm_id, done, "failed", "lost", "it is lost", "transient")
        endpoint = {"uri": f"model:{self.name}"} if copy.state == "ready" else {}
        return SeenVM(vm_id, done, copy.state, endpoint=endpoint)

    def held(self) -> list[HeldVM]:
        listed = self.vms.keys() | self.tombstones.keys()
        return [
            HeldVM(
                vm_id,
                copy.order.name,
                "failed" if copy.state == "lost" else copy.state,
                generation=max(self.done.get(vm_id, 0), copy.generation),
            )
            for vm_id, copy in sorted(self.copies.items())
            if vm_id not in listed
        ]

    def said(self, kind: type) -> list[ToAgent]:
        """Return the messages of a kind that came so far."""
        return [message for message in self.heard if isinstance(message, kind)]


def copy_of(hello: Hello, **changes: object) -> Hello:
    """Return a hello that differs."""
    return msgspec.structs.replace(hello, **changes)
