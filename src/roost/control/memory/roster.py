"""The fleet in memory: loaded from the ledger's rows, kept up to date by its events.

This is what the engine decides on. It may lag behind other processes; the claim statement compares
again, so a stale roster can only cost a retry. A VM's claims stand in the fleet under the names
VM:run, VM:migrate_in and VM:hold; a hold counts amounts but no group membership.

A host whose row cannot be loaded is set aside: it is there with its claims, takes nothing, and
`doctor` says why. Nothing that one host has registered with keeps the others from being loaded.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress

import msgspec
import numpy as np
from sqlalchemy import Connection, select

from roost.base.errors import InvalidRequest
from roost.control.memory.classes import PriorityClasses
from roost.control.memory.expecting import Expectations, Traits
from roost.control.memory.flavors import Flavors
from roost.control.memory.holdings import Holdings
from roost.control.memory.host_entries import (
    UNKNOWN,
    HostEntry,
    ReadHost,
    read_host,
    read_or_set_aside,
)
from roost.control.memory.rulebook import Rulebook
from roost.control.memory.specs import Specs
from roost.control.memory.talkers import Talkers
from roost.fleet.fleet import Fleet
from roost.fleet.layout import Int64Array
from roost.fleet.projects import NO_QUOTA
from roost.fleet.vms import MOVES, STAYS, STOPS
from roost.ledger.claims.capacity import CLEANUP, MIGRATE_IN, RUN, ProjectUse, Promised
from roost.ledger.claims.holding import HELD as HELD_COLUMNS
from roost.ledger.claims.holdsums import Living
from roost.ledger.schema.amounts import AMOUNTS, LIMITS
from roost.ledger.schema.changes import (
    CLAIMS,
    CONSTRAINTS,
    CONSTRAINTS_GENERATION,
    DISPLACED,
    FENCES,
    FLAVORS,
    GROUP_GENERATIONS,
    GROUPS,
    HELD,
    HOLDS,
    HOST_AMOUNTS,
    HOSTS,
    MEMBERS,
    POLICIES,
    PRIORITY_CLASSES,
    PROJECTS,
    RELAXATIONS,
    RESERVATIONS,
    RULES,
    TOMBSTONES,
    VM_SPECS,
    VMS,
    AnyRow,
    Changes,
)
from roost.ledger.schema.rows import ClaimRow, DisplacedRow, Event, GroupRow, HostRow, VMRow
from roost.ledger.schema.tables import (
    claims,
    counters,
    displaced,
    groups,
    host_amounts,
    host_counters,
    host_liveness,
    hosts,
    members,
    projects,
    vms,
)
from roost.ledger.upkeep.examination import Examination
from roost.ledger.writes.statements import find_rows
from roost.model.constraints import HostRequirements
from roost.model.hosts import HostSpec, Resource
from roost.model.kept import NOTHING_KEPT, Kept, counters_in_order
from roost.model.resources import Demand, DeviceDemand
from roost.model.vm import image_of
from roost.parts.part import Part
from roost.placement.asked import Asked
from roost.placement.engine import Engine
from roost.wire.agentlimits import MOST_MODELS_BROUGHT, MOST_RESOURCES_BROUGHT
from roost.wire.agentlink import Inventory
from roost.wire.translate import ADMINS, HEALTHS, group_spec, host_spec

log = logging.getLogger("roost.roster")

_COUNTERS = select(counters.c.name, counters.c.value)
_GENERATIONS = select(
    host_amounts.c.host, host_amounts.c.generation, *(host_amounts.c[name] for name in HELD_COLUMNS)
)
_COUNTERS_HELD = select(host_counters.c.host, host_counters.c.counter, host_counters.c.held).where(
    host_counters.c.held != 0
)
_EPOCHS = select(host_liveness.c.host, host_liveness.c.epoch)
_MEMBERS = select(members.c.group_id, members.c.vm)
_WAITING = select(vms).where(vms.c.pending.is_not(None))
_CLAIMS = select(claims)
_QUOTAS = select(projects.c.name, *(projects.c[f"{name}_quota"] for name in LIMITS))
_ASKED = select(vms.c.id, vms.c.project, *(vms.c[name] for name in AMOUNTS))
_labels = msgspec.json.Decoder(dict[str, str])


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


class _TogetherFailed(Exception):
    """Hosts could not be loaded at once: load them one by one, to find which."""


class _HostFailed(Exception):
    """A host could not be loaded although nothing seemed wrong with it: load again without it."""

    def __init__(self, number: int, why: str) -> None:
        super().__init__(why)
        self.number, self.why = number, why


def _shape(row: HostRow) -> tuple[str | None, ...]:
    """Return what a host is, apart from its health and what operators decided about it."""
    return row.inventory, row.labels, row.held, row.settings


def how_leaves(phase: str, desired: str, restart: str) -> int:
    """Return how a placed VM may make room for others."""
    if phase or desired == "absent":
        return STAYS
    return STOPS if restart == "elsewhere" else MOVES


class Roster(Part):
    """Hosts, groups and placed VMs, with the engine that decides on them."""

    follows = (
        VMS, VM_SPECS, CLAIMS, HOSTS, HOST_AMOUNTS, GROUPS, GROUP_GENERATIONS, MEMBERS,
        TOMBSTONES, FENCES, RULES, CONSTRAINTS, CONSTRAINTS_GENERATION, RELAXATIONS, HELD,
        HOLDS, RESERVATIONS, POLICIES, PROJECTS, PRIORITY_CLASSES, FLAVORS,
        DISPLACED,
    )  # fmt: skip

    def __init__(self, default_strategy: str, wall_ms: Callable[[], int] = lambda: 0) -> None:
        self._default_strategy, self.wall_ms = default_strategy, wall_ms
        self.asked = Asked()  # what is asked of the fleet; learning outlives a load
        self.rule_clock: dict[str, int] = {}  # hour, minute and weekday, as rules read them
        self._clear()

    def _clear(self) -> None:
        self.fleet = Fleet()
        self.engine = Engine(self.fleet, self._default_strategy)
        self.engine.asked = self.asked
        self.hosts: dict[int, HostEntry] = {}
        self.numbers: dict[str, int] = {}
        self.by_fleet_row: dict[int, HostEntry] = {}
        self.groups: dict[str, GroupRow] = {}
        self.groups_of: dict[str, tuple[str, ...]] = {}  # only VMs that are in a group
        self.selectors: dict[str, list[Selector]] = defaultdict(list)  # by project
        self.rules = 0  # generation of the selectors
        self.rulebook = Rulebook()
        self.classes = PriorityClasses()
        self.flavors = Flavors()
        self.group_changes = 0  # grows when a known group has another rule, or is gone
        self.specs = Specs()
        self.talkers = Talkers()
        self.talkers.in_group = self.groups_of
        self.expectations = Expectations(self.wall_ms)
        self.holdings = Holdings()
        self.waiting: dict[str, VMRow] = {}  # VMs without a host that want one
        self.wait_changes = 0  # grows when one of them, or what a rule has relaxed, is another
        self.displaced: dict[str, DisplacedRow] = {}  # stopped for others, and not run since
        self.ranked = False  # whether the fleet knows how important its VMs are
        self.room = 0  # grows when capacity or a rule may have made room
        #: Device models and extended resources that each host has had in the life of this process.
        self._names: dict[str, tuple[frozenset[str], frozenset[str]]] = {}
        self._ledger_held: dict[int, Kept] = {}  # what hosts hold, as the ledger says
        self._aside_claims: dict[str, ClaimRow] = {}  # on hosts set aside since they were loaded

    # Loading

    def load(self, connection: Connection) -> None:
        """Fill an empty roster from one consistent view; hosts that cannot be are set aside."""
        aside: dict[int, str] = {}
        together = True
        while True:
            try:
                self._load(connection, aside, together=together)
                return
            except _TogetherFailed:
                together = False
            except _HostFailed as failed:
                aside[failed.number] = failed.why

    def _load(self, connection: Connection, aside: Mapping[int, str], *, together: bool) -> None:
        self._clear()
        values = {row.name: row.value for row in connection.execute(_COUNTERS)}
        self.rules = values["rules"]
        generations = {}
        counted: dict[int, dict[str, int]] = defaultdict(dict)
        for number, counter, amount in connection.execute(_COUNTERS_HELD):
            counted[number][counter] = amount
        held: dict[int, Kept] = {}
        for number, generation, *limits in connection.execute(_GENERATIONS):
            generations[number] = generation
            counters_held = counters_in_order(counted[number]) if number in counted else ()
            held[number] = Kept.of(limits, counters_held)
        plain: list[ReadHost] = []
        for found in find_rows(connection, hosts, {}):
            row = HostRow(**found)
            read = read_or_set_aside(
                row,
                generations.get(row.number, 0),
                aside.get(row.number, ""),
                self.fleet.hosts.admit,
            )
            if together and read.spec.is_plain:
                plain.append(read)
                continue
            self._register_plain(plain)  # hosts stand in the fleet in the order of their numbers
            plain = []
            self._register(read)
        self._register_plain(plain)
        for number in self.hosts:
            self._ledger_held[number] = held.get(number, NOTHING_KEPT)
            self._hold(number, self._ledger_held[number])
        self.rulebook.load(connection)
        self.classes.load(connection)
        self.flavors.load(connection)
        self.bind_rules()
        for host, epoch in connection.execute(_EPOCHS):
            if (entry := self.hosts.get(host)) is not None:
                entry.epoch = epoch
        for found in find_rows(connection, groups, {}):
            self._put_group(GroupRow(**found))
        of: dict[str, list[str]] = defaultdict(list)
        for group, member in connection.execute(_MEMBERS).all():
            of[member].append(group)
        self.groups_of = {vm: tuple(sorted(found)) for vm, found in of.items()}
        self.talkers.in_group = self.groups_of
        self.specs.load(connection)
        for bound, spec in self.specs.with_near():
            self.talkers.note(bound, spec)
        self.holdings.load(connection)
        self._load_claims(connection)
        self._load_projects(connection)
        self.displaced = {
            row["vm"]: DisplacedRow(**row) for row in find_rows(connection, displaced, {})
        }
        for waits in connection.execute(_WAITING).mappings():
            vm = VMRow(**waits)
            self.waiting[vm.id] = vm

    def _load_projects(self, connection: Connection) -> None:
        """Count all VMs among those of their projects."""
        accounts = self.fleet.projects
        for name, *quota in connection.execute(_QUOTAS):
            accounts.set_quota(name, (quota[0], quota[1], quota[2], quota[3]))
        asked = connection.execute(_ASKED).all()
        accounts.put_new((f"{vm}:{RUN}", project, *amounts) for vm, project, *amounts in asked)

    def _load_claims(self, connection: Connection) -> None:
        """Charge every claim; those that ask for amounts alone all at once, column by column."""
        found = connection.execute(_CLAIMS).all()
        if not found:
            return
        ids, of, on, _, *amounts, counted, _, _, _, _ = zip(*found, strict=True)
        fleet_rows = {number: entry.fleet_row for number, entry in self.hosts.items()}
        rows = [fleet_rows.get(host, -1) for host in on]  # -1: a finding of the doctor's
        # What a deleted VM left to clean up has no spec, and is held without it.
        special = self.specs.special | self.groups_of.keys()
        plain = [not (counts or vm in special) for counts, vm in zip(counted, of, strict=True)]
        for at, alone in enumerate(plain):
            if not alone and rows[at] >= 0:
                self._charge(ClaimRow(**found[at]._mapping))
        chosen = np.array(plain) & (np.array(rows) >= 0)
        if not chosen.any():
            return
        vectors = np.zeros((int(chosen.sum()), len(self.fleet.hosts.resources)), np.int64)
        for column, amount in enumerate(amounts):
            vectors[:, column] = np.array(amount, np.int64)[chosen]
        names = list(compress(ids, chosen.tolist()))
        self.fleet.charge_many(names, np.array(rows, np.int32)[chosen], vectors)

    # Following

    def follow(self, event: Event, changes: Changes) -> None:
        """Apply one event of the ledger to these rows."""
        if event.created and not changes.of(MEMBERS):
            self._follow_created(event, changes)
            return
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
        if self.classes.follow(changes):
            self.room += 1  # who waits may displace others now
        self.flavors.follow(changes)
        # A resource that a rule names may have come with a host.
        if self.rulebook.follow(changes) or (self.rulebook.unreadable and changes.of(HOSTS)):
            self.bind_rules()
        self.wait_changes += bool(changes.of(RELAXATIONS))
        if self.rulebook.follow_relaxations(changes):
            self.room += 1
        if members := changes.of(MEMBERS):
            self._apply_members(members)
        for group_id in dropped:
            self._drop_group(group_id)
        self.specs.follow(event, changes)
        self._note_talkers(changes)
        self._count(changes.of(VMS))  # first, so that a claim is charged as one of its project
        self._hold_decided(self.holdings.follow(changes))
        for claim_id, claim in changes.of(CLAIMS).items():
            if event.rows is not None and claim_id in self.fleet.vms.numbers:
                continue  # this process proposed it, and charged it then
            if claim is None:
                self.release(claim_id)
            else:
                self._put_claim(claim)
        for vm_id, row in changes.of(DISPLACED).items():
            if row is None:
                self.displaced.pop(vm_id, None)
            else:
                self.displaced[vm_id] = row
        for name, project in changes.of(PROJECTS).items():
            quota = NO_QUOTA if project is None else project.quota
            self.fleet.projects.set_quota(name, quota)
            self.fleet.version += 1
            self.room += 1
        for vm_id, vm in changes.of(VMS).items():
            if vm is not None and self.ranked:
                self.rank(vm)
            before = self.waiting.pop(vm_id, None)
            if vm is not None and vm.pending is not None:
                self.waiting[vm_id] = vm
            self.wait_changes += before is not None or vm_id in self.waiting
            if before is not None and (vm is None or vm.generation != before.generation):
                self.room += 1  # it may fit now, or those whom it kept waiting do
            if vm is None:
                self.groups_of.pop(vm_id, None)
        for number, kept in changes.of(HELD).items():
            self._ledger_held[int(number)] = kept
            self._hold_decided([int(number)])
        if None in changes.of(TOMBSTONES).values():
            self.room += 1  # a host that has cleaned up may have the VM again

    def _follow_created(self, event: Event, changes: Changes) -> None:
        """Take over VMs without groups that this process has created, and charged already."""
        for vm_id, new in event.created.items():
            self.specs.put(vm_id, new.spec)
        self._note_talkers(changes)
        self._count(changes.of(VMS))
        charged, holdings = self.fleet.vms.numbers, self.holdings
        for claim_id, claim in changes.of(CLAIMS).items():
            if claim is None:
                continue
            if claim.is_special or holdings.is_special(claim_id):
                self._hold_decided(holdings.follow(changes))
            if claim_id not in charged:
                self._put_claim(claim)
        for vm_id, vm in changes.of(VMS).items():
            if vm is not None and self.ranked:
                self.rank(vm)
            if vm is not None and vm.pending is not None:
                self.waiting[vm_id] = vm
                self.wait_changes += 1

    def _note_talkers(self, changes: Changes) -> None:
        """Note the names of VMs that an event is about, and to whom they must be near."""
        for vm_id, vm in changes.of(VMS).items():
            self.talkers.named(vm_id, None if vm is None else f"{vm.project}/{vm.name}")
            if vm is None:
                self.talkers.note(vm_id, None)
        for key in changes.of(VM_SPECS):
            vm_id = key.rpartition("|")[0]
            self.talkers.note(vm_id, self.specs.get(vm_id))

    def _count(self, changed: Mapping[str, VMRow | None]) -> None:
        """Count VMs among those of their projects as an event says; who waits may fit now."""
        version = self.fleet.version
        for vm_id, vm in changed.items():
            if vm is None:
                self.fleet.discount_vm(f"{vm_id}:{RUN}")
            else:
                self.fleet.count_vm(f"{vm_id}:{RUN}", vm.project, vm.amounts)
        if self.engine.reads_projects and self.fleet.version != version:
            self.room += 1

    def bind_rules(self) -> None:
        """Give the engine the rules that hold now; who was refused may fit."""
        self.rulebook.bind(self.engine, self.rule_clock)
        self.room += 1

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
            columns, standing = fleet.vms, fleet.vms.standing(number)
            row, demand = int(columns.host[number]), columns.demand[number].copy()
            rest = [int(c[number]) for c in (columns.terms, columns.devices, columns.cells)]
            expected, own = columns.expected[number].copy(), f"{vm}:{kind}"
            fleet.remove(number)
            again = fleet.apply(own, row, demand, rest[0], group_set, rest[1], rest[2], expected)
            columns.set_standing(again, *standing)

    # Hosts

    def try_host(self, name: str, inventory: Inventory) -> None:
        """Try on the fleet what a host registers with; raises InvalidRequest, changes nothing.

        A host may bring only so many names of device models and resources in the life of a
        process: each takes a place that other hosts could need.
        """
        spec = host_spec(name, inventory)
        self._try(spec)
        models, resources = self._names.get(name, (frozenset(), frozenset()))
        for what, names, most in (
            ("device models", models | {d.model for d in spec.devices}, MOST_MODELS_BROUGHT),
            (
                "extended resources",
                resources | {x for x, _ in spec.extended},
                MOST_RESOURCES_BROUGHT,
            ),
        ):
            if len(names) > most:
                raise InvalidRequest(
                    f"host {name!r} has named {len(names)} different {what}; at most {most} are "
                    f"taken",
                    host=name,
                )

    def _try(self, spec: HostSpec) -> None:
        """Raise unless the fleet has room for a host's names, and columns can hold its numbers."""
        self.fleet.hosts.admit(spec)
        trial = Fleet()
        trial.register(spec)
        trial.update_host(trial.hosts.spec(0))

    def set_aside(self) -> dict[str, str]:
        """Return the hosts that cannot be used, and why."""
        return {entry.name: entry.aside for entry in self.hosts.values() if entry.aside}

    def examine(self, connection: Connection, found: Examination) -> None:
        """Report to the doctor hosts that are set aside, and rules and specs that are broken."""
        for name, why in sorted(self.set_aside().items()):
            found.find("hosts", f"host {name!r} is set aside and takes nothing: {why}")
        for rule, why in sorted(self.rulebook.unreadable.items()):
            found.find("constraints", f"rule {rule!r} cannot be read, so {why}")
        for vm, why in sorted(self.specs.unreadable.items()):
            found.find("specs", f"VM {vm} stays as it is, whatever is asked of it: {why}")

    def _register(self, read: ReadHost) -> None:
        """Put a host into the fleet."""
        try:
            fleet_row = self.fleet.register(read.spec)
        except Exception as error:
            raise _HostFailed(read.row.number, str(error)) from error
        self._enter(read, fleet_row)

    def _register_plain(self, found: Sequence[ReadHost]) -> None:
        """Put hosts of base resources alone into the fleet, all at once."""
        if not found:
            return
        try:
            first = self.fleet.register_plain([read.spec for read in found])
        except Exception as error:
            raise _TogetherFailed from error
        for fleet_row, read in enumerate(found, first):
            self._enter(read, fleet_row)

    def _enter(self, read: ReadHost, fleet_row: int) -> None:
        row = read.row
        if read.aside:
            log.error("host %s is set aside: %s", row.name, read.aside)
        self._note_names(read.spec)
        entry = HostEntry(row, read.inventory, fleet_row, read.generation, aside=read.aside)
        self.room += 1
        self.hosts[row.number] = entry
        self.numbers[row.name] = row.number
        self.by_fleet_row[fleet_row] = entry

    def _put_host(self, row: HostRow, generation: int) -> None:
        known = self.hosts.get(row.number)
        if known is None:
            why = ""
            try:
                self._try(read_host(row)[1])
            except Exception as error:  # noqa: BLE001 - the event's other rows must be taken
                why = str(error)
            self._register(read_or_set_aside(row, generation, why, self.fleet.hosts.admit))
            return
        self.room += 1
        before, known.row = known.row, row
        known.generation = max(known.generation, generation)
        if _shape(before) == _shape(row):
            if before.health != row.health:
                self.fleet.set_health(row.name, HEALTHS[row.health])
            if before.admin != row.admin:
                self.fleet.set_admin(row.name, ADMINS[row.admin])
            return
        try:
            inventory, spec = read_host(row)
            self._try(spec)
        except Exception as error:  # noqa: BLE001 - the event's other rows must be taken
            log.error("host %s is set aside: %s", row.name, error)
            known.aside = str(error)
            # What it was stays, for its claims have their places there; unknown is full.
            was = self.fleet.hosts.spec(known.fleet_row)
            self.fleet.update_host(replace(was, cpu=Resource(None)))
            return
        known.inventory, known.aside = inventory, ""
        self._note_names(spec)
        again = [c for c in self._aside_claims.values() if c.host == row.number]
        for claim in again:
            self.release(claim.id)
        self.fleet.update_host(spec)
        for claim in again:
            self._charge(claim)

    def _note_names(self, spec: HostSpec) -> None:
        """Record the names of models and resources that a host has had."""
        if spec.devices or spec.extended:
            models, resources = self._names.get(spec.name, (frozenset(), frozenset()))
            self._names[spec.name] = (
                models | {device.model for device in spec.devices},
                resources | {name for name, _ in spec.extended},
            )

    def _drop_host(self, number: int) -> None:
        known = self.hosts.pop(number, None)
        if known is not None:
            # What this process has just proposed there loses; the rest went in the same event.
            for number in self.fleet.vms.on_host(known.fleet_row).tolist():
                self.fleet.remove(number)
            self.fleet.keep_free(known.fleet_row, NOTHING_KEPT)
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

    # What hosts hold

    def held_on(self, number: int) -> Kept:
        """Return what a host holds, as the ledger says."""
        return self._ledger_held.get(number, NOTHING_KEPT)

    def charge_living(self, key: str, number: int, living: Living) -> None:
        """Count a claim that ends or draws, and hold with it what its host will have to."""
        self.holdings.charge(key, number, living)
        self._hold(number, self.holdings.held(number, self.wall_ms()))

    def _hold_decided(self, numbers: Iterable[int]) -> None:
        """Hold what the ledger says, on hosts where no claim of this process is on its way."""
        for number in numbers:
            if number not in self.holdings.pending.values():
                self._hold(number, self.held_on(number))

    def _hold(self, number: int, kept: Kept) -> None:
        """Keep free on a host what the ledger says that it holds."""
        entry = self.hosts.get(number)
        if entry is not None and self.fleet.kept.get(entry.fleet_row, NOTHING_KEPT) != kept:
            self.fleet.keep_free(entry.fleet_row, kept)
            self.room += 1

    # Claims

    def _put_claim(self, claim: ClaimRow) -> None:
        number = self.fleet.vms.numbers.get(claim.id)
        if number is not None:
            if claim.id in self._aside_claims:
                self._aside_claims[claim.id] = claim
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
        devices, cells = claim.devices, claim.cells
        if self._lacks_places(claim):
            # Set aside: nobody knows its devices and cells. It counts by its amounts till then.
            self._aside_claims[claim.id] = claim
            devices = cells = 0
        elif spec is not None and not spec.is_plain:
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
            devices,
            cells,
            self.expectations.vector(
                claim.vm,
                self.traits_of(claim.vm, claim.cpu_milli, claim.memory_bytes, claim.until_ms),
            ),
        )

    def traits_of(self, vm: str, cpu_milli: int, memory_bytes: int, until_ms: int | None) -> Traits:
        """Return what is known of a VM of this size, of which this process has heard."""
        spec = self.specs.get(vm)
        return Traits(
            cpu_milli,
            memory_bytes,
            self.fleet.projects.project_of(f"{vm}:{RUN}"),
            "" if spec is None else image_of(spec),
            until_ms,
            "" if spec is None else spec.flavor,
        )

    def _lacks_places(self, claim: ClaimRow) -> bool:
        """Say whether a claim's host was loaded without its devices and cells."""
        entry = self.hosts[claim.host]
        return bool(entry.aside) and entry.inventory is UNKNOWN

    def release(self, claim_id: str) -> None:
        """Release a claim from the fleet in memory; an unknown one is ignored."""
        self._aside_claims.pop(claim_id, None)
        if claim_id in self.holdings.pending:  # it was not kept: what is held is the ledger's again
            host = self.holdings.release(claim_id)
            if host is not None:
                self._hold_decided([host])
        number = self.fleet.vms.numbers.get(claim_id)
        if number is not None:
            self.fleet.remove(number)
            self.room += 1

    # Who may make room for whom

    def rank(self, vm: VMRow) -> None:
        """Note how important a placed VM is, and how it may make room for others."""
        number = self.fleet.vms.numbers.get(f"{vm.id}:{RUN}")
        if number is not None:
            leaves = STAYS
            # The room of one that ends or draws on a reservation would be the reservation's again.
            special = self.holdings.is_special(f"{vm.id}:{RUN}")
            if vm.host is not None and not special:
                leaves = how_leaves(vm.phase, vm.desired, vm.restart)
            self.fleet.vms.set_standing(number, leaves, vm.priority, vm.created_ms)

    def rank_all(
        self, vm_ids: Sequence[str], leaves: Int64Array, priority: Int64Array, since_ms: Int64Array
    ) -> None:
        """Note the same of many placed VMs at once."""
        keys = [f"{vm_id}:{RUN}" for vm_id in vm_ids]
        find, is_special = self.fleet.vms.numbers.get, self.holdings.is_special
        numbers = np.array([find(key, -1) for key in keys], np.int64)
        special = np.array([is_special(key) for key in keys], np.bool_)
        known = numbers >= 0
        self.fleet.vms.set_standing(
            numbers[known],
            np.where(special, STAYS, leaves)[known],
            priority[known],
            since_ms[known],
        )

    # Reading

    def entry(self, name: str) -> HostEntry | None:
        """Return the host of this name."""
        number = self.numbers.get(name)
        return None if number is None else self.hosts[number]

    def host_name(self, number: int | None) -> str | None:
        """Return a host's name."""
        entry = self.hosts.get(number) if number is not None else None
        return None if entry is None else entry.name

    def promised_on(self, fleet_row: int) -> Promised:
        """Return what a host has promised, as the ledger sums it up, and what it holds."""
        hosts = self.fleet.hosts
        sums = hosts.arrays.committed[fleet_row].tolist()
        base = len(AMOUNTS)
        names = hosts.resources.values[base:]
        extended = zip(names, sums[base : base + len(names)], strict=True)
        limits = (*sums[:base], int(hosts.arrays.vm_count[fleet_row]))
        held = self.fleet.kept.get(fleet_row, NOTHING_KEPT)
        return Promised(limits, tuple(sorted((name, n) for name, n in extended if n)), held)

    def project_use(self, project: str) -> ProjectUse:
        """Return what a project's VMs ask for together, and its quota, as the ledger has them."""
        accounts = self.fleet.projects
        return ProjectUse(accounts.use(project), accounts.quota(project))

    def matching_groups(self, project: str, labels: dict[str, str]) -> list[str]:
        """Return the implicit groups that labels make a VM a member of."""
        return [
            selector.group
            for selector in self.selectors.get(project, ())
            if selector.labels.items() <= labels.items()
        ]
