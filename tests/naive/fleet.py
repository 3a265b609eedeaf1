"""A fleet as three dictionaries: what is where, and nothing derived.

Everything a rule asks about (committed, free, members of a group) is added up anew from the VMs.
"""

from dataclasses import dataclass, field
from typing import Any

from roost.model.constraints import NO_CONSTRAINTS, Constraints
from roost.model.flow import PlaceRequest
from roost.model.groups import GroupSpec
from roost.model.hosts import Admin, Health, HostSpec, Resource, Scope, TaintEffect
from roost.model.outlook import NOTHING_EXPECTED, DayCourse, Expected
from roost.model.resources import Demand, NumaMode
from roost.model.rules import NO_RULES, RuleSet
from roost.topology.network import Network

WHOLE_DEVICE = 1000


@dataclass(frozen=True)
class VM:
    """One VM and where it lies."""

    name: str | None
    host: int
    demand: Demand
    constraints: Constraints = NO_CONSTRAINTS
    groups: tuple[str, ...] = ()
    devices: tuple[int, ...] = ()
    cells: tuple[int, ...] = ()
    expected: Expected = NOTHING_EXPECTED

    def use(self) -> tuple[int, int]:
        """Return the cpu and memory it is expected to use; unknown is all that it asked for."""
        cpu, memory = self.expected.cpu_milli, self.expected.memory_bytes
        return (
            self.demand.cpu_milli if cpu is None else cpu,
            self.demand.memory_bytes if memory is None else memory,
        )


@dataclass
class Facts:
    """The rules of a world, and what they read besides hosts and the VM."""

    rules: RuleSet = NO_RULES
    clock: dict[str, int] = field(default_factory=dict)
    fleet: dict[str, Any] = field(default_factory=dict)
    group: dict[str, Any] = field(default_factory=dict)
    project: dict[str, Any] = field(default_factory=dict)


@dataclass
class Row:
    """One host with its sums."""

    number: int
    spec: HostSpec
    capacity: dict[str, int]
    committed: dict[str, int] = field(default_factory=dict)
    held: dict[str, int] = field(default_factory=dict)
    used: dict[str, int] = field(default_factory=dict)  # as measured
    pressed: bool = False  # some pressure is above its bound, or unknown
    use: list[int] = field(default_factory=lambda: [0, 0])  # expected of its VMs: cpu, memory
    predicted: tuple[int, int] | None = None  # beside what is expected of its VMs
    ends: list[int | None] = field(default_factory=list)  # of its VMs; None: unknown
    vms: int = 0
    device_free: list[int] = field(default_factory=list)
    cell_free: list[list[int]] = field(default_factory=list)
    lost: bool = False  # a VM has a device or a cell that the host no longer has

    def free(self, resource: str) -> int:
        """Return what is neither promised nor held."""
        capacity = self.capacity.get(resource, 0)
        return capacity - self.committed.get(resource, 0) - self.held.get(resource, 0)

    def domain(self, scope: Scope) -> object:
        """Return the host's fault domain, or None where it is unknown."""
        known = {Scope.HOST: self.number, Scope.RACK: self.spec.rack, Scope.ZONE: self.spec.zone}
        return None if known[scope] == "" else known[scope]


@dataclass
class Ask:
    """A request beside the facts about its groups."""

    request: PlaceRequest
    groups: tuple[GroupSpec, ...]
    members: dict[tuple[str, object], int]  # by group and fault domain of the group's scope
    sizes: dict[str, int]  # by group, all members
    fewest: dict[str, int] = field(default_factory=dict)  # by spread group
    facts: Facts = field(default_factory=Facts)
    verdicts: dict[int, list[Any]] = field(default_factory=dict)  # of hard rules, by host
    network: Network | None = None
    saturated: frozenset[str] = frozenset()  # hosts behind saturated uplinks
    partners: dict[str, str] = field(default_factory=dict)  # where those are that it talks with
    days: dict[int, list[DayCourse]] = field(default_factory=dict)  # of the VMs on each host


def capacity_of(resource: Resource) -> int:
    """Return (total - reserve) x ratio, rounded down; unknown is nothing."""
    if resource.total is None:
        return 0
    return max(0, resource.total - resource.reserve) * resource.ratio_milli // 1000


