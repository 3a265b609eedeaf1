"""Desired lists to agents: whole lists by digest, deltas as they happen.

Each host's list is summed up in a digest that every event keeps current, whether its agent is
connected or not; so an agent whose digest matches costs nothing, after a restart of either side
too. A list is built from rows only when it must be sent whole: when digests differ, and instead of
a delta that would need user data which this process has not in hand. A VM whose spec cannot be
read, or whose user data does not open, stands on no list and is in no digest: its host holds what
it has of it.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from sqlalchemy import BindParameter, Connection, bindparam, literal_column, or_, select

from roost.control.memory.restore_detect import Lineage, host_is_doubted, newest_point
from roost.control.memory.roster import Roster
from roost.control.memory.specs import read_user_data
from roost.control.moves.machine import orders
from roost.control.vms.move_record import move_of, record_of
from roost.control.vms.restart_policy import asked_restart
from roost.fleet.assign import positions
from roost.ledger.claims.capacity import ELSEWHERE, MIGRATE_IN, RUN, claim_id
from roost.ledger.schema.changes import HOSTS, TOMBSTONES, VMS, Changes
from roost.ledger.schema.rows import Event, VMRow, labels_of
from roost.ledger.schema.tables import claims, hosts, tombstones, vms
from roost.ledger.writes.statements import find_rows
from roost.model.flow import Order
from roost.model.states import ClaimKind, Part
from roost.model.vm import VMSpec
from roost.parts.part import Part as PlanePart
from roost.parts.sealing import Seal, SealBroken
from roost.wire.agentlink import (
    Delta,
    Desired,
    DesiredVM,
    ToAgent,
    Tombstone,
    digest_text,
    entry_hash,
)
from roost.wire.specs import boot_info, nic_info

Send = Callable[[ToAgent], None]
SendWhole = Callable[[], None]

_PLACED = select(vms.c.id, vms.c.generation, vms.c.host, vms.c.target, vms.c.phase).where(
    vms.c.host.is_not(None), vms.c.desired != "absent"
)
_HOST: BindParameter[int] = bindparam("of_host")
_LISTED = select(vms).where(
    or_(vms.c.host == _HOST, vms.c.target == _HOST), vms.c.desired != "absent"
)
_HELD = (
    select(claims.c.id, claims.c.devices, claims.c.cells)
    .where(vms.c.host == _HOST, claims.c.id == vms.c.id + literal_column(f"':{RUN}'"))
    .union_all(
        select(claims.c.id, claims.c.devices, claims.c.cells).where(
            ELSEWHERE, claims.c.host == _HOST, claims.c.kind == MIGRATE_IN
        )
    )
)
_NAMES = select(hosts.c.number, hosts.c.name).where(
    hosts.c.number.in_(bindparam("numbers", expanding=True))
)
_TOMBSTONES = select(tombstones.c.vm, tombstones.c.generation).where(tombstones.c.host == _HOST)


log = logging.getLogger("roost.dispatch")


@dataclass(slots=True)
class HostList:
    """The desired list of one host, as its digest and each entry's share of it."""

    digest: int = 0
    changes: int = 0  # how often it has changed
    entries: dict[str, int] = field(default_factory=dict)

    def put(self, key: str, share: int) -> None:
        """Add or replace an entry of the list."""
        self.digest ^= self.entries.get(key, 0) ^ share
        self.entries[key] = share
        self.changes += 1

    def drop(self, key: str) -> None:
        """Remove an entry of the list."""
        self.digest ^= self.entries.pop(key, 0)
        self.changes += 1


@dataclass(slots=True)
class _Outgoing:
    """The changes of its list that a connected host must still be sent."""

    base: str
    whole: bool = False  # a delta cannot say it: the list goes out whole
    vms: dict[str, DesiredVM] = field(default_factory=dict)
    tombstones: dict[str, Tombstone] = field(default_factory=dict)
    dropped: dict[str, None] = field(default_factory=dict)
    buried: dict[str, None] = field(default_factory=dict)


