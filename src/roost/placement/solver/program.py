"""All-or-nothing as an integer program: how many VMs of each class sit where on each host.

Hosts hold what they have headroom for, device by device and cell by cell; hard groups hold for the
members that are there and the new ones together; what rules ask of amounts holds for each VM beside
those before it. Where something may be lifted, a literal says so, and only so many may be true.
Which of several equal hosts takes what is left to the solver, which finds such symmetries by
itself: told to fill them in order it was ten times slower.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from roost.fleet.layout import CPU, MEMORY, SLOTS, BoolArray
from roost.model.groups import GroupRule, GroupSpec
from roost.placement.domains import occupied_domains
from roost.placement.effort import Effort
from roost.placement.engine import Engine
from roost.placement.rules.lines import CAPACITY, FREE, TOTAL, VMS, Line
from roost.placement.solver.problem import VMClass, fit_alone, value_of
from roost.placement.solver.seats import Seat, seats_on

SOLVED, NONE, CUT_SHORT = "solved", "none", "cut short"


@dataclass(frozen=True, slots=True)
class Seated:
    """A variable: how many VMs of a class sit on a host so."""

    row: int
    variable: Any
    most: int
    devices: tuple[int, ...] = ()
    cells: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Lifts:
    """What may be lifted: a number for every restriction, and whom each keeps away from where.

    `blocked[class, restriction]` says for every host whether only lifting lets the class be there.
    """

    count: int
    blocked: Mapping[tuple[int, int], BoolArray] = field(default_factory=dict)
    rules: Mapping[str, int] = field(default_factory=dict)
    groups: Mapping[int, int] = field(default_factory=dict)
    most: int = 0  # that may be lifted at once


NO_LIFTS = Lifts(0)


class Program:
    """The integer program of one batch."""

    def __init__(
        self,
        engine: Engine,
        classes: Sequence[VMClass],
        hosts: Sequence[Sequence[int]],
        possible: BoolArray,
        lifts: Lifts = NO_LIFTS,
        *,
        with_lines: bool = True,
    ) -> None:
        self._engine, self._fleet, self._classes = engine, engine.fleet, classes
        self._model = cp_model.CpModel()
        self._solver = cp_model.CpSolver()
        self._lifts = lifts
        self._lifted = [self._model.new_bool_var("") for _ in range(lifts.count)]
        self.complete = True  # every way to sit on these hosts is among the seats
        self._seats = [
            list(self._seats_of(number, hosts, possible)) for number in range(len(classes))
        ]
        self._on_host: dict[int, list[tuple[int, Seated]]] = defaultdict(list)
        for number, seats in enumerate(self._seats):
            for seat in seats:
                self._on_host[seat.row].append((number, seat))
        self._add_all_placed()
        self._add_capacity()
        self._add_groups()
        self._add_blocked()
        if with_lines:
            self._add_lines()
        if lifts.count:
            self._model.add(_sum(self._lifted) <= lifts.most)

    # Variables

    def _seats_of(
        self, number: int, hosts: Sequence[Sequence[int]], possible: BoolArray
    ) -> Iterator[Seated]:
        vm = self._classes[number]
        rows = np.array([row for equal in hosts for row in equal if possible[number, row]], int)
        demand = vm.request.demand
        plain = demand.devices is None and demand.numa.value == "any"
        fits = fit_alone(self._fleet, vm, rows) if len(rows) else rows
        for row, room in zip(rows.tolist(), fits.tolist(), strict=True):
            if not room:
                continue
            seats: list[Seat] = [((), ())]
            if not plain:
                seats, complete = seats_on(self._fleet, vm.request, row)
                self.complete &= complete
            for devices, cells in seats:
                yield Seated(row, self._model.new_int_var(0, room, ""), room, devices, cells)

    def _add_all_placed(self) -> None:
        for vm, seats in zip(self._classes, self._seats, strict=True):
            self._model.add(_sum([each.variable for each in seats]) == vm.count)

    # Amounts

    def _add_capacity(self) -> None:
        """Let no host, device or cell hold more than it has headroom for."""
        loads: dict[tuple[Any, ...], list[tuple[Any, int]]] = defaultdict(list)
        for vm, seats in zip(self._classes, self._seats, strict=True):
            vector = vm.demand.tolist()
            for seat in seats:
                loads["slots", seat.row].append((seat.variable, 1))
                for resource, amount in enumerate(vector):
                    if amount:
                        loads["amount", seat.row, resource].append((seat.variable, amount))
                for device in seat.devices:
                    milli = vm.request.demand.devices.milli  # type: ignore[union-attr]
                    loads["device", seat.row, device].append((seat.variable, milli))
                for position, cell in enumerate(seat.cells):
                    for part in (CPU, MEMORY):
                        share, rest = divmod(vector[part], len(seat.cells))
                        amount = share + (1 if position < rest else 0)
                        loads["cell", seat.row, cell, part].append((seat.variable, amount))
        for key, terms in loads.items():
            # Bytes divided by what all of them have in common: the solver likes small numbers.
            whole = gcd(*(amount for _, amount in terms)) or 1
            weights = [amount // whole for _, amount in terms]
            total = _sum([variable for variable, _ in terms], weights)
            self._model.add(total <= self._room(key) // whole)

    def _room(self, key: tuple[Any, ...]) -> int:
        arrays = self._fleet.hosts.arrays
        match key:
            case ("slots", row):
                return int(arrays.headroom[row, len(self._fleet.hosts.resources) + SLOTS])
            case ("amount", row, resource):
                return int(arrays.headroom[row, resource])
            case ("device", row, device):
                return int(arrays.device_free[row, device])
            case ("cell", row, cell, part):
                return int(arrays.cell_free[row, cell, part])
        raise AssertionError(key)

    # Groups

    def _add_groups(self) -> None:
        """Make every hard group rule hold for old and new members together."""
        members: dict[int, list[int]] = defaultdict(list)
        for number, vm in enumerate(self._classes):
            for group in vm.groups:
                members[group].append(number)
        for group, numbers in members.items():
            self._add_group(group, numbers)

    def _add_group(self, group: int, numbers: list[int]) -> None:
        spec = self._fleet.groups.specs[group]
        kept = self._unless_lifted(self._lifts.groups.get(group))
        domain_of = self._fleet.hosts.arrays.domain[:, spec.scope]
        before = occupied_domains(self._fleet, group)
        here: dict[int, list[Seated]] = defaultdict(list)
        homeless: list[Any] = []
        for number in numbers:
            for seat in self._seats[number]:
                domain = int(domain_of[seat.row])
                if domain < 0:
                    homeless.append(seat.variable)
                else:
                    here[domain].append(seat)
        if homeless:
            self._add(_sum(homeless) == 0, kept)
        match spec.rule:
            case GroupRule.ANTI_AFFINITY:
                for domain, seats in here.items():
                    room = max(0, 1 - before.get(domain, 0))
                    self._add(_sum([each.variable for each in seats]) <= room, kept)
            case GroupRule.AFFINITY:
                self._add_affinity(here, before, kept)
            case GroupRule.SPREAD:
                self._add_spread(spec, numbers[0], here, before, kept)

    def _add_affinity(
        self, here: dict[int, list[Seated]], before: dict[int, int], kept: list[Any]
    ) -> None:
        if before:
            others = [s.variable for d, seats in here.items() if not before.get(d) for s in seats]
            if others:
                self._add(_sum(others) == 0, kept)
            return
        # The first member chooses the domain and all others follow.
        chosen = {domain: self._model.new_bool_var("") for domain in here}
        self._add(_sum(list(chosen.values())) == 1, kept)
        for domain, seats in here.items():
            total = _sum([each.variable for each in seats])
            self._add(total == 0, [*kept, chosen[domain].negated()])

    def _add_spread(
        self,
        spec: GroupSpec,
        first: int,
        here: dict[int, list[Seated]],
        before: dict[int, int],
        kept: list[Any],
    ) -> None:
        asked = self._engine.question(self._classes[first].request)
        rows = self._fleet.present_rows()
        domain = self._fleet.hosts.arrays.domain[rows, spec.scope]
        eligible = np.unique(domain[asked.eligible(asked, rows) & (domain >= 0)]).tolist()
        most = sum(vm.count for vm in self._classes) + max(before.values(), default=0)
        least = self._model.new_int_var(0, most, "")
        for each in eligible:
            seats = here.get(each, [])
            self._add(_sum([s.variable for s in seats]) + before.get(each, 0) >= least, kept)
        for each, seats in here.items():
            total = _sum([s.variable for s in seats])
            used = self._model.new_bool_var("")
            self._add(total == 0, [*kept, used.negated()])
            self._add(total + before.get(each, 0) - least <= spec.max_skew, [*kept, used])

    # Rules

    def _add_blocked(self) -> None:
        """Let VMs be where a restriction keeps them away only if it is lifted."""
        for (number, restriction), away in self._lifts.blocked.items():
            seats = [each.variable for each in self._seats[number] if away[each.row]]
            if seats:
                room = self._classes[number].count
                self._model.add(_sum(seats) <= room * self._lifted[restriction])

    def _add_lines(self) -> None:
        """Make what hard rules ask of amounts hold for each VM when those before it are there."""
        if not any(vm.lines for vm in self._classes):
            return
        for row, seated in self._on_host.items():
            for number, vm in enumerate(self._classes):
                own = [seat.variable for other, seat in seated if other == number]
                if not own or not vm.lines:
                    continue
                there = self._model.new_bool_var("")
                self._model.add(_sum(own) == 0).only_enforce_if(there.negated())
                self._model.add(_sum(own) >= 1).only_enforce_if(there)
                for rule, line in vm.lines:
                    kept = [there, *self._unless_lifted(self._lifts.rules.get(rule))]
                    self._add_line(row, number, line, seated, kept)

    def _add_line(
        self,
        row: int,
        number: int,
        line: Line,
        seated: list[tuple[int, Seated]],
        kept: list[Any],
    ) -> None:
        total: Any = int(value_of(self._fleet, line, np.array([row]))[0])
        for other, seat in seated:
            change = change_by(line, self._classes[other])
            # Who makes it larger may come first: what was found is held against an order later on.
            if (other == number and change < 0) or (
                other != number and (other < number or change > 0)
            ):
                total += change * seat.variable
        if (change := change_by(line, self._classes[number])) < 0:
            total -= change
        self._add(total >= line.bound, kept)

    # Conditions

    def _unless_lifted(self, restriction: int | None) -> list[Any]:
        return [] if restriction is None else [self._lifted[restriction].negated()]

    def _add(self, condition: Any, kept: list[Any]) -> None:
        if isinstance(condition, bool | np.bool_):  # nothing in it depends on a variable
            if not condition:
                self._model.add_bool_or([each.negated() for each in kept])
            return
        added = self._model.add(condition)
        if kept:
            added.only_enforce_if(kept)

    # Solving

    def hint(self, placed: Mapping[tuple[int, int], int]) -> None:
        """Tell the solver where a try placed how many VMs, by class and host."""
        left = dict(placed)
        for number, seats in enumerate(self._seats):
            for seat in seats:
                count = min(left.get((number, seat.row), 0), seat.most)
                left[number, seat.row] = left.get((number, seat.row), 0) - count
                self._model.add_hint(seat.variable, count)

    def solve(self, effort: Effort) -> str:
        """Look for a solution until the effort is over."""
        effort.solving(self._solver.stop_search)  # before the look, so that no stop is missed
        if effort.is_over():
            return CUT_SHORT
        limit = effort.left
        self._solver.parameters.num_workers = 1
        self._solver.parameters.random_seed = 0
        self._solver.parameters.max_deterministic_time = limit
        # Not everything that it does is counted there: the wall clock has the last word.
        self._solver.parameters.max_time_in_seconds = effort.wall_left
        status = self._solver.solve(self._model)
        effort.solving(None)
        cut_short = status == cp_model.UNKNOWN
        effort.spend(limit if cut_short else self._solver.deterministic_time)
        if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return SOLVED
        return NONE if status == cp_model.INFEASIBLE else CUT_SHORT

    def counts(self) -> Iterator[tuple[int, Seated, int]]:
        """Yield class, seat and number of VMs of the solution."""
        for number, seats in enumerate(self._seats):
            for seat in seats:
                if count := self._solver.value(seat.variable):
                    yield number, seat, count

    def lifted(self) -> list[int]:
        """Return what the solution lifts."""
        return [at for at, each in enumerate(self._lifted) if self._solver.value(each)]

    def exclude(self) -> None:
        """Leave a solution out that was none."""
        different = []
        for seats in self._seats:
            for seat in seats:
                count = self._solver.value(seat.variable)
                if count:
                    fewer = self._model.new_bool_var("")
                    self._model.add(seat.variable < count).only_enforce_if(fewer)
                    different.append(fewer)
        self._model.add_bool_or(different)


def change_by(line: Line, vm: VMClass) -> int:
    """Return by how much one VM changes the left side of an inequality on its host."""
    amounts = dict(vm.request.demand.amounts())
    change = 0
    for (source, resource), factor in line.terms:
        if source == VMS:
            change += factor
        elif source not in (CAPACITY, TOTAL):
            change += (-1 if source == FREE else 1) * factor * amounts.get(resource, 0)
    return change


def _sum(variables: Sequence[Any], weights: Sequence[int] | None = None) -> Any:
    if weights is None:
        return cp_model.LinearExpr.sum(list(variables))
    return cp_model.LinearExpr.weighted_sum(list(variables), list(weights))
