"""Find hosts for the units of a reservation, with the engine; and where or when it could be else.

A unit is asked for as a VM would be, on the fleet as it will be in the reservation's windows: hosts
where that depends on when hold so much less or more for the one decision. All hosts without holds
and without VMs that end are judged by their columns alone. It is asked on a copy, in a thread: with
many holds it takes long, and nothing else waits for it; the ledger compares what was found.

A unit goes where a VM of its project may go: the project's rules bind it, and its default policy.
What rules count of a project's VMs is left out, as that is only known of now.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from roost.control.memory.roster import Roster
from roost.ledger.claims.holdsums import FOREVER, Held, Living, Window, ends_filled, held_during
from roost.model.constraints import Constraints
from roost.model.flow import PlaceRequest
from roost.model.kept import Counters, counters_of
from roost.model.resources import Demand
from roost.placement.engine import Engine
from roost.placement.rules.lasting import without_counts
from roost.placement.verdicts import judge_hosts
from roost.placement.whatif import WhatIf

Windows = tuple[tuple[int, int], ...]

#: Other starts that are tried for one that cannot be honoured: the nearest, and some of the others.
_NEAREST, _FURTHER = 32, 16


@dataclass(frozen=True, slots=True)
class Wish:
    """What a reservation wants: so many units, where and when, for VMs of which project."""

    name: str
    demand: Demand
    units: int
    windows: tuple[Window, ...]
    constraints: Constraints
    project: str = ""
    policy: str = ""

    @property
    def request(self) -> PlaceRequest:
        """Return what the engine is asked for one unit."""
        return PlaceRequest(
            self.name,
            self.demand,
            self.constraints,
            strategy="best_fit",
            project=self.project,
            key=f"reservation:{self.name}",
            policy=self.policy,
        )

    @property
    def limits(self) -> tuple[int, int, int, int]:
        """Return what one unit keeps, in the order of `LIMITS`."""
        demand = self.demand
        return (demand.cpu_milli, demand.memory_bytes, demand.disk_bytes, 1)


class UnitPlace(NamedTuple):
    """Where a unit is kept: a host, by number, and what it takes of that host's counters."""

    host: int
    counters: Counters = ()


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Where or when a reservation could be honoured that cannot as it was asked for."""

    fits: int  # units that do fit
    start_ms: int | None = None  # the nearest start, earlier or later, at which all do
    anywhere: int | None = None  # units that fit without its restriction to hosts, zones, rule
    hosts: tuple[str, ...] = ()  # where all do, if anywhere: in its zones if there are such
    rules: tuple[tuple[str, int], ...] = ()  # hard rules, and on how many hosts they do not hold


@dataclass(frozen=True, slots=True)
class Board:
    """A copy of the fleet, and of what hosts hold, on which units are tried out."""

    engine: Engine
    holds: Mapping[int, Sequence[Held]]  # by host number
    living: Mapping[int, Sequence[Living]]
    rows: Mapping[int, int]  # of the fleet, by host number
    numbers: Mapping[int, int]  # of hosts, by row
    now_ms: int
    defaults: Mapping[str, str] = field(default_factory=dict)  # policies of projects

    @classmethod
    def of(cls, roster: Roster) -> "Board":
        """Return a copy of what a process knows now."""
        holdings = roster.holdings
        world = WhatIf.like(roster.engine)
        if world.reads_projects:
            world.set_rules(without_counts(world.rules), world.clock)
        return cls(
            world,
            {host: tuple(found.values()) for host, found in holdings.holds.items() if found},
            {host: tuple(found.values()) for host, found in holdings.living.items() if found},
            {number: entry.fleet_row for number, entry in roster.hosts.items()},
            {row: entry.number for row, entry in roster.by_fleet_row.items()},
            roster.wall_ms(),
            dict(roster.rulebook.defaults),
        )

    @contextmanager
    def as_of(self, windows: Windows) -> Iterator[None]:
        """Show the engine the fleet as it will be in some windows, and take that back."""
        fleet = self.engine.fleet
        mark = fleet.mark()
        try:
            for number in sorted({*self.holds, *self.living}):
                self.hold(number, windows, ())
            yield
        finally:
            fleet.undo(mark)

    def hold(self, number: int, windows: Windows, coming: Sequence[Held]) -> None:
        """Let a host hold what it will in some windows, and what is about to be held besides."""
        row = self.rows.get(number)
        if row is not None:
            holds = (*self.holds.get(number, ()), *coming)
            held = held_during(holds, self.living.get(number, ()), self.now_ms, windows)
            self.engine.fleet.keep_free(row, held)


def find_units(board: Board, wish: Wish) -> list[UnitPlace]:
    """Return places for as many units as fit, in the order in which they were found.

    Units of the same reservation that are placed already count as any other hold.
    """
    windows = ends_filled(wish.windows)
    found: list[UnitPlace] = []
    coming: dict[int, list[Held]] = {}
    request = wish.request
    with board.as_of(windows):
        for _ in range(wish.units):
            placement = board.engine.find(request)
            if placement is None:
                break
            number = board.numbers[placement.host_row]
            counters = counters_of(wish.demand, placement.devices, placement.cells)
            found.append(UnitPlace(number, counters))
            unit = Held(wish.name, wish.limits, windows, counters)
            coming.setdefault(number, []).append(unit)
            board.hold(number, windows, coming[number])
    return found


def look_elsewhere(board: Board, wish: Wish) -> Elsewhere:
    """Say how many units fit, when all would, and where they would without restriction."""
    fits, rules = len(find_units(board, wish)), _rules_in_the_way(board, wish)
    anywhere, hosts = _other_hosts(board, wish)
    for start in _starts(board, wish):
        if len(find_units(board, replace(wish, windows=_shifted(wish, start)))) == wish.units:
            return Elsewhere(fits, start, anywhere, hosts, rules)
    return Elsewhere(fits, None, anywhere, hosts, rules)


def _rules_in_the_way(board: Board, wish: Wish) -> tuple[tuple[str, int], ...]:
    """Return the hard rules that some host does not pass, and how many hosts do not pass each."""
    verdicts = judge_hosts(board.engine.question(wish.request))
    hosts: dict[str, set[int]] = {}
    for each, failed in zip(verdicts.filters, verdicts.failed, strict=True):
        if each.rule and failed.any():
            hosts.setdefault(each.rule, set()).update(failed.nonzero()[0].tolist())
    return tuple((rule, len(there)) for rule, there in hosts.items())


def _other_hosts(board: Board, wish: Wish) -> tuple[int | None, tuple[str, ...]]:
    """Return how many units fit on other hosts than those asked for, and on which if all do."""
    if wish.constraints == Constraints():
        return None, ()
    found: list[UnitPlace] = []
    for zones in dict.fromkeys((wish.constraints.zones, ())):  # in the same zones, or anywhere
        if (wider := Constraints(zones=zones)) != wish.constraints:
            found = find_units(board, replace(wish, constraints=wider))
            if len(found) == wish.units:
                names = board.engine.fleet.hosts.names
                return len(found), tuple(sorted({names[board.rows[e.host]] for e in found}))
    return len(found), ()


def _starts(board: Board, wish: Wish) -> list[int]:
    """Return other starts that are worth a try, the nearest first; of many further ones some.

    Room appears when something ends. Before a start that lies ahead there may also be room that
    ends when something else begins; that is of no use to one that recurs, or does not end.
    """
    (first, end), now = wish.windows[0], board.now_ms
    ends, starts = _changes(board)
    found = {each for each in ends if each > max(first, now)}
    if len(wish.windows) == 1 and end is not None and first > now:
        earlier = (now, *ends, *(each - (end - first) for each in starts))
        found.update(each for each in earlier if now <= each < first)
    by_distance = sorted(found, key=lambda each: (abs(each - first), each))
    nearest, further = by_distance[:_NEAREST], by_distance[_NEAREST:]
    step = max(1, -(-len(further) // _FURTHER))
    return nearest + further[::-step][::-1]  # the last is among them


def _shifted(wish: Wish, later: int) -> tuple[Window, ...]:
    by = later - wish.windows[0][0]
    return tuple((a + by, None if b is None else b + by) for a, b in wish.windows)


def _changes(board: Board) -> tuple[list[int], list[int]]:
    """Return when something ends that takes room, and when a hold begins, in ascending order."""
    ends: set[int] = set()
    starts: set[int] = set()
    for of_host in board.holds.values():
        for hold in of_host:
            starts.update(start for start, _ in hold.windows)
            ends.update(end for _, end in hold.windows if end < FOREVER)
    for alive in board.living.values():
        ends.update(each.until_ms for each in alive if each.until_ms < FOREVER)
    return sorted(ends), sorted(starts)
