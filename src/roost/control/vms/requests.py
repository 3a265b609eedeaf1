"""What a VM that exists asks of the engine now: its spec with the amounts it was resized to."""

from dataclasses import replace

from roost.control.memory.roster import Roster, asked_of
from roost.ledger.rows import VMRow
from roost.model.flow import PlaceRequest
from roost.wire.translate import constraints_of, demand_of


def request_of(vm: VMRow, roster: Roster) -> PlaceRequest:
    """Return what a VM asks for now."""
    asked = asked_of(vm)
    demand = replace(
        demand_of(asked.demand),
        cpu_milli=vm.cpu_milli,
        memory_bytes=vm.memory_bytes,
        disk_bytes=vm.disk_bytes,
    )
    return PlaceRequest(
        vm.name,
        demand,
        constraints_of(asked.constraints),
        roster.groups_of.get(vm.id, ()),
        vm.strategy,
        None,
        vm.priority,
        vm.project,
    )
