"""The cheapest single repair of a violation: one move that fits now, after which the rule holds.

The VM itself may go elsewhere; where a rule reads what its host has promised, another VM may leave
instead. The cheapest moves the least memory and disk. Hosts are not relabelled and rules are not
changed to repair anything: where no move helps, it is said what is in the way.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from roost.control.vms.ruling import wrong_part
from roost.ledger.claims.capacity import MIGRATE_IN, RUN
from roost.ledger.schema.rows import VMRow
from roost.model.constraints import BoundRule
from roost.model.flow import PlaceRequest, Rejection
from roost.placement.rules.parts import How, Parts
from roost.placement.whatif import WhatIf
from roost.wire.answers import rejection_body
from roost.wire.constraints import RepairBody, ViolationBody

#: Violations that one answer looks for repairs of.
MOST_REPAIRED = 100
#: Other VMs of a host that are tried, the smallest first.
_MOST_OTHERS = 16

Placed = tuple[VMRow, PlaceRequest]


class Repairs:
    """Looks for repairs on one copy of the fleet, which is as it was after each."""

    def __init__(self, world: WhatIf, placed: Sequence[Placed]) -> None:
        self._world = world
        self._by_host: dict[int, list[Placed]] = {}
        vms = world.fleet.vms
        for vm, request in placed:
            number = vms.numbers.get(request.key)
            if number is not None:
                self._by_host.setdefault(int(vms.host[number]), []).append((vm, request))
        for others in self._by_host.values():
            others.sort(key=lambda each: (_cost(each[0]), each[0].id))

    def add_to(self, violation: ViolationBody, placed: Placed, bound: BoundRule) -> None:
        """Add the cheapest repair to a violation, or what is in the way of one."""
        vm, request = placed
        best: tuple[int, RepairBody] | None = None
        target = self._place_elsewhere(request, violation.host)
        if target is not None:
            best = _cost(vm), _move(vm, target)
        parts: Parts = bound.parts
        if any(part.how is not How.KEPT for part in parts.conjuncts):
            for other in self._others(request):
                if best is not None and _cost(other[0]) >= best[0]:
                    break
                if target := self._leaves(other, request, bound, violation.host):
                    best = _cost(other[0]), _move(other[0], target)
                    break
        if best is not None:
            violation.repair = best[1]
        else:
            violation.in_the_way = rejection_body(self._why_not(request, violation.host))

    def _others(self, request: PlaceRequest) -> list[Placed]:
        vms = self._world.fleet.vms
        row = int(vms.host[vms.numbers[request.key]])
        others = [each for each in self._by_host[row] if each[1].key != request.key]
        return others[:_MOST_OTHERS]

    def _place_elsewhere(self, request: PlaceRequest, host: str) -> str | None:
        """Return where a move would take a VM now, as a move would ask."""
        with self._without(request):
            found = self._world.find(_away_from(request, host))
        return None if found is None else found.host

    def _why_not(self, request: PlaceRequest, host: str) -> Rejection:
        """Say why a VM cannot move anywhere now."""
        with self._without(request):
            return self._world.reject(_away_from(request, host))

    def _leaves(
        self, other: Placed, request: PlaceRequest, bound: BoundRule, host: str
    ) -> str | None:
        """Return where another VM would go if the rule holds once it has left."""
        with self._without(other[1]):
            if wrong_part(self._world, request, bound) is not None:
                return None
            found = self._world.find(_away_from(other[1], host))
        return None if found is None else found.host

    @contextmanager
    def _without(self, request: PlaceRequest) -> Iterator[None]:
        """Look at the fleet without a VM's claims, that of a move under way included."""
        fleet = self._world.fleet
        mark, version = fleet.mark(), fleet.version
        for key in (request.key, request.key.removesuffix(RUN) + MIGRATE_IN):
            if (number := fleet.vms.numbers.get(key)) is not None:
                fleet.remove(number)
        try:
            yield
        finally:
            fleet.undo(mark)
            fleet.version = version


def _away_from(request: PlaceRequest, host: str) -> PlaceRequest:
    constraints = request.constraints
    excluded = (*constraints.excluded, host)
    return replace(request, constraints=replace(constraints, excluded=excluded))


def _cost(vm: VMRow) -> int:
    return vm.memory_bytes + vm.disk_bytes


def _move(vm: VMRow, target: str) -> RepairBody:
    return RepairBody(
        action="move",
        vm=vm.id,
        name=vm.name,
        project=vm.project,
        to=target,
        memory_bytes=vm.memory_bytes,
        disk_bytes=vm.disk_bytes,
    )
