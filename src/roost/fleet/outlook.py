"""What is foreseen of hosts and VMs, written into the columns, and the bounds on pressure.

A host's predicted load is kept as a base and the sum of what is expected of the VMs on it, so that
a VM counts from the moment it is placed until it leaves, whenever the base was set:

    predicted = base + sum of expected over the VMs on the host
    base      = what was predicted - sum of expected over the VMs that it counted

When the last VM of a host will be gone is the latest of its VMs' ends. A VM that comes raises that
at once; one that leaves only makes it loose, and `settle_ends` looks again before it is read.
"""

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING

import numpy as np

from roost.base.errors import InvalidRequest
from roost.fleet.hosts import S_AS_OF, S_CPU, S_MEMORY
from roost.fleet.layout import E_ENDS, EMPTY_END, ENDS, KNOWN, UNKNOWN, Int64Array
from roost.model.hosts import PRESSURES
from roost.model.outlook import NEVER_S, Expected, Predicted, PredictionBasis

if TYPE_CHECKING:
    from roost.fleet.fleet import Fleet

#: The highest pressure: some task waits all the time.
MOST_PRESSURE = 100.0


def columns_of(expected: Expected) -> tuple[int, int, int, int]:
    """Return what is expected of a VM in column order."""
    cpu, memory, ends = expected.cpu_milli, expected.memory_bytes, expected.ends_s
    return (
        UNKNOWN[0] if cpu is None else cpu,
        UNKNOWN[1] if memory is None else memory,
        UNKNOWN[2] if ends is None else ends,
        UNKNOWN[3] if expected.day is None else expected.day.packed(),
    )


def expected_vector(expected: Expected) -> Int64Array:
    """Return the same as an array."""
    return np.array(columns_of(expected), np.int64)


def expected_use(demand: Int64Array, expected: Int64Array) -> Int64Array:
    """Return the cpu and memory that each of some VMs counts; unknown is all that it asked for."""
    return np.where(expected[:, :2] < 0, demand[:, :2], expected[:, :2])


def write_expected(fleet: "Fleet", numbers: Int64Array, expected: Int64Array) -> None:
    """Replace what is expected of many placed VMs, [vms, 4] in column order, at once."""
    vms, hosts = fleet.vms, fleet.hosts
    before = vms.expected[numbers]
    rows, demand = vms.host[numbers], vms.demand[numbers]
    change = expected_use(demand, expected) - expected_use(demand, before)
    np.add.at(hosts.arrays.predicted[:, :KNOWN], rows, change)
    vms.expected[numbers] = expected
    ends = hosts.arrays.headroom[:, len(hosts.resources) + ENDS]
    loose = (before[:, E_ENDS] >= ends[rows]) & (expected[:, E_ENDS] < before[:, E_ENDS])
    fleet.loose_ends.update(rows[loose].tolist())
    np.maximum.at(ends, rows, expected[:, E_ENDS])
    fleet.changes.add_many(np.unique(rows))
    fleet.version += 1
    fleet.on_undo(lambda: write_expected(fleet, numbers, before))


# Predictions


def write_predicted(
    fleet: "Fleet", predicted: Mapping[str, Predicted], basis: PredictionBasis
) -> None:
    """Replace all that is predicted of hosts; of those that are left out nothing is known."""
    hosts = fleet.hosts
    told = list(predicted.values())
    rows = np.array([fleet.row(name) for name in predicted], np.int64)
    before = _predictions(fleet)
    arrays = hosts.arrays
    was_known = arrays.predicted[: hosts.count, KNOWN] != 0
    own = arrays.predicted[:, :KNOWN] - hosts.predicted_base  # of the VMs that are there
    base = np.zeros_like(hosts.predicted_base)
    shown = np.full_like(hosts.predicted_shown, -1)
    known = np.zeros(len(base), np.int64)
    if told:
        base[rows] = [(each.cpu_milli, each.memory_bytes) for each in told]
        base[rows] -= own[rows]
        shown[rows] = [_shown(each) for each in told]
        known[rows] = 1
    some = [
        (row, each.counted)
        for row, each in zip(rows.tolist(), told, strict=True)
        if each.counted is not None
    ]
    if some:
        chosen = np.array([row for row, _ in some], np.int64)
        base[chosen] += own[chosen]
        _take_counted(fleet, some, base)
    _write(fleet, base, shown, known, basis)
    touched = was_known | (known[: hosts.count] != 0)
    fleet.changes.add_many(np.flatnonzero(touched))
    fleet.on_undo(lambda: _take_back(fleet, *before))


def _take_counted(
    fleet: "Fleet", counted: Sequence[tuple[int, tuple[str, ...]]], base: Int64Array
) -> None:
    """Take from the base of hosts what those of the named VMs that are there count."""
    vms, find = fleet.vms, fleet.vms.numbers.get
    pairs = [
        (row, number)
        for row, names in counted
        for name in dict.fromkeys(names)
        if (number := find(name)) is not None
    ]
    if not pairs:
        return
    rows, numbers = np.array(pairs, np.int64).T
    here = vms.host[numbers] == rows
    rows, numbers = rows[here], numbers[here]
    np.subtract.at(base, rows, expected_use(vms.demand[numbers], vms.expected[numbers]))