def shares(amount: int, cells: tuple[int, ...]) -> list[int]:
    """Return what each cell gives: the lower one takes the larger half."""
    if len(cells) == 1:
        return [amount]
    return [amount - amount // 2, amount // 2]


def add(sums: dict[str, int], demand: Demand) -> None:
    """Add a demand's amounts to sums by resource."""
    for resource, amount in demand.amounts():
        sums[resource] = sums.get(resource, 0) + amount


class World:
    """Hosts by number, VMs by number, holds and groups by name."""

    def __init__(self) -> None:
        self.hosts: dict[int, HostSpec] = {}
        self.registered = 0  # host numbers given out, ever
        self.vms: dict[int, VM] = {}
        self.holds: dict[str, tuple[int, Demand]] = {}
        self.groups: dict[str, GroupSpec] = {}
        self.used: dict[int, dict[str, int]] = {}  # what was measured, by host
        self.pressure: dict[int, dict[str, float]] = {}  # measured as well
        self.bounds: dict[str, float] = {}  # on pressure
        self.predicted: dict[int, tuple[int, int]] = {}  # beside what is expected of VMs, by host
        self.shunned = False  # some host, ever, had a prefer-not taint
        self.devices = False  # some host, ever, had devices
        self.rules: RuleSet = NO_RULES
        self.clock: dict[str, int] = {}
        self.counted: dict[str, tuple[str, Demand]] = {}  # VMs of projects, by name
        self.quotas: dict[str, dict[str, int]] = {}
        self.network: Network | None = None
        self.saturated: frozenset[str] = frozenset()
        self._rows: dict[int, Row] = {}  # sums that are still right, by host

    def copy(self) -> "World":
        """Return an independent copy."""
        other = World()
        other.restore(self)
        return other

    def restore(self, kept: "World") -> None:
        """Go back to a copy; numbers that were given out stay given out."""
        self.hosts, self.vms = dict(kept.hosts), dict(kept.vms)
        self.holds, self.groups = dict(kept.holds), dict(kept.groups) | self.groups
        self.registered = max(self.registered, kept.registered)
        self.shunned |= kept.shunned
        self.devices |= kept.devices
        self.rules, self.clock = kept.rules, kept.clock
        self.counted, self.quotas = dict(kept.counted), dict(kept.quotas)
        self.used = {number: dict(amounts) for number, amounts in kept.used.items()}
        self.pressure, self.bounds = dict(kept.pressure), dict(kept.bounds)
        self.predicted = dict(kept.predicted)
        self.network, self.saturated = kept.network, kept.saturated
        self._rows = {}

    # Changes

    def set_used(self, number: int, amounts: dict[str, int]) -> None:
        """Note what was measured on a host."""
        self.used.setdefault(number, {}).update(amounts)
        self._rows.pop(number, None)

    def set_pressure(self, number: int, pressure: dict[str, float]) -> None:
        """Note the pressure that was measured on a host, all of it."""
        self.pressure[number] = pressure
        self._rows.pop(number, None)

    def set_bounds(self, bounds: dict[str, float]) -> None:
        """Note the bounds on pressure."""
        self.bounds = bounds
        self._rows = {}

    def predict(self, told: dict[int, tuple[tuple[int, int], set[int]]]) -> None:
        """Note what hosts will use, and which VMs' use is in that; of all others nothing."""
        self.predicted = {
            number: (
                cpu - sum(self.vms[vm].use()[0] for vm in counted),
                memory - sum(self.vms[vm].use()[1] for vm in counted),
            )
            for number, ((cpu, memory), counted) in told.items()
        }
        self._rows = {}

    def set_host(self, number: int, spec: HostSpec) -> None:
        """Register a host or replace what it registered with."""
        self.hosts[number] = spec
        self.registered = max(self.registered, number + 1)
        self.shunned |= any(taint.effect is TaintEffect.PREFER_NOT for taint in spec.taints)
        self.devices |= bool(spec.devices)
        self._rows.pop(number, None)

    def remove_host(self, number: int) -> None:
        """Take a host away."""
        del self.hosts[number]
        self._rows.pop(number, None)

    def put(self, number: int, vm: VM) -> None:
        """Put a VM on its host, or change the VM."""
        self.vms[number] = vm
        self._rows.pop(vm.host, None)

    def remove(self, number: int) -> None:
        """Take a VM off its host."""
        self._rows.pop(self.vms.pop(number).host, None)

    def hold(self, name: str, number: int, demand: Demand) -> None:
        """Keep capacity free on a host."""
        self.holds[name] = (number, demand)
        self._rows.pop(number, None)

    def release(self, name: str) -> None:
        """Give held capacity back."""
        self._rows.pop(self.holds.pop(name)[0], None)

    # Questions

    def number_of(self, name: str) -> int:
        """Return the number of the host with this name."""
        return next(number for number, spec in self.hosts.items() if spec.name == name)

    def rows(self) -> list[Row]:
        """Return every host with its sums, in host-number order."""
        missing = set(self.hosts) - set(self._rows)
        for number in missing:
            self._rows[number] = _empty(number, self.hosts[number])
            self._rows[number].used = dict(self.used.get(number, {}))
            self._rows[number].predicted = self.predicted.get(number)
            measured = self.pressure.get(number, {})
            self._rows[number].pressed = any(
                name not in measured or measured[name] > bound
                for name, bound in self.bounds.items()
            )
        for vm in self.vms.values():
            if vm.host in missing:
                _charge(self._rows[vm.host], vm)
        for number, demand in self.holds.values():
            if number in missing:
                add(self._rows[number].held, demand)
        return [self._rows[number] for number in sorted(self.hosts)]

    def over_capacity(self) -> bool:
        """Say whether some host has promised more than it has."""
        return any(
            row.lost
            or any(row.free(resource) < 0 for resource in (*row.committed, *row.held))
            or any(part < 0 for cell in row.cell_free for part in cell)
            for row in self.rows()
        )

    def ask(self, request: PlaceRequest) -> Ask:
        """Return a request with the member counts of its groups."""
        names = [group if isinstance(group, str) else group.name for group in request.groups]
        groups = tuple(self.groups[name] for name in dict.fromkeys(names))
        members: dict[tuple[str, object], int] = {}
        sizes = {group.name: 0 for group in groups}
        rows = {row.number: row for row in self.rows()} if groups else {}
        for vm in self.vms.values() if groups else ():
            for group in groups:
                if group.name in vm.groups:
                    key = (group.name, rows[vm.host].domain(group.scope))
                    members[key] = members.get(key, 0) + 1
                    sizes[group.name] += 1
        asked = Ask(request, groups, members, sizes, facts=facts_of(self, groups, request))
        asked.network, asked.saturated = self.network, self.saturated
        keys = {talk.key for talk in request.talks}
        for vm in self.vms.values() if keys else ():
            if vm.name in keys:
                asked.partners[vm.name] = self.hosts[vm.host].name
        for vm in self.vms.values():
            if vm.expected.day is not None:
                asked.days.setdefault(vm.host, []).append(vm.expected.day)
        return asked

    def used_by(self, project: str, without: str = "") -> dict[str, int]:
        """Return what the VMs of a project ask for, but for one, and how many they are."""
        asked = [
            dict(demand.amounts())
            for name, (of, demand) in self.counted.items()
            if of == project and name != without
        ]
        sums = {r: sum(each.get(r, 0) for each in asked) for r in ("cpu", "memory", "disk")}
        return {**sums, "vms": len(asked)}


def facts_of(world: World, groups: tuple[GroupSpec, ...], request: PlaceRequest) -> "Facts":
    """Return the rules and what they read of the fleet and the VM's first group."""
    if not world.rules:
        return Facts()
    rows = world.rows()
    names = sorted({name for row in rows for name in row.capacity})
    sums = {
        kind: {name: sum(amount(row, name) for row in rows) for name in names}
        for kind, amount in (
            ("capacity", lambda row, name: row.capacity.get(name, 0)),
            ("committed", lambda row, name: row.committed.get(name, 0)),
            ("free", Row.free),
        )
    }
    fleet: dict[str, Any] = {
        "hosts": len(
            [r for r in rows if r.spec.health is Health.ONLINE and r.spec.admin is Admin.OPEN]
        ),
        "vms": len(world.vms),
        **sums,
        "load": max(
            (sums["committed"][name] / whole for name, whole in sums["capacity"].items() if whole),
            default=0.0,
        ),
        **world.clock,
    }
    group: dict[str, Any] = {}
    if groups:
        at = {row.number: row for row in rows}
        homes = [at[vm.host] for vm in world.vms.values() if groups[0].name in vm.groups]
        group = {
            "name": groups[0].name,
            "hosts": sorted({row.spec.name for row in homes}),
            "racks": sorted({row.spec.rack for row in homes if row.spec.rack}),
            "zones": sorted({row.spec.zone for row in homes if row.spec.zone}),
            "size": len(homes),
        }
    used = world.used_by(request.project, request.key or request.name)
    quota = dict(world.quotas.get(request.project, {}))
    project: dict[str, Any] = {"name": request.project, "vms": used.pop("vms"), "committed": used}
    if "vms" in quota:
        project["most_vms"] = quota.pop("vms")
    return Facts(world.rules, world.clock, fleet, group, {**project, "quota": quota})


def _empty(number: int, spec: HostSpec) -> Row:
    return Row(
        number,
        spec,
        {name: capacity_of(resource) for name, resource in spec.resources()},
        device_free=[WHOLE_DEVICE for _ in spec.devices],
        cell_free=[[cell.cpu_milli, cell.memory_bytes] for cell in spec.cells],
    )


def _charge(row: Row, vm: VM) -> None:
    row.vms += 1
    for at, amount in enumerate(vm.use()):
        row.use[at] += amount
    row.ends.append(vm.expected.ends_s)
    add(row.committed, vm.demand)
    for device in vm.devices:
        if device < len(row.device_free):
            row.device_free[device] -= vm.demand.devices.milli
        else:
            row.lost = True
    if vm.demand.numa is NumaMode.ANY:
        return
    cpu = shares(vm.demand.cpu_milli, vm.cells)
    memory = shares(vm.demand.memory_bytes, vm.cells)
    for position, cell in enumerate(sorted(vm.cells)):
        if cell < len(row.cell_free):
            row.cell_free[cell][0] -= cpu[position]
            row.cell_free[cell][1] -= memory[position]
        else:
            row.lost = True
