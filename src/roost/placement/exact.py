"""The exact search behind all-or-nothing groups: an integer program solved by CP-SAT.

Every VM gets exactly one of the hosts that pass its own filters apart from those that other
members influence; hosts hold what they have headroom for, device by device and cell by cell;
hard group rules hold for the members already there and the new ones together; what rules ask of
amounts holds for each VM beside those before it in the list. Deterministic: one
worker, a fixed seed, and a limit in deterministic time rather than seconds.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from roost.fleet.description import model_mask
from roost.fleet.layout import CPU, MEMORY, SLOTS
from roost.model.flow import Placement, PlaceRequest
from roost.model.groups import GroupRule
from roost.model.resources import NumaMode
from roost.placement.domains import occupied_domains
from roost.placement.engine import NO_FIT, Engine
from roost.placement.rules.facts import amounts_of
from roost.placement.rules.lines import CAPACITY, FREE, VMS, Line
from roost.placement.rules.parts import hard_parts

#: A VM's candidates are its best hosts, up to so many; the bound that keeps the program small.
MOST_HOSTS = 256
#: CP-SAT's deterministic time, roughly seconds on an idle machine.
LIMIT = 10.0
#: Solutions that are tried while rules that are not in the program say no.
_MOST_TRIES = 32


@dataclass(frozen=True, slots=True)
class _Seat:
    """One way for a VM to sit on a host: the variable, and the devices and cells it takes."""

    row: int
    variable: Any
    devices: tuple[int, ...] = ()
    cells: tuple[int, ...] = ()


def search(
    engine: Engine, requests: Sequence[PlaceRequest], limit: float = LIMIT
) -> tuple[tuple[Placement, ...] | None, bool]:
    """Return placements for all, or None; and whether every possibility was considered."""
    model = cp_model.CpModel()
    program = _Program(engine, requests, model)
    if not all(program.seats):
        return None, program.complete
    program.add_capacity()
    program.add_groups()
    program.add_rules()
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.max_deterministic_time = limit
    for _ in range(_MOST_TRIES):
        status = solver.solve(model)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return None, program.complete and status == cp_model.INFEASIBLE
        found = program.placements(solver)
        if program.holds(found):
            return found, True
        program.exclude(solver)
    return None, False


class _Program:
    """The integer program of one group."""

    def __init__(
        self, engine: Engine, requests: Sequence[PlaceRequest], model: cp_model.CpModel
    ) -> None:
        self._engine = engine
        self._fleet = engine.fleet
        self._requests = requests
        self._model = model
        self.complete = True
        self.seats = [self._seats_of(index, request) for index, request in enumerate(requests)]
        for seats in self.seats:
            model.add_exactly_one(seat.variable for seat in seats)

    def _candidates(self, request: PlaceRequest) -> list[int]:
        # Groups are the program's business: the other members decide what they allow.
        scores = self._engine.scores(replace(request, groups=()))
        rows = np.flatnonzero(scores != NO_FIT)
        if len(rows) > MOST_HOSTS:
            self.complete = False
            rows = rows[np.argsort(scores[rows], kind="stable")[:MOST_HOSTS]]
        return rows.tolist()

    def _seats_of(self, index: int, request: PlaceRequest) -> list[_Seat]:
        seats: list[_Seat] = []
        for row in self._candidates(request):
            for devices in self._device_choices(request, row):
                for cells in self._cell_choices(request, row):
                    name = f"vm{index}_host{row}_{len(seats)}"
                    seats.append(_Seat(row, self._model.new_bool_var(name), devices, cells))
        return seats

    def _device_choices(self, request: PlaceRequest, row: int) -> list[tuple[int, ...]]:
        ask = request.demand.devices
        if ask is None:
            return [()]
        arrays = self._fleet.hosts.arrays
        mask = model_mask(self._fleet, ask.models)
        suitable = [
            device
            for device, free in enumerate(arrays.device_free[row].tolist())
            if free >= ask.milli
            and arrays.device_info[row, device, 1] >= ask.memory_bytes
            and (not mask or mask >> int(arrays.device_info[row, device, 0]) & 1)
            and (arrays.device_info[row, device, 2] or ask.milli == 1000)
        ]
        if ask.count == 1:
            return [(device,) for device in suitable]
        # Several devices: windows over the tightest ones, which is a bound, not every choice.
        suitable.sort(key=lambda device: (arrays.device_free[row, device], device))
        windows = len(suitable) - ask.count + 1
        if windows > 1:
            self.complete = False
        return [tuple(sorted(suitable[at : at + ask.count])) for at in range(windows)]

    def _cell_choices(self, request: PlaceRequest, row: int) -> list[tuple[int, ...]]:
        if request.demand.numa is NumaMode.ANY:
            return [()]
        cells = [
            c for c, free in enumerate(self._fleet.hosts.arrays.cell_free[row]) if free[0] >= 0
        ]
        if request.demand.numa is NumaMode.ONE_CELL:
            return [(cell,) for cell in cells]
        return [(first, second) for first in cells for second in cells if first < second]

    def add_capacity(self) -> None:
        """Let no host, device or cell hold more than it has headroom for."""
        loads: dict[tuple[object, ...], list[tuple[Any, int]]] = defaultdict(list)
        for request, seats in zip(self._requests, self.seats, strict=True):
            vector = self._fleet.vector(request.demand).tolist()
            for seat in seats:
                loads["slots", seat.row].append((seat.variable, 1))
                for resource, amount in enumerate(vector):
                    if amount:
                        loads["amount", seat.row, resource].append((seat.variable, amount))
                for device in seat.devices:
                    assert request.demand.devices is not None
                    loads["device", seat.row, device].append(
                        (seat.variable, request.demand.devices.milli)
                    )
                for position, cell in enumerate(seat.cells):
                    for part in (CPU, MEMORY):
                        share, rest = divmod(vector[part], len(seat.cells))
                        amount = share + (1 if position < rest else 0)
                        loads["cell", seat.row, cell, part].append((seat.variable, amount))
        for key, terms in loads.items():
            self._model.add(sum(var * amount for var, amount in terms) <= self._room(key))

    def _room(self, key: tuple[object, ...]) -> int:
        arrays = self._fleet.hosts.arrays
        match key:
            case ("slots", int(row)):
                return int(arrays.headroom[row, len(self._fleet.hosts.resources) + SLOTS])
            case ("amount", int(row), int(resource)):
                return int(arrays.headroom[row, resource])
            case ("device", int(row), int(device)):
                return int(arrays.device_free[row, device])
            case ("cell", int(row), int(cell), int(part)):
                return int(arrays.cell_free[row, cell, part])
        raise AssertionError(key)

    def add_groups(self) -> None:
        """Make every hard group rule hold for old and new members together."""
        members: dict[int, list[int]] = defaultdict(list)
        for index, request in enumerate(self._requests):
            number = self._fleet.groups.set_number(request.groups)
            for group in self._fleet.groups.set_members(number):
                if self._fleet.groups.specs[group].hard:
                    members[group].append(index)
        for group, indexes in members.items():
            self._add_group(group, indexes)

    def _add_group(self, group: int, indexes: list[int]) -> None:
        spec = self._fleet.groups.specs[group]
        domain_of = self._fleet.hosts.arrays.domain[:, spec.scope]
        before = occupied_domains(self._fleet, group)
        here: dict[int, list[Any]] = defaultdict(list)
        for index in indexes:
            for seat in self.seats[index]:
                domain = int(domain_of[seat.row])
                if domain < 0:
                    self._model.add(seat.variable == 0)
                else:
                    here[domain].append(seat.variable)
        match spec.rule:
            case GroupRule.ANTI_AFFINITY:
                for domain, variables in here.items():
                    self._model.add(sum(variables) + before.get(domain, 0) <= 1)
            case GroupRule.AFFINITY:
                self._add_affinity(here, before)
            case GroupRule.SPREAD:
                self._add_spread(group, indexes, here, before)

    def _add_affinity(self, here: dict[int, list[Any]], before: dict[int, int]) -> None:
        if before:
            for domain, variables in here.items():
                if not before.get(domain):
                    self._model.add(sum(variables) == 0)
            return
        # The first member chooses the domain and all others follow.
        chosen = {domain: self._model.new_bool_var(f"domain{domain}") for domain in here}
        self._model.add_exactly_one(chosen.values())
        for domain, variables in here.items():
            for variable in variables:
                self._model.add_implication(variable, chosen[domain])

    def _add_spread(
        self,
        group: int,
        indexes: list[int],
        here: dict[int, list[Any]],
        before: dict[int, int],
    ) -> None:
        spec = self._fleet.groups.specs[group]
        asked = self._engine.question(self._requests[indexes[0]])
        rows = self._fleet.present_rows()
        domain = self._fleet.hosts.arrays.domain[rows, spec.scope]
        eligible = np.unique(domain[asked.eligible(asked, rows) & (domain >= 0)]).tolist()
        least = self._model.new_int_var(0, 10**6, f"least{group}")
        for each in eligible:
            self._model.add(sum(here.get(each, [])) + before.get(each, 0) >= least)
        for each, variables in here.items():
            count = sum(variables) + before.get(each, 0)
            used = self._model.new_bool_var(f"used{group}_{each}")
            for variable in variables:
                self._model.add_implication(variable, used)
            self._model.add(count - least <= spec.max_skew).only_enforce_if(used)

    def add_rules(self) -> None:
        """Make what hard rules ask of amounts hold for each VM when those before it are there."""
        for index, request in enumerate(self._requests):
            for _, part in hard_parts(self._engine.terms_of(request)):
                for line in part.lines:
                    for seat in self.seats[index]:
                        self._add_line(index, seat, line)

    def _add_line(self, index: int, seat: _Seat, line: Line) -> None:
        rows = np.array([seat.row])
        now = 0
        for (source, resource), factor in line.terms:
            now += factor * int(amounts_of(self._fleet, source, resource, rows)[0])
        changes: list[Any] = []
        for earlier in range(index):
            amounts = dict(self._requests[earlier].demand.amounts())
            change = 0
            for (source, resource), factor in line.terms:
                if source == VMS:
                    change += factor
                elif source != CAPACITY:
                    sign = -1 if source == FREE else 1
                    change += sign * factor * amounts.get(resource, 0)
            if change:
                changes += [
                    other.variable * change
                    for other in self.seats[earlier]
                    if other.row == seat.row
                ]
        if changes:
            self._model.add(now + sum(changes) >= line.bound).only_enforce_if(seat.variable)

    def holds(self, found: tuple[Placement, ...]) -> bool:
        """Say whether every VM passes all filters when those before it are there."""
        engine, fleet = self._engine, self._fleet
        if not any(engine.is_restless(request) for request in self._requests):
            return True
        version, cursor = fleet.version, engine.cursor
        mark = fleet.mark()
        try:
            for request, placement in zip(self._requests, found, strict=True):
                # Groups look at all members at once, so the order may be wrong for them alone.
                scores = engine.scores(replace(request, groups=()))
                if scores[placement.host_row] == NO_FIT:
                    return False
                engine.commit(request, placement)
        finally:
            fleet.undo(mark)
            fleet.version, engine.cursor = version, cursor
        return True

    def exclude(self, solver: cp_model.CpSolver) -> None:
        """Leave a solution out that was none."""
        taken = [seat.variable for seats in self.seats for seat in seats]
        self._model.add_bool_or([each.negated() for each in taken if solver.value(each)])

    def placements(self, solver: cp_model.CpSolver) -> tuple[Placement, ...]:
        """Read the hosts off a solution."""
        found = []
        for request, seats in zip(self._requests, self.seats, strict=True):
            seat = next(seat for seat in seats if solver.value(seat.variable))
            found.append(
                Placement(
                    vm=request.name,
                    host=self._fleet.hosts.names[seat.row],
                    host_row=seat.row,
                    strategy=self._engine.strategy_of(request).name,
                    score=int(self._engine.scores(replace(request, groups=()))[seat.row]),
                    devices=seat.devices,
                    cells=seat.cells,
                    cursor=self._engine.cursor,
                )
            )
        return tuple(found)
