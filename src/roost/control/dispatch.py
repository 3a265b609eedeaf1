"""Desired lists to agents: whole lists by digest, deltas as they happen.

Each host's list is summed up in a digest that every event keeps current, whether its agent is
connected or not; so an agent whose digest matches costs nothing, after a restart of either side
too. A list is built from rows only when it must be sent whole.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from sqlalchemy import Connection, or_, select

from roost.control.roster import Changes, Roster, asked_of
from roost.fleet.assign import positions
from roost.ledger.rows import Event, VMRow
from roost.ledger.tables import tombstones, vms
from roost.wire.agentlink import (
    Delta,
    Desired,
    DesiredVM,
    Part,
    ToAgent,
    Tombstone,
    digest_text,
    entry_hash,
)

Send = Callable[[ToAgent], None]


@dataclass(slots=True)
class HostList:
    """What one host should have: a digest, and each entry's share of it."""

    digest: int = 0
    entries: dict[str, int] = field(default_factory=dict)

    def put(self, key: str, share: int) -> None:
        """Add or replace an entry."""
        self.digest ^= self.entries.get(key, 0) ^ share
        self.entries[key] = share

    def drop(self, key: str) -> None:
        """Remove an entry."""
        self.digest ^= self.entries.pop(key, 0)


@dataclass(slots=True)
class _Outgoing:
    """What one connected host must be told."""

    base: str
    vms: dict[str, DesiredVM] = field(default_factory=dict)
    tombstones: dict[str, Tombstone] = field(default_factory=dict)
    dropped: dict[str, None] = field(default_factory=dict)
    buried: dict[str, None] = field(default_factory=dict)


def parts_of(vm: VMRow) -> dict[int, tuple[Part, int | None]]:
    """Return the hosts on whose lists a VM stands, with its part and the other host of a move."""
    if vm.desired == "absent" or vm.host is None:
        return {}
    if vm.phase in ("preparing", "moving") and vm.target is not None:
        here: Part = "outgoing" if vm.phase == "moving" else "run"
        return {vm.host: (here, vm.target), vm.target: ("incoming", vm.host)}
    return {vm.host: ("run", None)}


