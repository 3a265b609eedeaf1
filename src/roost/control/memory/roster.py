"""The fleet in memory: loaded from the ledger's rows, kept up to date by its events.

This is what the engine decides on. It may lag behind other processes; the claim statement compares
again, so a stale roster can only cost a retry. A VM's claims stand in the fleet under the names
VM:run, VM:migrate_in and VM:hold; a hold counts amounts but no group membership.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import numpy as np
from sqlalchemy import Connection, select

from roost.control.memory.specs import Specs
from roost.fleet.fleet import Fleet
from roost.fleet.layout import Int64Array
from roost.ledger.capacity import CLEANUP, MIGRATE_IN, RUN
from roost.ledger.changes import (
    CLAIMS,
    FENCES,
    GROUP_GENERATIONS,
    GROUPS,
    HOST_AMOUNTS,
    HOSTS,
    MEMBERS,
    RULES,
    TOMBSTONES,
    VM_SPECS,
    VMS,
    AnyRow,
    Changes,
)
from roost.ledger.rows import ClaimRow, Event, GroupRow, HostRow, VMRow
from roost.ledger.statements import find_rows
from roost.ledger.tables import (
    claims,
    counters,
    groups,
    host_amounts,
    host_liveness,
    hosts,
    members,
    vms,
)
from roost.model.constraints import HostRequirements
from roost.model.resources import Demand, DeviceDemand
from roost.parts.part import Part
from roost.placement.engine import Engine
from roost.wire.agentlink import Inventory
from roost.wire.translate import ADMINS, HEALTHS, group_spec, host_spec

_COUNTERS = select(counters.c.name, counters.c.value)
_GENERATIONS = select(host_amounts.c.host, host_amounts.c.generation)
_EPOCHS = select(host_liveness.c.host, host_liveness.c.epoch)
_MEMBERS = select(members.c.group_id, members.c.vm)
_WAITING = select(vms).where(vms.c.pending.is_not(None))
_CLAIMS = select(claims)
_inventory = msgspec.json.Decoder(Inventory)
_labels = msgspec.json.Decoder(dict[str, str])


@dataclass(slots=True)
class HostEntry:
    """One host: its ledger row, its row in the fleet, and the generation that claims quote."""

    row: HostRow
    inventory: Inventory
    fleet_row: int
    generation: int
    epoch: int = 0  # grows when the host is fenced; renewals quote it

    @property
    def number(self) -> int:
        """Return the host's number in the ledger."""
        return self.row.number

    @property
    def name(self) -> str:
        """Return the host's name."""
        return self.row.name


@dataclass(slots=True)
class Selector:
    """The labels that make a VM of a project a member of an implicit group."""

    group: str
    labels: dict[str, str]


def _devices_in(claim: ClaimRow) -> DeviceDemand:
    """Return the device shares that a claim holds; its VM, and what it asked for, may be gone."""
    counted: dict[str, int] = msgspec.json.decode(claim.counters)
    milli = next(amount for name, amount in counted.items() if name.startswith("device:"))
    return DeviceDemand(claim.devices.bit_count(), milli)


