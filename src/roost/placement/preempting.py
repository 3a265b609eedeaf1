"""Preemption, pure: which VMs should make room for a request that fits nowhere.

Asked are the hosts that pass every filter but those of amounts. On each, VMs of strictly lower
priority may leave: moved where the engine finds them another host, stopped where their owner allows
it, and never more at once than the disruption budgets of their groups have left. Of all sets that
make room the least harmful is chosen, in this order:

    the highest priority in it    as low as can be
    how many VMs                  as few as can be
    how many are stopped          rather moved
    memory and disk               the cheapest to move
    since when they are there     the youngest

The choice is exact where a host has at most `MOST_ON_HOST` VMs of lower priority; beyond that, and
where too many sets would have to be tried, no VM is chosen that could stay. Requests for devices or
NUMA cells, or under rules that read amounts, are tried on the fleet itself: on at most `MOST_TRIED`
hosts, and then a set is minimal rather than least. Whatever is proposed was asked of the engine's
own filters, with the VMs gone. Nothing changes here.

The work has a bound, whatever budgets and rules there are: who passes it is told that nobody was
found. It may still take a second on a large fleet, so planes ask on a copy, in a thread.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from roost.fleet.fleet import Fleet
from roost.fleet.layout import BASE, DISK, MEMORY, SLOTS, BoolArray, Int64Array
from roost.fleet.vms import STAYS, STOPS
from roost.model.flow import PlaceRequest
from roost.model.reasons import RESOURCE_REASONS, Reason
from roost.model.resources import NumaMode
from roost.placement.engine import Engine
from roost.placement.kernels.running import running
from roost.placement.kernels.victims import (
    F_BUDGET,
    F_COST,
    F_PRIORITY,
    F_SINCE,
    F_STOPS,
    FACTS,
    H_COUNT,
    HARM,
    MOST_HARM,
    MOST_ON_HOST,
    Choice,
    Crowd,
    deal,
    least_victims,
)
from roost.placement.registry import FILTERS
from roost.placement.rules.parts import How, hard_parts

#: Hosts that a request is tried on which amounts alone do not decide.
MOST_TRIED = 64
#: Hosts of these that would do, of which the least harmful is taken.
_MOST_FITTING = 4
#: VMs of a set that it is asked of whether they could stay.
_MOST_LEFT_OUT = 64
#: Times that the kernel is asked because a filter did not accept its choice.
_MOST_TURNS = 64
#: VMs that are looked at in all these turns, beside those of the first.
_MOST_SEEN = 1 << 20
#: Kinds of VMs of which it is asked whether another host would take them; the rest stay or stop.
MOST_KINDS = 256
_RULES = frozenset({Reason.RULE, Reason.RULE_ERROR})
_NOWHERE, _ANYWHERE = -1, -2
_MIX = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class Victim:
    """A VM that makes room: its number in the fleet, and whether it is stopped or moved."""

    number: int
    stops: bool


@dataclass(frozen=True, slots=True)
class MadeRoom:
    """The host on which room would be made, and by whom."""

    row: int
    victims: tuple[Victim, ...]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a choice must keep to, besides priorities.

    `left` says how many more members of a group may be disrupted; groups without a budget are not
    there. `never` are VMs that may not leave, `settled` those that no other host takes.
    """

    left: Mapping[int, int] = field(default_factory=dict)  # by the group's number
    never: frozenset[int] = frozenset()
    settled: frozenset[int] = frozenset()
    never_rows: frozenset[int] = frozenset()


NO_LIMITS = Limits()


def make_room(engine: Engine, request: PlaceRequest, limits: Limits = NO_LIMITS) -> MadeRoom | None:
    """Return the least harmful way to make room for a request; None when there is none."""
    fleet = engine.fleet
    eligible = _eligible(engine, request, limits)
    numbers = _lower(fleet, request.priority, eligible, limits)
    if not len(numbers):
        return None
    stops = _who_stops(engine, numbers, limits)
    kept = stops >= 0
    numbers, stops = numbers[kept], stops[kept]
    if not len(numbers):
        return None
    if _by_amounts(engine, request):
        return _by_kernel(engine, request, numbers, stops, limits)
    return _by_trying(engine, request, numbers, stops, limits)