class Dispatch:
    """Keeps every host's list and tells connected agents of changes."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self.lists: dict[int, HostList] = {}
        self._listed: dict[str, tuple[int, ...]] = {}  # the hosts on whose lists a VM stands
        self._sends: dict[int, Send] = {}
        self._outgoing: dict[int, _Outgoing] = {}

    def load(self, connection: Connection) -> None:
        """Sum up all lists from the ledger's rows."""
        self.lists.clear()
        self._listed.clear()
        columns = (vms.c.id, vms.c.generation, vms.c.host, vms.c.target, vms.c.phase, vms.c.desired)
        query = select(*columns).where(vms.c.host.is_not(None), vms.c.desired != "absent")
        for vm, generation, host, target, phase, _ in connection.execute(query).all():
            moving = phase in ("preparing", "moving") and target is not None
            where = (host, target) if moving else (host,)
            self._listed[vm] = where
            for number in where:
                self.list_of(number).put(vm, entry_hash(vm, generation))
        for row in connection.execute(select(tombstones)):
            share = entry_hash(row.vm, row.generation, tombstone=True)
            self.list_of(row.host).put(f"-{row.vm}", share)

    def list_of(self, number: int) -> HostList:
        """Return a host's list."""
        found = self.lists.get(number)
        if found is None:
            found = self.lists[number] = HostList()
        return found

    def digest(self, number: int) -> str:
        """Return the digest of a host's list."""
        return digest_text(self.list_of(number).digest)

    # Following events

    def follow(self, event: Event, changes: Changes) -> None:
        """Note what an event changes on lists."""
        for vm_id, vm in changes.vms.items():
            self._put_vm(vm_id, vm)
        for key, row in changes.tombstones.items():
            vm_id, _, number = key.rpartition("|")
            self._put_tombstone(vm_id, int(number), row)

    def followed(self) -> None:
        """Send the deltas that came together."""
        if not self._outgoing:
            return
        outgoing, self._outgoing = self._outgoing, {}
        for number, out in outgoing.items():
            send = self._sends.get(number)
            if send is not None:
                send(
                    Delta(
                        base=out.base,
                        digest=self.digest(number),
                        vms=list(out.vms.values()),
                        tombstones=list(out.tombstones.values()),
                        dropped=list(out.dropped),
                        buried=list(out.buried),
                    )
                )

    def _put_vm(self, vm_id: str, vm: VMRow | None) -> None:
        parts = parts_of(vm) if vm is not None else {}
        before = self._listed.get(vm_id, ())
        for number in before:
            if number not in parts:
                out = self._out(number)
                self.list_of(number).drop(vm_id)
                if out is not None:
                    out.vms.pop(vm_id, None)
                    out.dropped[vm_id] = None
        if not parts or vm is None:
            self._listed.pop(vm_id, None)
            return
        self._listed[vm_id] = tuple(parts)
        for number, (part, peer) in parts.items():
            out = self._out(number)
            self.list_of(number).put(vm_id, entry_hash(vm_id, vm.generation))
            if out is not None:
                out.dropped.pop(vm_id, None)
                out.vms[vm_id] = self.desired_vm(vm, part, peer)

    def _put_tombstone(self, vm_id: str, number: int, row: dict[str, object] | None) -> None:
        out = self._out(number)
        if row is None:
            self.list_of(number).drop(f"-{vm_id}")
            if out is not None:
                out.tombstones.pop(vm_id, None)
                out.buried[vm_id] = None
            return
        generation = int(str(row["generation"]))
        self.list_of(number).put(f"-{vm_id}", entry_hash(vm_id, generation, tombstone=True))
        if out is not None:
            out.buried.pop(vm_id, None)
            out.tombstones[vm_id] = Tombstone(id=vm_id, generation=generation)

    def _out(self, number: int) -> _Outgoing | None:
        if number not in self._sends:
            return None
        out = self._outgoing.get(number)
        if out is None:
            out = self._outgoing[number] = _Outgoing(base=self.digest(number))
        return out

    # Agents

    def attach(self, number: int, send: Send) -> None:
        """Send this host's deltas from now on."""
        self._sends[number] = send
        self._outgoing.pop(number, None)

    def detach(self, number: int, send: Send) -> None:
        """Stop sending, unless another connection has taken over."""
        if self._sends.get(number) is send:
            del self._sends[number]
            self._outgoing.pop(number, None)

    @property
    def connected(self) -> Iterable[int]:
        """Return the hosts whose agents are connected to this process."""
        return self._sends.keys()

    def desired_vm(self, vm: VMRow, part: Part, peer: int | None) -> DesiredVM:
        """Return what a host is told of a VM."""
        asked = asked_of(vm)
        columns = self._roster.fleet.vms
        number = columns.numbers.get(f"{vm.id}:{'migrate_in' if part == 'incoming' else 'run'}")
        return DesiredVM(
            id=vm.id,
            name=vm.name,
            project=vm.project,
            generation=vm.generation,
            power="stopped" if vm.desired == "stopped" else "running",
            cpu_milli=vm.cpu_milli,
            memory_bytes=vm.memory_bytes,
            disk_bytes=vm.disk_bytes,
            part=part,
            peer=self._roster.host_name(peer) or "",
            restarts=vm.restarts,
            restart="elsewhere" if vm.restart == "elsewhere" else "here",
            extended=asked.demand.extended,
            devices=list(positions(int(columns.devices[number]))) if number is not None else [],
            cells=list(positions(int(columns.cells[number]))) if number is not None else [],
            labels=asked.labels,
        )

    def whole_list(
        self, connection: Connection, number: int
    ) -> tuple[list[VMRow], list[Tombstone]]:
        """Read a host's list from the ledger."""
        query = select(vms).where(
            or_(vms.c.host == number, vms.c.target == number), vms.c.desired != "absent"
        )
        rows = [VMRow(**found) for found in connection.execute(query).mappings()]
        graves = select(tombstones).where(tombstones.c.host == number)
        return rows, [
            Tombstone(id=t.vm, generation=t.generation) for t in connection.execute(graves)
        ]

    def desired(self, number: int, rows: list[VMRow], graves: list[Tombstone]) -> Desired:
        """Return the message with a whole list; its digest is that of what it holds."""
        held = HostList()
        entries = []
        for vm in rows:
            parts = parts_of(vm)
            if number in parts:
                entries.append(self.desired_vm(vm, *parts[number]))
                held.put(vm.id, entry_hash(vm.id, vm.generation))
        for grave in graves:
            held.put(f"-{grave.id}", entry_hash(grave.id, grave.generation, tombstone=True))
        return Desired(digest=digest_text(held.digest), vms=entries, tombstones=graves)
