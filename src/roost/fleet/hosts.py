"""The host columns: one row per host number, never reused, grown by doubling.

| column | dtype, shape | unit and meaning |
|---|---|---|
| total, reserve, ratio | int64 [hosts, resources] | what is there; kept by the host; thousandths |
| held | int64 [hosts, resources] | kept free by reservations and moves |
| held_vms | int64 [hosts] | places kept for VMs of reservations |
| held_devices | int64 [hosts, devices] | thousandths of devices kept, taken off what is free |
| held_cells | int64 [hosts, cells, 2] | cpu and memory of NUMA cells kept, likewise |
| used | int64 [hosts, resources] | measured; -1 unknown |
| pressure | float64 [hosts, 3] | measured: cpu, memory, io, in percent; not a number: unknown |
| predicted_base | int64 [hosts, 2] | predicted cpu and memory less what is expected of the VMs |
| predicted_shown | int64 [hosts, 5] | ranges and age of a prediction, for people; -1 unknown |
| max_vms | int64 [hosts] | most VMs, -1 no limit |
| health, admin | int8 [hosts] | `Health`, `Admin` |
| known | bool [hosts] | every total could be read |
| present | bool [hosts] | registered and not removed |
| site, architecture, driver | int32 [hosts] | numbers of interned words |
| taint_set, capability_set | int32 [hosts] | numbers of interned sets |
| cell_count | int8 [hosts] | NUMA cells; one may be empty |
| device_count | int8 [hosts] | devices; below 0 free is one that two were decided for at once |

The columns that decisions also change are in `HostArrays` (layout.py).
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from roost.base.errors import InvalidRequest
from roost.fleet.interning import Interned
from roost.fleet.labels import Labels
from roost.fleet.layout import (
    CPU,
    EMPTY_END,
    ENDS,
    EXTRA_COLUMNS,
    KNOWN,
    MEMORY,
    MOST_RATIO_CPU,
    RATIO_BYTES,
    RATIOS,
    SLOTS,
    UNLIMITED,
    BoolArray,
    HostArrays,
    Int64Array,
    copied,
    refresh_extras,
    refresh_ratio_columns,
)
from roost.model.hosts import (
    PRESSURES,
    Admin,
    Cell,
    Device,
    Health,
    HostSpec,
    Resource,
    Scope,
    Taint,
)
from roost.model.kept import Counters, place_of
from roost.model.resources import BASE_RESOURCES, WHOLE_DEVICE, Demand

#: Different device models in one fleet: a request names them by the bits of one machine word.
MOST_MODELS = 62
#: Different names of resources in one fleet: each is a column of every host.
MOST_RESOURCES = 160
#: What requests may name that no host has, until there are so many in all: the rest is for hosts.
MOST_ASKED_MODELS, MOST_ASKED_RESOURCES = 48, 96

#: Columns of `predicted_shown`, -1 unknown: the ends of the range of cpu and of memory, and the
#: time of the newest sample.
S_CPU, S_MEMORY, S_AS_OF, SHOWN = 0, 2, 4, 5

_MATRICES = ("reserve", "ratio", "held", "used")
_WORDS = ("site", "architecture", "driver", "taint_set", "capability_set")

#: What a host has of a resource that it does not name.
_NONE = Resource(0)
#: Members of an enumeration are slow to look up, and every change of a host asks for these.
_ONLINE, _OPEN = int(Health.ONLINE), int(Admin.OPEN)


class HostTable:
    """Every host ever registered, as columns."""

    def __init__(self, capacity: int = 16) -> None:
        self.count = 0
        self.resources: Interned[str] = Interned()
        for name in BASE_RESOURCES:
            self.resources.number(name)
        self.names: list[str] = []
        self.rows: dict[str, int] = {}
        self.label_sets: list[tuple[tuple[str, str], ...]] = []
        self.labels = Labels()
        self.zones: Interned[str] = Interned()
        self.racks: Interned[str] = Interned()
        self.sites: Interned[str] = Interned()
        self.architectures: Interned[str] = Interned()
        self.drivers: Interned[str] = Interned()
        self.taint_sets: Interned[tuple[Taint, ...]] = Interned()
        self.taint_sets.number(())  # a second set therefore means that some host has taints
        self.capability_sets: Interned[tuple[str, ...]] = Interned()
        self.device_models: Interned[str] = Interned()
        #: Pressure above which a host takes no VM, in the order of PRESSURES; nan: no bound.
        self.pressure_bounds = np.full(len(PRESSURES), np.nan, np.float64)
        self.bounds_pressure = False
        self._allocate(capacity, len(self.resources), 0, 0)

    def _allocate(self, capacity: int, resources: int, devices: int, cells: int) -> None:
        self.reserve = np.zeros((capacity, resources), np.int64)
        self.ratio = np.full((capacity, resources), 1000, np.int64)
        self.held = np.zeros((capacity, resources), np.int64)
        self.used = np.full((capacity, resources), -1, np.int64)
        self.pressure = np.full((capacity, len(PRESSURES)), np.nan, np.float64)
        self.predicted_base = np.zeros((capacity, 2), np.int64)
        self.predicted_shown = np.full((capacity, SHOWN), -1, np.int64)
        self.held_vms = np.zeros(capacity, np.int64)
        self.held_devices = np.zeros((capacity, devices), np.int64)
        self.held_cells = np.zeros((capacity, cells, 2), np.int64)
        self.max_vms = np.full(capacity, -1, np.int64)
        self.health = np.zeros(capacity, np.int8)
        self.admin = np.zeros(capacity, np.int8)
        self.known = np.zeros(capacity, np.bool_)
        self.present = np.zeros(capacity, np.bool_)
        self.site = np.zeros(capacity, np.int32)
        self.architecture = np.zeros(capacity, np.int32)
        self.driver = np.zeros(capacity, np.int32)
        self.taint_set = np.zeros(capacity, np.int32)
        self.capability_set = np.zeros(capacity, np.int32)
        self.cell_count = np.zeros(capacity, np.int8)
        self.device_count = np.zeros(capacity, np.int8)
        self.arrays = HostArrays(
            headroom=np.zeros((capacity, resources + EXTRA_COLUMNS), np.int64),
            committed=np.zeros((capacity, resources), np.int64),
            capacity=np.zeros((capacity, resources), np.int64),
            vm_count=np.zeros(capacity, np.int64),
            domain=np.full((capacity, len(Scope)), -1, np.int64),
            device_free=np.full((capacity, devices), -1, np.int64),
            device_info=np.zeros((capacity, devices, 3), np.int64),
            cell_free=np.full((capacity, cells, 2), -1, np.int64),
            cell_capacity=np.zeros((capacity, cells, 2), np.int64),
            takes=np.zeros(capacity, np.bool_),
            total=np.zeros((capacity, resources), np.int64),
            predicted=np.zeros((capacity, KNOWN + 1), np.int64),
        )
        self.arrays.headroom[:, resources + ENDS] = EMPTY_END

    @property
    def total(self) -> Int64Array:
        """Return what hosts have of each resource; -1 where nobody could read it."""
        return self.arrays.total

    @property
    def row_capacity(self) -> int:
        """Return how many rows the columns have room for."""
        return len(self.present)

    def ensure(self, rows: int, devices: int, cells: int, resources: tuple[str, ...]) -> None:
        """Make room for so many rows, devices, cells and named resources."""
        for name in resources:
            self.resources.number(name)
        old = self.arrays
        capacity = self.row_capacity
        while capacity < rows:
            capacity *= 2
        width = len(self.resources)
        devices = max(devices, old.device_free.shape[1])
        cells = max(cells, old.cell_free.shape[1])
        shape = (self.row_capacity, old.committed.shape[1], *self._widths())
        if shape == (capacity, width, devices, cells):
            return
        columns = (
            *_MATRICES,
            *_WORDS,
            *(
                "pressure",
                "predicted_base",
                "predicted_shown",
                "held_vms",
                "held_devices",
                "held_cells",
                "max_vms",
                "health",
                "admin",
                "known",
                "present",
                "cell_count",
                "device_count",
            ),
        )
        before = {name: getattr(self, name) for name in columns}
        self._allocate(capacity, width, devices, cells)
        for name, column in before.items():
            _paste(getattr(self, name), column)
        for name, grown, column in zip(HostArrays._fields, self.arrays, old, strict=True):
            if name != "headroom":
                _paste(grown, column)
        narrow = old.committed.shape[1]
        _paste(self.arrays.headroom[:, :narrow], old.headroom[:, :narrow])
        _paste(self.arrays.headroom[:, width:], old.headroom[:, narrow:])

    def _widths(self) -> tuple[int, int]:
        return self.arrays.device_free.shape[1], self.arrays.cell_free.shape[1]

    def admit_models(self, models: Iterable[str]) -> None:
        """Refuse device models beyond those that a bit mask can name."""
        new = {model for model in models if self.device_models.find(model) < 0}
        if len(self.device_models) + len(new) > MOST_MODELS:
            raise InvalidRequest(
                f"device models {', '.join(sorted(new))} are too many: at most {MOST_MODELS} "
                f"different ones are supported"
            )

    def admit(self, spec: HostSpec) -> None:
        """Refuse a host that the columns cannot take; changes nothing."""
        self.admit_models(device.model for device in spec.devices)
        new = {name for name, _ in spec.extended if self.resources.find(name) < 0}
        if new and len(self.resources) + len(new) > MOST_RESOURCES:
            raise InvalidRequest(
                f"extended resources {', '.join(sorted(new)[:5])} of {spec.name!r} are too many: "
                f"at most {MOST_RESOURCES - len(BASE_RESOURCES)} different ones are supported"
            )

    def admit_demand(self, demand: Demand) -> None:
        """Refuse a demand that would fill the columns with names that no host has."""
        models = demand.devices.models if demand.devices is not None else ()
        for what, asked, known, most in (
            ("device model", models, self.device_models, MOST_ASKED_MODELS),
            (
                "extended resource",
                [name for name, _ in demand.extended],
                self.resources,
                MOST_ASKED_RESOURCES,
            ),
        ):
            new = sorted({name for name in asked if known.find(name) < 0})
            if new and len(known) + len(new) > most:
                raise InvalidRequest(f"no host has {what} {new[0]!r}", name=new[0])

    def write_spec(self, row: int, spec: HostSpec) -> None:
        """Write what a host registers with into its row; what is promised stays as it is."""
        old_labels = self.label_sets[row]
        self.labels.replace(row, old_labels, spec.labels, self.row_capacity)
        self.label_sets[row] = spec.labels
        named = dict(spec.resources())
        arrays = self.arrays
        for column, name in enumerate(self.resources.values):
            resource = named.get(name, _NONE)
            self.total[row, column] = -1 if resource.total is None else resource.total
            self.reserve[row, column] = resource.reserve
            self.ratio[row, column] = resource.ratio_milli
            arrays.capacity[row, column] = resource.capacity
        self.max_vms[row] = -1 if spec.max_vms is None else spec.max_vms
        self.health[row] = spec.health
        self.admin[row] = spec.admin
        self.known[row] = spec.known
        self.site[row] = self.sites.number(spec.site)
        self.architecture[row] = self.architectures.number(spec.architecture)
        self.driver[row] = self.drivers.number(spec.driver)
        self.taint_set[row] = self.taint_sets.number(spec.taints)
        self.capability_set[row] = self.capability_sets.number(spec.capabilities)
        arrays.domain[row, Scope.HOST] = row
        arrays.domain[row, Scope.RACK] = self.racks.number(spec.rack) if spec.rack else -1
        arrays.domain[row, Scope.ZONE] = self.zones.number(spec.zone) if spec.zone else -1
        self._write_devices(row, spec.devices)
        self._write_cells(row, spec.cells)
        self.cell_count[row] = len(spec.cells)
        self.refresh(row)

    def write_plain(self, first: int, specs: Sequence[HostSpec]) -> None:
        """Write hosts of base resources alone into rows that no host ever had, column by column."""
        end = first + len(specs)
        arrays, rows = self.arrays, np.arange(first, end)
        for row, spec in enumerate(specs, first):
            if spec.labels:
                self.labels.replace(row, (), spec.labels, self.row_capacity)
            self.label_sets[row] = spec.labels
        for column, name in enumerate(BASE_RESOURCES):
            named: list[Resource] = [getattr(spec, name) for spec in specs]
            self.total[first:end, column] = [-1 if r.total is None else r.total for r in named]
            self.reserve[first:end, column] = [resource.reserve for resource in named]
            self.ratio[first:end, column] = [resource.ratio_milli for resource in named]
            arrays.capacity[first:end, column] = [resource.capacity for resource in named]
        self.max_vms[first:end] = [-1 if s.max_vms is None else s.max_vms for s in specs]
        self.health[first:end] = [spec.health for spec in specs]
        self.admin[first:end] = [spec.admin for spec in specs]
        self.known[first:end] = (self.total[first:end, : len(BASE_RESOURCES)] >= 0).all(axis=1)
        self.site[first:end] = [self.sites.number(spec.site) for spec in specs]
        self.architecture[first:end] = [self.architectures.number(s.architecture) for s in specs]
        self.driver[first:end] = [self.drivers.number(spec.driver) for spec in specs]
        self.taint_set[first:end] = [self.taint_sets.number(spec.taints) for spec in specs]
        self.capability_set[first:end] = [
            self.capability_sets.number(spec.capabilities) for spec in specs
        ]
        arrays.domain[first:end, Scope.HOST] = rows
        for scope, words, named_by in (
            (Scope.RACK, self.racks, [spec.rack for spec in specs]),
            (Scope.ZONE, self.zones, [spec.zone for spec in specs]),
        ):
            arrays.domain[first:end, scope] = [
                words.number(word) if word else -1 for word in named_by
            ]
        self.refresh_amounts(rows)
        arrays.takes[first:end] = (
            self.present[first:end]
            & self.known[first:end]
            & (self.health[first:end] == _ONLINE)
            & (self.admin[first:end] == _OPEN)
        )
        if self.bounds_pressure:
            arrays.takes[first:end] &= ~self.is_pressed(rows)

    def _write_devices(self, row: int, devices: tuple[Device, ...]) -> None:
        free, info = self.arrays.device_free[row], self.arrays.device_info[row]
        known = int(self.device_count[row])
        self.device_count[row] = len(devices)
        for position in range(len(free)):
            if position >= len(devices):
                free[position] = -1
                info[position] = 0
                continue
            device = devices[position]
            if position >= known:
                free[position] = WHOLE_DEVICE
            info[position] = (
                self.device_models.number(device.model),
                device.memory_bytes,
                device.shareable,
            )

    def _write_cells(self, row: int, cells: tuple[Cell, ...]) -> None:
        free, capacity = self.arrays.cell_free[row], self.arrays.cell_capacity[row]
        for position in range(len(free)):
            new = (0, 0)
            if position < len(cells):
                new = (cells[position].cpu_milli, cells[position].memory_bytes)
            taken = capacity[position] - np.maximum(free[position], 0)
            capacity[position] = new
            free[position] = capacity[position] - taken if position < len(cells) else -1

    def keep_parts(self, row: int, parts: Counters) -> None:
        """Keep so much of certain devices and cells free, in place of what was kept before.

        No more than is free is taken off: below 0 there would be no such device. What was kept
        goes on again whenever the host is charged, so all of it counts as soon as it is there.
        """
        arrays = self.arrays
        arrays.device_free[row] += self.held_devices[row]
        arrays.cell_free[row] += self.held_cells[row]
        self.held_devices[row] = 0
        self.held_cells[row] = 0
        for counter, amount in parts:
            position, part = place_of(counter)
            if counter.startswith("device:"):
                free, held = arrays.device_free[row], self.held_devices[row]
            else:
                free, held = arrays.cell_free[row, :, part], self.held_cells[row, :, part]
            if position < len(free) and free[position] >= 0:  # else the host has lost it
                held[position] = min(amount, int(free[position]))
                free[position] -= held[position]
        refresh_extras(arrays, row, len(self.resources))

    def kept_of(self, row: int, counter: str) -> int:
        """Return how much of a device or cell is kept free; 0 of one that no host has any more."""
        position, part = place_of(counter)
        if counter.startswith("device:"):
            held = self.held_devices[row]
        else:
            held = self.held_cells[row, :, part]
        return int(held[position]) if position < len(held) else 0

    def refresh(self, row: int) -> None:
        """Recompute every derived column of one host."""
        arrays = self.arrays
        width = len(self.resources)
        arrays.headroom[row, :width] = arrays.capacity[row] - arrays.committed[row] - self.held[row]
        limit = int(self.max_vms[row])
        slots = UNLIMITED if limit < 0 else limit
        arrays.headroom[row, width + SLOTS] = slots - arrays.vm_count[row] - self.held_vms[row]
        refresh_ratio_columns(arrays.headroom[row], width)
        refresh_extras(arrays, row, width)
        self.refresh_takes(row)

    def refresh_amounts(self, rows: Int64Array) -> None:
        """Recompute what amounts alone decide, of many hosts at once."""
        arrays = self.arrays
        width = len(self.resources)
        headroom = arrays.headroom
        headroom[rows, :width] = arrays.capacity[rows] - arrays.committed[rows] - self.held[rows]
        limits = self.max_vms[rows]
        slots = np.where(limits < 0, UNLIMITED, limits)
        headroom[rows, width + SLOTS] = slots - arrays.vm_count[rows] - self.held_vms[rows]
        cpu = np.minimum(headroom[rows, CPU], MOST_RATIO_CPU)
        ratios = cpu[:, np.newaxis] * np.array(RATIO_BYTES, np.int64)
        memory = headroom[rows, MEMORY][:, np.newaxis]
        headroom[rows, width + RATIOS :] = np.minimum(ratios, memory)

    def refresh_takes(self, row: int) -> None:
        """Recompute whether the host takes new VMs."""
        self.arrays.takes[row] = (
            self.present[row]
            and self.known[row]
            and self.health[row] == _ONLINE
            and self.admin[row] == _OPEN
            and not (self.bounds_pressure and self.is_pressed(row))
        )

    def is_pressed(self, rows: int | Int64Array) -> BoolArray:
        """Say of one host, or of many, whether some pressure is above its bound or unknown."""
        bounded = ~np.isnan(self.pressure_bounds)
        held = self.pressure[rows] <= self.pressure_bounds  # nan is not
        return np.asarray((bounded & ~held).any(axis=-1), np.bool_)

    def spec(self, row: int) -> HostSpec:
        """Return what the host registered with, read back from the columns."""
        arrays = self.arrays
        resources = {
            name: Resource(
                None if self.total[row, column] < 0 else int(self.total[row, column]),
                int(self.reserve[row, column]),
                int(self.ratio[row, column]),
            )
            for column, name in enumerate(self.resources.values)
        }
        rack, zone = int(arrays.domain[row, Scope.RACK]), int(arrays.domain[row, Scope.ZONE])
        return HostSpec(
            name=self.names[row],
            cpu=resources["cpu"],
            memory=resources["memory"],
            disk=resources["disk"],
            extended=tuple(
                (name, resource)
                for name, resource in resources.items()
                if name not in BASE_RESOURCES and resource.total != 0
            ),
            zone=self.zones[zone] if zone >= 0 else "",
            rack=self.racks[rack] if rack >= 0 else "",
            site=self.sites[int(self.site[row])],
            labels=self.label_sets[row],
            taints=self.taint_sets[int(self.taint_set[row])],
            architecture=self.architectures[int(self.architecture[row])],
            driver=self.drivers[int(self.driver[row])],
            capabilities=self.capability_sets[int(self.capability_set[row])],
            devices=tuple(
                Device(self.device_models[int(model)], int(memory), bool(shareable))
                for model, memory, shareable in arrays.device_info[row][: self.device_count[row]]
            ),
            # A cell may have neither cpu nor memory, and still has its position.
            cells=tuple(
                Cell(int(cpu), int(memory))
                for cpu, memory in arrays.cell_capacity[row][: int(self.cell_count[row])]
            ),
            max_vms=None if self.max_vms[row] < 0 else int(self.max_vms[row]),
            health=Health(self.health[row]),
            admin=Admin(self.admin[row]),
        )

    def copy(self) -> "HostTable":
        """Return an independent copy."""
        other = HostTable.__new__(HostTable)
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray | list | dict | Interned | Labels):
                value = value.copy()
            setattr(other, name, value)
        other.arrays = copied(self.arrays)
        return other


def _paste(into: npt.NDArray[Any], old: npt.NDArray[Any]) -> None:
    into[tuple(slice(0, length) for length in old.shape)] = old
