"""What rules read: hosts by row, the VM of a request, its group, its project, the whole fleet.

The values are those of `roost.rules.fields`. What is not known is missing, which is an error in a
rule that reads it: a measurement that never came, an extended resource that the host does not have.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from roost.fleet.fleet import Fleet
from roost.fleet.layout import Int64Array
from roost.model.flow import PlaceRequest
from roost.model.groups import GroupSpec
from roost.model.hosts import PRESSURES, Admin, Health, Scope
from roost.model.resources import BASE_RESOURCES
from roost.placement.domains import members_by_domain
from roost.placement.rules.paths import Path

Record = Mapping[str, Any]


class LazyRecord(Mapping[str, Any]):
    """A record whose fields are worked out when they are read."""

    __slots__ = ("_known", "_makers")

    def __init__(self, makers: Mapping[str, Callable[[], Any]]) -> None:
        self._makers = makers
        self._known: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._known:
            self._known[name] = self._makers[name]()
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


class HostRecord(Mapping[str, Any]):
    """One host as rules see it, read from the columns when a field is asked for."""

    __slots__ = ("_fleet", "_row")

    def __init__(self, fleet: Fleet, row: int) -> None:
        self._fleet = fleet
        self._row = row

    def __getitem__(self, name: str) -> Any:
        return _HOST_FIELDS[name](self._fleet, self._row)

    def __iter__(self) -> Iterator[str]:
        return iter(_HOST_FIELDS)

    def __len__(self) -> int:
        return len(_HOST_FIELDS)


def _amounts(fleet: Fleet, row: int, amounts: Int64Array) -> dict[str, int]:
    """Return a host's amounts by resource, of the resources that it has."""
    total = fleet.hosts.total
    return {
        name: int(amounts[row, column])
        for column, name in enumerate(fleet.hosts.resources.values)
        if name in BASE_RESOURCES or total[row, column] != 0
    }


def _totals(fleet: Fleet, row: int) -> dict[str, int]:
    """Return what a host has by resource; nothing of what nobody could read."""
    found = _amounts(fleet, row, fleet.hosts.total)
    return {name: max(amount, 0) for name, amount in found.items()}


def _measured(fleet: Fleet, row: int) -> dict[str, int]:
    used = fleet.hosts.used[row].tolist()
    return {
        name: amount
        for name, amount in zip(fleet.hosts.resources.values, used, strict=False)
        if amount >= 0
    }


def _pressure(fleet: Fleet, row: int) -> dict[str, float]:
    found = zip(PRESSURES, fleet.hosts.pressure[row].tolist(), strict=True)
    return {name: value for name, value in found if value == value}  # no number


def _domain(fleet: Fleet, row: int, scope: Scope) -> str:
    number = int(fleet.hosts.arrays.domain[row, scope])
    words = fleet.hosts.racks if scope is Scope.RACK else fleet.hosts.zones
    return words[number] if number >= 0 else ""


def _devices(fleet: Fleet, row: int) -> list[dict[str, Any]]:
    arrays, models = fleet.hosts.arrays, fleet.hosts.device_models
    return [
        {"model": models[int(model)], "memory": int(memory), "shareable": bool(shareable)}
        for free, (model, memory, shareable) in zip(
            arrays.device_free[row].tolist(), arrays.device_info[row].tolist(), strict=True
        )
        if free >= 0
    ]


def _taints(fleet: Fleet, row: int) -> list[dict[str, str]]:
    taints = fleet.hosts.taint_sets[int(fleet.hosts.taint_set[row])]
    return [{"key": t.key, "value": t.value, "effect": t.effect.value} for t in taints]


_HOST_FIELDS: Mapping[str, Callable[[Fleet, int], Any]] = {
    "name": lambda fleet, row: fleet.hosts.names[row],
    "zone": lambda fleet, row: _domain(fleet, row, Scope.ZONE),
    "rack": lambda fleet, row: _domain(fleet, row, Scope.RACK),
    "site": lambda fleet, row: fleet.hosts.sites[int(fleet.hosts.site[row])],
    "labels": lambda fleet, row: dict(fleet.hosts.label_sets[row]),
    "taints": _taints,
    "capabilities": lambda fleet, row: list(
        fleet.hosts.capability_sets[int(fleet.hosts.capability_set[row])]
    ),
    "architecture": lambda fleet, row: fleet.hosts.architectures[
        int(fleet.hosts.architecture[row])
    ],
    "driver": lambda fleet, row: fleet.hosts.drivers[int(fleet.hosts.driver[row])],
    "devices": _devices,
    "total": _totals,
    "capacity": lambda fleet, row: _amounts(fleet, row, fleet.hosts.arrays.capacity),
    "committed": lambda fleet, row: _amounts(fleet, row, fleet.hosts.arrays.committed),
    "free": lambda fleet, row: _amounts(fleet, row, fleet.hosts.arrays.headroom),
    "used": _measured,
    "pressure": _pressure,
    "vms": lambda fleet, row: int(fleet.hosts.arrays.vm_count[row]),
}