def fits_on(engine: Engine, request: PlaceRequest, row: int) -> bool:
    """Ask every filter about one host, as the fleet is now."""
    question, rows = engine.question(request), np.array([row], np.int64)
    return all(bool(f.column(question, rows)[0]) for f in FILTERS if f.applies(question))


def without(fleet: Fleet, numbers: Iterable[int], ask: Callable[[], bool]) -> bool:
    """Ask a question about the fleet without some VMs; nothing stays different."""
    mark, version = fleet.mark(), fleet.version
    try:
        for number in numbers:
            fleet.remove(number)
        return ask()
    finally:
        fleet.undo(mark)
        fleet.version = version


# Which hosts and which VMs


def _by_amounts(engine: Engine, request: PlaceRequest) -> bool:
    """Say whether room is a matter of amounts alone once all other filters have passed."""
    demand = request.demand
    if demand.devices is not None or demand.numa is not NumaMode.ANY:
        return False
    return not _reads_amounts(engine, request)


def _reads_amounts(engine: Engine, request: PlaceRequest) -> bool:
    if not engine.rules:
        return False
    return any(part.how is not How.KEPT for _, part in hard_parts(engine.terms_of(request)))


def _eligible(engine: Engine, request: PlaceRequest, limits: Limits) -> BoolArray:
    """Return which rows pass every filter but those that VMs which leave may change."""
    fleet, question = engine.fleet, engine.question(request)
    skipped = RESOURCE_REASONS | (_RULES if _reads_amounts(engine, request) else frozenset())
    rows = fleet.present_rows()
    for each in FILTERS:
        if each.reason not in skipped and each.applies(question):
            rows = rows[each.column(question, rows)]
    passes = np.zeros(fleet.hosts.count, np.bool_)
    passes[rows] = True
    passes[list(limits.never_rows)] = False
    return passes


def _lower(fleet: Fleet, priority: int, eligible: BoolArray, limits: Limits) -> Int64Array:
    """Return the VMs of lower priority on such hosts that may leave."""
    vms, count = fleet.vms, fleet.vms.count
    chosen = (vms.leaves[:count] != STAYS) & (vms.priority[:count] < priority)
    chosen &= vms.host[:count] >= 0
    numbers = np.flatnonzero(chosen)
    numbers = numbers[eligible[vms.host[numbers]]]
    spent = {group for group, left in limits.left.items() if left <= 0}
    if spent and len(numbers):
        sets = np.unique(vms.group_set[numbers])
        barred = [s for s in sets.tolist() if spent.intersection(fleet.groups.set_members(s))]
        numbers = numbers[~np.isin(vms.group_set[numbers], barred)]
    if limits.never:
        numbers = numbers[~np.isin(numbers, list(limits.never))]
    return numbers


def _who_stops(engine: Engine, numbers: Int64Array, limits: Limits) -> Int64Array:
    """Return of each VM 0 if another host would take it, 1 if it would be stopped, -1 if neither.

    VMs that ask for the same and are in no group are one kind: if no host takes one more of them,
    none of them can move; if one does, all others on other hosts can.
    """
    vms = engine.fleet.vms
    stops = np.where(vms.leaves[numbers] == STOPS, 1, -1).astype(np.int64)
    first, kind = _kinds(engine.fleet, numbers)
    target = np.full(len(first), _NOWHERE, np.int64)  # of each kind
    for each in np.argsort(-np.bincount(kind), kind="stable")[:MOST_KINDS].tolist():
        number = int(numbers[first[each]])
        if vms.group_set[number]:  # the only one of its kind
            target[each] = _ANYWHERE if _moves(engine, number) else _NOWHERE
        else:
            target[each] = engine.find_again(vms.demand[number], int(vms.terms[number]), 0)
    target_of, host = target[kind], vms.host[numbers]
    moves = (target_of != _NOWHERE) & (target_of != host)
    at_home = np.flatnonzero((target_of == host) & (target_of != _NOWHERE))
    answers: dict[int, bool] = {}
    for at, each in zip(at_home.tolist(), kind[at_home].tolist(), strict=True):
        if each not in answers:
            answers[each] = _moves(engine, int(numbers[at]))
        moves[at] = answers[each]
    if limits.settled:
        moves &= ~np.isin(numbers, list(limits.settled))
    stops[moves] = 0
    return stops