def _shown(predicted: Predicted) -> tuple[int, ...]:
    """Return the columns of `predicted_shown`: two ranges and a time."""
    unknown = (-1, -1)
    as_of = -1 if predicted.as_of_s is None else predicted.as_of_s
    return *(predicted.cpu_range or unknown), *(predicted.memory_range or unknown), as_of


def prediction(fleet: "Fleet", row: int) -> Predicted | None:
    """Return what is predicted of a host now, with all of its VMs counted, or None."""
    hosts = fleet.hosts
    cpu, memory, known = hosts.arrays.predicted[row].tolist()
    if not known:
        return None
    shown = hosts.predicted_shown[row].tolist()
    return Predicted(
        max(0, cpu),
        max(0, memory),
        cpu_range=_range(shown, S_CPU),
        memory_range=_range(shown, S_MEMORY),
        as_of_s=None if shown[S_AS_OF] < 0 else shown[S_AS_OF],
    )


def _range(shown: list[int], at: int) -> tuple[int, int] | None:
    return None if shown[at] < 0 else (shown[at], shown[at + 1])


_Predictions = tuple[Int64Array, Int64Array, Int64Array, PredictionBasis]


def _predictions(fleet: "Fleet") -> _Predictions:
    hosts = fleet.hosts
    known = hosts.arrays.predicted[:, KNOWN].copy()
    return hosts.predicted_base.copy(), hosts.predicted_shown.copy(), known, fleet.basis


def _write(
    fleet: "Fleet",
    base: Int64Array,
    shown: Int64Array,
    known: Int64Array,
    basis: PredictionBasis,
) -> None:
    hosts, count = fleet.hosts, len(base)  # the columns may have grown since
    hosts.arrays.predicted[:, :KNOWN] -= hosts.predicted_base
    hosts.predicted_base[:], hosts.predicted_shown[:] = 0, -1
    hosts.predicted_base[:count], hosts.predicted_shown[:count] = base, shown
    hosts.arrays.predicted[:, :KNOWN] += hosts.predicted_base
    hosts.arrays.predicted[:, KNOWN] = 0
    hosts.arrays.predicted[:count, KNOWN] = known
    fleet.basis = basis
    fleet.version += 1


def _take_back(
    fleet: "Fleet",
    base: Int64Array,
    shown: Int64Array,
    known: Int64Array,
    basis: PredictionBasis,
) -> None:
    _write(fleet, base, shown, known, basis)
    fleet.changes.add_many(np.arange(fleet.hosts.count))


# The end of a host's last VM


def settle_ends(fleet: "Fleet") -> None:
    """Look again when the last VM will be gone, on hosts that a VM left that may have been it."""
    if not fleet.loose_ends:
        return
    rows = np.array(sorted(fleet.loose_ends), np.int64)
    fleet.loose_ends.clear()
    vms, hosts = fleet.vms, fleet.hosts
    placed = vms.host[: vms.count]
    if len(rows) == 1:
        here = np.flatnonzero(placed == rows[0])
    else:
        loose = np.zeros(hosts.row_capacity, np.bool_)
        loose[rows] = True
        here = np.flatnonzero(loose[placed] & (placed >= 0))
    ends = hosts.arrays.headroom[:, len(hosts.resources) + ENDS]
    ends[rows] = EMPTY_END
    np.maximum.at(ends, placed[here], vms.expected[here, E_ENDS])
    fleet.changes.add_many(rows)


def last_end(fleet: "Fleet", row: int) -> int | None:
    """Return when a host's last VM is expected to be gone; None without VMs, or if unknown."""
    settle_ends(fleet)
    end = int(fleet.hosts.arrays.headroom[row, len(fleet.hosts.resources) + ENDS])
    return end if 0 <= end < NEVER_S else None


# Pressure


def write_pressure_bounds(fleet: "Fleet", bounds: Mapping[str, float]) -> None:
    """Replace the bounds on pressure; what is left out has none."""
    for name, bound in bounds.items():
        if name not in PRESSURES:
            raise InvalidRequest(f"no pressure {name!r}: there are {', '.join(PRESSURES)}")
        if not (isfinite(bound) and 0 <= bound <= MOST_PRESSURE):
            raise InvalidRequest(f"the bound {bound} on {name} pressure is not within 0 and 100")
    hosts = fleet.hosts
    before = {
        name: float(bound)
        for name, bound in zip(PRESSURES, hosts.pressure_bounds, strict=True)
        if not np.isnan(bound)
    }
    hosts.pressure_bounds[:] = [bounds.get(name, np.nan) for name in PRESSURES]
    hosts.bounds_pressure = bool(bounds)
    for row in range(hosts.count):
        refresh_pressed(fleet, row)
    fleet.version += 1
    fleet.on_undo(lambda: write_pressure_bounds(fleet, before))


def refresh_pressed(fleet: "Fleet", row: int) -> None:
    """Let a host that came under pressure, or left it, stop or begin to take VMs."""
    takes = fleet.hosts.arrays.takes
    was = bool(takes[row])
    fleet.hosts.refresh_takes(row)
    if bool(takes[row]) != was:
        fleet.attributes_changed(row)
