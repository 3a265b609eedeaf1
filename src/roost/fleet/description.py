"""A fleet from plain values, and back."""

from typing import TYPE_CHECKING

from roost.base.errors import Conflict
from roost.fleet.assign import LOWEST, pick_cells, pick_devices, positions
from roost.model.constraints import HostRequirements
from roost.model.description import FleetDescription, HoldSpec, PlacedVM, UsedSpec
from roost.model.resources import BASE_RESOURCES, Demand, NumaMode

if TYPE_CHECKING:
    from roost.fleet.fleet import Fleet

NUMA_NUMBERS = {mode: number for number, mode in enumerate(NumaMode)}


def build(fleet: "Fleet", description: FleetDescription) -> None:
    """Fill an empty fleet; hosts are numbered in the order of their names."""
    for spec in sorted(description.hosts, key=lambda spec: spec.name):
        fleet.register(spec)
    for group in description.groups:
        fleet.add_group(group)
    for vm in description.vms:
        place_as_described(fleet, vm)
    for hold in description.holds:
        fleet.hold(hold.name, hold.host, hold.demand)
    for used in description.used:
        fleet.set_used(used.host, used.amounts)


def place_as_described(fleet: "Fleet", vm: PlacedVM) -> int:
    """Put a VM where its description says, with the devices and cells it names or the lowest."""
    row = fleet.row(vm.host)
    demand = vm.demand
    vector = fleet.vector(demand)
    arrays = fleet.hosts.arrays
    devices = sum(1 << position for position in vm.devices)
    if demand.devices and not devices:
        ask = demand.devices
        devices = pick_devices(
            arrays, row, ask.count, ask.milli, ask.memory_bytes, model_mask(fleet, ask.models)
        )
        if not devices:
            raise Conflict(f"host {vm.host!r} has no devices for VM {vm.name!r}", vm=vm.name)
    cells = sum(1 << position for position in vm.cells)
    if demand.numa is not NumaMode.ANY and not cells:
        mode = NUMA_NUMBERS[demand.numa]
        cells = pick_cells(arrays, row, demand.cpu_milli, demand.memory_bytes, mode, LOWEST)
        if not cells:
            raise Conflict(f"host {vm.host!r} has no NUMA cell for VM {vm.name!r}", vm=vm.name)
    terms = fleet.terms.number(HostRequirements(demand.devices, demand.numa, vm.constraints))
    group_set = fleet.groups.set_number(vm.groups)
    return fleet.apply(vm.name, row, vector, terms, group_set, devices, cells)


def model_mask(fleet: "Fleet", models: tuple[str, ...]) -> int:
    """Return the bit mask of these device models; one that no host has adds nothing."""
    fleet.hosts.admit_models(models)
    mask = 0
    for model in models:
        mask |= 1 << fleet.hosts.device_models.number(model)
    return mask


def describe(fleet: "Fleet") -> FleetDescription:
    """Return the whole fleet as plain values; VMs without a name are called vm-NUMBER."""
    hosts = fleet.hosts
    vms = []
    for number in range(fleet.vms.count):
        row = int(fleet.vms.host[number])
        if row < 0:
            continue
        terms = fleet.terms[int(fleet.vms.terms[number])]
        amounts = [int(amount) for amount in fleet.vms.demand[number]]
        extended = tuple(
            (name, amount)
            for name, amount in zip(hosts.resources.values, amounts, strict=True)
            if name not in BASE_RESOURCES and amount
        )
        groups = fleet.groups.set_members(int(fleet.vms.group_set[number]))
        vms.append(
            PlacedVM(
                name=fleet.vms.names.get(number, f"vm-{number}"),
                host=hosts.names[row],
                demand=Demand(
                    amounts[0], amounts[1], amounts[2], extended, terms.devices, terms.numa
                ),
                constraints=terms.constraints,
                groups=tuple(fleet.groups.specs[group].name for group in groups),
                devices=positions(int(fleet.vms.devices[number])),
                cells=positions(int(fleet.vms.cells[number])),
            )
        )
    return FleetDescription(
        hosts=tuple(hosts.spec(int(row)) for row in fleet.present_rows()),
        groups=tuple(fleet.groups.known()),
        vms=tuple(vms),
        holds=tuple(
            HoldSpec(name, hosts.names[hold.row], hold.demand) for name, hold in fleet.holds.items()
        ),
        used=tuple(
            UsedSpec(
                hosts.names[row],
                tuple(
                    (name, int(amount))
                    for name, amount in zip(hosts.resources.values, hosts.used[row], strict=True)
                    if amount >= 0
                ),
            )
            for row in fleet.present_rows().tolist()
            if (hosts.used[row] >= 0).any()
        ),
    )