def _kinds(fleet: Fleet, numbers: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return a VM of each kind, and the kind of each VM; those in groups are one each.

    Kinds are told apart by a number made of what VMs ask for; should two ever share one, it is
    found out when a VM is moved.
    """
    vms = fleet.vms
    mixed = vms.terms[numbers].astype(np.uint64)
    for column in range(vms.demand.shape[1]):
        mixed = mixed * _MIX + vms.demand[numbers, column].astype(np.uint64)
    grouped = vms.group_set[numbers] != 0
    mixed = mixed * _MIX + np.where(grouped, numbers + 1, 0).astype(np.uint64)
    mixed ^= mixed >> np.uint64(29)
    _, first, kind = np.unique(mixed, return_index=True, return_inverse=True)
    return first, kind.reshape(-1)


def _moves(engine: Engine, number: int) -> bool:
    """Say whether another host than its own would take a VM, without it where it is."""
    fleet, vms = engine.fleet, engine.fleet.vms
    row, demand = int(vms.host[number]), vms.demand[number].copy()
    terms, group_set = int(vms.terms[number]), int(vms.group_set[number])
    mark, version = fleet.mark(), fleet.version
    try:
        fleet.remove(number)
        names = fleet.hosts.resources.values[:BASE]
        full = fleet.hosts.arrays.headroom[row, :BASE].tolist()
        fleet.pretend_free(
            row, {name: -max(0, int(n)) for name, n in zip(names, full, strict=True)}
        )
        return engine.find_again(demand, terms, group_set) not in (-1, row)
    finally:
        fleet.undo(mark)
        fleet.version = version


# Choosing


def _by_kernel(
    engine: Engine, request: PlaceRequest, numbers: Int64Array, stops: Int64Array, limits: Limits
) -> MadeRoom | None:
    """Choose by amounts; what the filters do not accept in the end is looked for elsewhere."""
    fleet = engine.fleet
    turns, most = 0, min(_MOST_TURNS, 1 + _MOST_SEEN // len(numbers))
    while len(numbers) and turns < most:
        crowd, order = _crowd(engine, request, numbers, stops, limits)
        choice = _choice(crowd.lacks.shape[1])
        running(least_victims)(crowd, choice)
        row = int(choice.host[0])
        if row < 0:
            return None
        chosen = order[choice.chosen[: int(choice.harm[H_COUNT])]]
        victims = [Victim(int(numbers[at]), bool(stops[at])) for at in chosen.tolist()]
        leaving = [victim.number for victim in victims]
        if without(fleet, leaving, lambda: fits_on(engine, request, row)):  # noqa: B023
            return MadeRoom(row, tuple(victims))
        # A filter that amounts do not tell all of: not on this host.
        stays = fleet.vms.host[numbers] != row
        numbers, stops = numbers[stays], stops[stays]
        turns += 1
    return None


def _crowd(
    engine: Engine, request: PlaceRequest, numbers: Int64Array, stops: Int64Array, limits: Limits
) -> tuple[Crowd, Int64Array]:
    """Return the VMs as the kernel takes them, host by host, and the order they are in there."""
    fleet, vms = engine.fleet, engine.fleet.vms
    priority, host = vms.priority[numbers], vms.host[numbers].astype(np.int64)
    order = np.zeros(len(numbers), np.int64)
    start = np.zeros(fleet.hosts.count + 1, np.int64)
    running(deal)(host, priority, order, start)
    width = len(fleet.hosts.resources)
    headroom = fleet.hosts.arrays.headroom[: fleet.hosts.count, : width + SLOTS + 1]
    wanted = np.append(fleet.vector(request.demand), 1)
    lacks = np.where(wanted > 0, wanted - headroom, 0)
    relief = np.ones((len(numbers), width + 1), np.int64)
    ordered = numbers[order]
    demand = vms.demand[ordered]
    relief[:, :width] = demand[:, :width]
    facts = np.zeros((len(numbers), FACTS), np.int64)
    facts[:, F_PRIORITY] = priority[order]
    facts[:, F_STOPS] = stops[order]
    facts[:, F_COST] = demand[:, MEMORY] + demand[:, DISK]
    facts[:, F_SINCE] = vms.since_ms[ordered]
    facts[:, F_BUDGET], budgets = _budgets_of(fleet, ordered, limits)
    allowed = np.array([*limits.left.values(), 0], np.int64)
    return Crowd(start, np.ascontiguousarray(lacks), relief, facts, budgets, allowed), order


def _budgets_of(fleet: Fleet, numbers: Int64Array, limits: Limits) -> tuple[Int64Array, Int64Array]:
    """Return of each VM its row in a table of budgets, or -1; and that table.

    Budgets are named by their place in `limits.left`. A budget that no set can break, as no more
    VMs are in it than may leave, is left out: most budgets of a large fleet cost nothing then.
    """
    if not limits.left:
        return np.full(len(numbers), -1, np.int64), np.full((1, 1), -1, np.int64)
    places = {group: place for place, group in enumerate(limits.left)}
    sets, at, count = np.unique(
        fleet.vms.group_set[numbers], return_inverse=True, return_counts=True
    )
    members: dict[int, int] = {}
    of_sets = [
        [group for group in fleet.groups.set_members(each) if group in places]
        for each in sets.tolist()
    ]
    for groups, of in zip(of_sets, count.tolist(), strict=True):
        for group in groups:
            members[group] = members.get(group, 0) + of
    rows: list[list[int]] = []
    row_of: list[int] = []
    for groups in of_sets:
        binding = [places[group] for group in groups if members[group] > limits.left[group]]
        row_of.append(len(rows) if binding else -1)
        if binding:
            rows.append(binding)
    table = np.full((max(1, len(rows)), max(1, *map(len, rows), 1)), -1, np.int64)
    for row, binding in enumerate(rows):
        table[row, : len(binding)] = binding
    return np.array(row_of, np.int64)[at.reshape(-1)], table


def _choice(columns: int) -> Choice:
    return Choice(
        np.full(1, -1, np.int64),
        np.full(HARM, MOST_HARM, np.int64),
        np.zeros(MOST_ON_HOST, np.int64),
        np.zeros(MOST_ON_HOST + 1, np.int64),
        np.zeros((MOST_ON_HOST + 1, columns), np.int64),
        np.zeros((MOST_ON_HOST + 1, columns), np.int64),
    )


def _by_trying(
    engine: Engine, request: PlaceRequest, numbers: Int64Array, stops: Int64Array, limits: Limits
) -> MadeRoom | None:
    """Try hosts one by one, those first that amounts alone speak for."""
    fleet, vms = engine.fleet, engine.fleet.vms
    best: tuple[tuple[int, ...], MadeRoom] | None = None
    fitting = 0
    for row, priority in _promising(engine, request, numbers)[:MOST_TRIED]:
        if fitting >= _MOST_FITTING or (best is not None and best[0][0] < priority):
            break  # what comes now can only do more harm, or was asked often enough
        here = np.flatnonzero(vms.host[numbers] == row)
        found = [Victim(int(numbers[at]), bool(stops[at])) for at in here.tolist()]
        found.sort(key=lambda victim: _harm(fleet, [victim]))
        found = _minimal(engine, request, row, found, limits)
        if not found:
            continue
        fitting += 1
        harm = _harm(fleet, found)
        if best is None or harm < best[0]:
            best = harm, MadeRoom(row, tuple(found))
    return None if best is None else best[1]


def _promising(engine: Engine, request: PlaceRequest, numbers: Int64Array) -> list[tuple[int, int]]:
    """Return the hosts where amounts would do, each with the priority that must leave at least.

    In the order of that priority, then of how many VMs up to it must leave.
    """
    fleet, vms = engine.fleet, engine.fleet.vms
    order = np.lexsort((vms.priority[numbers], vms.host[numbers]))
    ordered = numbers[order]
    host, priority = vms.host[ordered], vms.priority[ordered]
    rows, first, count = np.unique(host, return_index=True, return_counts=True)
    width = len(fleet.hosts.resources)
    wanted = fleet.vector(request.demand)[:width]
    lacks = np.where(wanted > 0, wanted - fleet.hosts.arrays.headroom[rows, :width], 0)
    left = vms.demand[ordered, :width].cumsum(axis=0)  # by all so far, of hosts before as well
    before = np.where(first[:, None] > 0, left[first - 1], 0)
    left -= np.repeat(before, count, axis=0)
    enough: BoolArray = np.all(left >= np.repeat(lacks, count, axis=0), axis=1)
    found = []
    for at, row in enumerate(rows.tolist()):
        begin = int(first[at])
        here = enough[begin : begin + int(count[at])]
        if here.any():
            place = int(here.argmax())
            found.append((int(priority[begin + place]), place, row))
    return [(row, least) for least, _, row in sorted(found)]


def _minimal(
    engine: Engine, request: PlaceRequest, row: int, found: list[Victim], limits: Limits
) -> list[Victim]:
    """Return a part of these VMs, the least harmful first, that makes room; empty if none.

    The others may all stay, and so may none of the part, as far as `_MOST_LEFT_OUT` are asked.
    """
    fleet = engine.fleet

    def enough(leaving: list[Victim]) -> bool:
        numbers = [victim.number for victim in leaving]
        return without(fleet, numbers, lambda: fits_on(engine, request, row))

    found = _within_budgets(fleet, found, limits)
    if not found or not enough(found):
        return []
    fewest, most = 1, len(found)  # so many of the first: `most` are enough
    while fewest < most:
        middle = (fewest + most) // 2
        fewest, most = (fewest, middle) if enough(found[:middle]) else (middle + 1, most)
    found = found[:most]
    for victim in found[: -_MOST_LEFT_OUT - 1 : -1]:  # the most harmful first
        rest = [each for each in found if each is not victim]
        if rest and enough(rest):
            found = rest
    return found


def _within_budgets(fleet: Fleet, found: list[Victim], limits: Limits) -> list[Victim]:
    """Return as many of these VMs as budgets allow to leave at once, the first first."""
    left, kept = dict(limits.left), []
    for victim in found:
        groups = fleet.groups.set_members(int(fleet.vms.group_set[victim.number]))
        of = [group for group in groups if group in left]
        if all(left[group] > 0 for group in of):
            kept.append(victim)
            for group in of:
                left[group] -= 1
    return kept


def _harm(fleet: Fleet, victims: Sequence[Victim]) -> tuple[int, ...]:
    """Return the harm of a set of VMs; less is better."""
    vms, numbers = fleet.vms, [victim.number for victim in victims]
    return (
        int(vms.priority[numbers].max()),
        len(victims),
        sum(victim.stops for victim in victims),
        int(vms.demand[numbers][:, [MEMORY, DISK]].sum()),
        -int(vms.since_ms[numbers].sum()),
    )
