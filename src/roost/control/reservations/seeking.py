"""Find hosts for the units of a reservation, with the engine; and where or when it could be else.

A unit is asked for as a VM would be, on the fleet as it will be in the reservation's windows: hosts
where that depends on when hold so much less or more for the one decision. All hosts without holds
and without VMs that end are judged by their columns alone. It is asked on a copy, in a thread: with
many holds it takes long, and nothing else waits for it; the ledger compares what was found.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from roost.control.memory.roster import Roster
from roost.ledger.holdsums import FOREVER, Held, Living, Window, ends_filled, held_during
from roost.model.constraints import Constraints
from roost.model.flow import PlaceRequest
from roost.model.resources import Demand
from roost.placement.engine import Engine
from roost.placement.whatif import WhatIf

Windows = tuple[tuple[int, int], ...]

#: Later starts that are tried for one that cannot be honoured.
_MOST_LATER = 32


@dataclass(frozen=True, slots=True)
class Wish:
    """What a reservation wants: so many units, where and when."""

    name: str
    demand: Demand
    units: int
    windows: tuple[Window, ...]
    constraints: Constraints

    @property
    def limits(self) -> tuple[int, int, int, int]:
        """Return what one unit keeps, in the order of `LIMITS`."""
        demand = self.demand
        return (demand.cpu_milli, demand.memory_bytes, demand.disk_bytes, 1)


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Where or when a reservation could be honoured that cannot as it was asked for."""

    fits: int  # units that do fit
    later_ms: int | None = None  # the next start at which all do
    anywhere: int | None = None  # units that fit without its restriction to hosts, zones, rule


@dataclass(frozen=True, slots=True)
class Board:
    """A copy of the fleet, and of what hosts hold, on which units are tried out."""

    engine: Engine
    holds: Mapping[int, Sequence[Held]]  # by host number
    living: Mapping[int, Sequence[Living]]
    rows: Mapping[int, int]  # of the fleet, by host number
    numbers: Mapping[int, int]  # of hosts, by row
    now_ms: int

    @classmethod
    def of(cls, roster: Roster) -> "Board":
        """Return a copy of what a process knows now."""
        holdings = roster.holdings
        return cls(
            WhatIf.like(roster.engine),
            {host: tuple(found.values()) for host, found in holdings.holds.items() if found},
            {host: tuple(found.values()) for host, found in holdings.living.items() if found},
            {number: entry.fleet_row for number, entry in roster.hosts.items()},
            {row: entry.number for row, entry in roster.by_fleet_row.items()},
            roster.wall_ms(),
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
            cpu, memory, disk, places = held
            self.engine.fleet.keep_free(row, (cpu, memory, disk, places))


def find_units(board: Board, wish: Wish) -> list[int]:
    """Return host numbers for as many units as fit, in the order in which they were placed.

    Units of the same reservation that are placed already count as any other hold.
    """
    windows = ends_filled(wish.windows)
    found: list[int] = []
    coming: dict[int, list[Held]] = {}
    request = PlaceRequest(
        wish.name,
        wish.demand,
        wish.constraints,
        strategy="best_fit",
        key=f"reservation:{wish.name}",
    )
    with board.as_of(windows):
        for _ in range(wish.units):
            placement = board.engine.find(request)
            if placement is None:
                break
            number = board.numbers[placement.host_row]
            found.append(number)
            coming.setdefault(number, []).append(Held(wish.name, wish.limits, windows))
            board.hold(number, windows, coming[number])
    return found


def look_elsewhere(board: Board, wish: Wish) -> Elsewhere:
    """Say how many units fit, from when on all would, and how many would without restriction."""
    fits = len(find_units(board, wish))
    free = replace(wish, constraints=Constraints())
    anywhere = len(find_units(board, free)) if wish.constraints != Constraints() else None
    first = wish.windows[0][0]
    for later in _ends(board, max(first, board.now_ms))[:_MOST_LATER]:
        if len(find_units(board, replace(wish, windows=_shifted(wish, later)))) == wish.units:
            return Elsewhere(fits, later, anywhere)
    return Elsewhere(fits, None, anywhere)


def _shifted(wish: Wish, later: int) -> tuple[Window, ...]:
    by = later - wish.windows[0][0]
    return tuple((a + by, None if b is None else b + by) for a, b in wish.windows)


def _ends(board: Board, after_ms: int) -> list[int]:
    """Return when something ends that takes room now, in ascending order."""
    found: set[int] = set()
    for of_host in board.holds.values():
        for hold in of_host:
            found.update(end for _, end in hold.windows if after_ms < end < FOREVER)
    for alive in board.living.values():
        found.update(each.until_ms for each in alive if after_ms < each.until_ms < FOREVER)
    return sorted(found)