class Roster(Part):
    """Hosts, groups and placed VMs, with the engine that decides on them."""

    follows = (
        VMS, VM_SPECS, CLAIMS, HOSTS, HOST_AMOUNTS, GROUPS, GROUP_GENERATIONS, MEMBERS,
        TOMBSTONES, FENCES, RULES,
    )  # fmt: skip

    def __init__(self, default_strategy: str) -> None:
        self._default_strategy = default_strategy
        self._clear()

    def _clear(self) -> None:
        self.fleet = Fleet()
        self.engine = Engine(self.fleet, self._default_strategy)
        self.hosts: dict[int, HostEntry] = {}
        self.numbers: dict[str, int] = {}
        self.by_fleet_row: dict[int, HostEntry] = {}
        self.groups: dict[str, GroupRow] = {}
        self.groups_of: dict[str, tuple[str, ...]] = {}  # only VMs that are in a group
        self.selectors: dict[str, list[Selector]] = defaultdict(list)  # by project
        self.rules = 0  # generation of the selectors
        self.group_changes = 0  # grows when a known group has another rule, or is gone
        self.specs = Specs()
        self.waiting: dict[str, VMRow] = {}  # VMs without a host that want one
        self.room = 0  # grows when capacity or a rule may have made room

    # Loading

    def load(self, connection: Connection) -> None:
        """Fill an empty roster from one consistent view."""
        self._clear()
        values = {row.name: row.value for row in connection.execute(_COUNTERS)}
        self.rules = values["rules"]
        generations = {row.host: row.generation for row in connection.execute(_GENERATIONS)}
        for found in find_rows(connection, hosts, {}):
            row = HostRow(**found)
            self._put_host(row, generations[row.number])
        for host, epoch in connection.execute(_EPOCHS):
            self.hosts[host].epoch = epoch
        for found in find_rows(connection, groups, {}):
            self._put_group(GroupRow(**found))
        of: dict[str, list[str]] = defaultdict(list)
        for group, member in connection.execute(_MEMBERS).all():
            of[member].append(group)
        self.groups_of = {vm: tuple(sorted(found)) for vm, found in of.items()}
        self.specs.load(connection)
        self._load_claims(connection)
        for waits in connection.execute(_WAITING).mappings():
            vm = VMRow(**waits)
            self.waiting[vm.id] = vm

    def _load_claims(self, connection: Connection) -> None:
        """Charge every claim; those that ask for amounts alone all at once."""
        names: list[str] = []
        rows: list[int] = []
        demand: list[tuple[int, int, int]] = []
        for found in connection.execute(_CLAIMS).all():
            (claim_id, vm, host, kind, cpu, memory, disk, counted, devices, cells) = found
            spec = self.specs.get(vm)  # None: what a deleted VM left to clean up is held without it
            plain = spec is None or spec.is_plain
            if counted or not plain or vm in self.groups_of:
                self._charge(
                    ClaimRow(
                        id=claim_id, vm=vm, host=host, kind=kind, cpu_milli=cpu,
                        memory_bytes=memory, disk_bytes=disk, counters=counted, devices=devices,
                        cells=cells,
                    )
                )  # fmt: skip
                continue
            names.append(claim_id)
            rows.append(self.hosts[host].fleet_row)
            demand.append((cpu, memory, disk))
        if not names:
            return
        vectors = np.zeros((len(rows), len(self.fleet.hosts.resources)), np.int64)
        vectors[:, :3] = demand
        self.fleet.charge_many(names, np.array(rows, np.int32), vectors)

    # Following

    def follow(self, event: Event, changes: Changes) -> None:
        """Apply one event of the ledger to these rows."""
        for number, host in changes.of(HOSTS).items():
            if host is None:
                self._drop_host(int(number))
            else:
                amounts = changes.of(HOST_AMOUNTS).get(number)
                known = self.hosts.get(int(number))
                generation = amounts.generation if amounts else known.generation if known else 0
                self._put_host(host, generation)
        for key in changes.of(FENCES):
            number, _, epoch = key.partition("|")
            if (entry := self.hosts.get(int(number))) is not None:
                entry.epoch = max(entry.epoch, int(epoch))
        dropped = []
        for group_id, group in changes.of(GROUPS).items():
            if group is None:
                dropped.append(group_id)
            else:
                self._put_group(group)
        for group_id, generation in changes.of(GROUP_GENERATIONS).items():
            if group_id in self.groups:
                self.groups[group_id].generation = generation
        if (rules := changes.value(RULES)) is not None:
            self.rules = rules
        if members := changes.of(MEMBERS):
            self._apply_members(members)
        for group_id in dropped:
            self._drop_group(group_id)
        self.specs.follow(event, changes)
        for claim_id, claim in changes.of(CLAIMS).items():
            if event.rows is not None and claim_id in self.fleet.vms.numbers:
                continue  # this process proposed it, and charged it then
            if claim is None:
                self.release(claim_id)
            else:
                self._put_claim(claim)
        for vm_id, vm in changes.of(VMS).items():
            before = self.waiting.pop(vm_id, None)
            if vm is not None and vm.pending is not None:
                self.waiting[vm_id] = vm
            if before is not None and (vm is None or vm.generation != before.generation):
                self.room += 1  # it may fit now, or those whom it kept waiting do
            if vm is None:
                self.groups_of.pop(vm_id, None)
        if None in changes.of(TOMBSTONES).values():
            self.room += 1  # a host that has cleaned up may have the VM again

    def _apply_members(self, changed: Mapping[str, AnyRow | None]) -> None:
        touched: dict[str, set[str]] = {}
        for key, row in changed.items():
            group, vm = key.rsplit("|", 1)
            found = touched.setdefault(vm, set(self.groups_of.get(vm, ())))
            if row is None:
                found.discard(group)
                self.room += 1  # it kept others of the group away
            else:
                found.add(group)
        for vm, found in touched.items():
            if found:
                self.groups_of[vm] = tuple(sorted(found))
            else:
                self.groups_of.pop(vm, None)
            self._regroup(vm)

    def _regroup(self, vm: str) -> None:
        """Count a VM that is already placed in the groups it has now."""
        fleet = self.fleet
        group_set = fleet.groups.set_number(self.groups_of.get(vm, ()))
        for kind in (RUN, MIGRATE_IN):
            number = fleet.vms.numbers.get(f"{vm}:{kind}")
            if number is None or int(fleet.vms.group_set[number]) == group_set:
                continue
            columns = fleet.vms
            row, demand = int(columns.host[number]), columns.demand[number].copy()
            rest = [int(c[number]) for c in (columns.terms, columns.devices, columns.cells)]
            fleet.remove(number)
            fleet.apply(f"{vm}:{kind}", row, demand, rest[0], group_set, rest[1], rest[2])

    def _put_host(self, row: HostRow, generation: int) -> None:
        inventory = _inventory.decode(row.inventory)
        spec = host_spec(
            row.name,
            inventory,
            labels=None if row.labels is None else _labels.decode(row.labels),
            health=row.health,
            admin=row.admin,
        )
        self.room += 1
        known = self.hosts.get(row.number)
        if known is None:
            fleet_row = self.fleet.register(spec)
            known = HostEntry(row, inventory, fleet_row, generation)
            self.hosts[row.number] = known
            self.numbers[row.name] = row.number
            self.by_fleet_row[fleet_row] = known
            return
        before = known.row
        known.generation = max(known.generation, generation)
        known.row = row
        if (before.inventory, before.labels) == (row.inventory, row.labels):
            if before.health != row.health:
                self.fleet.set_health(row.name, HEALTHS[row.health])
            if before.admin != row.admin:
                self.fleet.set_admin(row.name, ADMINS[row.admin])
            return
        known.inventory = inventory
        self.fleet.update_host(spec)

    def _drop_host(self, number: int) -> None:
        known = self.hosts.pop(number, None)
        if known is not None:
            # What this process has just proposed there loses; the rest went in the same event.
            for number in self.fleet.vms.on_host(known.fleet_row).tolist():
                self.fleet.remove(number)
            self.fleet.remove_host(known.name)
            del self.numbers[known.name]
            del self.by_fleet_row[known.fleet_row]

    def _put_group(self, row: GroupRow) -> None:
        known = self.groups.get(row.id)
        self.groups[row.id] = row
        spec = group_spec(
            row.id,
            row.rule,
            row.scope,
            hard=row.hard,
            max_skew=row.max_skew,
            weight=row.weight,
        )
        if known is not None:
            self.fleet.change_group(spec)
            self.group_changes += 1
            self.room += 1
            return
        self.fleet.add_group(spec)
        if row.selector:
            self.selectors[row.project].append(Selector(row.id, _labels.decode(row.selector)))

    def _drop_group(self, group_id: str) -> None:
        row = self.groups.pop(group_id, None)
        if row is None:
            return
        self.fleet.remove_group(group_id)
        self.group_changes += 1
        if row.selector:
            kept = [each for each in self.selectors[row.project] if each.group != group_id]
            self.selectors[row.project] = kept

    # Claims

    def _put_claim(self, claim: ClaimRow) -> None:
        number = self.fleet.vms.numbers.get(claim.id)
        if number is not None:
            entry = self.hosts[claim.host]
            vector = self._vector(claim)
            same_host = int(self.fleet.vms.host[number]) == entry.fleet_row
            if same_host and (self.fleet.vms.demand[number] == vector).all():
                return
            if same_host:
                self.fleet.resize(number, vector)
                self.room += 1
                return
            self.release(claim.id)
        self._charge(claim)

    def _vector(self, claim: ClaimRow) -> Int64Array:
        extended: list[tuple[str, int]] = []
        if claim.counters:
            for counter, amount in msgspec.json.decode(claim.counters).items():
                kind, _, name = counter.partition(":")
                if kind == "x":
                    extended.append((name, amount))
        # A resource that no host has any more is still one that was promised.
        return self.fleet.vector(
            Demand(claim.cpu_milli, claim.memory_bytes, claim.disk_bytes, tuple(extended))
        )

    def _charge(self, claim: ClaimRow) -> None:
        terms = 0
        spec = self.specs.get(claim.vm)
        if spec is not None and not spec.is_plain:
            demand = spec.demand
            terms = self.fleet.terms.number(
                HostRequirements(demand.devices, demand.numa, spec.constraints)
            )
        elif claim.devices:
            terms = self.fleet.terms.number(HostRequirements(_devices_in(claim)))
        groups_of = () if claim.kind == CLEANUP else self.groups_of.get(claim.vm, ())
        self.fleet.apply(
            claim.id,
            self.hosts[claim.host].fleet_row,
            self._vector(claim),
            terms,
            self.fleet.groups.set_number(groups_of),
            claim.devices,
            claim.cells,
        )

    def release(self, claim_id: str) -> None:
        """Release a claim from the fleet in memory; an unknown one is ignored."""
        number = self.fleet.vms.numbers.get(claim_id)
        if number is not None:
            self.fleet.remove(number)
            self.room += 1

    # Reading

    def entry(self, name: str) -> HostEntry | None:
        """Return the host of this name."""
        number = self.numbers.get(name)
        return None if number is None else self.hosts[number]

    def host_name(self, number: int | None) -> str | None:
        """Return a host's name."""
        entry = self.hosts.get(number) if number is not None else None
        return None if entry is None else entry.name

    def matching_groups(self, project: str, labels: dict[str, str]) -> list[str]:
        """Return the implicit groups that labels make a VM a member of."""
        return [
            selector.group
            for selector in self.selectors.get(project, ())
            if selector.labels.items() <= labels.items()
        ]
