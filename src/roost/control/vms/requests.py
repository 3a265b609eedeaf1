"""What a VM that exists asks of the engine now: its spec with the amounts it was resized to."""

from dataclasses import replace

from roost.control.memory.expecting import Traits
from roost.control.memory.roster import Roster
from roost.control.vms.restart_policy import asked_restart
from roost.ledger.claims.capacity import RUN, claim_id
from roost.ledger.schema.rows import VMRow, labels_of
from roost.model.flow import PlaceRequest
from roost.model.vm import VMSpec, image_of
from roost.placement.strategies import strategy_named


def request_of(vm: VMRow, roster: Roster, spec: VMSpec | None = None) -> PlaceRequest:
    """Return what a VM asks for now; `spec` was read with the row, or is the roster's."""
    if spec is None:
        spec = roster.specs.of(vm)
    demand = replace(
        spec.demand,
        cpu_milli=vm.cpu_milli,
        memory_bytes=vm.memory_bytes,
        disk_bytes=vm.disk_bytes,
    )
    strategy = strategy_named(vm.strategy or roster.engine.default_strategy)
    image, until_ms = image_of(spec), spec.until_ms
    traits = Traits(vm.cpu_milli, vm.memory_bytes, vm.project, image, until_ms, spec.flavor)
    expected = roster.expectations.of(vm.id, traits)
    return PlaceRequest(
        vm.name,
        demand,
        spec.constraints,
        roster.groups_of.get(vm.id, ()),
        vm.strategy,
        None,
        vm.priority,
        vm.project,
        claim_id(vm.id, RUN),
        tuple(sorted(labels_of(vm.labels).items())),
        asked_restart(vm),
        policy=spec.policy,
        relaxed=roster.rulebook.relaxed_for(vm.id) if vm.host is None else (),
        expected=expected,
        talks=roster.talkers.of(
            vm.id,
            f"{vm.project}/{vm.name}",
            spec.constraints.near,
            roster.groups_of.get(vm.id, ()),
        ),
        day=strategy.day_for(expected),
    )