def orders_of(vm: VMRow) -> dict[int, Order]:
    """Return the order for a VM of every host on whose desired list it stands."""
    if vm.desired == "absent" or vm.host is None:
        return {}
    return orders(move_of(vm)) if vm.phase else {vm.host: _RUN}


_RUN = Order("run")  # most VMs are at rest


class Dispatch(PlanePart):
    """Keeps every host's desired list and sends changes to connected agents."""

    follows = (VMS, TOMBSTONES, HOSTS)

    def __init__(self, roster: Roster, lineage: Lineage, seal: Seal) -> None:
        self._roster, self._lineage, self._seal = roster, lineage, seal
        self.lists: dict[int, HostList] = {}
        self._listed: dict[str, tuple[int, ...]] = {}  # the hosts on whose lists a VM stands
        self._sends: dict[int, tuple[Send, SendWhole]] = {}
        self._outgoing: dict[int, _Outgoing] = {}
        self._unopened: set[str] = set()  # VMs whose user data did not open when it was last read
        self._left_out: dict[str, set[int]] = {}  # of those, from which hosts' lists

    def load(self, connection: Connection) -> None:
        """Compute the digests of all desired lists from the ledger's rows."""
        self.lists.clear()
        self._listed.clear()
        self._unopened.clear()
        self._left_out.clear()
        unreadable = self._roster.specs.unreadable
        alone: dict[int, tuple[int]] = {}  # VMs of one host share what says where they are listed
        listed, list_of = self._listed, self.list_of
        for vm, generation, host, target, phase in connection.execute(_PLACED).all():
            if vm in unreadable:
                continue
            if phase and target is not None:
                where: tuple[int, ...] = (host, target)
            elif (where := alone.get(host, ())) == ():
                where = alone[host] = (host,)
            listed[vm] = where
            share = entry_hash(vm, generation)
            for number in where:
                list_of(number).put(vm, share)
        for row in find_rows(connection, tombstones, {}):
            share = entry_hash(row["vm"], row["generation"], tombstone=True)
            self.list_of(row["host"]).put(f"-{row['vm']}", share)

    def list_of(self, number: int) -> HostList:
        """Return the desired list of a host."""
        found = self.lists.get(number)
        if found is None:
            found = self.lists[number] = HostList()
        return found

    def digest(self, number: int) -> str:
        """Return the digest of a host's desired list."""
        return digest_text(self.list_of(number).digest)

    # Following events

    def follow(self, event: Event, changes: Changes) -> None:
        """Apply one event of the ledger to the desired lists."""
        for vm_id, vm in changes.of(VMS).items():
            new = event.created.get(vm_id)
            if new is None or vm is None or not self._put_created(vm):
                self._put_vm(vm_id, vm, new.user_data if new is not None else None)
        if event.created:
            return  # a create changes nothing else that is listed
        for key, row in changes.of(TOMBSTONES).items():
            vm_id, _, number = key.rpartition("|")
            self._put_tombstone(vm_id, int(number), row)
        for number, host in changes.of(HOSTS).items():
            if host is None:
                self.lists.pop(int(number), None)

    def followed(self) -> None:
        """Send connected agents the deltas of the events just applied."""
        if not self._outgoing:
            return
        outgoing, self._outgoing = self._outgoing, {}
        for number, out in outgoing.items():
            sends = self._sends.get(number)
            if sends is None:
                continue
            send, send_whole = sends
            if out.whole:
                send_whole()
            else:
                send(
                    Delta(
                        base=out.base,
                        digest=self.digest(number),
                        vms=list(out.vms.values()),
                        tombstones=list(out.tombstones.values()),
                        dropped=list(out.dropped),
                        buried=list(out.buried),
                        point=self._lineage.point,
                    )
                )

    def _put_created(self, vm: VMRow) -> bool:
        """List a VM that was never listed, on a host to which nothing is sent; say whether."""
        vm_id, host = vm.id, vm.host
        if (
            host is None
            or host in self._sends
            or vm.phase
            or vm.desired == "absent"
            or vm_id in self._listed
            or vm_id in self._left_out
        ):
            return False
        self._listed[vm_id] = (host,)
        self.list_of(host).put(vm_id, entry_hash(vm_id, vm.generation))
        return True

    def _put_vm(self, vm_id: str, vm: VMRow | None, user_data: str | None) -> None:
        spec = self._roster.specs.get(vm_id)
        parts = orders_of(vm) if vm is not None and spec is not None else {}
        if (left_out := self._left_out.get(vm_id)) is not None:
            for number in parts:
                left_out.add(number)
                if (out := self._out(number)) is not None:
                    out.whole = True  # reading it shows whether its key has come
            parts = {}
            if vm is None:
                del self._left_out[vm_id]
                self._unopened.discard(vm_id)
        before = self._listed.get(vm_id, ())
        for number in before:
            if number not in parts:
                out = self._out(number)
                self.list_of(number).drop(vm_id)
                if out is not None:
                    out.vms.pop(vm_id, None)
                    out.dropped[vm_id] = None
        if not parts or vm is None or spec is None:
            self._listed.pop(vm_id, None)
            return
        self._listed[vm_id] = tuple(parts)
        share = entry_hash(vm_id, vm.generation)
        for number, order in parts.items():
            listed = self.list_of(number)
            if listed.entries.get(vm_id) == share:
                continue  # what a host is told of a VM only changes with its generation
            out = self._out(number)
            listed.put(vm_id, share)
            if out is None:
                continue
            kept = {vm_id: user_data or ""}
            if (spec.has_user_data and user_data is None) or not (opened := self._open(kept)):
                out.whole = True
            else:
                out.dropped.pop(vm_id, None)
                out.vms[vm_id] = self.desired_vm(vm, spec, opened[vm_id], order)

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

    def attach(self, number: int, send: Send, send_whole: SendWhole) -> None:
        """Attach an agent's connection: send its host's deltas from now on."""
        self._sends[number] = send, send_whole
        self._outgoing.pop(number, None)

    def detach(self, number: int, send: Send) -> None:
        """Detach an agent's connection, unless another has taken its place."""
        known = self._sends.get(number)
        if known is not None and known[0] == send:  # a method is another object each time
            del self._sends[number]
            self._outgoing.pop(number, None)

    @property
    def connected(self) -> Iterable[int]:
        """Return the hosts whose agents are connected to this process."""
        return self._sends.keys()

    def desired_vm(self, vm: VMRow, spec: VMSpec, user_data: str, order: Order) -> DesiredVM:
        """Return the desired state of a VM on a host, as the agent's message."""
        columns = self._roster.fleet.vms
        number = columns.numbers.get(claim_id(vm.id, _claim_kind(order.part)))
        masks = (0, 0)
        if number is not None:
            masks = int(columns.devices[number]), int(columns.cells[number])
        name = self._roster.host_name(order.peer) or ""
        return _desired_vm(vm, spec, user_data, order, name, masks)

    def whole_list(self, connection: Connection, number: int) -> Desired:
        """Read a host's whole desired list from the ledger, with its digest.

        All of it comes from one view: the roster may be behind what was just read.
        """
        here = {"of_host": number}
        rows = [VMRow(**found) for found in connection.execute(_LISTED, here).mappings()]
        specs = self._roster.specs.read(connection, rows)
        seeded = [vm for vm, spec in specs.items() if spec.has_user_data]
        user_data = read_user_data(connection, seeded) if seeded else {}
        opened = self._open(user_data)
        masks = {vm: (devices, cells) for vm, devices, cells in connection.execute(_HELD, here)}
        peers = {peer for vm in rows for peer in (vm.host, vm.target) if peer is not None}
        named = connection.execute(_NAMES, {"numbers": list(peers)})
        names = {found.number: found.name for found in named}
        summed = HostList()
        entries = []
        for vm in rows:
            spec = specs.get(vm.id)
            if spec is None or (order := orders_of(vm).get(number)) is None:
                continue
            if vm.id in user_data and vm.id not in opened:
                self._unopened.add(vm.id)
                continue  # held as it is: better not started than started without its user data
            self._unopened.discard(vm.id)
            summed.put(vm.id, entry_hash(vm.id, vm.generation))
            claim = claim_id(vm.id, _claim_kind(order.part))
            name = names.get(order.peer, "") if order.peer is not None else ""
            data = opened.get(vm.id, "")
            entries.append(_desired_vm(vm, spec, data, order, name, masks.get(claim, (0, 0))))
        graves = []
        for vm_id, generation in connection.execute(_TOMBSTONES, here):
            graves.append(Tombstone(id=vm_id, generation=generation))
            summed.put(f"-{vm_id}", entry_hash(vm_id, generation, tombstone=True))
        return Desired(
            digest=digest_text(summed.digest),
            vms=entries,
            tombstones=graves,
            point=newest_point(connection),
            confirms=self._lineage.sure and not host_is_doubted(connection, number),
        )

    def settle_unopened(self, number: int, told: Desired) -> None:
        """Make a host's digest one with a whole list just read: without VMs that did not open.

        Those that open again come back, as they are on the list. What else differs is left: this
        process may be behind the ledger, and the events will tell it.
        """
        known = self.list_of(number)
        for vm_id in self._unopened & known.entries.keys():
            known.drop(vm_id)
            where = self._listed.get(vm_id, ())
            self._listed[vm_id] = tuple(each for each in where if each != number)
            self._left_out.setdefault(vm_id, set()).add(number)
        for vm in told.vms:
            if (left_out := self._left_out.get(vm.id)) and number in left_out:
                left_out.remove(number)
                if not left_out:
                    del self._left_out[vm.id]
                known.put(vm.id, entry_hash(vm.id, vm.generation))
                self._listed[vm.id] = (*self._listed.get(vm.id, ()), number)

    def _open(self, kept: Mapping[str, str]) -> dict[str, str]:
        """Return the user data of VMs from what is kept; what does not open is left out."""
        opened = {}
        for vm_id, text in kept.items():
            try:
                opened[vm_id] = self._seal.open(vm_id, text)
            except SealBroken as error:
                log.error("VM %s is left as it is: its user data: %s", vm_id, error.message)
        return opened


def _claim_kind(part: Part) -> ClaimKind:
    return MIGRATE_IN if part in ("incoming", "withdrawn") else RUN


def _desired_vm(
    vm: VMRow, spec: VMSpec, user_data: str, order: Order, peer: str, masks: tuple[int, int]
) -> DesiredVM:
    devices, cells = masks
    move = record_of(vm) if vm.phase else None
    return DesiredVM(
        id=vm.id,
        name=vm.name,
        project=vm.project,
        generation=vm.generation,
        power=vm.desired,  # type: ignore[arg-type]  # what is absent stands on no list
        cpu_milli=vm.cpu_milli,
        memory_bytes=vm.memory_bytes,
        disk_bytes=vm.disk_bytes,
        part=order.part,
        peer=peer,
        move=move.info if move else None,
        endpoint=move.endpoint if move and order.part == "outgoing" else {},
        sent=order.sent,
        restarts=vm.restarts,
        restart=asked_restart(vm),
        extended=dict(spec.demand.extended),
        devices=list(positions(devices)),
        cells=list(positions(cells)),
        labels=labels_of(vm.labels),
        boot=boot_info(spec.boot, user_data),
        nics=[nic_info(nic) for nic in spec.nics],
    )