def host_codes(fleet: Fleet, path: Path, rows: Int64Array) -> Int64Array:
    """Return a number for each of these hosts: equal numbers mean that the path reads the same.

    The last resort is the host's own number, which is right for every path and tells all apart.
    """
    hosts = fleet.hosts
    codes: Int64Array = rows
    match path[1:]:
        case ("zone",):
            codes = hosts.arrays.domain[rows, Scope.ZONE]
        case ("rack",):
            codes = hosts.arrays.domain[rows, Scope.RACK]
        case ("labels", key):
            column = hosts.labels.columns.get(key)
            codes = np.zeros(len(rows), np.int64)
            if column is not None:
                codes = column.column(rows).astype(np.int64)
        case ("site" | "architecture" | "driver" as name,):
            codes = np.asarray(getattr(hosts, name)[rows], np.int64)
        case ("taints", *_):
            codes = hosts.taint_set[rows].astype(np.int64)
        case ("capabilities", *_):
            codes = hosts.capability_set[rows].astype(np.int64)
        case ("used", resource) if hosts.resources.find(resource) >= 0:
            codes = hosts.used[rows, hosts.resources.find(resource)]
        case ("vms",):
            codes = hosts.arrays.vm_count[rows]
        case ("total" | "capacity" | "committed" | "free" as source, resource):
            if resource in BASE_RESOURCES:
                codes = amounts_of(fleet, source, resource, rows)
            elif hosts.resources.find(resource) < 0:
                codes = np.zeros(len(rows), np.int64)
    return codes


def amounts_of(fleet: Fleet, source: str, resource: str, rows: Int64Array) -> Int64Array:
    """Return one amount of these hosts; VMs have no resource."""
    arrays = fleet.hosts.arrays
    column = fleet.hosts.resources.find(resource)
    found: Int64Array = arrays.vm_count[rows]
    match source:
        case "free":
            found = arrays.headroom[rows, column]
        case "total":
            found = np.maximum(fleet.hosts.total[rows, column], 0)
        case "committed":
            found = arrays.committed[rows, column]
        case "capacity":
            found = arrays.capacity[rows, column]
    return found


def vm_record(request: PlaceRequest, strategy: str) -> Record:
    """Return the VM that a request is for."""
    demand = request.demand
    record: dict[str, Any] = {
        "name": request.name,
        "project": request.project,
        "labels": dict(request.labels),
        "priority": request.priority,
        "groups": group_names(request),
        "strategy": strategy,
        "devices": demand.devices.count if demand.devices is not None else 0,
        "demand": dict(demand.amounts()),
    }
    if request.restart:
        record["restart"] = request.restart
    return record


def group_names(request: PlaceRequest) -> list[str]:
    """Return the names of a request's groups."""
    return [name for name, _ in _named_groups(request)]


def _named_groups(request: PlaceRequest) -> list[tuple[str, GroupSpec | str]]:
    """Return the groups of a request that have a name, with it.

    The groups of a project are known to the fleet as PROJECT/NAME, or as PROJECT/~DIGEST where a
    rule about labels makes a group that nobody named.
    """
    found = []
    for group in request.groups:
        key = group if isinstance(group, str) else group.name
        name = key.removeprefix(f"{request.project}/") if request.project else key
        if name == key or not name.startswith("~"):
            found.append((name, group))
    return found


def project_record(fleet: Fleet, request: PlaceRequest) -> Record:
    """Return the project of a request: what its other VMs ask for, and its quota."""
    accounts, key = fleet.projects, request.key or request.name
    quota = accounts.quota(request.project)
    limits = dict(zip(BASE_RESOURCES, quota, strict=False))
    makers: dict[str, Callable[[], Any]] = {
        "name": lambda: request.project,
        "vms": lambda: accounts.use(request.project, key)[-1],
        "committed": lambda: dict(
            zip(BASE_RESOURCES, accounts.use(request.project, key), strict=False)
        ),
        "quota": lambda: {name: most for name, most in limits.items() if most is not None},
    }
    if quota[-1] is not None:
        makers["most_vms"] = lambda: quota[-1]
    return LazyRecord(makers)


def group_record(fleet: Fleet, request: PlaceRequest) -> Record:
    """Return the request's first group; without one every field is missing."""
    named_groups = _named_groups(request)
    if not named_groups:
        return {}
    name, first = named_groups[0]
    [number, *_] = fleet.groups.set_members(fleet.groups.set_number((first,)))
    hosts = fleet.hosts

    def named(scope: Scope, words: list[str]) -> Callable[[], list[str]]:
        return lambda: sorted(words[each] for each in members_by_domain(fleet, number, scope))

    return LazyRecord(
        {
            "name": lambda: name,
            "hosts": named(Scope.HOST, hosts.names),
            "racks": named(Scope.RACK, hosts.racks.values),
            "zones": named(Scope.ZONE, hosts.zones.values),
            "size": lambda: int(fleet.groups.arrays.members[number]),
        }
    )


def fleet_record(fleet: Fleet, clock: Mapping[str, int]) -> Record:
    """Return the whole fleet, and the time that was passed in."""
    arrays = fleet.hosts.arrays

    def summed(amounts: Int64Array) -> Callable[[], dict[str, int]]:
        def add() -> dict[str, int]:
            width = len(fleet.hosts.resources)
            sums = amounts[fleet.present_rows(), :width].sum(axis=0).tolist()
            return dict(zip(fleet.hosts.resources.values, sums, strict=True))

        return add

    def load() -> float:
        capacity, committed = summed(arrays.capacity)(), summed(arrays.committed)()
        return max(
            (committed[name] / amount for name, amount in capacity.items() if amount), default=0.0
        )

    def takers() -> int:
        hosts = fleet.hosts
        rows = fleet.present_rows()
        usable = (hosts.health[rows] == Health.ONLINE) & (hosts.admin[rows] == Admin.OPEN)
        return int(np.count_nonzero(usable))

    return LazyRecord(
        {
            "hosts": takers,
            "vms": lambda: fleet.vms.alive,
            "capacity": summed(arrays.capacity),
            "committed": summed(arrays.committed),
            "free": summed(arrays.headroom),
            "load": load,
            **{name: partial(clock.__getitem__, name) for name in clock},
        }
    )
