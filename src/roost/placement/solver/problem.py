"""Equal VMs and equal hosts of a batch, taken together: what an exact search has to decide.

VMs that ask for the same are a class with a number of members. Hosts with the same free amounts,
devices and cells, on which the same classes may be, whose fault domains mean the same to the
groups of the batch, are a class, too: of it no more hosts are looked at than VMs could be there.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from roost.fleet.fleet import Fleet
from roost.fleet.layout import SLOTS, BoolArray, Int64Array
from roost.model.flow import PlaceRequest
from roost.model.hosts import Scope
from roost.placement.domains import members_by_domain
from roost.placement.engine import Engine
from roost.placement.rules.facts import amounts_of
from roost.placement.rules.lines import Line
from roost.placement.rules.parts import hard_parts


@dataclass(frozen=True, slots=True)
class VMClass:
    """VMs that ask for the same: where they are in the batch, and what binds them besides."""

    request: PlaceRequest
    members: tuple[int, ...]
    demand: Int64Array
    groups: tuple[int, ...]  # hard ones, by number
    lines: tuple[tuple[str, Line], ...]  # what rules ask of amounts, with the rule's name

    @property
    def count(self) -> int:
        """Return how many there are."""
        return len(self.members)


def classes_of(engine: Engine, requests: Sequence[PlaceRequest]) -> list[VMClass]:
    """Return the classes of a batch, in the order in which their VMs take their places.

    Those that a rule about amounts binds come first: it is asked beside those before.
    """
    fleet = engine.fleet
    members: dict[object, list[int]] = defaultdict(list)
    for index, request in enumerate(requests):
        groups = fleet.groups.set_number(request.groups)
        key = (request.demand, engine.terms_number(request), groups, request.project)
        members[key].append(index)
    found = []
    for indexes in members.values():
        request = requests[indexes[0]]
        number = fleet.groups.set_number(request.groups)
        hard = [g for g in fleet.groups.set_members(number) if fleet.groups.specs[g].hard]
        lines = tuple(
            (rule.name, line)
            for rule, part in hard_parts(engine.terms_of(request))
            for line in part.lines
        )
        vector = fleet.vector(request.demand)
        found.append(VMClass(request, tuple(indexes), vector, tuple(hard), lines))
    return sorted(found, key=lambda each: (not each.lines, each.members[0]))


def kept_hosts(
    fleet: Fleet, classes: Sequence[VMClass], possible: BoolArray, marks: Int64Array
) -> list[list[int]]:
    """Return the hosts that an exact search looks at, those that are equal together.

    `possible` says for [class, host] whether a VM may be there by itself; `marks` are more columns
    [host, mark] in which equal hosts must be equal.
    """
    rows = np.flatnonzero(possible.any(axis=0))
    if not len(rows):
        return []
    arrays = fleet.hosts.arrays
    columns = [arrays.headroom[rows], marks[rows]]
    columns += [
        np.asarray(each[rows], np.int64).reshape(len(rows), -1)
        for each in (arrays.device_free, arrays.device_info, arrays.cell_free)
    ]
    columns.append(np.packbits(possible[:, rows], axis=0).T.astype(np.int64))
    for group in sorted({each for vm in classes for each in vm.groups}):
        columns.append(_domains(fleet, group, rows)[:, None])
    for line in {line for vm in classes for _, line in vm.lines}:
        columns.append(value_of(fleet, line, rows)[:, None])
    _, which = np.unique(np.hstack(columns), axis=0, return_inverse=True)
    which = which.reshape(-1)
    counts = np.array([vm.count for vm in classes])
    kept: dict[int, list[int]] = {}
    for row, number in zip(rows.tolist(), which.tolist(), strict=True):
        equal = kept.setdefault(number, [])
        if len(equal) < int(counts[possible[:, row]].sum()):
            equal.append(row)
    return list(kept.values())


def _domains(fleet: Fleet, group: int, rows: Int64Array) -> Int64Array:
    """Return what hosts' fault domains mean to a group: hosts of one scope are alike if as full."""
    scope = fleet.groups.specs[group].scope
    domain: Int64Array = fleet.hosts.arrays.domain[rows, scope].astype(np.int64)
    if scope is not Scope.HOST:
        return domain
    members = members_by_domain(fleet, group, scope)
    return np.array([members.get(each, 0) for each in domain.tolist()], np.int64)


def value_of(fleet: Fleet, line: Line, rows: Int64Array) -> Int64Array:
    """Return the left side of an inequality about amounts on hosts as they are."""
    total = np.zeros(len(rows), np.int64)
    for (source, resource), factor in line.terms:
        total += factor * amounts_of(fleet, source, resource, rows)
    return total


def fit_alone(fleet: Fleet, vm: VMClass, rows: Int64Array) -> Int64Array:
    """Return how many VMs of a class each host has amounts and slots for."""
    headroom = fleet.hosts.arrays.headroom[rows]
    most = np.minimum(headroom[:, len(fleet.hosts.resources) + SLOTS], vm.count)
    for resource, amount in enumerate(vm.demand.tolist()):
        if amount:
            most = np.minimum(most, headroom[:, resource] // amount)
    found: Int64Array = np.maximum(most, 0)
    return found


def narrowed(fleet: Fleet, classes: Sequence[VMClass], possible: BoolArray, most: int) -> BoolArray:
    """Return fewer hosts for every class: those that few others could use, `most` and some.

    Classes with the fewest hosts choose first, and what was chosen is chosen less by the others. A
    class of a group gets as many in each of the group's fault domains.
    """
    counts = np.array([vm.count for vm in classes], np.float64)
    wanted = counts @ possible
    chosen = np.zeros_like(possible)
    for number in np.argsort(possible.sum(axis=1), kind="stable").tolist():
        vm = classes[number]
        rows = np.flatnonzero(possible[number])
        size = most + 2 * vm.count
        for some in _by_domain(fleet, vm, rows):
            best = some[np.argsort(wanted[some], kind="stable")[:size]]
            chosen[number, best] = True
            wanted[best] += vm.count / len(best) * len(classes)
    return chosen


def _by_domain(fleet: Fleet, vm: VMClass, rows: Int64Array) -> list[Int64Array]:
    """Return hosts by fault domain of the first group of a class that is about such."""
    for group in vm.groups:
        scope = fleet.groups.specs[group].scope
        if scope is not Scope.HOST:
            domain = fleet.hosts.arrays.domain[rows, scope]
            return [rows[domain == each] for each in np.unique(domain)]
    return [rows]
