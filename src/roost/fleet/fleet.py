"""The fleet: hosts, VMs, groups and holds, with apply, undo and snapshot.

This is the one model of "what is where" that every decision reads. It keeps the books and nothing
else: it places a VM where it is told to and does not ask whether that was wise (`check()` in
check.py restates what must hold). A change is noted in two logs: `changes` for rows whose amounts
moved, `attribute_changes` for rows whose labels, state or shape did.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from roost.base.errors import Conflict, InvalidRequest, InvariantBroken, NotFound
from roost.fleet.changes import ChangeLog
from roost.fleet.description import build, describe
from roost.fleet.groups import SCOPES, Groups
from roost.fleet.hosts import HostTable
from roost.fleet.interning import Interned
from roost.fleet.layout import (
    BASE,
    E_ENDS,
    ENDS,
    KNOWN,
    Int32Array,
    Int64Array,
    charge,
    refresh_extras,
    refresh_ratio_columns,
)
from roost.fleet.outlook import (
    expected_use,
    expected_vector,
    refresh_pressed,
    settle_ends,
    write_expected,
    write_predicted,
    write_pressure_bounds,
)
from roost.fleet.projects import ProjectAccounts
from roost.fleet.vms import VMTable
from roost.model.constraints import NO_TERMS, HostRequirements
from roost.model.description import FleetDescription
from roost.model.groups import GroupSpec
from roost.model.hosts import PRESSURES, Admin, Health, HostSpec
from roost.model.kept import NOTHING_KEPT, Counters, Kept
from roost.model.outlook import NEVER_S, NO_BASIS, Expected, Predicted, PredictionBasis
from roost.model.resources import Demand, NumaMode


@dataclass(frozen=True, slots=True)
class Hold:
    """Capacity that a reservation or a move keeps free on a host."""

    row: int
    demand: Demand


class Charger(Protocol):
    """Adds (sign 1) or takes away (sign -1) the VM of a number in the host and group columns.

    `milli` is what it has of each of its devices. The table of the groups has room.
    """

    def __call__(self, number: int, milli: int, sign: int) -> None: ...


class Fleet:
    """Hosts and VMs as columns."""

    def __init__(self) -> None:
        self.hosts = HostTable()
        self.vms = VMTable(len(self.hosts.resources))
        self.groups = Groups()
        self.terms: Interned[HostRequirements] = Interned()
        self.terms.number(NO_TERMS)
        self.terms_generation = 0  # grows when all terms get other numbers
        self.holds: dict[str, Hold] = {}
        #: What the ledger's holds keep free, by host row.
        self.kept: dict[int, Kept] = {}
        #: What of that is of devices and cells, by host row; see `HostTable.keep_parts`.
        self.kept_parts: dict[int, Counters] = {}
        #: What the VMs of each project ask for together; rules read it.
        self.projects = ProjectAccounts()
        #: What the hosts' predictions were made from.
        self.basis: PredictionBasis = NO_BASIS
        #: Hosts whose last VM to end may have left: see `settle_ends`.
        self.loose_ends: set[int] = set()
        self.changes = ChangeLog()
        self.attribute_changes = ChangeLog()
        self.version = 0  # grows with every change; a snapshot keeps the number it was taken at
        #: Charges the VM of a number in less time than this module does; an engine lends it.
        self.charger: Charger | None = None
        self._undo: list[Callable[[], None]] = []
        self._marks = 0

    # Reading

    def __len__(self) -> int:
        return int(np.count_nonzero(self.hosts.present[: self.hosts.count]))

    def row(self, name: str) -> int:
        """Return the row of the host with this name."""
        row = self.hosts.rows.get(name)
        if row is None:
            raise NotFound(f"no host {name!r}", host=name)
        return row

    def vm_number(self, name: str) -> int:
        """Return the number of the VM with this name."""
        number = self.vms.numbers.get(name)
        if number is None:
            raise NotFound(f"no VM {name!r}", vm=name)
        return number

    def present_rows(self) -> Int64Array:
        """Return the rows of all registered hosts, in host-number order."""
        return np.flatnonzero(self.hosts.present[: self.hosts.count])

    def vector(self, demand: Demand) -> Int64Array:
        """Return the demand's amounts in column order; an unknown resource adds a column."""
        resources = self.hosts.resources
        base = (demand.cpu_milli, demand.memory_bytes, demand.disk_bytes)
        vector = np.array(base + (0,) * (len(resources) - len(base)), np.int64)
        if demand.extended:
            unknown = tuple(name for name, _ in demand.extended if resources.find(name) < 0)
            if unknown:
                self._ensure(0, 0, 0, unknown)
                vector = np.concatenate([vector, np.zeros(len(unknown), np.int64)])
            for name, amount in demand.extended:
                vector[resources.find(name)] = amount
        return vector

    # Hosts

    def register(self, spec: HostSpec) -> int:
        """Add a host and return its number, which no other host will ever have."""
        if spec.name in self.hosts.rows:
            raise Conflict(f"host {spec.name!r} is already registered", host=spec.name)
        hosts = self.hosts
        hosts.admit(spec)
        row = hosts.count
        extended = tuple(name for name, _ in spec.extended)
        self._ensure(row + 1, len(spec.devices), len(spec.cells), extended)
        hosts.count += 1
        hosts.names.append(spec.name)
        hosts.label_sets.append(())
        hosts.rows[spec.name] = row
        hosts.present[row] = True
        hosts.write_spec(row, spec)
        self.attributes_changed(row)
        self.on_undo(lambda: self._forget(row))
        return row

    def register_plain(self, specs: Sequence[HostSpec]) -> int:
        """Add many hosts of base resources alone at once; return the first one's number."""
        hosts = self.hosts
        names = [spec.name for spec in specs]
        if len(set(names)) < len(names) or not hosts.rows.keys().isdisjoint(names):
            raise Conflict("of these hosts one is registered twice")
        if not all(spec.is_plain for spec in specs):
            raise InvariantBroken("a host with devices, cells or resources is registered alone")
        first = hosts.count
        self._ensure(first + len(specs), 0, 0, ())
        hosts.count += len(specs)
        hosts.names += names
        hosts.label_sets += [()] * len(specs)
        hosts.rows.update(zip(names, range(first, hosts.count), strict=True))
        hosts.present[first : hosts.count] = True
        hosts.write_plain(first, specs)
        rows = np.arange(first, hosts.count)
        self.attribute_changes.add_many(rows)
        self.changes.add_many(rows)
        self.version += 1

        def take_back() -> None:
            for row in reversed(rows.tolist()):
                self._forget(row)

        self.on_undo(take_back)
        return first

    def _ensure(self, rows: int, devices: int, cells: int, resources: tuple[str, ...]) -> None:
        self.hosts.ensure(rows, devices, cells, resources)
        self.vms.ensure(0, len(self.hosts.resources))

    def _forget(self, row: int) -> None:
        name = self.hosts.names[row]
        del self.hosts.rows[name]
        self.hosts.present[row] = False
        self.hosts.refresh_takes(row)
        self.attributes_changed(row)

    def update_host(self, spec: HostSpec) -> None:
        """Replace what a host registered with; its VMs stay, even if they no longer fit."""
        row = self.row(spec.name)
        self.hosts.admit(spec)
        before = self.hosts.spec(row)
        extended = tuple(name for name, _ in spec.extended)
        self._ensure(0, len(spec.devices), len(spec.cells), extended)
        # VMs are charged to domains, and by position to devices and cells: off, then on again.
        numbers = self.vms.on_host(row).tolist()
        parts = self.kept_parts.get(row, ())
        self._keep_parts(row, ())
        for number in numbers:
            self._recharge(number, -1)
        self.hosts.write_spec(row, spec)
        for number in numbers:
            self._recharge(number, 1)
        self._keep_parts(row, parts)
        self.attributes_changed(row)
        self.on_undo(lambda: self.update_host(before))

    def remove_host(self, name: str) -> None:
        """Take an empty host out of the fleet."""
        row = self.row(name)
        if self.hosts.arrays.vm_count[row]:
            raise Conflict(
                f"host {name!r} still has {self.hosts.arrays.vm_count[row]} VMs", host=name
            )
        held = [hold for hold, where in self.holds.items() if where.row == row]
        if held:
            raise Conflict(f"host {name!r} still has holds {', '.join(held)}", host=name)
        self._forget(row)
        self.on_undo(lambda: self._remember(row, name))

    def _remember(self, row: int, name: str) -> None:
        self.hosts.rows[name] = row
        self.hosts.present[row] = True
        self.hosts.refresh_takes(row)
        self.attributes_changed(row)

    def set_health(self, name: str, health: Health) -> None:
        """Record what is observed of a host's agent."""
        row = self.row(name)
        before = Health(self.hosts.health[row])
        self.hosts.health[row] = health
        self.hosts.refresh_takes(row)
        self.attributes_changed(row)
        self.on_undo(lambda: self.set_health(name, before))

    def set_admin(self, name: str, admin: Admin) -> None:
        """Record what an operator decided about a host."""
        row = self.row(name)
        before = Admin(self.hosts.admin[row])
        self.hosts.admin[row] = admin
        self.hosts.refresh_takes(row)
        self.attributes_changed(row)
        self.on_undo(lambda: self.set_admin(name, before))

    def set_labels(self, name: str, labels: tuple[tuple[str, str], ...]) -> None:
        """Replace a host's labels."""
        row = self.row(name)
        before = self.hosts.label_sets[row]
        self.hosts.labels.replace(row, before, labels, self.hosts.row_capacity)
        self.hosts.label_sets[row] = labels
        self.attributes_changed(row)
        self.on_undo(lambda: self.set_labels(name, before))

    def set_used(self, name: str, amounts: Iterable[tuple[str, int]]) -> None:
        """Record what was measured on a host; it informs, and never makes room."""
        row = self.row(name)
        measured = dict(amounts)
        for resource, amount in measured.items():
            if self.hosts.resources.find(resource) < 0 or amount < 0:
                raise InvalidRequest(f"{resource!r} = {amount} cannot be measured on {name!r}")
        before = self.hosts.used[row].copy()
        for resource, amount in measured.items():
            self.hosts.used[row, self.hosts.resources.find(resource)] = amount
        self.version += 1

        def take_back() -> None:
            self.hosts.used[row, : len(before)] = before
            self.version += 1

        self.on_undo(take_back)

    def set_measured(
        self, name: str, used: Mapping[str, int], pressure: Mapping[str, float]
    ) -> None:
        """Record all that is known of a host by measuring; what is left out is unknown."""
        row, hosts = self.row(name), self.hosts
        before = hosts.used[row].copy(), hosts.pressure[row].copy()
        hosts.used[row], hosts.pressure[row] = -1, np.nan
        for resource, amount in used.items():
            hosts.used[row, hosts.resources.find(resource)] = amount
        for at, each in enumerate(PRESSURES):
            hosts.pressure[row, at] = pressure.get(each, np.nan)
        if hosts.bounds_pressure:
            refresh_pressed(self, row)
        self.version += 1

        def take_back() -> None:
            hosts.used[row, : len(before[0])], hosts.pressure[row] = before
            refresh_pressed(self, row)
            self.version += 1

        self.on_undo(take_back)

    def set_pressure_bounds(self, bounds: Mapping[str, float]) -> None:
        """Let hosts whose measured pressure is above a bound, in percent, take no new VM.

        What is left out of cpu, memory and io has no bound. A host without a reading is above it.
        """
        write_pressure_bounds(self, bounds)

    def set_predicted(
        self, predicted: Mapping[str, Predicted], basis: PredictionBasis = NO_BASIS
    ) -> None:
        """Replace all that is predicted of hosts; of those that are left out nothing is known."""
        write_predicted(self, predicted, basis)

    def set_expected(self, name: str, expected: Expected) -> None:
        """Replace what is expected of a VM, and with it its part of the host's predicted load."""
        self._set_expected(self.vm_number(name), expected_vector(expected))

    def set_expected_many(self, numbers: Int64Array, expected: Int64Array) -> None:
        """Do the same to many VMs at once: their numbers, no one twice, and [vms, 4] columns."""
        write_expected(self, numbers, expected)

    def _set_expected(self, number: int, expected: Int64Array) -> None:
        before = self.vms.expected[number].copy()
        self._recharge(number, -1)
        self.vms.expected[number] = expected
        self._recharge(number, 1)
        self.on_undo(lambda: self._set_expected(number, before))

    def settle_ends(self) -> None:
        """Make the column of when hosts' last VMs will be gone exact; removing VMs loosens it."""
        settle_ends(self)

    # VMs

    def apply(
        self,
        name: str | None,
        row: int,
        demand: Int64Array,
        terms: int = 0,
        group_set: int = 0,
        devices: int = 0,
        cells: int = 0,
        expected: Int64Array | None = None,
    ) -> int:
        """Put a VM on a host and return the VM's number."""
        vms = self.vms
        if name is not None and name in vms.numbers:
            raise Conflict(f"VM {name!r} is already placed", vm=name)
        number = vms.add(row, demand, terms, group_set, devices, cells, expected)
        if name is not None:
            vms.name(number, name)
        self._charge(number, row, terms, group_set, 1)
        self.on_undo(lambda: self.remove(number))
        return number

    def adopt(
        self,
        names: list[str] | None,
        rows: Int32Array,
        demand: Int64Array,
        terms: Int32Array,
        group_set: Int32Array,
        devices: Int64Array,
        cells: Int64Array,
        expected: Int64Array | None = None,
    ) -> int:
        """Register VMs whose amounts a kernel has already charged; return the first number."""
        first = self.vms.add_many(rows, demand, terms, group_set, devices, cells, expected)
        if names is not None:
            self.vms.name_many(first, names)
        self.changes.add_many(rows.astype(np.int64))
        self.version += 1
        count = len(rows)

        def take_back() -> None:
            for number in reversed(range(first, first + count)):
                self.remove(number)
            self.vms.forget_from(first)

        self.on_undo(take_back)
        return first

    def charge_many(self, names: list[str], rows: Int32Array, demand: Int64Array) -> None:
        """Put many VMs on their hosts at once; they ask for amounts alone. For loading a fleet."""
        count = len(rows)
        none = np.zeros(count, np.int32)
        masks = np.zeros(count, np.int64)
        first = self.vms.add_many(rows, demand, none, none, masks, masks)
        self.vms.name_many(first, names)
        arrays = self.hosts.arrays
        np.add.at(arrays.committed, rows, demand)
        np.add.at(arrays.vm_count, rows, 1)
        np.add.at(arrays.predicted[:, :KNOWN], rows, demand[:, :KNOWN])
        touched = np.unique(rows).astype(np.int64)
        arrays.headroom[touched, len(self.hosts.resources) + ENDS] = NEVER_S
        self.hosts.refresh_amounts(touched)
        self.changes.add_many(touched)
        self.version += 1

        def take_back() -> None:
            for number in reversed(range(first, first + count)):
                self.remove(number)
            self.vms.forget_from(first)

        self.on_undo(take_back)

    def remove(self, number: int) -> None:
        """Take a VM off its host."""
        vms = self.vms
        if not 0 <= number < vms.count or vms.host[number] < 0:
            raise NotFound(f"no VM number {number}", vm=number)
        self._recharge(number, -1)
        if self._marks:
            self.on_undo(self._putting_back(number))
        vms.remove(number)

    def _putting_back(self, number: int) -> Callable[[], None]:
        vms = self.vms
        name, row, demand = vms.names.get(number), int(vms.host[number]), vms.demand[number].copy()
        terms, group_set = int(vms.terms[number]), int(vms.group_set[number])
        devices, cells = int(vms.devices[number]), int(vms.cells[number])
        standing, expected = vms.standing(number), vms.expected[number].copy()

        def put_back() -> None:
            again = self.apply(name, row, demand, terms, group_set, devices, cells, expected)
            vms.set_standing(again, *standing)

        return put_back

    def resize(self, number: int, demand: Int64Array) -> None:
        """Change a VM's amounts in place; its devices and cells stay."""
        if not 0 <= number < self.vms.count or self.vms.host[number] < 0:
            raise NotFound(f"no VM number {number}", vm=number)
        before = self.vms.demand[number].copy()
        self._recharge(number, -1)
        self.vms.demand[number] = self.vms.widened(demand)
        self._recharge(number, 1)
        self.on_undo(lambda: self.resize(number, before))

    def _recharge(self, number: int, sign: int) -> None:
        """Add or take away a VM that is in the columns."""
        vms = self.vms
        row, terms = vms.host.item(number), vms.terms.item(number)
        self._charge(number, row, terms, vms.group_set.item(number), sign)

    def _charge(self, number: int, row: int, terms: int, group_set: int, sign: int) -> None:
        wanted = self.terms[terms].devices
        milli = wanted.milli if wanted else 0
        if group_set:
            self.groups.reserve(SCOPES * len(self.groups.set_members(group_set)))
        if self.charger is not None:
            self.charger(number, milli, sign)
        else:
            self._charge_plainly(number, row, milli, sign)
        if sign < 0:
            ends = self.hosts.arrays.headroom.item(row, len(self.hosts.resources) + ENDS)
            if self.vms.expected.item(number, E_ENDS) >= ends:
                self.loose_ends.add(row)
        if row in self.kept_parts:  # what is kept of a device is more or less than is free now
            self.hosts.keep_parts(row, self.kept_parts[row])
        self.changes.add(row)
        self.version += 1

    def _charge_plainly(self, number: int, row: int, milli: int, sign: int) -> None:
        vms, arrays = self.vms, self.hosts.arrays
        devices, cells = int(vms.devices[number]), int(vms.cells[number])
        if devices or cells:
            expected = vms.expected[number]
            charge(arrays, row, vms.demand[number], expected, milli, devices, cells, sign)
            refresh_extras(arrays, row, arrays.committed.shape[1])
        else:  # the same in a few array operations
            amount = vms.demand[number] if sign > 0 else -vms.demand[number]
            width = len(amount)
            arrays.committed[row] += amount
            arrays.headroom[row, :width] -= amount
            arrays.headroom[row, width] -= sign
            arrays.vm_count[row] += sign
            own = slice(number, number + 1)
            use = expected_use(vms.demand[own], vms.expected[own])[0]
            arrays.predicted[row, : len(use)] += sign * use
            if sign > 0:
                last = arrays.headroom[row, width + ENDS]
                arrays.headroom[row, width + ENDS] = max(last, vms.expected[number, E_ENDS])
        refresh_ratio_columns(arrays.headroom[row], arrays.committed.shape[1])
        self.count_groups(int(vms.group_set[number]), row, sign)

    def count_groups(self, group_set: int, row: int, amount: int) -> None:
        """Change the member counts of a VM's groups in its host's fault domains."""
        for group in self.groups.set_members(group_set):
            self.groups.add(group, self.hosts.arrays.domain[row], amount)

    # Holds

    def hold(self, name: str, host: str, demand: Demand) -> None:
        """Keep capacity free on a host under a name."""
        if name in self.holds:
            raise Conflict(f"hold {name!r} exists", hold=name)
        if demand.devices is not None or demand.numa is not NumaMode.ANY:
            raise InvalidRequest(f"hold {name!r} can keep amounts, not devices or NUMA cells")
        row = self.row(host)
        self.holds[name] = Hold(row, demand)
        self._held(row, self.vector(demand))
        self.on_undo(lambda: self.release(name))

    def release(self, name: str) -> None:
        """Release held capacity by its name."""
        hold = self.holds.pop(name, None)
        if hold is None:
            raise NotFound(f"no hold {name!r}", hold=name)
        self._held(hold.row, -self.vector(hold.demand))
        host = self.hosts.names[hold.row]
        self.on_undo(lambda: self.hold(name, host, hold.demand))

    def pretend_free(self, row: int, amounts: dict[str, int]) -> None:
        """Add headroom that is not there, to try what freeing it would do; undo it afterwards."""
        vector = np.zeros(len(self.hosts.resources), np.int64)
        for resource, amount in amounts.items():
            column = self.hosts.resources.find(resource)
            if column >= 0:
                vector[column] = amount
        limit = int(self.hosts.max_vms[row])
        if limit >= 0:
            self.hosts.max_vms[row] = limit + amounts.get("vms", 0)
        self._held(row, -vector)

        def take_back() -> None:
            self.hosts.max_vms[row] = limit
            self._held(row, vector)

        self.on_undo(take_back)

    def keep_free(self, row: int, kept: Kept) -> None:
        """Keep so much of a host's resources, and so many places for VMs, free.

        It takes the place of what was kept before, beside holds that have a name.
        """
        before = self._keep(row, kept)
        vector = self._extended_more(before, kept)
        vector[:BASE] = np.subtract(kept.limits[:BASE], before.limits[:BASE])
        self._held(row, vector, kept.vms - before.vms)
        self.on_undo(lambda: self.keep_free(row, before))

    def keep_free_many(self, kept: dict[int, Kept]) -> None:
        """Keep resources and places for VMs free on many hosts at once, by row."""
        if not kept:
            return
        before = {row: self._keep(row, new) for row, new in kept.items()}
        rows = np.array(list(kept), np.int64)
        more = np.array([new.limits for new in kept.values()], np.int64)
        more -= np.array([old.limits for old in before.values()], np.int64)
        self.hosts.held[rows, :BASE] += more[:, :BASE]
        self.hosts.held_vms[rows] += more[:, BASE]
        for row, new in kept.items():
            if new.counters or before[row].counters:
                self.hosts.held[row] += self._extended_more(before[row], new)
        self.hosts.refresh_amounts(rows)
        self.changes.add_many(rows)
        self.version += 1
        self.on_undo(lambda: self.keep_free_many(before))

    def _keep(self, row: int, kept: Kept) -> Kept:
        """Note what a host keeps free, and of which devices and cells; return what it did."""
        before = self.kept.get(row, NOTHING_KEPT)
        if kept == NOTHING_KEPT:
            self.kept.pop(row, None)
        else:
            self.kept[row] = kept
        if kept.counters or before.counters:
            # Names first: whoever takes columns in hand after this finds all of them.
            self._ensure(0, 0, 0, tuple(name for name, _ in kept.extended))
            self._keep_parts(row, kept.parts)
        return before

    def _keep_parts(self, row: int, parts: Counters) -> None:
        if parts or row in self.kept_parts:
            self.hosts.keep_parts(row, parts)
        if parts:
            self.kept_parts[row] = parts
        else:
            self.kept_parts.pop(row, None)

    def _extended_more(self, before: Kept, kept: Kept) -> Int64Array:
        """Return how much more is kept of each resource that only some hosts have."""
        vector = np.zeros(len(self.hosts.resources), np.int64)
        for sign, each in ((1, kept), (-1, before)):
            for name, amount in each.extended:
                vector[self.hosts.resources.find(name)] += sign * amount
        return vector

    def _held(self, row: int, amount: Int64Array, vms: int = 0) -> None:
        self.hosts.held[row] += amount
        self.hosts.held_vms[row] += vms
        self.hosts.refresh(row)
        self.changes.add(row)
        self.version += 1

    # Undo and snapshot

    # Terms

    def renumber_terms(self) -> bool:
        """Number anew the terms that placed VMs have, without rules; say whether that was done.

        Every VM that a rule tells apart has terms of its own: the numbers of those who are gone, or
        were refused, are in nobody's way then. What rules say of a placed VM, with whom it
        talks, and its day, are asked again whenever they matter. Not while changes may be undone:
        those remember numbers.
        """
        if self._marks:
            return False
        old, count = self.terms, self.vms.count
        new: Interned[HostRequirements] = Interned()
        new.number(NO_TERMS)
        numbers = np.zeros(len(old), np.int32)
        for number in np.unique(self.vms.terms[:count]).tolist():
            terms = old[number]
            if terms.rules or terms.talks or terms.day is not None:
                terms = HostRequirements(terms.devices, terms.numa, terms.constraints)
            numbers[number] = new.number(terms)
        self.vms.terms[:count] = numbers[self.vms.terms[:count]]
        self.terms = new
        self.terms_generation += 1
        return True

    # Projects

    def count_vm(self, key: str, project: str, amounts: Sequence[int]) -> None:
        """Count a VM, placed or not, among those of its project; as often as it is said."""
        before = self.projects.put(key, project, amounts)
        if before is None:
            self.on_undo(lambda: self.discount_vm(key))
        elif before == (project, tuple(amounts)):
            return
        else:
            self.on_undo(lambda: self.count_vm(key, *before))
        self.version += 1

    def discount_vm(self, key: str) -> None:
        """Count a VM no longer among those of its project."""
        before = self.projects.drop(key)
        if before is not None:
            self.version += 1
            self.on_undo(lambda: self.count_vm(key, *before))

    # Undoing

    def mark(self) -> int:
        """Begin to remember how to undo; return the mark to undo to."""
        self._marks += 1
        mark, known = len(self._undo), len(self.groups)
        self._undo.append(lambda: self.groups.forget_from(known))  # last of all: their VMs are gone
        return mark

    def undo(self, mark: int) -> None:
        """Take back every change since the mark, the last first."""
        taken, self._undo = self._undo[mark:], self._undo[:mark]
        marks, self._marks = self._marks, 0
        for take_back in reversed(taken):
            take_back()
        self._marks = marks - 1

    def keep(self, mark: int) -> None:
        """Drop a mark and keep the changes made since."""
        self._marks -= 1
        if not self._marks:
            del self._undo[mark:]

    def on_undo(self, take_back: Callable[[], None]) -> None:
        """Remember how to take a change back, if there is a mark to go back to."""
        if self._marks:
            self._undo.append(take_back)

    def attributes_changed(self, row: int) -> None:
        """Log a host whose labels, state or shape changed."""
        self.attribute_changes.add(row)
        self.changes.add(row)
        self.version += 1

    def snapshot(self) -> "Fleet":
        """Return an independent copy for a long question; its version says when it was taken."""
        other = Fleet()
        other.hosts = self.hosts.copy()
        other.vms = self.vms.copy()
        other.groups = self.groups.copy()
        other.terms = self.terms.copy()
        other.holds = dict(self.holds)
        other.kept, other.kept_parts = dict(self.kept), dict(self.kept_parts)
        other.projects = self.projects.copy()
        other.basis, other.loose_ends = self.basis, set(self.loose_ends)
        other.version = self.version
        return other

    # Whole fleets

    @classmethod
    def from_description(cls, description: FleetDescription) -> "Fleet":
        """Build a fleet; hosts are numbered in the order of their names."""
        fleet = cls()
        build(fleet, description)
        return fleet

    def to_description(self) -> FleetDescription:
        """Return the whole fleet as plain values."""
        return describe(self)

    def add_group(self, spec: GroupSpec) -> int:
        """Register a group and return its number."""
        return self.groups.register(spec)

    def change_group(self, spec: GroupSpec) -> None:
        """Give a known group another rule; whoever asks next is judged by it."""
        self.groups.change_rule(spec)
        self.version += 1

    def remove_group(self, name: str) -> None:
        """Forget a group; its members must have left it."""
        self.groups.forget(name)
        self.version += 1
