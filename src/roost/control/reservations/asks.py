"""What a unit keeps beside its amounts, as a reservation's row has it: JSON without what is usual.

Extended resources by name, devices by count, share, model and memory, and how cpu and memory lie on
NUMA cells. Which devices and cells it keeps is said by the unit's hold, as counters of its host.
"""

from collections.abc import Collection

import msgspec

from roost.ledger.schema.rows import HoldRow, ReservationRow
from roost.model.hosts import Device
from roost.model.kept import place_of
from roost.model.resources import WHOLE_DEVICE, Demand, DeviceDemand, NumaMode


class _Devices(msgspec.Struct, omit_defaults=True):
    count: int
    milli: int = WHOLE_DEVICE
    models: tuple[str, ...] = ()
    memory_bytes: int = 0


class _Asks(msgspec.Struct, omit_defaults=True):
    extended: dict[str, int] = {}
    devices: _Devices | None = None
    numa: NumaMode = NumaMode.ANY


_NOTHING = _Asks()
_decode = msgspec.json.Decoder(_Asks).decode


def asks_of(demand: Demand) -> str | None:
    """Return what a demand asks for beside amounts, as a row has it; None if there is nothing."""
    devices = demand.devices
    asks = _Asks(
        {name: amount for name, amount in demand.extended if amount},
        None
        if devices is None
        else _Devices(devices.count, devices.milli, devices.models, devices.memory_bytes),
        demand.numa,
    )
    return None if asks == _NOTHING else msgspec.json.encode(asks).decode()


def demand_of_unit(row: ReservationRow) -> Demand:
    """Return what one unit of a reservation keeps."""
    asks = _decode(row.asks) if row.asks else _NOTHING
    devices = asks.devices
    return Demand(
        row.cpu_milli,
        row.memory_bytes,
        row.disk_bytes,
        tuple(sorted(asks.extended.items())),
        None
        if devices is None
        else DeviceDemand(devices.count, devices.milli, devices.models, devices.memory_bytes),
        asks.numa,
    )


def places_of(unit: HoldRow) -> tuple[list[int], list[int]]:
    """Return the positions of the devices and of the cells that a unit keeps."""
    names = msgspec.json.decode(unit.counters) if unit.counters else {}
    devices = {place_of(name)[0] for name in names if name.startswith("device:")}
    cells = {place_of(name)[0] for name in names if name.startswith("cell:")}
    return sorted(devices), sorted(cells)


def suits(device: Device, models: Collection[str], memory_bytes: int, milli: int) -> bool:
    """Say whether a device is one that a unit may keep a share of."""
    return (
        (not models or device.model in models)
        and device.memory_bytes >= memory_bytes
        and (device.shareable or milli == WHOLE_DEVICE)
    )
